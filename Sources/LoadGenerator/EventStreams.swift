internal import HTTP2Session
internal import LocalStack
internal import NIOCore
internal import NIOPosix
internal import Operations

/// Who is told of what event streams bring. On their event loop only.
protocol EventSink: AnyObject, SendableMetatype {
  /// An event came in.
  ///
  /// - Parameters:
  ///   - stream: which, from 0, in the order of the requests.
  ///   - now: nanoseconds of ``MonotonicClock``.
  func received(_ event: EventBlock, stream: Int, now: UInt64) throws(LoadError)
  /// The streams cannot go on, or an event was not as it had to be. Nothing more comes.
  func failed(_ error: LoadError)
}

/// What one event stream is asked for.
struct EventStreamRequest: Sendable {
  var path = "/v1/events"
  var token: String
}

/// Event streams over HTTP/2 in the clear, read on one event loop. Every one has to stay open; an event that nobody
/// waits for is an error.
struct EventStreams: Sendable {
  /// Streams that are being opened at once.
  static let openingAtOnce = 256
  private static let deadline = TimeAmount.seconds(120)

  private let readers: NIOLoopBound<EventReaders>

  /// Opens streams, dealt out to so many connections by turns; returns when each is told what happens from now on.
  ///
  /// - Parameter note: told how many that are.
  static func open(
    _ requests: [EventStreamRequest],
    at endpoint: Endpoint,
    connections: Int,
    on eventLoop: any EventLoop,
    note: @escaping @Sendable (Int) -> Void = { _ in }
  ) async throws -> EventStreams {
    let promise = eventLoop.makePromise(of: Void.self)
    let readers = try await eventLoop.submit {
      NIOLoopBound(
        EventReaders(requests, connectionCount: connections, authority: "\(endpoint)", opened: promise, note),
        eventLoop: eventLoop
      )
    }.get()
    let streams = EventStreams(readers: readers)
    let timeout = eventLoop.scheduleTask(in: deadline) {
      readers.value.fail(
        LoadError("the event streams were not open after \(deadline.nanoseconds / 1_000_000_000) s")
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
    let bootstrap = ClientBootstrap(group: readers.eventLoop)
      .connectTimeout(.seconds(10))
      .channelOption(ChannelOptions.tcpOption(.tcp_nodelay), value: 1)
      .channelOption(
        ChannelOptions.recvAllocator,
        value: AdaptiveRecvByteBufferAllocator(minimum: 4096, initial: 16_384, maximum: 65_536)
      )
      .channelInitializer { channel in
        channel.eventLoop.makeCompletedFuture {
          let connection = EventConnection(readers.value, channel)
          readers.value.made(connection)
          try channel.pipeline.syncOperations.addHandler(
            HTTP2ClientConnection(delegate: connection, resources: readers.value.resources)
          )
        }
      }
    do {
      _ = try await bootstrap.connect(host: endpoint.host, port: endpoint.port).get()
    } catch {
      throw LoadError("\(endpoint): no connection: \(HTTP2Caller.reason(error))")
    }
  }

  /// From here on events go to what `make` makes, on the streams' loop, until its promise is kept.
  func listen<Sink: EventSink, Outcome: Sendable>(
    _ make: @escaping @Sendable (EventLoopPromise<Outcome>) -> Sink
  ) async throws -> EventListening<Sink, Outcome> {
    let promise = readers.eventLoop.makePromise(of: Outcome.self)
    let readers = readers
    do {
      let sink = try await readers.eventLoop.submit {
        let sink = make(promise)
        try readers.value.use(sink)
        return NIOLoopBound(sink, eventLoop: readers.eventLoop)
      }.get()
      promise.futureResult.whenComplete { _ in readers.value.sink = nil }
      return EventListening(sink: sink, promise: promise)
    } catch {
      promise.fail(error)
      throw error
    }
  }

  /// Heartbeats that the stream with the fewest has had.
  var heartbeats: Int {
    get async throws {
      let readers = readers
      return try await readers.eventLoop.submit { try readers.value.heartbeats() }.get()
    }
  }

  /// Ends every connection, and with it its streams.
  func close() async {
    let readers = readers
    try? await readers.eventLoop.submit { readers.value.close() }.get()
  }
}

/// One who listens to event streams.
struct EventListening<Sink: EventSink, Outcome: Sendable>: Sendable {
  let sink: NIOLoopBound<Sink>
  fileprivate let promise: EventLoopPromise<Outcome>

  /// What came of it.
  func outcome() async throws -> Outcome {
    let promise = promise
    return try await withTaskCancellationHandler {
      try await promise.futureResult.get()
    } onCancel: {
      promise.fail(CancellationError())
    }
  }
}

/// The connections of ``EventStreams``. On its event loop only.
final class EventReaders {
  let resources = HTTP2ClientResources()
  /// Who is told of events; nil: there should be none.
  var sink: (any EventSink)?

  private struct Stream {
    var blocks = EventBlocks()
    /// Blocks without an event. The first says that the stream is live.
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

  func made(_ connection: EventConnection) { connections.append(connection) }

  func ready() {
    readyCount += 1
    if readyCount == connectionCount { request() }
  }

  private func request() {
    while failure == nil, requested < requests.count, requested - live < EventStreams.openingAtOnce {
      let stream = requested
      requested += 1
      guard connections[stream % connectionCount].open(requests[stream], authority, stream) else {
        return fail(LoadError("a connection takes no more streams"))
      }
    }
  }

  private func isLive() {
    live += 1
    if live % 500 == 0 { note(live) }
    if live == requests.count { opened.succeed() } else { request() }
  }

  // MARK: Reading

  func received(_ bytes: UnsafeRawBufferPointer, stream: Int) {
    guard failure == nil, !isClosed else { return }
    let now = MonotonicClock.now
    do throws(LoadError) {
      // Out of its place while it is read: a sink may look at this.
      var blocks = streams[stream].blocks
      streams[stream].blocks = EventBlocks()
      try blocks.read(bytes) { block throws(LoadError) in
        guard block.type.isEmpty else {
          guard let sink else { throw LoadError("an event that nobody caused: \(block.summary)") }
          return try sink.received(block, stream: stream, now: now)
        }
        // Its id is what a client would go on from.
        guard !block.id.isEmpty else { return }
        streams[stream].comments += 1
        if streams[stream].comments == 1 { isLive() }
      }
      streams[stream].blocks = blocks
    } catch {
      fail(error)
    }
  }
}

/// One connection's event streams; the token of a request is the stream's number.
final class EventConnection: HTTP2ClientDelegate {
  // Strong: ``EventReaders/close()`` breaks the cycle.
  private let readers: EventReaders
  private let channel: any Channel
  private var http: HTTP2ClientConnection<EventConnection>?
  /// They have to live until their requests have left.
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
    let handle = http.submit(template, path: request.path, token: UInt64(stream), streaming: true)
    http.flushIfNeeded()
    return handle != nil
  }

  func close() {
    http = nil
    // Its streams would keep open a connection that ends in good order.
    channel.close(promise: nil)
  }

  func http2ConnectionReady(_ connection: HTTP2ClientConnection<EventConnection>) {
    http = connection
    readers.ready()
  }

  func http2ResponsePart(
    token: UInt64,
    response: borrowing HTTP2ClientResponse,
    on connection: HTTP2ClientConnection<EventConnection>
  ) {
    let stream = Int(truncatingIfNeeded: token)
    guard response.status == 200 else { return }
    templates[stream] = nil
    response.body.withUnsafeBytes { readers.received($0, stream: stream) }
  }

  func http2ResponseReceived(
    token: UInt64,
    response: borrowing HTTP2ClientResponse,
    on connection: HTTP2ClientConnection<EventConnection>
  ) {
    let text = response.body.withUnsafeBytes { String(decoding: $0.prefix(300), as: UTF8.self) }
    readers.fail(LoadError("event stream \(token) was ended with status \(response.status): \(text)"))
  }

  func http2StreamFailed(
    token: UInt64,
    errorCode: UInt32,
    on connection: HTTP2ClientConnection<EventConnection>
  ) {
    readers.fail(LoadError("event stream \(token) was ended by HTTP/2 error \(errorCode)"))
  }

  func http2ConnectionClosed(_ connection: HTTP2ClientConnection<EventConnection>) {
    readers.fail(LoadError("a connection with event streams was closed"))
  }
}
