/// Handle of one request. It is valid until its stream closes. Calls that take a stale handle do nothing and report it.
package struct HTTP2StreamHandle: Sendable, Hashable, BitwiseCopyable {
  /// Index in the event loop's pool of slots.
  package let slot: UInt32
  /// Number of times that the slot has been reused.
  package let generation: UInt32

  /// Create a handle from its two numbers, for callers that carry it as an integer.
  package init(slot: UInt32, generation: UInt32) {
    self.slot = slot
    self.generation = generation
  }

  /// Both numbers in one integer, for correlation ids.
  package var rawValue: UInt64 { UInt64(generation) << 32 | UInt64(slot) }

  /// Create the handle that ``rawValue`` came from.
  package init(rawValue: UInt64) {
    self.init(slot: UInt32(truncatingIfNeeded: rawValue), generation: UInt32(rawValue >> 32))
  }
}

/// Request methods of RFC 9110 section 9 that the service supports.
package enum HTTP2Method: UInt8, Sendable {
  case get, put, post, delete, patch, head, options, other
}

/// Value of a `content-type` header, in static storage so that responses need not copy it.
package struct HTTP2ContentType: Sendable {
  /// Bytes of the value; empty for no header.
  package let value: StaticString

  /// Create any other type.
  package init(_ value: StaticString) { self.value = value }

  /// No `content-type` header.
  package static var none: Self { Self("") }
  /// `application/json`.
  package static var json: Self { Self("application/json") }
  /// `application/problem+json`, RFC 9457.
  package static var problem: Self { Self("application/problem+json") }
  /// `application/x-ndjson`.
  package static var ndjson: Self { Self("application/x-ndjson") }
  /// `text/event-stream`.
  package static var eventStream: Self { Self("text/event-stream") }
  /// `application/yaml`, RFC 9512.
  package static var yaml: Self { Self("application/yaml") }
  /// `text/javascript; charset=utf-8`, RFC 9239.
  package static var javaScript: Self { Self("text/javascript; charset=utf-8") }
  /// `text/html; charset=utf-8`.
  package static var html: Self { Self("text/html; charset=utf-8") }
  /// `text/css; charset=utf-8`.
  package static var css: Self { Self("text/css; charset=utf-8") }
  /// `text/plain; charset=utf-8`.
  package static var text: Self { Self("text/plain; charset=utf-8") }
  /// `application/octet-stream`.
  package static var bytes: Self { Self("application/octet-stream") }
  /// `application/vnd.tidemark.frames`.
  package static var frames: Self { Self("application/vnd.tidemark.frames") }

  /// Return whether a `content-type` header names this type. Parameters and case are ignored (RFC 9110 section 8.3.1).
  /// The type itself must be in lower case and without parameters.
  package func isNamed(by header: RawSpan) -> Bool {
    let count = value.utf8CodeUnitCount
    guard count > 0, header.byteCount >= count else { return false }
    for at in 0..<count {
      let byte = header.unsafeLoad(fromByteOffset: at, as: UInt8.self)
      let lower = byte >= UInt8(ascii: "A") && byte <= UInt8(ascii: "Z") ? byte | 0x20 : byte
      if lower != value.utf8Start[at] { return false }
    }
    guard header.byteCount > count else { return true }
    let next = header.unsafeLoad(fromByteOffset: count, as: UInt8.self)
    return next == UInt8(ascii: ";") || next == UInt8(ascii: " ") || next == UInt8(ascii: "\t")
  }
}

/// Additional header of a response. The name is lower-case and static; the value is copied when the response is
/// submitted.
package struct HTTP2Header: Sendable {
  /// Lower-case name (RFC 9113 section 8.2.1).
  package let name: StaticString
  /// Value, without line breaks and without leading or trailing spaces.
  package let value: String

  /// Create a header.
  package init(_ name: StaticString, _ value: String) {
    self.name = name
    self.value = value
  }

  /// Responses that are written over time, for one caller, are not kept by caches (RFC 9111 section 5.2.2.5).
  package static let noStore = HTTP2Header("cache-control", "no-store")
}

/// Result of queueing a response or a part of one.
package enum HTTP2Outcome: Sendable, Equatable {
  /// The bytes are queued, and leave with the next flush.
  case queued
  /// The queue of this stream is full, and nothing was queued. ``HTTP2ServerDelegate/http2StreamDrained(_:on:)``
  /// follows.
  case full
  /// The stream is closed or already answered, and nothing was done.
  case gone
}

/// Error codes of RFC 9113 section 7.
package enum HTTP2ErrorCode: UInt32, Sendable {
  case noError = 0x0
  case protocolError = 0x1
  case internalError = 0x2
  case flowControlError = 0x3
  case settingsTimeout = 0x4
  case streamClosed = 0x5
  case frameSizeError = 0x6
  case refusedStream = 0x7
  case cancel = 0x8
  case compressionError = 0x9
  case connectError = 0xa
  case enhanceYourCalm = 0xb
  case inadequateSecurity = 0xc
  case http11Required = 0xd
}

/// Counters of one connection since it began. Differences between two readings feed the metrics.
package struct HTTP2Counters: Sendable, Equatable {
  /// Streams opened by the peer.
  package var streamsOpened: UInt64 = 0
  /// Responses submitted.
  package var responses: UInt64 = 0
  /// RST_STREAM frames received.
  package var resetsReceived: UInt64 = 0
  /// RST_STREAM frames sent.
  package var resetsSent: UInt64 = 0
  /// GOAWAY frames received.
  package var goAwaysReceived: UInt64 = 0
  /// GOAWAY frames sent.
  package var goAwaysSent: UInt64 = 0
  /// Frames that violated the protocol, and input that was not HTTP/2.
  package var protocolErrors: UInt64 = 0
  /// Streams reset, and connections ended, because a limit of ``HTTP2Limits`` was exceeded.
  package var limitsHit: UInt64 = 0
  /// Request bodies that waited for other requests to be answered (``HTTP2Limits/bufferedBodyBytesMax``).
  package var bodiesDelayed: UInt64 = 0
  /// Bytes read.
  package var bytesIn: UInt64 = 0
  /// Bytes written.
  package var bytesOut: UInt64 = 0

  /// Create counters that are all zero.
  package init() {}
}

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
