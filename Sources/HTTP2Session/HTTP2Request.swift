/// A complete request, read in place. Valid inside ``HTTP2ServerConnection/withRequest(_:_:)`` only; the
/// bytes behind it stay until the stream is answered or closed, so an asynchronous step may call
/// `withRequest` again.
///
/// Absent fields are empty: HTTP does not tell them apart in any way that this service needs.
package struct HTTP2Request: ~Copyable, ~Escapable {
  private let slot: UnsafePointer<StreamSlot>

  @_lifetime(borrow slot)
  init(_ slot: UnsafeMutablePointer<StreamSlot>) {
    self.slot = UnsafePointer(slot)
  }

  @_lifetime(borrow self)
  private func span(_ range: ByteRange) -> RawSpan {
    let bytes = slot.pointee.bytes(range)
    return _overrideLifetime(RawSpan(_unsafeBytes: bytes), borrowing: self)
  }

  /// `:method`.
  package var method: HTTP2Method { slot.pointee.method }

  /// `:path`, with its query, as sent.
  package var path: RawSpan { @_lifetime(borrow self) get { span(slot.pointee.fields.path) } }

  /// `:authority`.
  package var authority: RawSpan { @_lifetime(borrow self) get { span(slot.pointee.fields.authority) } }

  /// `authorization`. A request with more than one never gets here: its stream is reset with PROTOCOL_ERROR.
  package var authorization: RawSpan {
    @_lifetime(borrow self) get { span(slot.pointee.fields.authorization) }
  }

  /// The same number as in an earlier request of this connection means the same bytes of ``authorization``,
  /// so that a verdict can be kept beside it. 0 without the header.
  package var authorizationIdentity: UInt32 { slot.pointee.authorizationIdentity }

  /// What the application has noted of the request (``HTTP2ServerConnection/note(_:_:)``); 0 at first.
  package var note: UInt64 { slot.pointee.note }

  /// `content-type`.
  package var contentType: RawSpan { @_lifetime(borrow self) get { span(slot.pointee.fields.contentType) } }

  /// `accept`.
  package var accept: RawSpan { @_lifetime(borrow self) get { span(slot.pointee.fields.accept) } }

  /// `origin`.
  package var origin: RawSpan { @_lifetime(borrow self) get { span(slot.pointee.fields.origin) } }

  /// `x-forwarded-for`; of several fields the last.
  package var forwardedFor: RawSpan { @_lifetime(borrow self) get { span(slot.pointee.fields.forwardedFor) } }

  /// `x-request-id`.
  package var requestID: RawSpan { @_lifetime(borrow self) get { span(slot.pointee.fields.requestID) } }

  /// `last-event-id`.
  package var lastEventID: RawSpan { @_lifetime(borrow self) get { span(slot.pointee.fields.lastEventID) } }

  /// The body; cut at ``HTTP2Limits/maxBodyBytes`` if ``bodyTooLarge``.
  package var body: RawSpan {
    @_lifetime(borrow self) get {
      _overrideLifetime(RawSpan(_unsafeBytes: slot.pointee.body), borrowing: self)
    }
  }

  /// The body comes in pieces: ``body`` is what has not been read of it,
  /// ``HTTP2ServerConnection/readBody(_:_:)`` takes it.
  package var bodyStreams: Bool { slot.pointee.flags.contains(.bodyStreams) }

  /// The header list passed ``HTTP2Limits/maxHeaderListBytes``: what came later is missing here. Answer 431.
  package var headersTooLarge: Bool { slot.pointee.flags.contains(.headersTooLarge) }

  /// The body passed ``HTTP2Limits/maxBodyBytes``, or says that it will. Answer 413.
  package var bodyTooLarge: Bool { slot.pointee.flags.contains(.bodyTooLarge) }

  /// The first header of that lower-case name; nil if there is none.
  @_lifetime(borrow self)
  package func header(_ name: StaticString) -> RawSpan? {
    guard let range = slot.pointee.find(name) else { return nil }
    return span(range)
  }
}
