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
