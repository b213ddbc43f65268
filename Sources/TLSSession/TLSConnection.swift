internal import COpenSSL
package import NIOCore

/// TLS connection without I/O. ``consume(_:)`` takes bytes from the network; ``handshake()`` and ``read(into:)``
/// process them; ``write(_:)`` takes plaintext. ``takeOutput()`` returns bytes for the network. Call it after each of
/// the others, even one that threw, because an alert may be pending. Not thread-safe.
package final class TLSConnection {
  let ssl: OpaquePointer
  private let buffers: UnsafeMutablePointer<TLSBuffers>
  private let applicationProtocol: TLSApplicationProtocol
  private var isBroken = false

  /// Whether the handshake is complete and its application protocol agreed.
  package private(set) var isEstablished = false
  /// Whether the peer has sent close_notify.
  package private(set) var peerHasClosed = false
  private var hasClosed = false

  /// Create the server's side of a connection, or the client's side towards that server. A host name is sent (SNI, RFC
  /// 6066 section 3) and verified (RFC 9525); an IP address is only verified.
  package init(context: TLSContext, serverName: String? = nil) throws(TLSError) {
    OpenSSLErrors.clear()
    ssl = try context.makeSSL()
    applicationProtocol = context.role.applicationProtocol
    buffers = .allocate(capacity: 1)
    buffers.initialize(to: TLSBuffers())
    // All stored properties are set, so deinit cleans up from here on.
    guard let bio = makeBIO(over: buffers) else { throw .configuration(reason: "no memory") }
    SSL_set_bio(ssl, bio, bio)
    if context.role.isServer {
      SSL_set_accept_state(ssl)
    } else {
      SSL_set_connect_state(ssl)
      guard let serverName else { throw .configuration(reason: "a client needs the server's name") }
      try expect(serverName)
    }
  }

  deinit {
    SSL_free(ssl)
    buffers.deinitialize(count: 1)
    buffers.deallocate()
  }

  private func expect(_ serverName: String) throws(TLSError) {
    let parameters = SSL_get0_param(ssl)
    if X509_VERIFY_PARAM_set1_ip_asc(parameters, serverName) == 1 { return }
    OpenSSLErrors.clear()
    X509_VERIFY_PARAM_set_hostflags(parameters, UInt32(X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS))
    guard X509_VERIFY_PARAM_set1_host(parameters, serverName, 0) == 1, COpenSSL_set_host_name(ssl, serverName) == 1
    else { throw .configuration(reason: OpenSSLErrors.drain().reason) }
  }

  // MARK: Negotiated parameters

  /// "TLSv1.2" or "TLSv1.3", once established.
  package var version: String { String(cString: SSL_get_version(ssl)) }

  /// Name of the cipher, once established.
  package var cipher: String {
    SSL_CIPHER_get_name(SSL_get_current_cipher(ssl)).map { String(cString: $0) } ?? ""
  }

  /// Whether the handshake resumed an earlier session.
  package var isResumed: Bool { SSL_session_reused(ssl) == 1 }

  /// Negotiated application protocol, or nil.
  package var negotiatedProtocol: String? {
    var name: UnsafePointer<UInt8>?
    var count: UInt32 = 0
    SSL_get0_alpn_selected(ssl, &name, &count)
    guard let name, count > 0 else { return nil }
    return String(decoding: UnsafeBufferPointer(start: name, count: Int(count)), as: UTF8.self)
  }

  // MARK: Operations

  /// Take bytes from the network. They are kept until the handshake or a read has used them.
  package func consume(_ bytes: ByteBuffer) {
    if buffers.pointee.input.readableBytes == 0 {
      buffers.pointee.input = bytes
    } else {
      buffers.pointee.input.writeImmutableBuffer(bytes)
    }
  }

  /// Record the end of the network's input.
  package func consumeEnd() { buffers.pointee.inputEnded = true }

  /// Continue the handshake; returns true when it is complete.
  package func handshake() throws(TLSError) -> Bool {
    if isEstablished { return true }
    if isBroken { throw .closed }
    OpenSSLErrors.clear()
    let result = SSL_do_handshake(ssl)
    if result == 1 {
      if let name = applicationProtocol.required, negotiatedProtocol != name {
        isBroken = true
        throw .noApplicationProtocol
      }
      isEstablished = true
      countKeyUpdates(of: ssl, in: buffers)
      return true
    }
    switch SSL_get_error(ssl, result) {
    case SSL_ERROR_WANT_READ, SSL_ERROR_WANT_WRITE: return false
    case SSL_ERROR_ZERO_RETURN, SSL_ERROR_SYSCALL:
      isBroken = true
      throw .truncated
    default:
      isBroken = true
      throw handshakeError()
    }
  }

  /// Reason codes from here on (`SSL_AD_REASON_OFFSET`) are alerts of the peer.
  private static let alerts: Int32 = 1_000

  private func handshakeError() -> TLSError {
    let verdict = SSL_get_verify_result(ssl)
    let (number, reason) = OpenSSLErrors.drain()
    switch number {
    case SSL_R_CERTIFICATE_VERIFY_FAILED:
      return .certificate(reason: String(cString: X509_verify_cert_error_string(verdict)))
    case SSL_R_NO_APPLICATION_PROTOCOL, SSL_R_TLSV1_ALERT_NO_APPLICATION_PROTOCOL: return .noApplicationProtocol
    case SSL_R_UNEXPECTED_EOF_WHILE_READING: return .truncated
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE: return .noPeerCertificate
    case SSL_R_WRONG_VERSION_NUMBER, SSL_R_BAD_RECORD_TYPE, SSL_R_HTTP_REQUEST, SSL_R_HTTPS_PROXY_REQUEST:
      return .notTLS
    case Self.alerts...: return .alert(reason: reason)
    default: return .handshake(reason: reason)
    }
  }

  /// Append the plaintext of all consumed bytes and return its size. Sets ``peerHasClosed`` at close_notify.
  package func read(into plaintext: inout ByteBuffer) throws(TLSError) -> Int {
    guard isEstablished, !isBroken else { return 0 }
    var total = 0
    while !peerHasClosed {
      // Each call returns at most one record.
      let room = min(16_384, max(512, buffers.pointee.input.readableBytes))
      var result: Int32 = 0
      OpenSSLErrors.clear()
      let count = plaintext.writeWithUnsafeMutableBytes(minimumWritableBytes: room) { target in
        result = SSL_read(ssl, target.baseAddress, Int32(clamping: target.count))
        return max(0, Int(result))
      }
      if count > 0 {
        total += count
        buffers.pointee.keyUpdates.recordPlaintext(count)
        continue
      }
      switch SSL_get_error(ssl, result) {
      case SSL_ERROR_WANT_READ, SSL_ERROR_WANT_WRITE: return total
      case SSL_ERROR_ZERO_RETURN: peerHasClosed = true
      case SSL_ERROR_SYSCALL:
        isBroken = true
        throw buffers.pointee.keyUpdates.isExceeded ? .tooManyKeyUpdates : .truncated
      default:
        isBroken = true
        let (number, reason) = OpenSSLErrors.drain()
        switch number {
        case SSL_R_UNEXPECTED_EOF_WHILE_READING: throw .truncated
        // In TLS 1.3 a client learns only here that its certificate was rejected.
        case Self.alerts...: throw .alert(reason: reason)
        default: throw .record(reason: reason)
        }
      }
    }
    return total
  }

  /// Encrypt plaintext into the output, in records of 16 KiB.
  package func write(_ plaintext: ByteBuffer) throws(TLSError) {
    guard isEstablished, !isBroken, !hasClosed else { throw .closed }
    guard plaintext.readableBytes > 0 else { return }
    // Each record adds 5 bytes of header, 16 of tag and up to 8 more.
    let records = plaintext.readableBytes / 16_384 + 1
    buffers.pointee.output.reserveCapacity(minimumWritableBytes: plaintext.readableBytes + records * 32)
    OpenSSLErrors.clear()
    let result = plaintext.withUnsafeReadableBytes {
      SSL_write(ssl, $0.baseAddress, Int32(clamping: $0.count))
    }
    guard result > 0 else {
      isBroken = true
      throw .record(reason: OpenSSLErrors.drain().reason)
    }
  }

  /// Send close_notify, once.
  package func close() {
    guard !hasClosed else { return }
    hasClosed = true
    guard isEstablished, !isBroken else { return }
    OpenSSLErrors.clear()
    _ = SSL_shutdown(ssl)
    OpenSSLErrors.clear()
  }

  /// Return all bytes for the network, or nil if there are none.
  package func takeOutput() -> ByteBuffer? {
    guard buffers.pointee.output.readableBytes > 0 else { return nil }
    defer { buffers.pointee.output = ByteBuffer() }
    return buffers.pointee.output
  }
}

/// Buffers behind a connection's BIO, at a fixed address: bytes from the network, and bytes for the network.
///
/// It replaces OpenSSL's memory BIO, which copies every byte once more each way. That BIO also keeps a buffer as large
/// as the largest read for the life of the connection.
struct TLSBuffers {
  var input = ByteBuffer()
  var output = ByteBuffer()
  /// Whether the input has ended.
  var inputEnded = false
  var keyUpdates = KeyUpdateLimit()
}

/// Limit on handshake messages after the handshake: key updates in TLS 1.3 (RFC 8446 section 4.6.3), renegotiation in
/// TLS 1.2, which is refused. Each costs as much as some 100 records of data, and OpenSSL has no limit.
struct KeyUpdateLimit {
  /// Messages that a connection may send at any time.
  private static let burst = 32

  private var messageCount = 0
  /// Plaintext bytes received; each MiB allows one message more.
  private var byteCount = 0

  var isExceeded: Bool { messageCount > Self.burst + byteCount >> 20 }

  mutating func recordMessage() { messageCount += 1 }

  mutating func recordPlaintext(_ count: Int) { byteCount += count }
}

/// Count the handshake messages that a connection receives. Call it once the handshake is complete.
func countKeyUpdates(of ssl: OpaquePointer, in buffers: UnsafeMutablePointer<TLSBuffers>) {
  COpenSSL_set_message_callback(ssl, buffers) { isSent, _, type, bytes, count, _, buffers in
    guard isSent == 0, count > 0, let bytes, let buffers else { return }
    // A refused renegotiation is reported only by the header of its record.
    let isHandshake =
      type == SSL3_RT_HANDSHAKE || type == SSL3_RT_HEADER && bytes.load(as: UInt8.self) == UInt8(SSL3_RT_HANDSHAKE)
    guard isHandshake else { return }
    buffers.assumingMemoryBound(to: TLSBuffers.self).pointee.keyUpdates.recordMessage()
  }
}

/// Create a BIO over `buffers`, which must outlive it. Returns nil for lack of memory.
func makeBIO(over buffers: UnsafeMutablePointer<TLSBuffers>) -> OpaquePointer? {
  guard let bio = BIO_new(bufferMethod) else { return nil }
  BIO_set_data(bio, buffers)
  BIO_set_init(bio, 1)
  return bio
}

/// Created once and never changed or freed, hence safe to share.
private nonisolated(unsafe) let bufferMethod: OpaquePointer? = {
  guard let method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "tidemark buffers") else {
    return nil
  }
  BIO_meth_set_write(method) { bio, bytes, count in
    guard let bytes, count > 0, let buffers = buffers(of: bio) else { return 0 }
    buffers.pointee.output.writeBytes(UnsafeRawBufferPointer(start: bytes, count: Int(count)))
    return count
  }
  BIO_meth_set_read(method) { bio, bytes, count in
    guard let bytes, count > 0, let buffers = buffers(of: bio) else { return 0 }
    COpenSSL_BIO_clear_retry(bio)
    // Without a retry this ends the connection.
    if buffers.pointee.keyUpdates.isExceeded { return -1 }
    let taken = min(Int(count), buffers.pointee.input.readableBytes)
    guard taken > 0 else {
      if buffers.pointee.inputEnded { return 0 }
      COpenSSL_BIO_set_retry_read(bio)
      return -1
    }
    buffers.pointee.input.withUnsafeReadableBytes { source in
      UnsafeMutableRawPointer(bytes).copyMemory(from: source.baseAddress.unsafelyUnwrapped, byteCount: taken)
    }
    buffers.pointee.input.moveReaderIndex(forwardBy: taken)
    return Int32(taken)
  }
  BIO_meth_set_ctrl(method) { _, command, _, _ in
    // libssl flushes after each flight. All other queries (kernel TLS, datagram size) are answered with no.
    command == BIO_CTRL_FLUSH || command == BIO_CTRL_DUP ? 1 : 0
  }
  return method
}()

private func buffers(of bio: OpaquePointer?) -> UnsafeMutablePointer<TLSBuffers>? {
  BIO_get_data(bio)?.assumingMemoryBound(to: TLSBuffers.self)
}
