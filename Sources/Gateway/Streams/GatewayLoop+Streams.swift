package import HTTP2Session
internal import Logging
internal import NIOCore
internal import Operations
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// Streamed requests: what reaches them, what they ask of HTTP/2 and of the store, and their end.
extension GatewayLoop {
  // MARK: Opening

  /// Takes up a streamed request: 200 is answered at once, and its body read from the end of this turn on.
  ///
  /// - Throws: `store_busy` where there are too many, or this gateway goes away.
  func open(_ stream: RequestStream, contentType: HTTP2ContentType) throws(Problem) {
    guard !requestStreams.isDraining else { throw Problem(.storeBusy, "this gateway goes away") }
    guard requestStreams.count < limits.requestStreams else {
      throw Problem(
        .storeBusy,
        "this gateway has \(limits.requestStreams) streamed requests, and takes no more"
      )
    }
    guard let connection = connections.connection(stream.connection) else { return }
    connections.markDirty(stream.connection)
    connection.startStreaming(
      stream.handle,
      status: 200,
      contentType: contentType,
      headers: [HTTP2Header("cache-control", "no-store")]
    )
    counters.answered(stream.route.rawValue, status: 200)
    requestStreams.insert(stream)
    touch(stream)
  }

  /// The stream goes on at the end of this turn.
  func touch(_ stream: RequestStream) {
    if requestStreams.mark(stream) { endTurnSoon() }
  }

  // MARK: From HTTP/2

  /// More of a streamed body is there, or its end.
  package func http2RequestBodyReceived(
    _ stream: HTTP2StreamHandle,
    on connection: HTTP2ServerConnection<GatewayLoop>
  ) {
    if let stream = requestStreams.stream(of: stream) { touch(stream) }
  }

  /// The client takes answers again. True where the stream is one of these.
  func requestStreamDrained(_ handle: HTTP2StreamHandle) -> Bool {
    guard let stream = requestStreams.stream(of: handle) else { return false }
    touch(stream)
    return true
  }

  /// The client has gone: what it has under way is carried out, and its answers are not missed.
  func requestStreamAborted(_ handle: HTTP2StreamHandle) {
    if let stream = requestStreams.stream(of: handle) { requestStreams.remove(stream) }
  }

  // MARK: To HTTP/2

  /// Offers the stream what has come of its body; see ``HTTP2ServerConnection/readBody(_:_:)``.
  func readBody(_ stream: RequestStream, _ take: (RawSpan, _ isEnd: Bool) -> Int) {
    guard let connection = connections.connection(stream.connection) else { return }
    connection.readBody(stream.handle) { bytes, isEnd in
      let taken = take(bytes, isEnd)
      stream.bytesRead &+= UInt64(taken)
      return taken
    }
    connections.markDirty(stream.connection)
  }

  /// Bytes of its answer that HTTP/2 holds.
  func queuedBytes(_ stream: RequestStream) -> Int {
    connections.connection(stream.connection)?.queuedBytes(stream.handle) ?? 0
  }

  /// Writes a piece of the answer. False: HTTP/2 takes no more for now; ``RequestStream/advance(on:)`` is called when
  /// it does.
  func write(_ stream: RequestStream, _ bytes: ByteBuffer) -> Bool {
    guard let connection = connections.connection(stream.connection) else { return true }
    switch connection.write(stream.handle, bytes) {
    case .queued:
      connections.markDirty(stream.connection)
      stream.bytesWritten &+= UInt64(bytes.readableBytes)
      return true
    case .full: return false
    // Its end is on its way here.
    case .gone: return true
    }
  }

  /// Ends the answer behind what was written, and forgets the stream.
  func finish(_ stream: RequestStream) {
    requestStreams.remove(stream)
    guard let connection = connections.connection(stream.connection) else { return }
    connection.finish(stream.handle)
    connections.markDirty(stream.connection)
  }

  // MARK: To the store

  /// Whether the loop's streams may have one more request at the store: the rest of its window is for other requests.
  /// Whoever asks too often waits as well. Where not, the stream is called again when they may.
  func mayAsk(_ stream: RequestStream) -> Bool {
    if requestStreams.inFlight < limits.streamedInFlight, store.hasRoom, mayDraw(stream) { return true }
    requestStreams.hold(stream)
    return false
  }

  /// Keeps a request of a stream until the store has answered; returns its token. See ``mayAsk(_:)``.
  ///
  /// - Parameters:
  ///   - entry: what the stream knows it by.
  ///   - answerBytes: what it has reserved for the answer.
  ///   - device: the number of an acknowledgement's label.
  ///   - isByName: of an acknowledgement: its caller has named whose it is.
  func keep(
    _ stream: RequestStream,
    _ shape: ReplyShape,
    entry: UInt32,
    answerBytes: Int = 0,
    device: UInt8 = 0,
    isByName: Bool = true
  ) -> UInt64 {
    requestStreams.inFlight += 1
    return keep(
      PendingRequest(
        stream: stream.handle,
        connection: stream.connection,
        gather: stream.place,
        entry: entry,
        answerBytes: UInt32(truncatingIfNeeded: answerBytes),
        shape: shape,
        route: stream.route,
        isServer: stream.caller.isServer && isByName,
        device: device
      )
    )
  }

  /// The store client did not take the request after all.
  @discardableResult
  func forget(streamed token: UInt64) -> PendingRequest? {
    guard let request = pending.remove(token) else { return nil }
    requestStreams.inFlight -= 1
    return request
  }

  func streamReplied(_ request: PendingRequest, _ kind: FrameKind, _ payload: RawSpan) {
    requestStreams.inFlight -= 1
    guard let stream = requestStreams.stream(at: request.gather, request.stream) else { return }
    stream.replied(request, kind, payload, on: self)
    touch(stream)
  }

  func streamFailed(_ request: PendingRequest, _ failure: StoreFailure) {
    requestStreams.inFlight -= 1
    guard let stream = requestStreams.stream(at: request.gather, request.stream) else { return }
    stream.failed(request, failure, on: self)
    touch(stream)
  }

  // MARK: Turns and time

  /// Lets streams go on that have something to do: first those that were held, else what others' answers make free
  /// would be taken by those others again.
  func advanceStreams() {
    if requestStreams.inFlight < limits.streamedInFlight {
      for stream in requestStreams.takeHeld() { stream.advance(on: self) }
    }
    for stream in requestStreams.takeMarked() { stream.advance(on: self) }
  }

  /// One timer looks after all streams.
  func startStreams() {
    let bound = NIOLoopBound(self, eventLoop: eventLoop)
    streamTicker = eventLoop.scheduleRepeatedTask(
      initialDelay: GatewayLimits.streamTick,
      delay: GatewayLimits.streamTick
    ) { _ in
      bound.value.streamsTicked()
      bound.value.giveMemoryBack()
    }
  }

  func stopStreams() {
    streamTicker?.cancel()
    streamTicker = nil
  }

  private func streamsTicked() {
    let now = now
    let ticksMax = max(1, Int(limits.streamIdleTimeout.nanoseconds / GatewayLimits.streamTick.nanoseconds))
    for case let stream? in requestStreams.streams {
      if now >= stream.caller.expiresAt {
        stream.end(.tokenExpired)
        touch(stream)
      }
      if stream.stalls(queued: queuedBytes(stream), ticksMax: ticksMax) { giveUp(stream) }
    }
    // What filled the store's window may have been given up without an answer.
    if requestStreams.hasHeld { endTurnSoon() }
  }

  /// The client neither takes its answers nor goes on with what it has begun.
  private func giveUp(_ stream: RequestStream) {
    requestStreams.stalled &+= 1
    requestStreams.remove(stream)
    connections.connection(stream.connection)?.reset(stream.handle, .cancel)
    connections.markDirty(stream.connection)
    endTurnSoon()
  }

  /// Has all streams answer what they have taken, and end; no other is begun.
  func drainStreams() {
    requestStreams.isDraining = true
    for case let stream? in requestStreams.streams {
      stream.end(.draining)
      touch(stream)
    }
  }

  func collectStreams(into samples: inout MetricSamples) {
    samples.gauge(
      "tidemark_gateway_request_streams",
      help: "Streamed requests open.",
      Double(requestStreams.count)
    )
    samples.counter(
      "tidemark_gateway_request_streams_opened_total",
      help: "Streamed requests begun.",
      Int64(clamping: requestStreams.opened)
    )
    samples.counter(
      "tidemark_gateway_request_streams_stalled_total",
      help: "Streamed requests given up because their client kept them waiting.",
      Int64(clamping: requestStreams.stalled)
    )
  }
}

extension Route {
  /// The type of the bodies that it reads as they come; nil: none.
  var streamedType: HTTP2ContentType? {
    switch self {
    case .frames: .frames
    case .acknowledgePushes: .ndjson
    default: nil
    }
  }

  /// Whether it reads bodies of this type as they come.
  func streams(_ contentType: RawSpan) -> Bool { streamedType?.isNamed(by: contentType) ?? false }
}
