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

  /// Return the first header with that lower-case name, or nil.
  @_lifetime(borrow self)
  package func header(_ name: StaticString) -> RawSpan? {
    guard let range = slot.pointee.received.find(name) else { return nil }
    return span(range)
  }
}
