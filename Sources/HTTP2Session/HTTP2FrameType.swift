/// Types of HTTP/2 frames (RFC 9113 section 6).
enum HTTP2FrameType: UInt8 {
  case data = 0x0
  case headers = 0x1
  case priority = 0x2
  case resetStream = 0x3
  case settings = 0x4
  case pushPromise = 0x5
  case ping = 0x6
  case goAway = 0x7
  case windowUpdate = 0x8
  case continuation = 0x9
}

/// Flags of HTTP/2 frames.
enum HTTP2FrameFlags {
  /// The frame is the last of its stream in this direction: of DATA and HEADERS.
  private static let endStream: UInt8 = 0x1

  @inline(__always)
  static func endsStream(_ flags: UInt8) -> Bool { flags & endStream != 0 }
}
