internal import HTTP2Session
internal import Logging
internal import NIOCore
internal import Operations
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// The streamed requests of one loop: their opening, HTTP/2 and store traffic, and end.
final class RequestStreamsPart: GatewayPart {
  private var table = RequestStreamTable()
  /// Requests in flight of all streams, including streams that have ended.
  private(set) var inFlight = 0
  /// Streams begun, and those reset because their client stalled, since the start.
  private var opened: UInt64 = 0
  private var stalled: UInt64 = 0

  /// Lines of imports that were done, and those of them that were refused, since the start.
  private var importedLines = 0
  private var refusedLines = 0

  /// Open streams.
  var count: Int { table.count }

  // MARK: Opening

  /// Open a streamed request: answer 200 at once, and read its body from the end of this turn on.
  ///
  /// - Throws: `store_busy` where the limit of the loop or of the token is reached, or while draining.
  func open(_ stream: any RequestStream, contentType: HTTP2ContentType) throws(Problem) {
    try loop.openStreams.checkNotDraining()
    guard count < loop.limits.requestStreams else {
      throw Problem(.storeBusy, "this event loop's limit of \(loop.limits.requestStreams) streamed requests is reached")
    }
    let own = loop.limits.requestStreamsPerToken
    guard table.count(of: stream.caller.key) < own else {
      let detail = "a token may have \(own) streamed requests on an event loop; close some of them"
      throw Problem(.storeBusy, detail)
    }
    guard let connection = loop.connections.answering(stream.handle, on: stream.connection) else { return }
    connection.startStreaming(stream.handle, status: 200, contentType: contentType, headers: [.noStore])
    loop.counters.answered(stream.route, status: 200)
    table.insert(stream)
    opened &+= 1
    schedule(stream)
  }

  /// Schedule the stream to advance at the end of this turn.
  func schedule(_ stream: any RequestStream) {
    if table.schedule(stream) { loop.endTurnSoon() }
  }

  /// Schedule the stream to advance in a later turn, after other events of the loop.
  func scheduleLater(_ stream: any RequestStream) {
    guard table.scheduleLater(stream) else { return }
    runInLaterTurn { [self] in if table.resume(stream) { schedule(stream) } }
  }

  /// Open a stream of frames.
  ///
  /// - Throws: `content_type_not_supported`, `store_busy`.
  func openFrames(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    guard match.route.streams(request.contentType) else { throw Problem(.contentTypeNotSupported) }
    // A body that ended with the headers has no frames.
    guard request.bodyStreams else { return respondEmpty(context, contentType: .frames) }
    try open(FrameStream(context, loop.limits), contentType: .frames)
  }

  /// Answer a streamed request without a body.
  func respondEmpty(_ context: RequestContext, contentType: HTTP2ContentType) {
    loop.respond(to: context, contentType: contentType) { _ in }
  }

  // MARK: HTTP/2 events

  /// Handle new bytes, or the end, of a streamed body.
  func bodyReceived(_ handle: HTTP2StreamHandle) {
    if let stream = table.stream(of: handle) { schedule(stream) }
  }

  /// Continue a stream that can write again.
  func drained(_ handle: HTTP2StreamHandle) {
    if let stream = table.stream(of: handle) { schedule(stream) }
  }

  /// Remove a stream whose client has disconnected. Its requests in flight are still carried out; their responses are
  /// dropped.
  func aborted(_ handle: HTTP2StreamHandle) {
    if let stream = table.stream(of: handle) { table.remove(stream) }
  }

  // MARK: HTTP/2 input and output

  /// Pass received bytes of the body to `consume`; see ``HTTP2ServerConnection/readBody(_:_:)``.
  func readBody(_ stream: RequestStreamState, _ consume: (RawSpan, _ isEnd: Bool) -> Int) {
    guard let connection = loop.connections.connection(stream.connection) else { return }
    connection.readBody(stream.handle) { bytes, isEnd in
      let taken = consume(bytes, isEnd)
      stream.bytesRead &+= UInt64(taken)
      return taken
    }
    loop.connections.markDirty(stream.connection)
  }

  /// Write a part of the response. False: HTTP/2's queue is full; ``RequestStream/advance(on:)`` is called once there
  /// is room.
  func write(_ stream: RequestStreamState, _ bytes: ByteBuffer) -> Bool {
    guard let connection = loop.connections.connection(stream.connection) else { return true }
    switch connection.write(stream.handle, bytes) {
    case .queued:
      loop.connections.markDirty(stream.connection)
      stream.bytesWritten &+= UInt64(bytes.readableBytes)
      return true
    case .full: return false
    // The stream is closed; the notification is on its way.
    case .gone: return true
    }
  }

  /// Count answers that HTTP/2 has not accepted as held memory. False: the token or the connection holds too much.
  func setHeldBytes(_ stream: RequestStreamState, _ byteCount: Int) -> Bool {
    loop.connections.connection(stream.connection)?.setRetainedBytes(stream.handle, byteCount) ?? true
  }

  /// End the response after what was written, and remove the stream.
  func finish(_ stream: any RequestStream) {
    table.remove(stream)
    loop.connections.connection(stream.connection)?.finish(stream.handle)
    loop.connections.markDirty(stream.connection)
  }

  // MARK: Store requests

  /// Return whether the stream may send one more request to the store. The loop's streams share a part of the store's
  /// window, and callers over their rate must wait. If not, the stream waits for room, and is advanced later.
  func canSend(_ stream: any RequestStream) -> Bool {
    if inFlight < loop.limits.streamedInFlight, loop.store.hasRoom, loop.rates.canCharge(stream) { return true }
    table.waitForRoom(stream)
    return false
  }

  /// Count a request that the store client has taken.
  func recordSent() { inFlight += 1 }

  func completed(_ index: SlotIndex, _ request: StreamStoreRequest, with result: StoreResult) {
    inFlight -= 1
    guard let stream = table[index] else { return }
    stream.completed(request, with: result, on: loop)
    schedule(stream)
  }

  /// Count lines of an import.
  func recordImported(_ lines: Int, refused: Int) {
    importedLines += lines
    refusedLines += refused
  }

  /// Handle the end of a change of settings that a line of an import has begun.
  func settled(_ line: ImportedSettings, _ problem: Problem?, _ value: UserSettings?) {
    guard let stream = table[line.stream] as? ImportStream else { return }
    stream.settled(line, problem, value)
    schedule(stream)
  }

  // MARK: Turns

  /// Advance streams with work: those that wait for room first, so that those which were just answered do not take all
  /// freed room again.
  func advance() {
    if table.hasWaitingForRoom, inFlight < loop.limits.streamedInFlight {
      for stream in table.takeWaitingForRoom() { stream.advance(on: loop) }
    }
    for stream in table.takeScheduled() { stream.advance(on: loop) }
  }

  override func collect(into samples: inout MetricSamples) {
    samples.gauge("tidemark_gateway_request_streams", help: "Streamed requests open.", Double(count))
    samples.counter(
      "tidemark_gateway_request_streams_opened_total",
      help: "Streamed requests begun.",
      Int64(clamping: opened)
    )
    samples.counter(
      "tidemark_gateway_request_streams_stalled_total",
      help: "Streamed requests reset because their client stalled.",
      Int64(clamping: stalled)
    )
    samples.counter(
      "tidemark_gateway_import_lines_total",
      help: "Lines of imports that were done, refused ones included.",
      Int64(importedLines)
    )
    samples.counter(
      "tidemark_gateway_import_lines_refused_total",
      help: "Lines of imports that were refused.",
      Int64(refusedLines)
    )
  }
}

extension RequestStreamsPart: OpenStreamOwner {
  var openStreams: [OpenStream] { table.all }
  func openStreams(part: Int, of parts: Int) -> [OpenStream] { table.streams(part: part, of: parts) }
  var checkInterval: TimeAmount { GatewayLimits.streamTick }
  var stallTimeout: TimeAmount { loop.limits.streamIdleTimeout }

  /// Let a stream answer what it has read, and end.
  func end(_ stream: OpenStream, _ reason: StreamEnd) {
    guard let stream = table.stream(of: stream.handle) else { return }
    stream.end(reason)
    schedule(stream)
  }

  /// Remove a stream whose client neither reads its responses nor finishes what it has begun to send.
  func removeStalled(_ stream: OpenStream) {
    stalled &+= 1
    aborted(stream.handle)
  }

  func completeEnds() {}

  /// Let streams without room try again: requests that filled the store's window may have ended without a reply.
  func streamsChecked() {
    if table.hasWaitingForRoom { loop.endTurnSoon() }
  }
}
