internal import HTTP2Session

/// Whether a stream's client takes what waits for it, or goes on with what it has begun, checked once a tick.
struct ClientProgress {
  private var bytesMoved: UInt64 = 0
  private var ticks = 0

  /// Checks for progress: ``HTTP2Limits/leastProgressBytes`` since the last one, or nothing that waits for the client.
  ///
  /// - Parameter moved: bytes that the stream has moved in its life.
  /// - Returns: ticks since the last progress.
  mutating func ticksStalled(moved: UInt64, isWaiting: Bool) -> Int {
    if !isWaiting || moved &- bytesMoved >= UInt64(HTTP2Limits.leastProgressBytes) {
      bytesMoved = moved
      ticks = 0
    } else {
      ticks += 1
    }
    return ticks
  }
}
