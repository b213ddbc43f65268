internal import NIOCore
internal import ReceiptModel

/// The id of an event: the client has seen everything of this store up to this time. As text `<store>-<time>`: the
/// store's 16 bytes in hexadecimal, and milliseconds since 1970. Every gateway of the store understands it.
struct EventCursor: Hashable, Sendable {
  var store: SessionID
  var time: Timestamp

  init(store: SessionID, time: Timestamp) {
    self.store = store
    self.time = time
  }

  /// Parse an event id; nil where it is malformed.
  init?(_ text: RawSpan) {
    guard text.byteCount > 33, text.byteCount <= 33 + Self.timeDigitsMax,
      text.unsafeLoad(fromByteOffset: 32, as: UInt8.self) == UInt8(ascii: "-"),
      let high = Self.hexadecimal(text.extracting(0..<16)), let low = Self.hexadecimal(text.extracting(16..<32)),
      let time = text.extracting(33..<text.byteCount).decimal
    else { return nil }
    self.init(store: SessionID(high: high, low: low), time: Timestamp(milliseconds: Int64(time)))
  }

  /// The year 9999 has 15 digits.
  private static let timeDigitsMax = 15

  private static func hexadecimal(_ text: RawSpan) -> UInt64? {
    var value: UInt64 = 0
    for offset in 0..<16 {
      let byte = text.unsafeLoad(fromByteOffset: offset, as: UInt8.self)
      switch byte {
      case UInt8(ascii: "0")...UInt8(ascii: "9"): value = value << 4 | UInt64(byte - UInt8(ascii: "0"))
      case UInt8(ascii: "a")...UInt8(ascii: "f"): value = value << 4 | UInt64(byte - UInt8(ascii: "a") + 10)
      default: return nil
      }
    }
    return value
  }

  /// Write the id as text.
  func write(into buffer: inout ByteBuffer) {
    buffer.writeWithUnsafeMutableBytes(minimumWritableBytes: 33) { target in
      var offset = 0
      for half in [store.high, store.low] {
        for shift in stride(from: 60, through: 0, by: -4) {
          let digit = UInt8(truncatingIfNeeded: half >> UInt64(shift)) & 0x0F
          target[offset] = digit < 10 ? UInt8(ascii: "0") + digit : UInt8(ascii: "a") + digit - 10
          offset += 1
        }
      }
      target[offset] = UInt8(ascii: "-")
      return offset + 1
    }
    buffer.writeWithOutputRawSpan(minimumWritableBytes: OutputRawSpan.decimalByteMax) { out in
      out.decimal(time.milliseconds)
    }
  }

  /// Where a stream starts.
  enum Start: Hashable, Sendable {
    /// At events from now on.
    case live
    /// At changes at or after this time.
    case since(Timestamp)
    /// As `live`, and the client is told to query its state again: the changes that it missed are no longer known.
    case reset
  }

  /// Return where a stream starts for a client with this cursor.
  ///
  /// - Parameter now: milliseconds since 1970.
  func start(store: SessionID, now: Int64) -> Start {
    guard self.store == store, now - time.milliseconds <= Self.ageMax else { return .reset }
    return .since(time)
  }

  /// How long removals are remembered, in milliseconds: 7 days.
  static let ageMax: Int64 = 7 * 24 * 3_600_000
}
