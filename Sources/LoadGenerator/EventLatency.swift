internal import HTTP2Session
internal import Histogram
internal import LocalStack
internal import NIOCore
internal import NIOPosix
internal import Operations

/// One reader marks message after message of a channel, one at a time, and the sender's stream is told: how long until
/// the mark is answered, and until both of its events are there, `message.read` and `message.status`, of the sender's
/// message. Marker and stream are two connections on one event loop.
struct EventLatency: Sendable {
  /// What was measured, in nanoseconds.
  struct Outcome: Sendable {
    var answers = Histogram<UInt32>(
      highestTrackableValue: 60_000_000_000,
      numberOfSignificantValueDigits: .three
    )
    var events = Histogram<UInt32>(
      highestTrackableValue: 60_000_000_000,
      numberOfSignificantValueDigits: .three
    )
  }

  /// Between the events of one mark and the next mark: nothing of the one is left when the other is made.
  static let pauseNanoseconds: Int64 = 2_000_000
  /// A mark whose events do not come within this is an error, in seconds.
  static let eventTimeout: Int64 = 10

  var cid: String
  /// The messages' ids are this and their numbers from 1.
  var messagePrefix: String
  var messageCount: Int
  var sender: String
  var reader: String
  var readerToken: String
  /// Seconds after which no other mark is made.
  var seconds: Double

  /// Marks that fit into so many seconds at most.
  static func marksMax(seconds: Double) -> Int { max(1, Int(seconds * 1e9) / Int(pauseNanoseconds)) }

  /// - Parameter streams: one, the sender's.
  func run(_ streams: EventStreams, at endpoint: Endpoint, on eventLoop: any EventLoop) async throws
    -> Outcome
  {
    let resources = try await eventLoop.submit {
      NIOLoopBound(HTTP2ClientResources(), eventLoop: eventLoop)
    }.get()
    let listening = try await streams.listen { promise in
      let run = EventLatencyRun(self, promise, eventLoop: eventLoop, authority: "\(endpoint)")
      let bound = NIOLoopBound(run, eventLoop: eventLoop)
      let connected = ClientBootstrap(group: eventLoop)
        .connectTimeout(.seconds(10))
        .channelOption(ChannelOptions.tcpOption(.tcp_nodelay), value: 1)
        .channelInitializer { channel in
          channel.eventLoop.makeCompletedFuture {
            try channel.pipeline.syncOperations.addHandler(
              HTTP2ClientConnection(delegate: bound.value, resources: resources.value)
            )
          }
        }
        .connect(host: endpoint.host, port: endpoint.port)
      connected.whenFailure {
        promise.fail(LoadError("\(endpoint): no connection: \(HTTP2Caller.reason($0))"))
      }
      promise.futureResult.whenComplete { _ in
        connected.whenSuccess { $0.close(promise: nil) }
        bound.value.end()
      }
      return run
    }
    return try await listening.outcome()
  }
}

/// The marker's connection, and who is told of the events of its marks.
final class EventLatencyRun: EventSink, HTTP2ClientDelegate {
  private let plan: EventLatency
  private let promise: EventLoopPromise<EventLatency.Outcome>
  private let eventLoop: any EventLoop
  private let template: HTTP2RequestTemplate
  private var http: HTTP2ClientConnection<EventLatencyRun>?
  private var watchdog: Scheduled<Void>?
  private var outcome = EventLatency.Outcome()
  private var endsAt: UInt64 = 0

  /// Of the mark under way: the message's number, and what it still waits for.
  private var number = 0
  private var startedAt: UInt64 = 0
  private var awaited: Awaited = []

  private struct Awaited: OptionSet {
    let rawValue: UInt8
    static let answer = Awaited(rawValue: 1)
    static let read = Awaited(rawValue: 2)
    static let status = Awaited(rawValue: 4)
    static let events: Awaited = [.read, .status]
  }

  init(
    _ plan: EventLatency,
    _ promise: EventLoopPromise<EventLatency.Outcome>,
    eventLoop: any EventLoop,
    authority: String
  ) {
    self.plan = plan
    self.promise = promise
    self.eventLoop = eventLoop
    template = HTTP2RequestTemplate(
      method: .post,
      scheme: "http",
      authority: authority,
      authorization: "Bearer \(plan.readerToken)"
    )
  }

  func end() {
    watchdog?.cancel()
    http = nil
  }

  // MARK: Marks

  func http2ConnectionReady(_ connection: HTTP2ClientConnection<EventLatencyRun>) {
    http = connection
    endsAt = MonotonicClock.now + UInt64(plan.seconds * 1e9)
    mark()
  }

  private func mark() {
    guard let http else { return }
    number += 1
    awaited = [.answer, .read, .status]
    let path = "/v1/channels/\(plan.cid)/read?message_id=\(plan.messagePrefix)\(number)"
    startedAt = MonotonicClock.now
    guard http.submit(template, path: path, token: UInt64(number)) != nil else {
      return promise.fail(LoadError("the marker's connection takes no more requests"))
    }
    http.flushIfNeeded()
    watchdog?.cancel()
    let bound = NIOLoopBound(self, eventLoop: eventLoop)
    watchdog = eventLoop.scheduleTask(in: .seconds(EventLatency.eventTimeout)) {
      let run = bound.value
      run.promise.fail(
        LoadError(
          "mark \(run.number): after \(EventLatency.eventTimeout) s not all of its answer and events had come"
        )
      )
    }
  }

  private func came(_ what: Awaited) {
    awaited.remove(what)
    guard awaited.isEmpty else { return }
    let isLast = number >= plan.messageCount || MonotonicClock.now >= endsAt
    if isLast { return promise.succeed(outcome) }
    let bound = NIOLoopBound(self, eventLoop: eventLoop)
    eventLoop.scheduleTask(in: .nanoseconds(EventLatency.pauseNanoseconds)) { bound.value.mark() }
  }

  func http2ResponseReceived(
    token: UInt64,
    response: borrowing HTTP2ClientResponse,
    on connection: HTTP2ClientConnection<EventLatencyRun>
  ) {
    let now = MonotonicClock.now
    guard response.status == 200, awaited.contains(.answer) else {
      return promise.fail(LoadError("mark \(number) was answered \(response.status)"))
    }
    outcome.answers.record(now - startedAt)
    came(.answer)
  }

  func http2StreamFailed(
    token: UInt64,
    errorCode: UInt32,
    on connection: HTTP2ClientConnection<EventLatencyRun>
  ) {
    promise.fail(LoadError("mark \(number) was ended by HTTP/2 error \(errorCode)"))
  }

  func http2ConnectionClosed(_ connection: HTTP2ClientConnection<EventLatencyRun>) {
    promise.fail(LoadError("the marker's connection was closed"))
  }

  // MARK: Events

  func received(_ event: EventBlock, stream: Int, now: UInt64) throws(LoadError) {
    let kind: Awaited
    let isRight: Bool
    if event.isType("message.read") {
      kind = .read
      isRight =
        event.text(after: #""user":{"id":""#)?.equals(plan.reader) == true
        && event.number(after: #""last_read_seq":"#) == number
    } else if event.isType("message.status") {
      kind = .status
      isRight =
        event.text(after: #""user":{"id":""#)?.equals(plan.sender) == true
        && event.number(after: #""from_seq":"#) == number && event.number(after: #""to_seq":"#) == number
        && event.text(after: #""status":""#)?.equals("read") == true
    } else {
      throw LoadError("mark \(number): an event that it does not cause: \(event.summary)")
    }
    guard isRight, event.text(after: #""cid":""#)?.equals(plan.cid) == true, awaited.contains(kind) else {
      throw LoadError("mark \(number): not its event, or once too often: \(event.summary)")
    }
    if awaited.isDisjoint(with: Awaited.events.subtracting(kind)) { outcome.events.record(now - startedAt) }
    came(kind)
  }

  func failed(_ error: LoadError) { promise.fail(error) }
}
