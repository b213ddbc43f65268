/// Access to requests, their admission, and their streamed bodies.
extension HTTP2ServerConnection {
  @inline(__always)
  func find(_ stream: HTTP2StreamHandle) -> UnsafeMutablePointer<StreamSlot>? {
    guard let slot = core.pointee.pool.pointee.find(stream), slot.pointee.core == core else { return nil }
    return slot
  }

  /// Read a request in place. Returns nil without calling the closure if the handle is stale or the request has been
  /// answered. The closure may answer, but must not flush.
  package func withRequest<Result, Failure: Error>(
    _ stream: HTTP2StreamHandle,
    _ body: (borrowing HTTP2Request) throws(Failure) -> Result
  ) throws(Failure) -> Result? {
    guard let slot = find(stream), slot.pointee.state.isReadable else { return nil }
    return try body(HTTP2Request(slot))
  }

  /// Read the headers of a request whose body has not yet arrived. Returns nil without calling the closure if the
  /// handle is stale or the request is complete.
  package func withHeaders<Result>(
    _ stream: HTTP2StreamHandle,
    _ body: (borrowing HTTP2Request) -> Result
  ) -> Result? {
    guard let slot = find(stream), slot.pointee.state.isReceiving else { return nil }
    return body(HTTP2Request(slot))
  }

  /// Deliver a request now and drop its body, which has not yet arrived.
  package func refuseBody(_ stream: HTTP2StreamHandle) {
    guard let slot = find(stream) else { return }
    core.pointee.refuseBody(slot)
    markOutputPending()
  }

  /// Return whether the request of that handle is still unanswered.
  package func isOpen(_ stream: HTTP2StreamHandle) -> Bool {
    find(stream).map { $0.pointee.state.isUnanswered } ?? false
  }

  /// Store a number with a request until it is answered (``HTTP2Request/applicationTag``).
  package func setApplicationTag(_ stream: HTTP2StreamHandle, _ tag: UInt64) {
    find(stream)?.pointee.tag = tag
  }

  /// Charge the memory that a stream holds, now and later, to a user or client across all connections
  /// (``MemoryBudget``). The response's expected size is included.
  ///
  /// - Parameters:
  ///   - key: a hash of the user or client, with a secret seed; 0: keep the current one.
  ///   - responseBytes: approximate size of the response, replaced by the actual size once it exists.
  package func admit(_ stream: HTTP2StreamHandle, for key: UInt64, responseBytes: Int) -> MemoryAdmission {
    guard let slot = find(stream) else { return .admitted }
    let admission = core.pointee.memory.admit(slot, for: key, responseBytes: responseBytes)
    if admission == .callerIsOverShare { core.pointee.counters.limitsHit += 1 }
    return admission
  }

  // MARK: Streamed request bodies

  /// Read bytes of a streamed request's body. The closure gets all unread bytes and whether the body ends with them,
  /// and returns how many it consumed. The consumed bytes are returned to the client's windows (RFC 9113 section 6.9).
  /// The rest, at most ``HTTP2Limits/streamedWindowSize`` bytes, is offered again with the next bytes or the next call.
  /// Returns false if the handle is stale or the request is not streamed.
  @discardableResult
  package func readBody(_ stream: HTTP2StreamHandle, _ consume: (RawSpan, _ isEnd: Bool) -> Int) -> Bool {
    guard let slot = find(stream), slot.pointee.state.isBodyStreamed, slot.pointee.state.isReadable,
      core.pointee.session != nil
    else { return false }
    let isEnd = slot.pointee.state.hasRemoteEnded
    let body = slot.pointee.received.body
    let taken = consume(RawSpan(_unsafeBytes: body), isEnd)
    precondition(taken >= 0 && taken <= body.count, "more taken than there was")
    if isEnd && taken == body.count { slot.pointee.state.bodyReadToEnd() }
    slot.pointee.received.dropBody(taken)
    core.pointee.memory.chargeRequest(slot)
    if taken > 0 {
      core.pointee.consumeStreamed(slot.pointee.streamID, taken)
      markOutputPending()
    }
    return true
  }
}
