internal import CNghttp2
internal import NIOCore

/// Limits on the responses that a client accepts.
package struct HTTP2ClientLimits: Sendable {
  /// Bytes of a response's header list (RFC 9113 section 6.5.2), 1 to 65,535. Headers above it are left out.
  package var headerListBytesMax: Int = 32 * 1024
  /// Bytes of a response's body. Above it the stream is reset and the request fails.
  package var bodyBytesMax: Int = 64 * 1024 * 1024
  /// Window of each stream, in bytes.
  package var initialWindowSize: UInt32 = 4 * 1024 * 1024
  /// Window of the connection, in bytes.
  package var connectionWindowSize: Int32 = 64 * 1024 * 1024
  /// Bytes collected for one write.
  package var writeBytesMax: Int = 256 * 1024
  /// Largest capacity in bytes at which a slot keeps each of its buffers for the next stream.
  package var retainedBufferBytesMax: Int = 16 * 1024

  /// Create the default limits.
  package init() {}
}

/// Resources that the client connections of one event loop share. Make one per event loop.
package final class HTTP2ClientResources {
  /// The limits of every connection made with these resources.
  package let limits: HTTP2ClientLimits

  let callbacks: OpaquePointer
  let options: OpaquePointer
  let pool: UnsafeMutablePointer<SlotPool>
  var output = ByteBuffer()

  /// Create resources with empty pools.
  package init(limits: HTTP2ClientLimits = HTTP2ClientLimits()) {
    precondition(limits.headerListBytesMax >= 1 && limits.headerListBytesMax <= 65_535)
    self.limits = limits
    callbacks = makeClientCallbacks()
    var options: OpaquePointer?
    // Fails only for lack of memory.
    guard nghttp2_option_new(&options) == 0, let options else { fatalError("nghttp2_option_new: no memory") }
    self.options = options
    nghttp2_option_set_no_closed_streams(options, 1)
    pool = .allocate(capacity: 1)
    pool.initialize(to: SlotPool(retainedBufferBytesMax: limits.retainedBufferBytesMax))
  }

  deinit {
    nghttp2_session_callbacks_del(callbacks)
    nghttp2_option_del(options)
    pool.pointee.destroy()
    pool.deinitialize(count: 1)
    pool.deallocate()
  }
}

/// Request headers that stay the same from request to request, laid out for nghttp2 once. The template must outlive the
/// sending of its requests; the connection does not retain it.
package final class HTTP2RequestTemplate {
  let list: UnsafeMutablePointer<nghttp2_nv>
  let count: Int
  let method: HTTP2Method
  private let storage: UnsafeMutablePointer<UInt8>

  /// Index of `:path` in the list.
  static let pathIndex = 3

  /// Create the headers of requests to one server. Names are lower-case; empty values are left out.
  package init(
    method: HTTP2Method,
    scheme: String,
    authority: String,
    authorization: String = "",
    contentType: String = "",
    headers: [(name: String, value: String)] = []
  ) {
    self.method = method
    var fields: [(String, String)] = [
      (":method", method.name), (":scheme", scheme), (":authority", authority), (":path", "/"),
    ]
    if !authorization.isEmpty { fields.append(("authorization", authorization)) }
    if !contentType.isEmpty { fields.append(("content-type", contentType)) }
    fields += headers.filter { !$0.value.isEmpty }.map { ($0.name, $0.value) }

    let bytes = fields.flatMap { Array($0.0.utf8) + Array($0.1.utf8) }
    storage = .allocate(capacity: bytes.count)
    storage.initialize(from: bytes, count: bytes.count)
    count = fields.count
    list = .allocate(capacity: count)
    var at = storage
    for (index, field) in fields.enumerated() {
      let nameCount = field.0.utf8.count
      let valueCount = field.1.utf8.count
      // The path differs per request, so nghttp2 copies it.
      let flags = index == HTTP2RequestTemplate.pathIndex ? ResponseHeaders.noCopyName : ResponseHeaders.noCopy
      (list + index).initialize(
        to: nghttp2_nv(name: at, value: at + nameCount, namelen: nameCount, valuelen: valueCount, flags: flags)
      )
      at += nameCount + valueCount
    }
  }

  deinit {
    list.deallocate()
    storage.deallocate()
  }
}

extension HTTP2Method {
  /// Name on the wire; unsupported methods are sent as "CONNECT".
  package var name: String {
    switch self {
    case .get: "GET"
    case .put: "PUT"
    case .post: "POST"
    case .delete: "DELETE"
    case .patch: "PATCH"
    case .head: "HEAD"
    case .options: "OPTIONS"
    case .other: "CONNECT"
    }
  }
}

/// Field of a response's trailers.
struct HTTP2TrailerField {
  var name: [UInt8]
  var value: [UInt8]
}

/// Response, read in place; valid only inside the delegate's call.
package struct HTTP2ClientResponse: ~Copyable, ~Escapable {
  private let slot: UnsafePointer<StreamSlot>
  private let trailers: [HTTP2TrailerField]

  @_lifetime(borrow slot)
  init(_ slot: UnsafeMutablePointer<StreamSlot>, trailers: [HTTP2TrailerField] = []) {
    self.slot = UnsafePointer(slot)
    self.trailers = trailers
  }

  /// `:status`, 200 to 999.
  package var status: Int { Int(slot.pointee.received.status) }

  /// The body; for a streaming request, the bytes since the last call.
  package var body: RawSpan {
    @_lifetime(borrow self) get {
      _overrideLifetime(RawSpan(_unsafeBytes: slot.pointee.received.body), borrowing: self)
    }
  }

  /// `content-type`; empty without one.
  package var contentType: RawSpan {
    @_lifetime(borrow self) get {
      let bytes = slot.pointee.received.bytes(slot.pointee.received.fields.contentType)
      return _overrideLifetime(RawSpan(_unsafeBytes: bytes), borrowing: self)
    }
  }

  /// Return the first header with that lower-case name, or nil.
  @_lifetime(borrow self)
  package func header(_ name: StaticString) -> RawSpan? {
    guard let range = slot.pointee.received.find(name) else { return nil }
    return _overrideLifetime(RawSpan(_unsafeBytes: slot.pointee.received.bytes(range)), borrowing: self)
  }

  /// Return the first trailer field with that lower-case name, or nil. Trailers follow the body, so only a complete
  /// response has them.
  package func trailer(_ name: StaticString) -> [UInt8]? {
    trailers.first { field in
      field.name.withUnsafeBufferPointer { bytes in
        bytes.baseAddress.map { isBytes($0, bytes.count, name) } ?? false
      }
    }?.value
  }
}

/// Callbacks for the outcome of requests. Called on the event loop, never from inside nghttp2.
package protocol HTTP2ClientDelegate: AnyObject {
  /// Handle a complete response. For a streaming request this is its end, with the rest of the body.
  func http2ResponseReceived(
    tag: UInt64,
    response: borrowing HTTP2ClientResponse,
    on connection: HTTP2ClientConnection<Self>
  )

  /// Handle the beginning of a streaming request's response, or more of its body.
  func http2ResponsePart(
    tag: UInt64,
    response: borrowing HTTP2ClientResponse,
    on connection: HTTP2ClientConnection<Self>
  )

  /// Handle the failure of a request: its stream was reset with that code, or the connection ended. REFUSED_STREAM
  /// means that the server has not processed the request (RFC 9113 section 8.7).
  func http2StreamFailed(tag: UInt64, errorCode: UInt32, on connection: HTTP2ClientConnection<Self>)

  /// Handle the end of a read: all its responses have been delivered. Requests submitted before this returns leave in
  /// one write.
  func http2ReadComplete(on connection: HTTP2ClientConnection<Self>)

  /// Handle a connection that is ready: the server's SETTINGS have arrived.
  func http2ConnectionReady(_ connection: HTTP2ClientConnection<Self>)

  /// Handle the end of the connection; no other call follows.
  func http2ConnectionClosed(_ connection: HTTP2ClientConnection<Self>)
}

extension HTTP2ClientDelegate {
  /// Do nothing.
  package func http2ResponsePart(
    tag: UInt64,
    response: borrowing HTTP2ClientResponse,
    on connection: HTTP2ClientConnection<Self>
  ) {}
  /// Do nothing.
  package func http2ReadComplete(on connection: HTTP2ClientConnection<Self>) {}
  /// Do nothing.
  package func http2ConnectionReady(_ connection: HTTP2ClientConnection<Self>) {}
  /// Do nothing.
  package func http2ConnectionClosed(_ connection: HTTP2ClientConnection<Self>) {}
}
