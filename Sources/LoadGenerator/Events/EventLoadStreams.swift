internal import HTTP2Session
internal import NIOCore
internal import Operations

/// Receiver of the events of ``EventLoadStreams``. Used on their event loop only.
protocol EventSink: AnyObject, SendableMetatype {
  /// Handle an event.
  ///
  /// - Parameters:
  ///   - stream: number of the stream from 0, in the order of the requests.
  ///   - now: reading of ``MonotonicClock``.
  /// - Throws: ``LoadError`` for an unexpected event.
  func received(_ event: EventBlock, stream: Int, now: UInt64) throws(LoadError)
  /// Handle a failed stream or an unexpected event. No events follow.
  func failed(_ error: LoadError)
}

/// Request for one event stream.
struct EventStreamRequest: Sendable {
  var path = "/v1/events"
  var token: String
}

/// Event streams over HTTP/2 without TLS, read on one event loop. A stream that ends is an error, and so is an event
/// that no sink expects.
struct EventLoadStreams: Sendable {
  /// Limit of streams that are being opened at the same time.
  static let openingAtOnce = 256
  private static let deadline = TimeAmount.seconds(120)

  private let readers: NIOLoopBound<EventReaders>

  /// Open streams, spread over the connections; return when every stream is live.
  ///
  /// - Parameter note: receives the number of live streams.
  static func open(
    _ requests: [EventStreamRequest],
    at endpoint: Endpoint,
    connections: Int,
    on eventLoop: any EventLoop,
    note: @escaping @Sendable (Int) -> Void = { _ in }
  ) async throws -> EventLoadStreams {
    let promise = eventLoop.makePromise(of: Void.self)
    let readers = try await eventLoop.submit {
      NIOLoopBound(
        EventReaders(requests, connectionCount: connections, authority: "\(endpoint)", opened: promise, note),
        eventLoop: eventLoop
      )
    }.get()
    let streams = EventLoadStreams(readers: readers)
    let timeout = eventLoop.scheduleTask(in: deadline) {
      readers.value.fail(
        LoadError("timed out after \(deadline.nanoseconds / 1_000_000_000) s waiting for the event streams")
      )
    }
    defer { timeout.cancel() }
    do {
      for _ in 0..<connections { try await connect(readers, to: endpoint) }
      try await promise.futureResult.get()
    } catch {
      promise.fail(error)
      await streams.close()
      throw error
    }
    return streams
  }

  private static func connect(_ readers: NIOLoopBound<EventReaders>, to endpoint: Endpoint) async throws {
    _ = try await BenchConnection.connect(to: endpoint, on: readers.eventLoop) { channel in
      let connection = EventConnection(readers.value, channel)
      readers.value.add(connection)
      return (connection, readers.value.resources)
    }.get()
  }

  /// Send events to the sink that `make` returns, on the streams' loop, until its promise is completed.
  func listen<Sink: EventSink, Outcome: Sendable>(
    _ make: @escaping @Sendable (EventLoopPromise<Outcome>) -> Sink
  ) async throws -> EventCapture<Sink, Outcome> {
    let promise = readers.eventLoop.makePromise(of: Outcome.self)
    let readers = readers
    do {
      let sink = try await readers.eventLoop.submit {
        let sink = make(promise)
        try readers.value.use(sink)
        return NIOLoopBound(sink, eventLoop: readers.eventLoop)
      }.get()
      promise.futureResult.whenComplete { _ in readers.value.sink = nil }
      return EventCapture(sink: sink, promise: promise)
    } catch {
      promise.fail(error)
      throw error
    }
  }

  /// Heartbeats of the stream that has received the fewest.
  var heartbeats: Int {
    get async throws {
      let readers = readers
      return try await readers.eventLoop.submit { try readers.value.heartbeats() }.get()
    }
  }

  /// Close every connection.
  func close() async {
    let readers = readers
    try? await readers.eventLoop.submit { readers.value.close() }.get()
  }
}

/// Sink that receives the events of ``EventLoadStreams``, and its outcome.
struct EventCapture<Sink: EventSink, Outcome: Sendable>: Sendable {
  let sink: NIOLoopBound<Sink>
  fileprivate let promise: EventLoopPromise<Outcome>

  /// Wait for the sink's outcome.
  func outcome() async throws -> Outcome {
    let promise = promise
    return try await withTaskCancellationHandler {
      try await promise.futureResult.get()
    } onCancel: {
      promise.fail(CancellationError())
    }
  }
}

/// Connections and parsers of ``EventLoadStreams``. Used on its event loop only.
final class EventReaders {
  let resources = HTTP2ClientResources()
  /// Receiver of events; nil: every event is an error.
  var sink: (any EventSink)?

  private struct Stream {
    var blocks = EventBlocks()
    /// Blocks without an event. The first one means that the stream is live.
    var comments = 0
  }

  private let requests: [EventStreamRequest]
  private let connectionCount: Int
  private let authority: String
  private let opened: EventLoopPromise<Void>
  private let note: @Sendable (Int) -> Void
  private var connections: [EventConnection] = []
  private var readyCount = 0
  private var streams: [Stream]
  private var requested = 0
  private var live = 0
  private var failure: LoadError?
  private var isClosed = false

  init(
    _ requests: [EventStreamRequest],
    connectionCount: Int,
    authority: String,
    opened: EventLoopPromise<Void>,
    _ note: @escaping @Sendable (Int) -> Void
  ) {
    self.requests = requests
    self.connectionCount = connectionCount
    self.authority = authority
    self.opened = opened
    self.note = note
    streams = Array(repeating: Stream(), count: requests.count)
  }

  func use(_ sink: any EventSink) throws {
    if let failure { throw failure }
    self.sink = sink
  }

  func heartbeats() throws -> Int {
    if let failure { throw failure }
    return (streams.map(\.comments).min() ?? 1) - 1
  }

  func close() {
    isClosed = true
    sink = nil
    for connection in connections { connection.close() }
    connections = []
  }

  func fail(_ error: LoadError) {
    guard failure == nil, !isClosed else { return }
    failure = error
    opened.fail(error)
    sink?.failed(error)
    sink = nil
  }

  // MARK: Opening

  func add(_ connection: EventConnection) { connections.append(connection) }

  func ready() {
    readyCount += 1
    if readyCount == connectionCount { openNextStreams() }
  }

  private func openNextStreams() {
    while failure == nil, requested < requests.count, requested - live < EventLoadStreams.openingAtOnce {
      let stream = requested
      requested += 1
      guard connections[stream % connectionCount].open(requests[stream], authority, stream) else {
        return fail(LoadError("a connection accepts no more streams"))
      }
    }
  }

  private func streamBecameLive() {
    live += 1
    if live % 500 == 0 { note(live) }
    if live == requests.count { opened.succeed() } else { openNextStreams() }
  }

  // MARK: Reading

  func received(_ bytes: UnsafeRawBufferPointer, stream: Int) {
    guard failure == nil, !isClosed else { return }
    let now = MonotonicClock.now
    do throws(LoadError) {
      // Moved out while it parses, because a sink may access this object.
      var blocks = streams[stream].blocks
      streams[stream].blocks = EventBlocks()
      try blocks.read(bytes) { block throws(LoadError) in
        guard block.type.isEmpty else {
          guard let sink else { throw LoadError("an unexpected event: \(block.summary)") }
          return try sink.received(block, stream: stream, now: now)
        }
        // A client resumes from the id.
        guard !block.id.isEmpty else { return }
        streams[stream].comments += 1
        if streams[stream].comments == 1 { streamBecameLive() }
      }
      streams[stream].blocks = blocks
    } catch {
      fail(error)
    }
  }
}

/// Connection with event streams; the tag of a request is the stream's number.
final class EventConnection: HTTP2ClientDelegate {
  // Strong: ``EventReaders/close()`` breaks the cycle.
  private let readers: EventReaders
  private let channel: any Channel
  private var http: HTTP2ClientConnection<EventConnection>?
  /// Templates of requests that are not sent yet: they have to outlive the sending.
  private var templates: [Int: HTTP2RequestTemplate] = [:]

  init(_ readers: EventReaders, _ channel: any Channel) {
    self.readers = readers
    self.channel = channel
  }

  func open(_ request: EventStreamRequest, _ authority: String, _ stream: Int) -> Bool {
    guard let http else { return false }
    let template = HTTP2RequestTemplate(
      method: .get,
      scheme: "http",
      authority: authority,
      authorization: "Bearer \(request.token)"
    )
    templates[stream] = template
    let handle = http.submit(template, path: request.path, tag: UInt64(stream), streaming: true)
    http.flushIfNeeded()
    return handle != nil
  }

  func close() {
    http = nil
    // Not gracefully: open streams would keep the connection open.
    channel.close(promise: nil)
  }

  func http2ConnectionReady(_ connection: HTTP2ClientConnection<EventConnection>) {
    http = connection
    readers.ready()
  }

  func http2ResponsePart(
    tag: UInt64,
    response: borrowing HTTP2ClientResponse,
    on connection: HTTP2ClientConnection<EventConnection>
  ) {
    let stream = Int(truncatingIfNeeded: tag)
    guard response.status == 200 else { return }
    templates[stream] = nil
    response.body.withUnsafeBytes { readers.received($0, stream: stream) }
  }

  func http2ResponseReceived(
    tag: UInt64,
    response: borrowing HTTP2ClientResponse,
    on connection: HTTP2ClientConnection<EventConnection>
  ) {
    let text = response.body.withUnsafeBytes { String(decoding: $0.prefix(300), as: UTF8.self) }
    readers.fail(LoadError("event stream \(tag) was ended with status \(response.status): \(text)"))
  }

  func http2StreamFailed(tag: UInt64, errorCode: UInt32, on connection: HTTP2ClientConnection<EventConnection>) {
    readers.fail(LoadError("event stream \(tag) failed with HTTP/2 error \(errorCode)"))
  }

  func http2ConnectionClosed(_ connection: HTTP2ClientConnection<EventConnection>) {
    readers.fail(LoadError("a connection with event streams was closed"))
  }
}
