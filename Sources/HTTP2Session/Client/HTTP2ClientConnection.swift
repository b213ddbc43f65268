internal import CNghttp2
package import NIOCore

/// Client side of one HTTP/2 connection: a channel handler over an nghttp2 session. Requests are queued with
/// ``submit(_:path:body:tag:streaming:hasMoreBody:)`` and leave in one write at the end of the read loop or with
/// ``flushIfNeeded()``. Requests above the server's concurrent streams queue inside nghttp2. All calls must be made on
/// the channel's event loop.
package final class HTTP2ClientConnection<Delegate: HTTP2ClientDelegate>: ChannelInboundHandler {
  package typealias InboundIn = ByteBuffer
  package typealias OutboundOut = ByteBuffer

  /// Delegate that receives the responses. Retained until the connection has closed.
  package let delegate: Delegate

  private let resources: HTTP2ClientResources
  private let core: UnsafeMutablePointer<ClientCore>
  private var lifecycle = ConnectionLifecycle()
  private var context: ChannelHandlerContext?
  private var isDirty = false
  private var isBusy = false
  /// The delegate knows that the connection is ready.
  private var hasReportedReady = false

  /// Create a connection for a channel's pipeline. Resources belong to that channel's event loop.
  package init(delegate: Delegate, resources: HTTP2ClientResources) {
    self.delegate = delegate
    self.resources = resources
    core = .allocate(capacity: 1)
    core.initialize(
      to: ClientCore(
        pool: resources.pool,
        headerListBytesMax: resources.limits.headerListBytesMax,
        bodyBytesMax: resources.limits.bodyBytesMax
      )
    )
  }

  deinit {
    core.pointee.destroy()
    while let slot = core.pointee.pending.popFirst() { core.pointee.pool.pointee.put(slot) }
    core.deinitialize(count: 1)
    core.deallocate()
  }

  /// Counters so far.
  package var counters: HTTP2Counters { core.pointee.counters }

  /// Requests submitted and not yet answered.
  package var openStreams: Int { core.pointee.streams.count }

  /// Whether requests can be submitted: the channel is active and the server has not sent GOAWAY.
  package var isUsable: Bool { lifecycle.state == .active && !core.pointee.hasReceivedGoAway }

  /// Streams that the server allows at once; 2^32-1 until its SETTINGS have arrived.
  package var concurrentStreamsMax: UInt32 {
    core.pointee.session.map {
      nghttp2_session_get_remote_settings($0, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS)
    } ?? 0
  }

  // MARK: Requests

  /// Queue a request. The path and the body are copied before this returns.
  ///
  /// - Parameters:
  ///   - template: method and the other headers; must live until the request has been sent.
  ///   - path: `:path`, with the query.
  ///   - tag: passed back with the response.
  ///   - streaming: pass the response body to the delegate as it arrives.
  ///   - hasMoreBody: more of the body follows with ``write(_:_:)``, until ``finish(_:)``.
  /// - Returns: a handle for ``cancel(_:)``; nil if the connection no longer accepts requests.
  @discardableResult
  package func submit(
    _ template: HTTP2RequestTemplate,
    path: UnsafeRawBufferPointer,
    body: UnsafeRawBufferPointer = UnsafeRawBufferPointer(start: nil, count: 0),
    tag: UInt64,
    streaming: Bool = false,
    hasMoreBody: Bool = false
  ) -> HTTP2StreamHandle? {
    guard isUsable, let session = core.pointee.session else { return nil }
    let slot = core.pointee.open(tag: tag, method: template.method, streaming: streaming, hasMoreBody: hasMoreBody)
    let pathField = template.list + HTTP2RequestTemplate.pathIndex
    // nghttp2 copies the value and only reads it.
    pathField.pointee.value = path.baseAddress.map {
      UnsafeMutablePointer(mutating: $0.assumingMemoryBound(to: UInt8.self))
    }
    pathField.pointee.valuelen = path.count
    let streamID: Int32
    if body.isEmpty && !hasMoreBody {
      streamID = nghttp2_submit_request(session, nil, template.list, template.count, nil, slot)
    } else {
      slot.pointee.outgoing.bytes.clear()
      slot.pointee.outgoing.bytes.writeBytes(body)
      var provider = nghttp2_data_provider(
        source: nghttp2_data_source(ptr: UnsafeMutableRawPointer(slot)),
        read_callback: readRequestBody
      )
      streamID = nghttp2_submit_request(session, nil, template.list, template.count, &provider, slot)
    }
    isDirty = true
    let handle = slot.pointee.handle
    if streamID < 0 {
      // STREAM_ID_NOT_AVAILABLE after 2^30 requests, or NOMEM.
      core.pointee.close(slot, errorCode: HTTP2ErrorCode.refusedStream.rawValue)
    } else {
      slot.pointee.streamID = streamID
    }
    return handle
  }

  /// Queue a request, as ``submit(_:path:body:tag:streaming:hasMoreBody:)`` with strings.
  @discardableResult
  package func submit(
    _ template: HTTP2RequestTemplate,
    path: String,
    body: ByteBuffer = ByteBuffer(),
    tag: UInt64,
    streaming: Bool = false,
    hasMoreBody: Bool = false
  ) -> HTTP2StreamHandle? {
    var path = path
    return path.withUTF8 { path in
      body.withUnsafeReadableBytes { body in
        submit(
          template,
          path: UnsafeRawBufferPointer(path),
          body: body,
          tag: tag,
          streaming: streaming,
          hasMoreBody: hasMoreBody
        )
      }
    }
  }

  /// Queue more of a body that was started with `hasMoreBody`. The caller must limit it: see ``queuedBytes(_:)``.
  @discardableResult
  package func write(_ stream: HTTP2StreamHandle, _ bytes: ByteBuffer) -> HTTP2Outcome {
    guard let slot = findSending(stream) else { return .gone }
    slot.pointee.outgoing.bytes.discardReadBytes()
    slot.pointee.outgoing.bytes.writeImmutableBuffer(bytes)
    resume(slot)
    return .queued
  }

  /// End a body that was started with `hasMoreBody`; queued bytes are still sent.
  @discardableResult
  package func finish(_ stream: HTTP2StreamHandle) -> HTTP2Outcome {
    guard let slot = findSending(stream) else { return .gone }
    slot.pointee.clientState.finished()
    resume(slot)
    return .queued
  }

  /// Return the number of bytes of an unfinished request body that wait for the server's windows; nil if the body has
  /// ended.
  package func queuedBytes(_ stream: HTTP2StreamHandle) -> Int? {
    findSending(stream).map { $0.pointee.outgoing.bytes.readableBytes }
  }

  private func findSending(_ stream: HTTP2StreamHandle) -> UnsafeMutablePointer<StreamSlot>? {
    guard let slot = core.pointee.pool.pointee.find(stream), slot.pointee.clientState.mayQueueOutput else {
      return nil
    }
    return slot
  }

  private func resume(_ slot: UnsafeMutablePointer<StreamSlot>) {
    isDirty = true
    guard let session = core.pointee.session, slot.pointee.clientState.outputResumed() else { return }
    _ = nghttp2_session_resume_data(session, slot.pointee.streamID)
  }

  /// Cancel a request with CANCEL; the delegate gets its failure.
  package func cancel(_ stream: HTTP2StreamHandle) {
    guard let slot = core.pointee.pool.pointee.find(stream), let session = core.pointee.session,
      slot.pointee.clientState.isOpen
    else { return }
    _ = nghttp2_submit_rst_stream(session, 0, slot.pointee.streamID, HTTP2ErrorCode.cancel.rawValue)
    isDirty = true
    flushIfNeeded()
  }

  /// Queue a PING. Its acknowledgement is discarded, but counts in ``HTTP2Counters/bytesIn``: a peer that sends nothing
  /// after a PING is gone.
  package func ping() {
    guard let session = core.pointee.session, lifecycle.acceptsOutput else { return }
    _ = nghttp2_submit_ping(session, 0, nil)
    isDirty = true
    flushIfNeeded()
  }

  /// Send GOAWAY; the connection closes when the requests in flight have been answered.
  package func close() {
    guard let context else { return }
    switch lifecycle.shutdownRequested(hasGrace: false) {
    case .none: return
    case .close: context.close(promise: nil)
    case .sendGoAway, .sendNoticeThenGoAway:
      guard let session = core.pointee.session else { return }
      _ = nghttp2_submit_goaway(session, 0, 0, HTTP2ErrorCode.noError.rawValue, nil, 0)
      isDirty = true
      flushIfNeeded()
    }
  }

  // MARK: Channel events

  /// Begin the session if the channel is already active.
  package func handlerAdded(context: ChannelHandlerContext) {
    self.context = context
    if context.channel.isActive { activate(context) }
  }

  /// End the session.
  package func handlerRemoved(context: ChannelHandlerContext) {
    closed()
    self.context = nil
  }

  /// Begin the session and send preface and SETTINGS at once.
  package func channelActive(context: ChannelHandlerContext) {
    activate(context)
    context.fireChannelActive()
  }

  /// End the session and fail open requests.
  package func channelInactive(context: ChannelHandlerContext) {
    closed()
    context.fireChannelInactive()
  }

  /// Pass the bytes to nghttp2, then deliver complete responses to the delegate.
  package func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    guard lifecycle.acceptsInput, let session = core.pointee.session else { return }
    let buffer = unwrapInboundIn(data)
    core.pointee.counters.bytesIn &+= UInt64(buffer.readableBytes)
    isBusy = true
    let result = buffer.withUnsafeReadableBytes { bytes in
      nghttp2_session_mem_recv(session, bytes.bindMemory(to: UInt8.self).baseAddress, bytes.count)
    }
    isDirty = true
    if result < 0 {
      // NOMEM, FLOODED, or a failed callback; our callbacks never fail.
      core.pointee.counters.protocolErrors += 1
      _ = nghttp2_session_terminate_session(session, HTTP2ErrorCode.protocolError.rawValue)
      lifecycle.sessionFailed()
    }
    notifyDelegate()
    isBusy = false
  }

  /// Send the new requests of this read loop in one write.
  package func channelReadComplete(context: ChannelHandlerContext) {
    if lifecycle.acceptsOutput {
      delegate.http2ReadComplete(on: self)
      flushIfNeeded()
    }
    context.fireChannelReadComplete()
  }

  /// Resume sending when the channel is writable again.
  package func channelWritabilityChanged(context: ChannelHandlerContext) {
    if context.channel.isWritable {
      isDirty = true
      flushIfNeeded()
    }
    context.fireChannelWritabilityChanged()
  }

  /// Close the channel: the handlers below cannot recover from an error.
  package func errorCaught(context: ChannelHandlerContext, error: any Error) {
    context.fireErrorCaught(error)
    context.close(promise: nil)
  }

  private func activate(_ context: ChannelHandlerContext) {
    guard lifecycle.state == .idle else { return }
    lifecycle.activated()
    var session: OpaquePointer?
    // Fails only for lack of memory.
    guard nghttp2_session_client_new2(&session, resources.callbacks, core, resources.options) == 0, let session else {
      context.close(promise: nil)
      return
    }
    core.pointee.begin(owned: session)
    let limits = resources.limits
    let list = [
      nghttp2_settings_entry(settings_id: Int32(NGHTTP2_SETTINGS_ENABLE_PUSH.rawValue), value: 0),
      nghttp2_settings_entry(
        settings_id: Int32(NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE.rawValue),
        value: limits.initialWindowSize
      ),
      nghttp2_settings_entry(
        settings_id: Int32(NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE.rawValue),
        value: UInt32(limits.headerListBytesMax)
      ),
    ]
    // Both fail only on values out of range, or for lack of memory.
    _ = nghttp2_submit_settings(session, 0, list, list.count)
    _ = nghttp2_session_set_local_window_size(session, 0, 0, limits.connectionWindowSize)
    isDirty = true
    flushIfNeeded()
  }

  private func closed() {
    guard lifecycle.channelInactive() else { return }
    core.pointee.destroy()
    isBusy = true
    notifyDelegate()
    isBusy = false
    delegate.http2ConnectionClosed(self)
  }

  private func notifyDelegate() {
    let core = core
    if core.pointee.hasReceivedSettings && !hasReportedReady {
      hasReportedReady = true
      delegate.http2ConnectionReady(self)
    }
    while let slot = core.pointee.pending.popFirst() {
      let tag = slot.pointee.tag
      switch slot.pointee.clientState.pendingAction {
      case .none: break
      case .complete:
        let response = HTTP2ClientResponse(slot, trailers: core.pointee.removeTrailers(of: slot))
        delegate.http2ResponseReceived(tag: tag, response: response, on: self)
        core.pointee.counters.responses += 1
        core.pointee.pool.pointee.put(slot)
      case .part:
        delegate.http2ResponsePart(tag: tag, response: HTTP2ClientResponse(slot), on: self)
        // The delegate may have cancelled the request, or closed the connection.
        if slot.pointee.clientState.isStreaming && slot.pointee.tag == tag {
          slot.pointee.received.clearBody()
        }
      case .fail:
        let errorCode = slot.pointee.clientState.errorCode
        _ = core.pointee.removeTrailers(of: slot)
        core.pointee.pool.pointee.put(slot)
        delegate.http2StreamFailed(tag: tag, errorCode: errorCode, on: self)
      }
    }
  }

  // MARK: Output

  /// Write the requests queued since the last flush. Cheap when nothing is queued. Does nothing inside a read, which
  /// flushes at its end.
  package func flushIfNeeded() {
    guard isDirty, !isBusy, let context else { return }
    isBusy = true
    while isDirty, lifecycle.acceptsOutput, let session = core.pointee.session {
      isDirty = false
      send(session, context)
      notifyDelegate()
    }
    isBusy = false
    guard let session = core.pointee.session, lifecycle.acceptsOutput, context.channel.isWritable else {
      return
    }
    if nghttp2_session_want_read(session) == 0 && nghttp2_session_want_write(session) == 0 {
      if lifecycle.flushed(sessionDone: true) { context.close(promise: nil) }
    }
  }

  private func send(_ session: OpaquePointer, _ context: ChannelHandlerContext) {
    let writeBytesMax = resources.limits.writeBytesMax
    // While the channel is not writable, requests queue in nghttp2; channelWritabilityChanged resumes from here.
    while context.channel.isWritable {
      var output = resources.output
      resources.output = ByteBuffer()
      output.clear()
      let drained = drain(session, into: &output, bytesMax: writeBytesMax)
      if output.readableBytes > 0 {
        core.pointee.counters.bytesOut &+= UInt64(output.readableBytes)
        context.writeAndFlush(wrapOutboundOut(output), promise: nil)
      }
      if output.capacity <= writeBytesMax * 2 { resources.output = output }
      // The write may have failed and closed the channel, and with it the session.
      guard core.pointee.session != nil else { return }
      switch drained {
      case .more: continue
      case .all: return
      case .failed:
        context.close(promise: nil)
        return
      }
    }
  }
}
