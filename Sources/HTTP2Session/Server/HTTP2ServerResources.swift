internal import CNghttp2
package import NIOCore

/// Resources that the connections of one event loop share: limits, nghttp2's callback table and options, the slots of
/// all streams, and scratch buffers. Make one per event loop.
package final class HTTP2ServerResources {
  /// The limits of every connection made with these resources.
  package let limits: HTTP2Limits

  /// Adds headers to the response to a request; nil by default.
  package var commonHeaders: ((borrowing HTTP2Request, inout ResponseFields) -> Void)?

  /// Returns a hash of the client that a request on a shared connection names (``HTTP2ServerConnection/isShared``). The
  /// hash is never 0 and uses a secret seed; nil if the request names no client. Set it before the first connection.
  package var clientKey: ((borrowing HTTP2Request) -> UInt64?)?

  let streamedContentTypes: [HTTP2ContentType]
  let callbacks: OpaquePointer
  let options: OpaquePointer
  /// nghttp2 options of shared connections.
  let sharedOptions: OpaquePointer
  let pool: UnsafeMutablePointer<SlotPool>
  let memory: UnsafeMutablePointer<SessionMemory>
  var memoryFunctions: nghttp2_mem
  let budget: UnsafeMutablePointer<MemoryBudget>
  /// Names in ``HTTP2Limits/retainedHeaders``; nil: all headers are kept.
  let retainedHeaders: [[UInt8]]?
  let headers: ResponseHeaders
  /// Output buffer of the connection that is flushing. It is reused between flushes: by then the channel has usually
  /// released it.
  var output = ByteBuffer()
  /// Turns of the loop's connections, and of the application's streams.
  package let turns = LoopTurns()

  /// Create resources with empty pools.
  ///
  /// - Parameter streamedContentTypes: requests of these types are delivered when their headers are complete. Their
  ///   bodies are read as they arrive, without ``HTTP2Limits/bodyBytesMax``: see
  ///   ``HTTP2ServerConnection/readBody(_:_:)``.
  package init(limits: HTTP2Limits = HTTP2Limits(), streamedContentTypes: [HTTP2ContentType] = []) {
    limits.validate()
    self.streamedContentTypes = streamedContentTypes
    self.limits = limits
    self.callbacks = makeServerCallbacks()
    self.options = HTTP2ServerResources.makeOptions(limits)
    self.sharedOptions = HTTP2ServerResources.makeOptions(limits.shared)
    self.pool = .allocate(capacity: 1)
    self.pool.initialize(to: SlotPool(retainedBufferBytesMax: limits.retainedBufferBytesMax))
    self.headers = ResponseHeaders()
    self.memory = .allocate(capacity: 1)
    self.memory.initialize(to: SessionMemory())
    self.memoryFunctions = makeSessionMemory(memory)
    self.budget = .allocate(capacity: 1)
    self.budget.initialize(to: MemoryBudget(limits: limits))
    self.retainedHeaders = limits.retainedHeaders?.map { Array($0.utf8) }
  }

  /// Free the buffers that a peak of load has left. Call it periodically.
  ///
  /// - Returns: whether the allocator should be asked to return memory to the system.
  package func freeUnused() -> Bool {
    guard budget.pointee.hasDroppedFromPeak() else { return false }
    pool.pointee.releaseFreeBuffers()
    return true
  }

  /// Change the memory limits (``HTTP2Limits/memoryBytesMax`` and its shares), also for open connections. The other
  /// limits stay.
  package func setMemoryLimits(_ limits: HTTP2Limits) { budget.pointee.setLimits(limits) }

  /// Bytes held for the streams of all connections.
  package var heldBytes: Int { budget.pointee.held }

  deinit {
    nghttp2_session_callbacks_del(callbacks)
    nghttp2_option_del(options)
    nghttp2_option_del(sharedOptions)
    pool.pointee.destroy()
    pool.deinitialize(count: 1)
    pool.deallocate()
    memory.pointee.destroy()
    memory.deallocate()
    budget.pointee.destroy()
    budget.deallocate()
  }

  private static func makeOptions(_ limits: HTTP2Limits) -> OpaquePointer {
    var options: OpaquePointer?
    // Fails only for lack of memory.
    guard nghttp2_option_new(&options) == 0, let options else {
      fatalError("nghttp2_option_new: no memory")
    }
    nghttp2_option_set_no_closed_streams(options, 1)
    // nghttp2_session_consume returns window bytes once a body has been stored, dropped or read.
    nghttp2_option_set_no_auto_window_update(options, 1)
    nghttp2_option_set_stream_reset_rate_limit(options, limits.streamResetBurst, limits.streamResetsPerSecond)
    nghttp2_option_set_max_continuations(options, limits.continuationsMax)
    nghttp2_option_set_max_settings(options, limits.settingsEntriesMax)
    nghttp2_option_set_max_outbound_ack(options, limits.outboundAcksMax)
    // The header callback checks whitespace: the application must answer an `authorization` that ends with a space.
    nghttp2_option_set_no_rfc9113_leading_and_trailing_ws_validation(options, 1)
    return options
  }
}

/// A queue of work that the connections and streams of one event loop postpone, because they have more to do than one
/// turn of the loop allows, such as output beyond ``HTTP2Limits/writeBytesMax``. A turn runs a few entries; then the
/// loop handles other events. So a peer that reads large responses as fast as they come does not delay others.
///
/// A task that submits itself again, with `execute`, would keep the loop from reading: NIO runs all tasks that are due
/// before it looks at its sockets again.
package final class LoopTurns {
  /// Connections and streams that proceed in one turn.
  private static let entriesPerTurn = 16
  private static let pause = TimeAmount.microseconds(200)

  private var waiting: [() -> Void] = []
  private var isScheduled = false

  /// Call the closure in a later turn.
  package func append(_ proceed: @escaping () -> Void, on eventLoop: any EventLoop) {
    waiting.append(proceed)
    if !isScheduled { schedule(eventLoop) }
  }

  private func schedule(_ eventLoop: any EventLoop) {
    isScheduled = true
    eventLoop.assumeIsolated().scheduleTask(in: Self.pause) {
      let turn = Array(self.waiting.prefix(Self.entriesPerTurn))
      self.waiting.removeFirst(turn.count)
      for proceed in turn { proceed() }
      self.isScheduled = !self.waiting.isEmpty
      // From a task, so that the pause begins after this turn and the tasks that it has submitted. Otherwise a long
      // turn would use up the pause, and the next one would run at once.
      if self.isScheduled { eventLoop.assumeIsolated().execute { self.schedule(eventLoop) } }
    }
  }
}
