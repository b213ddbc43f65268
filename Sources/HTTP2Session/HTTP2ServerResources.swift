internal import CNghttp2
internal import NIOCore

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
