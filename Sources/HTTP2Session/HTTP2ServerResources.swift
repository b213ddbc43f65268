internal import CNghttp2
internal import NIOCore

/// What the connections of one event loop share: limits, nghttp2's callback table and options, the slots of
/// all streams, and the buffers that only serve while one connection is at work. Make one per event loop.
package final class HTTP2ServerResources {
  /// The limits of every connection made with these resources.
  package let limits: HTTP2Limits

  /// Headers that every answer gets beside its own, by its request; nil, as at first: none.
  package var commonHeaders: ((borrowing HTTP2Request) -> [HTTP2Header])?

  /// Of a request on a connection that clients share (``HTTP2ServerConnection/isShared``): a hash of the client that it
  /// names, never 0, with a seed that nobody outside knows; nil: it names none. Set it before the first connection.
  package var clientKey: ((borrowing HTTP2Request) -> UInt64?)?

  let streamedContentTypes: [HTTP2ContentType]
  let callbacks: OpaquePointer
  let options: OpaquePointer
  /// Of connections that clients share.
  let sharedOptions: OpaquePointer
  let pool: UnsafeMutablePointer<SlotPool>
  let memory: UnsafeMutablePointer<SessionMemory>
  var memoryFunctions: nghttp2_mem
  let budget: UnsafeMutablePointer<MemoryBudget>
  /// As in ``HTTP2Limits/keptHeaders``; nil: all.
  let keptHeaders: [[UInt8]]?
  let headers: ResponseHeaders
  /// Output of the connection that is flushing; kept between flushes, as the channel has usually let go of it
  /// by then.
  var output = ByteBuffer()

  /// Resources with empty pools.
  ///
  /// - Parameter streamedContentTypes: requests of these types are delivered when their headers are complete,
  ///   and their bodies read as they come, without ``HTTP2Limits/maxBodyBytes``: see
  ///   ``HTTP2ServerConnection/readBody(_:_:)``.
  package init(limits: HTTP2Limits = HTTP2Limits(), streamedContentTypes: [HTTP2ContentType] = []) {
    limits.validate()
    self.streamedContentTypes = streamedContentTypes
    self.limits = limits
    self.callbacks = makeServerCallbacks()
    self.options = HTTP2ServerResources.makeOptions(limits)
    self.sharedOptions = HTTP2ServerResources.makeOptions(limits.shared)
    self.pool = .allocate(capacity: 1)
    self.pool.initialize(to: SlotPool(maxKeptBufferBytes: limits.maxKeptBufferBytes))
    self.headers = ResponseHeaders()
    self.memory = .allocate(capacity: 1)
    self.memory.initialize(to: SessionMemory())
    self.memoryFunctions = makeSessionMemory(memory)
    self.budget = .allocate(capacity: 1)
    self.budget.initialize(to: MemoryBudget(limits: limits))
    self.keptHeaders = limits.keptHeaders?.map { Array($0.utf8) }
  }

  /// Frees what a load has left, to be called now and then.
  ///
  /// - Returns: whether there was so much that the allocator should be asked to give it back to the system.
  package func freeUnused() -> Bool {
    guard budget.pointee.hasFallen() else { return false }
    pool.pointee.releaseFreeBuffers()
    return true
  }

  /// Changes what connections may hold (``HTTP2Limits/maxHeldBytes`` and its shares), those that are open too. The other
  /// limits stay.
  package func setMemoryLimits(_ limits: HTTP2Limits) { budget.pointee.setLimits(limits) }

  /// What is held for streams of all connections, in bytes.
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
    var made: OpaquePointer?
    // The only failure is lack of memory.
    guard nghttp2_option_new(&made) == 0, let options = made else {
      fatalError("nghttp2_option_new: no memory")
    }
    nghttp2_option_set_no_closed_streams(options, 1)
    // Windows are given back by nghttp2_session_consume, when a body has been stored, dropped or read.
    nghttp2_option_set_no_auto_window_update(options, 1)
    nghttp2_option_set_stream_reset_rate_limit(options, limits.streamResetBurst, limits.streamResetsPerSecond)
    nghttp2_option_set_max_continuations(options, limits.maxContinuations)
    nghttp2_option_set_max_settings(options, limits.maxSettingsEntries)
    nghttp2_option_set_max_outbound_ack(options, limits.maxOutboundAcks)
    // The header callback checks it, since an `authorization` that ends with a space is for the application to answer.
    nghttp2_option_set_no_rfc9113_leading_and_trailing_ws_validation(options, 1)
    return options
  }
}
