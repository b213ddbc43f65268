internal import CNghttp2
package import NIOCore

/// Server side of one HTTP/2 connection: a channel handler over an nghttp2 session. It reads `ByteBuffer`s, passes
/// requests to the delegate, and sends the queued responses in one write per read loop.
///
/// Every call must be made on the channel's event loop. Responses given outside a read of this connection, such as
/// after a reply on another channel, stay queued until ``flushIfNeeded()``. Call it once per connection when your own
/// read loop ends.
///
/// Only nghttp2 allocates memory per request: streams live in slots that are reused.
package final class HTTP2ServerConnection<Delegate: HTTP2ServerDelegate>: ChannelDuplexHandler {
  package typealias InboundIn = ByteBuffer
  package typealias OutboundIn = ByteBuffer
  package typealias OutboundOut = ByteBuffer

  /// Delegate that receives the requests. Retained until the connection has closed.
  package let delegate: Delegate

  /// Value for the application's use: an accepted user's identity, an address, a metric's label.
  package var userData: UInt64 = 0

  let resources: HTTP2ServerResources
  let core: UnsafeMutablePointer<ServerCore>
  private var lifecycle = ConnectionLifecycle()
  private var context: ChannelHandlerContext?
  private var tick: Scheduled<Void>?
  private var graceTimer: Scheduled<Void>?
  private var lingerTimer: Scheduled<Void>?

  private var output = ConnectionOutput()
  private var lastActivity = NIODeadline.uptimeNanoseconds(0)
  /// Streams answered before their request was complete. They are reset once the response is sent (RFC 9113 section
  /// 8.1).
  private var answeredEarly: [HTTP2StreamHandle] = []

  /// Create a connection for a channel's pipeline. Resources belong to that channel's event loop.
  package init(delegate: Delegate, resources: HTTP2ServerResources) {
    self.delegate = delegate
    self.resources = resources
    self.core = .allocate(capacity: 1)
    core.initialize(to: ServerCore(resources: resources, now: .uptimeNanoseconds(0)))
  }

  deinit {
    core.pointee.destroy()
    // Pending slots are freed without a callback: the handler is gone.
    while let slot = core.pointee.pending.popFirst() { core.pointee.pool.pointee.put(slot) }
    core.deinitialize(count: 1)
    core.deallocate()
  }

  // MARK: State

  /// Counters so far.
  package var counters: HTTP2Counters { core.pointee.counters }

  /// Bytes of request bodies that are buffered now, see ``HTTP2Limits/bufferedBodyBytesMax``.
  package var bufferedBodyBytes: Int { core.pointee.bodies.total }

  /// Streams open now.
  package var openStreams: Int { core.pointee.streams.count }

  /// Whether the connection is active and has not started to shut down.
  package var isActive: Bool { lifecycle.state == .active }

  /// The peer's address, while the channel is in a pipeline.
  package var remoteAddress: SocketAddress? { context?.remoteAddress }

  /// Whether the peer is authenticated, or the connection is shared. Until then it may hold
  /// ``HTTP2Limits/unauthenticatedMemoryBytesMax``, open ``HTTP2Limits/unauthenticatedStreamsMax``, and send within
  /// HTTP/2's default window.
  package var isAuthenticated: Bool { core.pointee.memory.isAuthenticated }

  /// Whether the connection ended because the peer broke the protocol or a limit.
  package var hasFailed: Bool { core.pointee.hasFailed }

  /// Mark the peer as authenticated and raise its limits to those of ``HTTP2Limits``. If it is called before the
  /// channel is active, the first SETTINGS already carry them.
  package func markAuthenticated() {
    guard !isAuthenticated else { return }
    core.pointee.memory.markAuthenticated()
    guard let session = core.pointee.session else { return }
    var entry = nghttp2_settings_entry(
      settings_id: Int32(NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS.rawValue),
      value: resources.limits.concurrentStreamsMax
    )
    // Both fail only for lack of memory.
    if resources.limits.unauthenticatedStreams < resources.limits.concurrentStreamsMax {
      _ = nghttp2_submit_settings(session, 0, &entry, 1)
    }
    _ = nghttp2_session_set_local_window_size(session, 0, 0, resources.limits.connectionWindowSize)
    output.markPending()
  }

  /// Whether many clients share the connection because it comes from a proxy. One client must neither end it nor slow
  /// it for the others. It counts as authenticated, and the limits that end a connection are wide
  /// (``HTTP2Limits/shared``). Set it before the channel is active.
  package var isShared = false {
    didSet {
      core.pointee.setShared(isShared, limits: limits)
    }
  }

  private var limits: HTTP2Limits { isShared ? resources.limits.shared : resources.limits }

  /// The channel, while it is in a pipeline.
  package var channel: (any Channel)? { context?.channel }

  /// The channel's event loop, while it is in a pipeline.
  package var eventLoop: (any EventLoop)? { context?.eventLoop }

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

  /// Begin the session and send SETTINGS at once (RFC 9113 section 3.4).
  package func channelActive(context: ChannelHandlerContext) {
    activate(context)
    context.fireChannelActive()
  }

  /// End the session and abort open streams.
  package func channelInactive(context: ChannelHandlerContext) {
    closed()
    context.fireChannelInactive()
  }

  /// Pass the bytes to nghttp2, then deliver complete requests to the delegate.
  package func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    guard lifecycle.acceptsInput, core.pointee.session != nil else { return }
    let buffer = unwrapInboundIn(data)
    let now = context.eventLoop.now
    lastActivity = now
    core.pointee.advance(to: now)
    resources.headers.updateDate(now: now)
    core.pointee.counters.bytesIn &+= UInt64(buffer.readableBytes)
    let core = core
    output.beginWork()
    let result = buffer.withUnsafeReadableBytes { bytes in
      guard let base = bytes.baseAddress else { return 0 }
      return ServerCore.receive(core, base.assumingMemoryBound(to: UInt8.self), bytes.count)
    }
    output.markPending()
    if result < 0 {
      core.pointee.receiveFailed(result)
      lifecycle.sessionFailed()
    }
    if !core.pointee.chargeOutboundQueue(), lifecycle.acceptsInput {
      core.pointee.terminate(.enhanceYourCalm)
      lifecycle.sessionFailed()
    }
    notifyDelegate()
    output.endWork()
  }

  /// Read only while the channel is writable. A peer that sends and does not read would otherwise make nghttp2 queue
  /// answers and resets without end.
  package func read(context: ChannelHandlerContext) {
    if context.channel.isWritable || !lifecycle.acceptsInput {
      context.read()
    } else {
      output.deferRead(now: context.eventLoop.now)
    }
  }

  /// Send the responses of this read loop in one write.
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
      output.unblock()
      flushIfNeeded()
      if output.removeDeferredRead() { context.read() }
    }
    context.fireChannelWritabilityChanged()
  }

  /// Close the channel: the handlers below cannot recover from an error.
  package func errorCaught(context: ChannelHandlerContext, error: any Error) {
    context.close(promise: nil)
    context.fireErrorCaught(error)
  }

  /// Close the connection when the peer closes its side: HTTP/2 has no half-closed connection.
  package func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
    if let event = event as? ChannelEvent, event == .inputClosed { context.close(promise: nil) }
    context.fireUserInboundEventTriggered(event)
  }

  // MARK: Start and shutdown

  private func activate(_ context: ChannelHandlerContext) {
    guard lifecycle.state == .idle else { return }
    lifecycle.activated()
    lastActivity = context.eventLoop.now
    core.pointee.advance(to: lastActivity)
    core.pointee.inbound.restart(ControlFrameBudget(limits: limits, now: lastActivity))
    var session: OpaquePointer?
    // Fails only for lack of memory.
    guard
      nghttp2_session_server_new3(
        &session,
        resources.callbacks,
        core,
        isShared ? resources.sharedOptions : resources.options,
        &resources.memoryFunctions
      ) == 0, let session
    else {
      context.close(promise: nil)
      return
    }
    core.pointee.begin(owned: session)
    resources.budget.pointee.connectionOpened()
    submitSettings(session)
    output.markPending()
    flushIfNeeded()
    scheduleTick(context, resources.limits.prefaceTimeout)
  }

  private func submitSettings(_ session: OpaquePointer) {
    let limits = limits
    let entries: [(nghttp2_settings_id, UInt32)] = [
      (
        NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS,
        isAuthenticated ? limits.concurrentStreamsMax : limits.unauthenticatedStreams
      ), (NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, limits.initialWindowSize),
      (NGHTTP2_SETTINGS_MAX_FRAME_SIZE, limits.frameSizeMax),
      (NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, UInt32(limits.headerListBytesMax)),
      (NGHTTP2_SETTINGS_HEADER_TABLE_SIZE, limits.headerTableSize),
      // Responses are small and equally urgent: no priority tree (RFC 9113 section 5.3.2, RFC 9218 section 2.1).
      (NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1),
    ]
    let list = entries.map { nghttp2_settings_entry(settings_id: Int32($0.0.rawValue), value: $0.1) }
    // Both calls can fail on values out of range, which HTTP2Limits.validate has rejected, or for lack of memory.
    _ = nghttp2_submit_settings(session, 0, list, list.count)
    if isAuthenticated {
      _ = nghttp2_session_set_local_window_size(session, 0, 0, limits.connectionWindowSize)
    }
  }

  /// Close the connection once its streams are done: a warning GOAWAY at once, a binding one after `grace`, then the
  /// output is closed (RFC 9113 section 6.8). With a grace of zero the warning is omitted.
  package func shutdownGracefully(grace: TimeAmount) {
    guard let context else { return }
    switch lifecycle.shutdownRequested(hasGrace: grace > .zero) {
    case .none: return
    case .close: context.close(promise: nil)
    case .sendGoAway: submitGoAway()
    case .sendNoticeThenGoAway:
      if let session = core.pointee.session { _ = nghttp2_submit_shutdown_notice(session) }
      output.markPending()
      graceTimer = context.eventLoop.assumeIsolated().scheduleTask(in: grace) {
        if self.lifecycle.graceElapsed() { self.submitGoAway() }
      }
    }
    flushIfNeeded()
  }

  private func submitGoAway() {
    guard core.pointee.session != nil else { return }
    core.pointee.submitGoAway()
    output.markPending()
    flushIfNeeded()
  }

  /// End the connection at once with that error, even with unanswered requests.
  package func fail(_ code: HTTP2ErrorCode) {
    guard lifecycle.acceptsInput else { return }
    core.pointee.terminate(code)
    lifecycle.sessionFailed()
    output.markPending()
    flushIfNeeded()
  }

  private func closed() {
    guard lifecycle.channelInactive() else { return }
    tick?.cancel()
    graceTimer?.cancel()
    lingerTimer?.cancel()
    if core.pointee.session != nil { resources.budget.pointee.connectionClosed() }
    core.pointee.destroy()
    output.beginWork()
    notifyDelegate()
    output.endWork()
    delegate.http2ConnectionClosed(self)
  }

  // MARK: Calling the delegate

  /// Call the delegate for every pending slot. Never called from inside nghttp2.
  private func notifyDelegate() {
    let core = core
    while let slot = core.pointee.pending.popFirst() {
      let handle = slot.pointee.handle
      switch slot.pointee.state.takePendingAction(hasBytes: slot.pointee.received.bodyCount > 0) {
      case .none: break
      case .announce:
        if delegate.http2RequestAnnounced(handle, on: self) {
          core.pointee.submitContinue(slot)
        } else {
          core.pointee.refuseBody(slot)
        }
      case .deliver(let hasBody):
        delegate.http2RequestReceived(handle, on: self)
        if hasBody { delegate.http2RequestBodyReceived(handle, on: self) }
      case .notify(let isDrained, let hasBody):
        if isDrained { delegate.http2StreamDrained(handle, on: self) }
        if hasBody { delegate.http2RequestBodyReceived(handle, on: self) }
      case .free(let isAborted):
        core.pointee.pool.pointee.put(slot)
        if isAborted { delegate.http2StreamAborted(handle, on: self) }
      }
    }
  }

  // MARK: Output

  /// Record that nghttp2 may have output, for the next flush.
  @inline(__always)
  func markOutputPending() { output.markPending() }

  /// Record a submitted response. If its request is not complete, the stream is reset once the response is sent.
  @inline(__always)
  func responseSubmitted(_ slot: UnsafeMutablePointer<StreamSlot>) {
    core.pointee.counters.responses += 1
    if !slot.pointee.state.hasRemoteEnded { answeredEarly.append(slot.pointee.handle) }
  }

  /// Close the channel: nghttp2 did not take a response.
  func submissionFailed() { context?.close(promise: nil) }

  /// Write the responses queued since the last flush, in one write of some ``HTTP2Limits/writeBytesMax``. What is left
  /// is written in the loop's next turn, so that no connection delays the others. Cheap when nothing is queued. Does
  /// nothing inside a read, which flushes at its end.
  package func flushIfNeeded() {
    guard let context, output.beginFlush() else { return }
    while lifecycle.acceptsOutput, let session = core.pointee.session, output.beginWrite() {
      send(session, context)
      resetAnsweredEarly()
      notifyDelegate()
    }
    output.endWork()
    _ = core.pointee.chargeOutboundQueue()
    guard let session = core.pointee.session, lifecycle.acceptsOutput, !output.isBlocked else { return }
    if nghttp2_session_want_read(session) == 0 && nghttp2_session_want_write(session) == 0 {
      if lifecycle.flushed(sessionDone: true) { closeOutput(context) }
    }
  }

  private func send(_ session: OpaquePointer, _ context: ChannelHandlerContext) {
    guard context.channel.isWritable else {
      // channelWritabilityChanged resumes from here. The channel's high-water mark and one write bound the output so
      // far.
      output.block(now: context.eventLoop.now)
      return
    }
    let writeBytesMax = resources.limits.writeBytesMax
    var bytes = resources.output
    resources.output = ByteBuffer()
    bytes.clear()
    let drained = drain(session, into: &bytes, bytesMax: writeBytesMax)
    if bytes.readableBytes > 0 {
      core.pointee.counters.bytesOut &+= UInt64(bytes.readableBytes)
      context.writeAndFlush(wrapOutboundOut(bytes), promise: nil)
    }
    if bytes.capacity <= writeBytesMax * 2 { resources.output = bytes }
    // The write may have failed and closed the channel, and with it the session.
    guard core.pointee.session != nil else { return }
    switch drained {
    case .more: sendLater(context)
    case .all: break
    case .failed: context.close(promise: nil)
    }
  }

  /// Continue the output after the other connections of the event loop had their turn.
  private func sendLater(_ context: ChannelHandlerContext) {
    output.postpone()
    let proceed = {
      self.output.resume()
      self.flushIfNeeded()
    }
    resources.turns.append(proceed, on: context.eventLoop)
  }

  /// Reset streams that were answered before their request was complete: the rest is not needed (RFC 9113 section 8.1).
  private func resetAnsweredEarly() {
    guard !answeredEarly.isEmpty, let session = core.pointee.session else { return }
    answeredEarly.removeAll { handle in
      guard let slot = core.pointee.pool.pointee.find(handle) else { return true }
      if slot.pointee.state.hasRemoteEnded { return true }
      guard slot.pointee.state.hasLocalEnded, !output.isBlocked else { return false }
      let isOver = slot.pointee.bodyShare.dropped >= resources.limits.droppedBodyBytesMax
      guard isOver || slot.pointee.state.isBodyStreamed else { return false }
      _ = nghttp2_submit_rst_stream(session, 0, slot.pointee.streamID, HTTP2ErrorCode.noError.rawValue)
      output.markPending()
      return true
    }
  }

  /// Close the output first. If both sides were closed with unread input, the kernel would drop the GOAWAY.
  private func closeOutput(_ context: ChannelHandlerContext) {
    lingerTimer = context.eventLoop.assumeIsolated().scheduleTask(in: resources.limits.writeTimeout) {
      self.context?.close(promise: nil)
    }
    let promise = context.eventLoop.makePromise(of: Void.self)
    let isolated = promise.futureResult.assumeIsolated()
    isolated.whenComplete { result in
      guard let context = self.context else { return }
      switch result {
      case .failure: context.close(promise: nil)
      case .success:
        guard self.lifecycle.state == .lingering else { return }
        self.lingerTimer?.cancel()
        let linger = self.resources.limits.lingerTimeout
        self.lingerTimer = context.eventLoop.assumeIsolated().scheduleTask(in: linger) {
          self.context?.close(promise: nil)
        }
      }
    }
    context.close(mode: .output, promise: promise)
  }

  // MARK: Timeouts

  private func scheduleTick(_ context: ChannelHandlerContext, _ delay: TimeAmount) {
    tick = context.eventLoop.assumeIsolated().scheduleTask(in: delay) { self.ticked() }
  }

  /// Check all timeouts of the connection. One timer does it, so each timeout may fire late by up to the shortest of
  /// them.
  private func ticked() {
    guard let context, lifecycle.acceptsOutput else { return }
    let limits = resources.limits
    let now = context.eventLoop.now
    if !core.pointee.inbound.isPrefaceComplete {
      core.pointee.counters.limitsHit += 1
      fail(.settingsTimeout)
    } else if output.isBlocked(for: limits.writeTimeout, now: now) {
      core.pointee.counters.limitsHit += 1
      context.close(promise: nil)
      return
    } else if core.pointee.streams.count == 0 && now - lastActivity >= limits.idleTimeout {
      shutdownGracefully(grace: .zero)
    } else {
      resetStalled(now)
    }
    if lifecycle.acceptsOutput {
      scheduleTick(context, min(limits.requestTimeout, min(limits.writeTimeout, limits.idleTimeout)))
    }
  }

  /// Reset streams whose request is not complete in time, or whose response the peer's windows block. Visits all open
  /// streams, at most concurrentStreamsMax, once per timer period.
  private func resetStalled(_ now: NIODeadline) {
    guard let session = core.pointee.session else { return }
    let limits = resources.limits
    core.pointee.advance(to: now)
    let hasProgressed = core.pointee.progress.hasProgressed(within: limits.writeTimeout, now: now)
    var index = core.pointee.streams.oldest
    while index != StreamSlot.none {
      let slot = core.pointee.pool.pointee.pointer(index)
      let isStalled =
        switch slot.pointee.state.awaited {
        case .nothing: false
        case .request:
          !slot.pointee.bodyShare.awaitsGrant
            && slot.pointee.deadlines.isRequestOverdue(limits.requestTimeout, now: now)
        case .droppedBody: slot.pointee.deadlines.isRequestOverdue(limits.requestTimeout, now: now)
        case .responseWindow: isResponseStalled(slot, session, hasProgressed: hasProgressed, now: now)
        }
      if isStalled {
        core.pointee.counters.limitsHit += 1
        _ = nghttp2_submit_rst_stream(session, 0, slot.pointee.streamID, HTTP2ErrorCode.cancel.rawValue)
        output.markPending()
      }
      index = slot.pointee.links.next
    }
    flushIfNeeded()
  }

  /// Return whether the peer blocks this response. A response that only queues behind others on a slow connection is
  /// not stalled.
  private func isResponseStalled(
    _ slot: UnsafeMutablePointer<StreamSlot>,
    _ session: OpaquePointer,
    hasProgressed: Bool,
    now: NIODeadline
  ) -> Bool {
    // While the channel is not writable, its own timeout covers the whole connection.
    guard !output.isBlocked else { return false }
    let unsent = slot.pointee.outgoing.bytes.readableBytes
    guard slot.pointee.deadlines.isUnsentOverdue(unsent, resources.limits.writeTimeout, now: now) else {
      return false
    }
    return !hasProgressed || nghttp2_session_get_stream_remote_window_size(session, slot.pointee.streamID) <= 0
  }
}

/// Application callbacks for requests. One delegate may serve one connection or all of an event loop. It is called only
/// on the event loop, and never from inside nghttp2.
package protocol HTTP2ServerDelegate: AnyObject {
  /// Handle the headers of a request that have arrived without its body, on a connection whose peer is not yet
  /// authenticated (``HTTP2ServerConnection/isAuthenticated``). The delegate can authenticate it with
  /// ``HTTP2ServerConnection/withHeaders(_:_:)``.
  ///
  /// - Returns: whether the body is wanted. If not, the request is delivered at once and its body dropped.
  func http2RequestAnnounced(_ stream: HTTP2StreamHandle, on connection: HTTP2ServerConnection<Self>) -> Bool

  /// Handle a complete request: END_STREAM was seen and the content-length agreed. Also called when it exceeded a
  /// limit, see ``HTTP2Request/headersTooLarge`` and ``HTTP2Request/bodyTooLarge``. Answer now, or later on the same
  /// event loop.
  func http2RequestReceived(_ stream: HTTP2StreamHandle, on connection: HTTP2ServerConnection<Self>)

  /// Handle the end of a read: all its requests have been delivered; flush downstream writes here. Responses given
  /// before this returns leave in one write.
  func http2ReadComplete(on connection: HTTP2ServerConnection<Self>)

  /// Handle a delivered stream that closed before it was answered, or a streaming response that closed before its end
  /// was sent. The handle is already stale.
  func http2StreamAborted(_ stream: HTTP2StreamHandle, on connection: HTTP2ServerConnection<Self>)

  /// Handle a streaming response that has sent its whole queue, after it had refused bytes as ``HTTP2Outcome/full``.
  func http2StreamDrained(_ stream: HTTP2StreamHandle, on connection: HTTP2ServerConnection<Self>)

  /// Handle more of a streamed request's body, or its end, that has arrived: call
  /// ``HTTP2ServerConnection/readBody(_:_:)``.
  func http2RequestBodyReceived(_ stream: HTTP2StreamHandle, on connection: HTTP2ServerConnection<Self>)

  /// Handle the end of the connection; no other call follows.
  func http2ConnectionClosed(_ connection: HTTP2ServerConnection<Self>)
}

extension HTTP2ServerDelegate {
  /// Accept every body.
  package func http2RequestAnnounced(
    _ stream: HTTP2StreamHandle,
    on connection: HTTP2ServerConnection<Self>
  ) -> Bool { true }
  /// Do nothing.
  package func http2ReadComplete(on connection: HTTP2ServerConnection<Self>) {}
  /// Do nothing.
  package func http2StreamAborted(_ stream: HTTP2StreamHandle, on connection: HTTP2ServerConnection<Self>) {}
  /// Do nothing.
  package func http2StreamDrained(_ stream: HTTP2StreamHandle, on connection: HTTP2ServerConnection<Self>) {}
  /// Do nothing.
  package func http2RequestBodyReceived(_ stream: HTTP2StreamHandle, on connection: HTTP2ServerConnection<Self>) {}
  /// Do nothing.
  package func http2ConnectionClosed(_ connection: HTTP2ServerConnection<Self>) {}
}
