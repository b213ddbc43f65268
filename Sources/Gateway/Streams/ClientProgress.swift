internal import HTTP2Session

/// Counter of the ticks since a client last made progress: it read queued bytes, or sent more of an incomplete frame or
/// line.
struct ClientProgress {
  private var bytesMoved: UInt64 = 0
  private var ticks = 0

  /// Check for progress, once a tick: ``HTTP2Limits/minProgressBytes`` since the last one, or nothing to do.
  ///
  /// - Parameters:
  ///   - moved: bytes that the stream has moved in its life.
  ///   - clientMustAct: whether the next step is the client's.
  /// - Returns: ticks since the last progress.
  mutating func ticksStalled(moved: UInt64, clientMustAct: Bool) -> Int {
    if !clientMustAct || moved &- bytesMoved >= UInt64(HTTP2Limits.minProgressBytes) {
      bytesMoved = moved
      ticks = 0
    } else {
      ticks += 1
    }
    return ticks
  }
}
