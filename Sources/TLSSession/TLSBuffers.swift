internal import COpenSSL
internal import NIOCore

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
      type == SSL3_RT_HANDSHAKE
      || type == SSL3_RT_HEADER && bytes.load(as: UInt8.self) == UInt8(SSL3_RT_HANDSHAKE)
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
