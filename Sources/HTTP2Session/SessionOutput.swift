internal import CNghttp2
internal import NIOCore

/// Result of ``drain(_:into:bytesMax:)``.
enum Drained {
  /// nghttp2 has nothing more to send.
  case all
  /// The buffer has reached its limit.
  case more
  /// NOMEM, or a callback failed: the session cannot continue.
  case failed
}

/// Append nghttp2's pending output frame by frame, until none is left or the buffer reaches `bytesMax`. Frames are at
/// most 16 KiB, so the buffer exceeds the limit by at most that.
func drain(_ session: OpaquePointer, into output: inout ByteBuffer, bytesMax: Int) -> Drained {
  while true {
    var data: UnsafePointer<UInt8>?
    let count = nghttp2_session_mem_send(session, &data)
    if count == 0 { return .all }
    guard count > 0, let data else { return .failed }
    output.writeBytes(UnsafeRawBufferPointer(start: data, count: count))
    if output.readableBytes >= bytesMax { return .more }
  }
}

/// Response bytes that nghttp2 has read. While their number grows, the peer accepts output.
struct OutputProgress {
  private var sentBytes: UInt64 = 0
  /// Number at the last check that saw it grow by ``HTTP2Limits/progressBytesMin``, and the time of that.
  private var seenBytes: UInt64 = 0
  private var seenAt = NIODeadline.uptimeNanoseconds(0)

  @inline(__always)
  mutating func sent(_ count: Int) { sentBytes &+= UInt64(count) }

  /// Check whether the number has grown since the last check, or since less than `timeout`.
  mutating func hasProgressed(within timeout: TimeAmount, now: NIODeadline) -> Bool {
    if sentBytes &- seenBytes >= UInt64(HTTP2Limits.progressBytesMin) {
      seenBytes = sentBytes
      seenAt = now
    }
    return now - seenAt < timeout
  }
}
