internal import HTTP2Session
internal import NIOCore
internal import Operations

/// Latency of events: a reader marks message after message read, one at a time, and the sender's stream receives both
/// events of each mark, `message.read` and `message.status`. Marker and stream are two connections on one event loop.
struct EventLatency: Sendable {
  /// Latencies of the responses to marks, and of the later one of each mark's two events.
  struct Outcome: Sendable {
    var responses = Latencies()
    var events = Latencies()
  }

  /// Pause between the events of a mark and the next mark, so that marks do not overlap.
  static let pauseNanoseconds: Int64 = 2_000_000
  /// Timeout in seconds of a mark's answer and events.
  static let eventTimeout: Int64 = 10

  var cid: String
  /// Message ids are this prefix and a number from 1.
  var messagePrefix: String
  var messageCount: Int
  var sender: String
  var reader: String
  var readerToken: String
  /// Seconds after which no further mark is made.
  var seconds: Double

  /// Return the upper bound of the marks in a time.
  static func marksMax(seconds: Double) -> Int { max(1, Int(seconds * 1e9) / Int(pauseNanoseconds)) }

  /// - Parameter streams: the sender's stream.
  func run(_ streams: EventLoadStreams, at endpoint: Endpoint, on eventLoop: any EventLoop) async throws -> Outcome {
    let listening = try await streams.listen { promise in
      let run = EventLatencyRun(self, promise, eventLoop: eventLoop, authority: "\(endpoint)")
      let bound = NIOLoopBound(run, eventLoop: eventLoop)
      let connected = BenchConnection.connect(to: endpoint, on: eventLoop) { _ in
        (bound.value, HTTP2ClientResources())
      }
      connected.whenFailure { promise.fail($0) }
      promise.futureResult.whenComplete { _ in
        connected.whenSuccess { $0.close(promise: nil) }
        bound.value.end()
      }
      return run
    }
    return try await listening.outcome()
  }
}

/// Connection that makes the marks, and receiver of their events.
final class EventLatencyRun: EventSink, HTTP2ClientDelegate {
  private let plan: EventLatency
  private let promise: EventLoopPromise<EventLatency.Outcome>
  private let eventLoop: any EventLoop
  private let template: HTTP2RequestTemplate
  private var http: HTTP2ClientConnection<EventLatencyRun>?
  private var watchdog: Scheduled<Void>?
  private var outcome = EventLatency.Outcome()
  private var endsAt: UInt64 = 0

  /// Message number of the mark in flight, and the replies and events that it waits for.
  private var number = 0
  private var startedAt: UInt64 = 0
  private var awaited: Awaited = []

  private struct Awaited: OptionSet {
    let rawValue: UInt8
    static let response = Awaited(rawValue: 1)
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
    awaited = [.response, .read, .status]
    let path = "/v1/channels/\(plan.cid)/read?message_id=\(plan.messagePrefix)\(number)"
    startedAt = MonotonicClock.now
    guard http.submit(template, path: path, tag: UInt64(number)) != nil else {
      return promise.fail(LoadError("the marker's connection accepts no more requests"))
    }
    http.flushIfNeeded()
    watchdog?.cancel()
    let bound = NIOLoopBound(self, eventLoop: eventLoop)
    watchdog = eventLoop.scheduleTask(in: .seconds(EventLatency.eventTimeout)) {
      let run = bound.value
      run.promise.fail(
        LoadError(
          "mark \(run.number): timed out after \(EventLatency.eventTimeout) s waiting for its answer and events"
        )
      )
    }
  }

  private func completed(_ what: Awaited) {
    awaited.remove(what)
    guard awaited.isEmpty else { return }
    let isLast = number >= plan.messageCount || MonotonicClock.now >= endsAt
    if isLast { return promise.succeed(outcome) }
    let bound = NIOLoopBound(self, eventLoop: eventLoop)
    eventLoop.scheduleTask(in: .nanoseconds(EventLatency.pauseNanoseconds)) { bound.value.mark() }
  }

  func http2ResponseReceived(
    tag: UInt64,
    response: borrowing HTTP2ClientResponse,
    on connection: HTTP2ClientConnection<EventLatencyRun>
  ) {
    let now = MonotonicClock.now
    guard response.status == 200, awaited.contains(.response) else {
      return promise.fail(LoadError("mark \(number) was answered \(response.status)"))
    }
    outcome.responses.record(nanoseconds: now - startedAt)
    completed(.response)
  }

  func http2StreamFailed(tag: UInt64, errorCode: UInt32, on connection: HTTP2ClientConnection<EventLatencyRun>) {
    promise.fail(LoadError("mark \(number) failed with HTTP/2 error \(errorCode)"))
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
      throw LoadError("mark \(number): unexpected event: \(event.summary)")
    }
    guard isRight, event.text(after: #""cid":""#)?.equals(plan.cid) == true, awaited.contains(kind) else {
      throw LoadError("mark \(number): wrong or duplicate event: \(event.summary)")
    }
    if awaited.isDisjoint(with: Awaited.events.subtracting(kind)) {
      outcome.events.record(nanoseconds: now - startedAt)
    }
    completed(kind)
  }

  func failed(_ error: LoadError) { promise.fail(error) }
}

/// Positions that the first member's stream reports while the members of a ``GatewayBench`` make marks. The gateway
/// merges the events of a slow client, so a mark may have no event of its own; but positions never fall, and the last
/// ones are those that were acknowledged.
final class EventPositions: EventSink {
  struct Outcome: Sendable, Equatable {
    /// Received events.
    var count: Int
  }

  private let names: BenchNames
  private let promise: EventLoopPromise<Outcome>
  private let eventLoop: any EventLoop
  private var count = 0
  /// Positions by member, then by channel.
  private var positions: [[Int]]
  /// Final positions; nil while marks are made.
  private var expected: [[Int]]?

  init(
    _ names: BenchNames,
    members: Int,
    channels: Int,
    _ promise: EventLoopPromise<Outcome>,
    eventLoop: any EventLoop
  ) {
    self.names = names
    self.promise = promise
    self.eventLoop = eventLoop
    positions = Array(repeating: Array(repeating: 0, count: channels), count: members)
  }

  func received(_ event: EventBlock, stream: Int, now: UInt64) throws(LoadError) {
    if event.isType("notification.mark_read"), event.text(after: #""user":{"id":""#)?.equals(names.user(0)) == true {
      count += 1
      return
    }
    guard event.isType("message.read"), let channel = event.text(after: #""cid":""#)?.trailingNumber,
      let member = event.text(after: #""user":{"id":""#)?.trailingNumber,
      let position = event.number(after: #""last_read_seq":"#), positions.indices.contains(member),
      positions[member].indices.contains(channel),
      event.text(after: #""cid":""#)?.equals(names.channel(channel)) == true
    else { throw LoadError("an unexpected event: \(event.summary)") }
    // A row may be repeated unchanged.
    guard position >= positions[member][channel] else {
      throw LoadError("a position has fallen from \(positions[member][channel]): \(event.summary)")
    }
    count += 1
    positions[member][channel] = position
    if expected?[member][channel] == position { endIfComplete() }
  }

  /// Complete when the positions are these.
  ///
  /// - Parameters:
  ///   - acknowledged: positions by member, then by channel.
  ///   - limit: timeout.
  func expect(_ acknowledged: [[Int]], within limit: TimeAmount) {
    expected = acknowledged
    endIfComplete()
    let bound = NIOLoopBound(self, eventLoop: eventLoop)
    eventLoop.scheduleTask(in: limit) {
      let sink = bound.value
      sink.promise.fail(LoadError(sink.difference ?? "timed out waiting for the last event"))
    }
  }

  /// First position that differs from the expected one; nil without difference.
  var difference: String? {
    guard let expected else { return nil }
    for (member, channels) in expected.enumerated() {
      for (channel, position) in channels.enumerated() where positions[member][channel] != position {
        return """
          \(names.channel(channel)): the last event for \(names.user(member)) has position \
          \(positions[member][channel]), acknowledged was \(position)
          """
      }
    }
    return nil
  }

  private func endIfComplete() {
    if difference == nil { promise.succeed(Outcome(count: count)) }
  }

  func failed(_ error: LoadError) { promise.fail(error) }
}
