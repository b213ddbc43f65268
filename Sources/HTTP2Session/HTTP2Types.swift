/// One request's handle. It is valid until its stream closes, and detectably stale afterwards: every call
/// that takes a stale one does nothing and says so.
package struct HTTP2StreamHandle: Sendable, Hashable {
  /// Place in the loop's pool of slots.
  package let slot: UInt32
  /// How often that slot has been used.
  package let generation: UInt32

  /// A handle from its two numbers, for callers who carry it through an integer.
  package init(slot: UInt32, generation: UInt32) {
    self.slot = slot
    self.generation = generation
  }

  /// Both numbers in one, for correlation ids.
  package var rawValue: UInt64 { UInt64(generation) << 32 | UInt64(slot) }

  /// The handle that ``rawValue`` came from.
  package init(rawValue: UInt64) {
    self.init(slot: UInt32(truncatingIfNeeded: rawValue), generation: UInt32(rawValue >> 32))
  }
}

/// Request methods of RFC 9110 section 9 that the service knows.
package enum HTTP2Method: UInt8, Sendable {
  case get, put, post, delete, patch, head, options, other
}

/// The value of a `content-type` header, in static storage so that no answer copies it.
package struct HTTP2ContentType: Sendable {
  /// The bytes of the value; empty for no header.
  package let value: StaticString

  /// A type of the caller's own.
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
  /// `text/plain; charset=utf-8`.
  package static var text: Self { Self("text/plain; charset=utf-8") }
  /// `application/octet-stream`.
  package static var bytes: Self { Self("application/octet-stream") }
  /// `application/vnd.tidemark.frames`.
  package static var frames: Self { Self("application/vnd.tidemark.frames") }

  /// Whether a `content-type` header names this type, whatever its parameters: without regard to case (RFC 9110 section
  /// 8.3.1). The type itself has to be in lower case, and to have none.
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

/// One more header of an answer. The name is lower-case and static; the value is copied when the answer is
/// made.
package struct HTTP2Header: Sendable {
  /// Lower-case name (RFC 9113 section 8.2.1).
  package let name: StaticString
  /// Value, without line breaks or leading or trailing blanks.
  package let value: String

  /// A header.
  package init(_ name: StaticString, _ value: String) {
    self.name = name
    self.value = value
  }
}

/// What became of an answer.
package enum HTTP2Outcome: Sendable, Equatable {
  /// It is queued, and leaves with the next flush.
  case queued
  /// The queue of this stream is full: nothing was taken. ``HTTP2ServerDelegate/http2StreamDrained(_:on:)``
  /// follows.
  case full
  /// The stream is closed or already answered: nothing was done.
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

/// What a connection has counted since it began. Differences between two readings feed the metrics.
package struct HTTP2Counters: Sendable, Equatable {
  /// Streams opened by the peer.
  package var streamsOpened: UInt64 = 0
  /// Answers submitted.
  package var answers: UInt64 = 0
  /// RST_STREAM frames received.
  package var resetsReceived: UInt64 = 0
  /// RST_STREAM frames sent.
  package var resetsSent: UInt64 = 0
  /// GOAWAY frames received.
  package var goAwaysReceived: UInt64 = 0
  /// GOAWAY frames sent.
  package var goAwaysSent: UInt64 = 0
  /// Frames that broke the protocol, and input that was no HTTP/2 at all.
  package var protocolErrors: UInt64 = 0
  /// Streams reset, and connections ended, because a limit of ``HTTP2Limits`` was passed.
  package var limitsHit: UInt64 = 0
  /// Request bodies that had to wait for others to be answered (``HTTP2Limits/maxBufferedBodyBytes``).
  package var bodiesDelayed: UInt64 = 0
  /// Bytes read.
  package var bytesIn: UInt64 = 0
  /// Bytes written.
  package var bytesOut: UInt64 = 0

  /// All zero.
  package init() {}
}
