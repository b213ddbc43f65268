/// A position in a channel: messages are numbered from 1 in order of registration, never reused (DESIGN.md section 1).
/// 0 is "before the first message".
package struct SequenceNumber: Hashable, Comparable, Sendable {
  package var rawValue: UInt32
  package init(_ rawValue: UInt32) { self.rawValue = rawValue }
  /// Before the first message.
  package static let zero = SequenceNumber(0)
  package static func < (a: Self, b: Self) -> Bool { a.rawValue < b.rawValue }
  /// The position after this one.
  package var next: SequenceNumber { SequenceNumber(rawValue + 1) }
}

/// A member's row in a read vector: given in join order, never reused.
package struct MemberOrdinal: Hashable, Comparable, Sendable {
  package var rawValue: UInt32
  package init(_ rawValue: UInt32) { self.rawValue = rawValue }
  package static func < (a: Self, b: Self) -> Bool { a.rawValue < b.rawValue }
}

/// A channel's incarnation: given by its shard at creation, from 1, never used again.
package struct ChannelNumber: Hashable, Comparable, Sendable {
  package var rawValue: UInt64
  package init(_ rawValue: UInt64) { self.rawValue = rawValue }
  package static func < (a: Self, b: Self) -> Bool { a.rawValue < b.rawValue }
}

/// A fixed slice of the channels, from 0.
package struct ShardID: Hashable, Comparable, Sendable {
  package var rawValue: UInt16
  package init(_ rawValue: UInt16) { self.rawValue = rawValue }
  package static func < (a: Self, b: Self) -> Bool { a.rawValue < b.rawValue }

  /// The shard of a channel, or the home shard of a channel type: `XXH64(bytes) mod count`
  /// (Proto/frames.md, "Channel to shard").
  package static func owning(_ identifier: RawSpan, count: Int) -> ShardID {
    ShardID(UInt16(truncatingIfNeeded: StableHash.hash(identifier) % UInt64(count)))
  }
}

/// A batch's place in its shard's log, from 1; 0 is "before the log".
package struct LogIndex: Hashable, Comparable, Sendable {
  package var rawValue: UInt64
  package init(_ rawValue: UInt64) { self.rawValue = rawValue }
  package static let zero = LogIndex(0)
  package static func < (a: Self, b: Self) -> Bool { a.rawValue < b.rawValue }
  package var next: LogIndex { LogIndex(rawValue + 1) }
}

/// Milliseconds since 1970-01-01T00:00:00Z. 0 is "no time".
package struct Timestamp: Hashable, Comparable, Sendable {
  package var milliseconds: Int64
  package init(milliseconds: Int64) { self.milliseconds = milliseconds }
  /// No time at all.
  package static let none = Timestamp(milliseconds: 0)
  /// The end of the year 9999, behind every time: of what was done by now, and nobody knows when.
  static let unknown = Timestamp(milliseconds: 253_402_300_799_999)
  package static func < (a: Self, b: Self) -> Bool { a.milliseconds < b.milliseconds }
  /// This time, or another one where it is none.
  package func or(_ other: Timestamp) -> Timestamp { self == .none ? other : self }
}

/// The 16 bytes that name a gateway's session with a store (Proto/frames.md, "Sessions and resending").
package struct SessionID: Hashable, Sendable {
  package var high: UInt64
  package var low: UInt64
  package init(high: UInt64, low: UInt64) {
    self.high = high
    self.low = low
  }
}

/// The character sets and lengths of the identifiers that callers choose (API.md, first section).
package enum Identifier {
  package static let typeLengthMax = 64
  package static let channelIDLengthMax = 128
  package static let cidLengthMax = typeLengthMax + 1 + channelIDLengthMax
  package static let userLengthMax = 128
  package static let messageLengthMax = 128
  package static let roleLengthMax = 64

  /// `type:id`, the type 1 to 64 of `[A-Za-z0-9_-]`, the id 1 to 128 of `[A-Za-z0-9_!-]`.
  package static func isCID(_ bytes: RawSpan) -> Bool {
    guard let colon = colonOffset(bytes) else { return false }
    return isType(bytes.extracting(0..<colon)) && isChannelID(bytes.extracting((colon + 1)..<bytes.byteCount))
  }

  /// Where the type of a cid ends, or nil where it has no colon.
  package static func colonOffset(_ bytes: RawSpan) -> Int? {
    for offset in 0..<min(bytes.byteCount, typeLengthMax + 1)
    where bytes.unsafeLoad(fromByteOffset: offset, as: UInt8.self) == UInt8(ascii: ":") {
      return offset
    }
    return nil
  }

  package static func isType(_ bytes: RawSpan) -> Bool { allBytes(bytes, 1...typeLengthMax, .typeName) }
  package static func isChannelID(_ bytes: RawSpan) -> Bool {
    allBytes(bytes, 1...channelIDLengthMax, .channelID)
  }
  package static func isUser(_ bytes: RawSpan) -> Bool { allBytes(bytes, 1...userLengthMax, .user) }
  package static func isMessage(_ bytes: RawSpan) -> Bool { allBytes(bytes, 1...messageLengthMax, .message) }
  package static func isRole(_ bytes: RawSpan) -> Bool { allBytes(bytes, 1...roleLengthMax, .role) }

  private struct CharacterClass: OptionSet {
    let rawValue: UInt8
    static let typeName = CharacterClass(rawValue: 1)
    static let channelID = CharacterClass(rawValue: 2)
    static let user = CharacterClass(rawValue: 4)
    static let message = CharacterClass(rawValue: 8)
    static let role = CharacterClass(rawValue: 16)
  }

  private static func allBytes(_ bytes: RawSpan, _ lengths: ClosedRange<Int>, _ wanted: CharacterClass)
    -> Bool
  {
    guard lengths.contains(bytes.byteCount) else { return false }
    var agreed = wanted.rawValue
    for offset in 0..<bytes.byteCount {
      agreed &= classes[Int(bytes.unsafeLoad(fromByteOffset: offset, as: UInt8.self))]
    }
    return agreed != 0
  }

  /// One look-up a byte: which sets each byte value belongs to.
  private static let classes: [UInt8] = (0...255).map { value -> UInt8 in
    let byte = UInt8(value)
    var sets: CharacterClass = []
    switch byte {
    case UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "a")...UInt8(ascii: "z"),
      UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "_"), UInt8(ascii: "-"):
      sets = [.typeName, .channelID, .user, .role]
    case UInt8(ascii: "!"):
      sets = [.channelID]
    case UInt8(ascii: "@"):
      sets = [.user]
    case UInt8(ascii: "."):
      sets = [.user, .role]
    default:
      break
    }
    if byte > 0x20, byte < 0x7F, byte != UInt8(ascii: "/") { sets.insert(.message) }
    return sets.rawValue
  }
}
