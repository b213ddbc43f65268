/// Request, read in place. Valid only inside ``HTTP2ServerConnection/withRequest(_:_:)``. The bytes behind it stay
/// until the stream is answered or closed, so an asynchronous step may call `withRequest` again.
///
/// Absent fields are empty: this service never needs to distinguish absent from empty.
package struct HTTP2Request: ~Copyable, ~Escapable {
  private let slot: UnsafePointer<StreamSlot>

  @_lifetime(borrow slot)
  init(_ slot: UnsafeMutablePointer<StreamSlot>) {
    self.slot = UnsafePointer(slot)
  }

  @_lifetime(borrow self)
  private func span(_ range: ByteRange) -> RawSpan {
    let bytes = slot.pointee.received.bytes(range)
    return _overrideLifetime(RawSpan(_unsafeBytes: bytes), borrowing: self)
  }

  /// `:method`.
  package var method: HTTP2Method { slot.pointee.received.method }

  /// `:path`, with its query, as sent.
  package var path: RawSpan { @_lifetime(borrow self) get { span(slot.pointee.received.fields.path) } }

  /// `:authority`.
  package var authority: RawSpan {
    @_lifetime(borrow self) get { span(slot.pointee.received.fields.authority) }
  }

  /// `authorization`. A request with more than one never arrives here: its stream is reset with PROTOCOL_ERROR.
  package var authorization: RawSpan {
    @_lifetime(borrow self) get { span(slot.pointee.received.fields.authorization) }
  }

  /// Number that identifies the bytes of ``authorization`` within this connection: equal numbers mean equal bytes, so
  /// that a verdict can be cached under it. 0 without the header.
  package var authorizationIdentity: UInt32 { slot.pointee.received.authorizationIdentity }

  /// Number that the application stored with the request (``HTTP2ServerConnection/setApplicationTag(_:_:)``); 0 at
  /// first.
  package var applicationTag: UInt64 { slot.pointee.tag }

  /// `content-type`.
  package var contentType: RawSpan {
    @_lifetime(borrow self) get { span(slot.pointee.received.fields.contentType) }
  }

  /// `accept`.
  package var accept: RawSpan { @_lifetime(borrow self) get { span(slot.pointee.received.fields.accept) } }

  /// `origin`.
  package var origin: RawSpan { @_lifetime(borrow self) get { span(slot.pointee.received.fields.origin) } }

  /// `x-forwarded-for`; the last field if there are several.
  package var forwardedFor: RawSpan {
    @_lifetime(borrow self) get { span(slot.pointee.received.fields.forwardedFor) }
  }

  /// `x-request-id`.
  package var requestID: RawSpan {
    @_lifetime(borrow self) get { span(slot.pointee.received.fields.requestID) }
  }

  /// `last-event-id`.
  package var lastEventID: RawSpan {
    @_lifetime(borrow self) get { span(slot.pointee.received.fields.lastEventID) }
  }

  /// The body; truncated at ``HTTP2Limits/bodyBytesMax`` if ``bodyTooLarge``.
  package var body: RawSpan {
    @_lifetime(borrow self) get {
      _overrideLifetime(RawSpan(_unsafeBytes: slot.pointee.received.body), borrowing: self)
    }
  }

  /// Whether the body arrives in pieces: ``body`` is its unread part, and ``HTTP2ServerConnection/readBody(_:_:)``
  /// consumes it.
  package var bodyStreams: Bool { slot.pointee.state.isBodyStreamed }

  /// Whether the header list exceeded ``HTTP2Limits/headerListBytesMax``: later headers are missing here. Answer 431.
  package var headersTooLarge: Bool { slot.pointee.state.areHeadersTooLarge }

  /// Whether the body exceeded ``HTTP2Limits/bodyBytesMax``, or its content-length does. Answer 413.
  package var bodyTooLarge: Bool { slot.pointee.state.isBodyTooLarge }

  /// Whether the application refused the body (``HTTP2ServerConnection/refuseBody(_:)``), so that it is incomplete.
  package var bodyRefused: Bool { slot.pointee.state.isBodyRefused }

  /// Return the value of a cookie (RFC 6265 section 4.2), or nil. A client may send each cookie in a field of its own
  /// (RFC 9113 section 8.2.3).
  @_lifetime(borrow self)
  package func cookie(_ name: StaticString) -> RawSpan? {
    guard let range = slot.pointee.received.findCookie(name) else { return nil }
    return span(range)
  }

  /// Return the first header with that lower-case name, or nil.
  @_lifetime(borrow self)
  package func header(_ name: StaticString) -> RawSpan? {
    guard let range = slot.pointee.received.find(name) else { return nil }
    return span(range)
  }
}

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
  package func withHeaders<Result>(_ stream: HTTP2StreamHandle, _ body: (borrowing HTTP2Request) -> Result) -> Result? {
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
