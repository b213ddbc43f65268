internal import CNghttp2
internal import NIOCore

/// How far ``drain(_:into:maxBytes:)`` got.
enum Drained {
  /// nghttp2 has nothing more to send now.
  case all
  /// The buffer has had its share.
  case more
  /// NOMEM, or a callback failed: the session cannot go on.
  case failed
}

/// Appends what nghttp2 has to send, frame by frame, until there is nothing or `maxBytes` are passed. Frames
/// are at most 16 KiB, so the buffer ends at most that much beyond it.
func drain(_ session: OpaquePointer, into output: inout ByteBuffer, maxBytes: Int) -> Drained {
  while true {
    var data: UnsafePointer<UInt8>?
    let count = nghttp2_session_mem_send(session, &data)
    if count == 0 { return .all }
    guard count > 0, let data else { return .failed }
    output.writeBytes(UnsafeRawBufferPointer(start: data, count: count))
    if output.readableBytes >= maxBytes { return .more }
  }
}
