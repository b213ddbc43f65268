internal import CNghttp2
package import NIOCore

/// The server's side of one HTTP/2 connection: a channel handler over an nghttp2 session. Bytes come in as
/// `ByteBuffer`, requests go to the delegate, answers are gathered and leave in one write per read loop.
///
/// All of it runs on the channel's event loop, and none of its calls is safe elsewhere. Answers given outside
/// a read of this connection (a reply came in on another channel) stay queued until ``flushIfNeeded()``: call
/// it once per connection when your own read loop ends.
///
/// Per request nothing is allocated here but by nghttp2: streams live in slots that are used again and again.
package final class HTTP2ServerConnection<Delegate: HTTP2ServerDelegate>: ChannelInboundHandler {
  package typealias InboundIn = ByteBuffer
  package typealias OutboundOut = ByteBuffer

  /// Who is told of requests. Kept until the connection has closed.
  package let delegate: Delegate

  /// For the application: an accepted user's identity, an address, a metric's label.
  package var userToken: UInt64 = 0

  let resources: HTTP2ServerResources
  let core: UnsafeMutablePointer<ServerCore>
  var lifecycle = ConnectionLifecycle()
  var context: ChannelHandlerContext?
  private var tick: Scheduled<Void>?
  private var graceTimer: Scheduled<Void>?
  private var lingerTimer: Scheduled<Void>?

  /// Something may be waiting in nghttp2.
  var isDirty = false
  /// In a read, a flush or a call to the delegate: flushing waits for its end.
  private var isBusy = false
  private var lastActivity = NIODeadline.uptimeNanoseconds(0)
  /// Since when the channel has taken nothing; nil while it does.
  private var blockedSince: NIODeadline?
  /// What ``ServerCore/answerBytes`` was when the timer last saw it grow, and when that was.
  private var movedBytes: UInt64 = 0
  private var movedAt = NIODeadline.uptimeNanoseconds(0)

  /// A connection to be added to a channel's pipeline. Resources belong to that channel's event loop.
  package init(delegate: Delegate, resources: HTTP2ServerResources) {
    self.delegate = delegate
    self.resources = resources
    self.core = .allocate(capacity: 1)
    let now = NIODeadline.uptimeNanoseconds(0)
    core.initialize(
      to: ServerCore(
        session: nil,
        pool: resources.pool,
        maxHeaderListBytes: resources.limits.maxHeaderListBytes,
        maxBodyBytes: resources.limits.maxBodyBytes,
        streamedWindowSize: resources.limits.streamedWindowSize,
        streamedContentTypes: resources.streamedContentTypes,
        now: now,
        bodies: BodyBudget(limits: resources.limits),
        memory: resources.budget,
        maxDecodedHeaderBytes: resources.limits.maxDecodedHeaderBytes,
        keepsAllHeaders: resources.keptHeaders == nil,
        keptHeaders: resources.keptHeaders ?? [],
        clientKey: resources.clientKey,
        controlFrames: ControlFrameBudget(limits: resources.limits, now: now)
      )
    )
  }

  deinit {
    core.pointee.destroy()
    // Whoever still waited will not be told: the handler is gone.
    while let slot = core.pointee.popWaiting() { core.pointee.pool.pointee.put(slot) }
    core.deinitialize(count: 1)
    core.deallocate()
  }

  // MARK: State

  /// What has been counted so far.
  package var counters: HTTP2Counters { core.pointee.counters }

  /// Bytes of request bodies held now, see ``HTTP2Limits/maxBufferedBodyBytes``.
  package var bufferedBodyBytes: Int { core.pointee.bodies.total }

  /// Streams open now.
  package var openStreams: Int { core.pointee.openCount }

  /// Whether the connection has not begun to end.
  package var isActive: Bool { lifecycle.state == .active }

  /// The peer's address, while the channel is in a pipeline.
  package var remoteAddress: SocketAddress? { context?.remoteAddress }

  /// The peer has shown who it is: it may hold ``HTTP2Limits/maxConnectionHeldBytes``.
  package var isProven: Bool {
    get { core.pointee.isProven }
    set { core.pointee.isProven = newValue }
  }

  /// Clients of a proxy share it: what one of them does must neither end it nor slow it. So it counts as proven, and the
  /// limits that end a connection are wide (``HTTP2Limits/shared``). Set it before the channel is active.
  package var isShared = false {
    didSet {
      core.pointee.isProven = isShared
      core.pointee.isShared = isShared
      core.pointee.maxDecodedHeaderBytes = limits.maxDecodedHeaderBytes
      core.pointee.bodies = BodyBudget(limits: limits)
    }
  }

  private var limits: HTTP2Limits { isShared ? resources.limits.shared : resources.limits }

  /// The channel, while it is in a pipeline.
  package var channel: (any Channel)? { context?.channel }

  /// The channel's event loop, while it is in a pipeline.
  package var eventLoop: (any EventLoop)? { context?.eventLoop }

  // MARK: Channel events

  /// Begins the session if the channel is active already.
  package func handlerAdded(context: ChannelHandlerContext) {
    self.context = context
    if context.channel.isActive { activate(context) }
  }

  /// Ends the session.
  package func handlerRemoved(context: ChannelHandlerContext) {
    closed()
    self.context = nil
  }

  /// Begins the session: SETTINGS are sent at once (RFC 9113 section 3.4).
  package func channelActive(context: ChannelHandlerContext) {
    activate(context)
    context.fireChannelActive()
  }

  /// Ends the session: open streams are aborted.
  package func channelInactive(context: ChannelHandlerContext) {
    closed()
    context.fireChannelInactive()
  }

  /// Feeds nghttp2, then hands complete requests to the delegate.
  package func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    guard lifecycle.takesInput, core.pointee.session != nil else { return }
    let buffer = unwrapInboundIn(data)
    let now = context.eventLoop.now
    lastActivity = now
    core.pointee.now = now
    resources.headers.updateDate(now: now)
    core.pointee.counters.bytesIn &+= UInt64(buffer.readableBytes)
    let core = core
    isBusy = true
    let result = buffer.withUnsafeReadableBytes { bytes in
      guard let base = bytes.baseAddress else { return 0 }
      return core.pointee.receive(base.assumingMemoryBound(to: UInt8.self), bytes.count)
    }
    isDirty = true
    if result < 0 {
      core.pointee.receiveFailed(result)
      lifecycle.sessionFailed()
    }
    tellDelegate()
    isBusy = false
  }

  /// The end of a read loop: everything that was answered leaves in one write.
  package func channelReadComplete(context: ChannelHandlerContext) {
    if lifecycle.takesOutput {
      delegate.http2ReadComplete(on: self)
      flushIfNeeded()
    }
    context.fireChannelReadComplete()
  }

  /// Goes on sending where the peer had stopped reading.
  package func channelWritabilityChanged(context: ChannelHandlerContext) {
    if context.channel.isWritable {
      blockedSince = nil
      isDirty = true
      flushIfNeeded()
    }
    context.fireChannelWritabilityChanged()
  }

  /// Closes: whatever failed below, there is no way on from it.
  package func errorCaught(context: ChannelHandlerContext, error: any Error) {
    context.close(promise: nil)
    context.fireErrorCaught(error)
  }

  /// A peer that closes its side ends the connection: HTTP/2 has no half-closed connection.
  package func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
    if let event = event as? ChannelEvent, event == .inputClosed { context.close(promise: nil) }
    context.fireUserInboundEventTriggered(event)
  }

  // MARK: Begin and end

  private func activate(_ context: ChannelHandlerContext) {
    guard lifecycle.state == .idle else { return }
    lifecycle.activated()
    lastActivity = context.eventLoop.now
    core.pointee.now = lastActivity
    core.pointee.controlFrames = ControlFrameBudget(limits: limits, now: lastActivity)
    var made: OpaquePointer?
    // The only failure is lack of memory.
    guard
      nghttp2_session_server_new3(
        &made,
        resources.callbacks,
        core,
        isShared ? resources.sharedOptions : resources.options,
        &resources.memoryFunctions
      ) == 0,
      let made
    else {
      context.close(promise: nil)
      return
    }
    core.pointee.session = made
    submitSettings(made)
    isDirty = true
    flushIfNeeded()
    scheduleTick(context, resources.limits.prefaceTimeout)
  }

  private func submitSettings(_ session: OpaquePointer) {
    let limits = resources.limits
    let entries: [(nghttp2_settings_id, UInt32)] = [
      (NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, limits.maxConcurrentStreams),
      (NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, limits.initialWindowSize),
      (NGHTTP2_SETTINGS_MAX_FRAME_SIZE, limits.maxFrameSize),
      (NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, UInt32(limits.maxHeaderListBytes)),
      (NGHTTP2_SETTINGS_HEADER_TABLE_SIZE, limits.headerTableSize),
      // Answers are small and all urgent: no priority tree (RFC 9113 section 5.3.2, RFC 9218 section 2.1).
      (NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1),
    ]
    let list = entries.map { nghttp2_settings_entry(settings_id: Int32($0.0.rawValue), value: $0.1) }
    // Both can fail on values out of range, which HTTP2Limits.validate has refused, or for lack of memory.
    _ = nghttp2_submit_settings(session, 0, list, list.count)
    _ = nghttp2_session_set_local_window_size(session, 0, 0, limits.connectionWindowSize)
  }

  /// Ends the connection when its streams are done: a GOAWAY that warns at once, a binding one after `grace`,
  /// then the output is closed (RFC 9113 section 6.8). With a grace of zero the warning is left out.
  package func shutdownGracefully(grace: TimeAmount) {
    guard let context else { return }
    switch lifecycle.shutdownRequested(hasGrace: grace > .zero) {
    case .none: return
    case .close: context.close(promise: nil)
    case .sendGoAway: submitGoAway()
    case .sendNoticeThenGoAway:
      if let session = core.pointee.session { _ = nghttp2_submit_shutdown_notice(session) }
      isDirty = true
      graceTimer = context.eventLoop.assumeIsolated().scheduleTask(in: grace) {
        if self.lifecycle.graceElapsed() { self.submitGoAway() }
      }
    }
    flushIfNeeded()
  }

  private func submitGoAway() {
    guard let session = core.pointee.session else { return }
    core.pointee.goAwaySubmitted = true
    let last = nghttp2_session_get_last_proc_stream_id(session)
    _ = nghttp2_submit_goaway(session, 0, last, HTTP2ErrorCode.noError.rawValue, nil, 0)
    isDirty = true
    flushIfNeeded()
  }

  /// Ends the connection at once with that error, answered or not.
  package func fail(_ code: HTTP2ErrorCode) {
    guard lifecycle.takesInput else { return }
    core.pointee.terminate(code)
    lifecycle.sessionFailed()
    isDirty = true
    flushIfNeeded()
  }

  private func closed() {
    guard lifecycle.channelInactive() else { return }
    tick?.cancel()
    graceTimer?.cancel()
    lingerTimer?.cancel()
    core.pointee.destroy()
    isBusy = true
    tellDelegate()
    isBusy = false
    delegate.http2ConnectionClosed(self)
  }

  // MARK: Telling the application

  /// Calls the delegate for every slot that waits. Never from inside nghttp2.
  private func tellDelegate() {
    let core = core
    while let slot = core.pointee.popWaiting() {
      switch slot.pointee.phase {
      case .ready:
        slot.pointee.phase = .delivered
        slot.pointee.flags.insert(.told)
        let handle = slot.pointee.handle
        let hasBody = slot.pointee.hasBodyToTell
        delegate.http2RequestReceived(handle, on: self)
        if hasBody { delegate.http2RequestBodyReceived(handle, on: self) }
      case .aborted:
        let handle = slot.pointee.handle
        let told = slot.pointee.flags.contains(.told) && !slot.pointee.flags.contains(.localEnded)
        core.pointee.pool.pointee.put(slot)
        if told { delegate.http2StreamAborted(handle, on: self) }
      case .delivered:
        if slot.pointee.hasBodyToTell { delegate.http2RequestBodyReceived(slot.pointee.handle, on: self) }
      case .streaming:
        let handle = slot.pointee.handle
        let hasBody = slot.pointee.hasBodyToTell
        if slot.pointee.flags.contains(.wantsDrain) {
          slot.pointee.flags.remove(.wantsDrain)
          delegate.http2StreamDrained(handle, on: self)
        }
        if hasBody { delegate.http2RequestBodyReceived(handle, on: self) }
      case .free, .receiving, .answered: break
      }
    }
  }

  // MARK: Output

  /// Writes what has been answered since the last flush, in as few writes as the limits allow. Cheap when
  /// there is nothing; does nothing inside a read, whose end flushes anyway.
  package func flushIfNeeded() {
    guard isDirty, !isBusy, let context else { return }
    isBusy = true
    while isDirty, lifecycle.takesOutput, let session = core.pointee.session {
      isDirty = false
      send(session, context)
      resetAnsweredEarly()
      tellDelegate()
    }
    isBusy = false
    guard let session = core.pointee.session, lifecycle.takesOutput, blockedSince == nil else { return }
    if nghttp2_session_want_read(session) == 0 && nghttp2_session_want_write(session) == 0 {
      if lifecycle.flushed(sessionDone: true) { closeOutput(context) }
    }
  }

  private func send(_ session: OpaquePointer, _ context: ChannelHandlerContext) {
    let maxWriteBytes = resources.limits.maxWriteBytes
    while true {
      guard context.channel.isWritable else {
        // channelWritabilityChanged goes on from here; the output so far is bounded by the channel's
        // high-water mark and one write.
        if blockedSince == nil { blockedSince = context.eventLoop.now }
        isDirty = false
        return
      }
      var output = resources.output
      resources.output = ByteBuffer()
      output.clear()
      let drained = drain(session, into: &output, maxBytes: maxWriteBytes)
      if output.readableBytes > 0 {
        core.pointee.counters.bytesOut &+= UInt64(output.readableBytes)
        context.writeAndFlush(wrapOutboundOut(output), promise: nil)
      }
      if output.capacity <= maxWriteBytes * 2 { resources.output = output }
      // The write may have failed and closed the channel, and the session with it.
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

  /// RFC 9113 section 8.1: after a complete answer the rest of the request is not wanted.
  private func resetAnsweredEarly() {
    guard !core.pointee.answeredEarly.isEmpty, let session = core.pointee.session else { return }
    core.pointee.answeredEarly.removeAll { handle in
      guard let slot = core.pointee.pool.pointee.find(handle) else { return true }
      if slot.pointee.flags.contains(.remoteEnded) { return true }
      guard slot.pointee.flags.contains(.localEnded), blockedSince == nil else { return false }
      let isOver = slot.pointee.droppedBodyBytes >= resources.limits.maxDroppedBodyBytes
      guard isOver || slot.pointee.flags.contains(.bodyStreams) else { return false }
      _ = nghttp2_submit_rst_stream(session, 0, slot.pointee.streamID, HTTP2ErrorCode.noError.rawValue)
      isDirty = true
      return true
    }
  }

  /// The output first: closing both at once with unread input would make the kernel drop the GOAWAY.
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

  // MARK: Time

  private func scheduleTick(_ context: ChannelHandlerContext, _ delay: TimeAmount) {
    tick = context.eventLoop.assumeIsolated().scheduleTask(in: delay) { self.ticked() }
  }

  /// One timer per connection looks after all of its limits of time, so each may be late by as much as the
  /// shortest.
  private func ticked() {
    guard let context, lifecycle.takesOutput else { return }
    let limits = resources.limits
    let now = context.eventLoop.now
    if !core.pointee.prefaceSeen {
      core.pointee.counters.limitsHit += 1
      fail(.settingsTimeout)
    } else if let since = blockedSince, now - since >= limits.writeTimeout {
      core.pointee.counters.limitsHit += 1
      context.close(promise: nil)
      return
    } else if core.pointee.openCount == 0 && now - lastActivity >= limits.idleTimeout {
      shutdownGracefully(grace: .zero)
    } else {
      resetStalled(now)
    }
    if lifecycle.takesOutput {
      scheduleTick(context, min(limits.requestTimeout, min(limits.writeTimeout, limits.idleTimeout)))
    }
  }

  /// Streams whose request is not complete in time, or whose answer the peer's windows hold back. Looks at all
  /// of them, at most maxConcurrentStreams, once per period of the timer.
  private func resetStalled(_ now: NIODeadline) {
    guard let session = core.pointee.session else { return }
    let limits = resources.limits
    core.pointee.now = now
    if core.pointee.answerBytes != movedBytes {
      movedBytes = core.pointee.answerBytes
      movedAt = now
    }
    let hasMoved = now - movedAt < limits.writeTimeout
    var index = core.pointee.oldest
    while index != StreamSlot.none {
      let slot = core.pointee.pool.pointee.pointer(index)
      let isStalled =
        switch slot.pointee.phase {
        case .receiving:
          !slot.pointee.flags.contains(.awaitsRoom) && now - slot.pointee.openedAt >= limits.requestTimeout
        case .answered where slot.pointee.flags.contains(.localEnded):
          // What is left is the rest of a body that nobody needs.
          now - slot.pointee.openedAt >= limits.requestTimeout
        case .answered: isAnswerStalled(slot, session, hasMoved, now)
        case .streaming where slot.pointee.flags.contains(.finished):
          isAnswerStalled(slot, session, hasMoved, now)
        case .free, .ready, .delivered, .streaming, .aborted: false
        }
      if isStalled {
        core.pointee.counters.limitsHit += 1
        _ = nghttp2_submit_rst_stream(session, 0, slot.pointee.streamID, HTTP2ErrorCode.cancel.rawValue)
        isDirty = true
      }
      index = slot.pointee.next
    }
    flushIfNeeded()
  }

  /// An answer that only waits its turn behind others of a slow connection is none.
  private func isAnswerStalled(
    _ slot: UnsafeMutablePointer<StreamSlot>,
    _ session: OpaquePointer,
    _ hasMoved: Bool,
    _ now: NIODeadline
  ) -> Bool {
    // While the channel takes nothing, that is the peer's fault at large.
    guard blockedSince == nil, !slot.pointee.flags.contains(.localEnded) else { return false }
    let unsent = slot.pointee.response.readableBytes
    if unsent != slot.pointee.unsentBytes {
      slot.pointee.unsentBytes = unsent
      slot.pointee.unsentSince = now
      return false
    }
    guard now - slot.pointee.unsentSince >= resources.limits.writeTimeout else { return false }
    return !hasMoved || nghttp2_session_get_stream_remote_window_size(session, slot.pointee.streamID) <= 0
  }
}
