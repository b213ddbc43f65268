/// A message's position in its channel, from 1 in order of registration, never reused
/// (docs/contribute/architecture.md). 0 is "before the first message".
package struct SequenceNumber: Hashable, Comparable, Sendable {
  package var rawValue: UInt32
  package init(_ rawValue: UInt32) { self.rawValue = rawValue }
  /// Before the first message.
  package static let zero = SequenceNumber(0)
  package static func < (a: Self, b: Self) -> Bool { a.rawValue < b.rawValue }
  /// The position after this one.
  package var next: SequenceNumber { SequenceNumber(rawValue + 1) }
}

/// A member's row in a read vector: assigned in join order, never reused.
package struct MemberOrdinal: Hashable, Comparable, Sendable {
  package var rawValue: UInt32
  package init(_ rawValue: UInt32) { self.rawValue = rawValue }
  package static func < (a: Self, b: Self) -> Bool { a.rawValue < b.rawValue }
}

/// A channel's incarnation: assigned by its shard at creation, from 1, never reused.
package struct ChannelNumber: Hashable, Comparable, Sendable {
  package var rawValue: UInt64
  package init(_ rawValue: UInt64) { self.rawValue = rawValue }
  package static func < (a: Self, b: Self) -> Bool { a.rawValue < b.rawValue }
}

/// A fixed slice of the channels, numbered from 0.
package struct ShardID: Hashable, Comparable, Sendable, BitwiseCopyable {
  package var rawValue: UInt16
  package init(_ rawValue: UInt16) { self.rawValue = rawValue }
  package static func < (a: Self, b: Self) -> Bool { a.rawValue < b.rawValue }

  /// Return the shard of a channel, or the home shard of a channel type: `XXH64(bytes) mod count`
  /// (Proto/frames.md, "Channel to shard").
  package static func owning(_ identifier: RawSpan, count: Int) -> ShardID {
    ShardID(UInt16(truncatingIfNeeded: StableHash.hash(identifier) % UInt64(count)))
  }
}

/// A batch's position in its shard's log, from 1; 0 is "before the log".
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
  /// No time.
  package static let none = Timestamp(milliseconds: 0)
  /// The end of the year 9999, later than every real time: the event has happened by now, but its time is not known.
  static let unknown = Timestamp(milliseconds: 253_402_300_799_999)
  package static func < (a: Self, b: Self) -> Bool { a.milliseconds < b.milliseconds }
  /// Return this time, or `other` if this is ``none``.
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

/// Length limits and character sets of the identifiers that callers choose (docs/guides/backend.md).
///
/// Ids are 1 to 255 bytes of UTF-8 without control characters, compared byte by byte, so ids that look alike may
/// differ. Never compare them as `String`s, which treats canonically equivalent Unicode as equal; see ``ExactText``.
package enum Identifier {
  package static let typeLengthMax = 64
  /// Maximum length in bytes of a channel's, a user's or a message's id.
  package static let idLengthMax = 255
  package static let cidLengthMax = typeLengthMax + 1 + idLengthMax
  package static let userLengthMax = idLengthMax
  package static let messageLengthMax = idLengthMax
  package static let roleLengthMax = 64

  /// Return whether the bytes are `type:id`, split at the first colon.
  package static func isCID(_ bytes: RawSpan) -> Bool {
    guard let colon = colonOffset(bytes) else { return false }
    return isType(bytes.extracting(0..<colon)) && isID(bytes.extracting((colon + 1)..<bytes.byteCount))
  }

  /// Return the offset of the colon that ends a cid's type; nil if there is none.
  package static func colonOffset(_ bytes: RawSpan) -> Int? {
    for offset in 0..<min(bytes.byteCount, typeLengthMax + 1)
    where bytes.unsafeLoad(fromByteOffset: offset, as: UInt8.self) == UInt8(ascii: ":") {
      return offset
    }
    return nil
  }

  /// Return the type and id of a cid. Splits by bytes: followed by a combining character, the colon is not a
  /// `Character` of its own.
  package static func parts(cid: String) -> (type: Substring, id: Substring) {
    guard let colon = cid.utf8.firstIndex(of: UInt8(ascii: ":")) else { return (cid[...], "") }
    return (cid[..<colon], cid[cid.utf8.index(after: colon)...])
  }

  package static func isType(_ bytes: RawSpan) -> Bool { allBytes(bytes, 1...typeLengthMax, .typeName) }
  package static func isUser(_ bytes: RawSpan) -> Bool { isID(bytes) }
  package static func isMessage(_ bytes: RawSpan) -> Bool { isID(bytes) }
  package static func isRole(_ bytes: RawSpan) -> Bool { allBytes(bytes, 1...roleLengthMax, .role) }

  /// Return whether the bytes are 1 to 255 bytes of UTF-8 without control characters (C0, DEL, C1).
  package static func isID(_ bytes: RawSpan) -> Bool {
    guard (1...idLengthMax).contains(bytes.byteCount) else { return false }
    for offset in 0..<bytes.byteCount {
      let byte = bytes.unsafeLoad(fromByteOffset: offset, as: UInt8.self)
      if byte < 0x20 || byte >= 0x7F { return isText(bytes, from: offset) }
    }
    return true
  }

  /// Return whether the bytes from `start` on are UTF-8 without control characters.
  private static func isText(_ bytes: RawSpan, from start: Int) -> Bool {
    var offset = start
    while offset < bytes.byteCount {
      let first = bytes.unsafeLoad(fromByteOffset: offset, as: UInt8.self)
      if first < 0x80 {
        guard first >= 0x20, first != 0x7F else { return false }
        offset += 1
        continue
      }
      // The second byte's range excludes overlong forms, surrogates, code points above U+10FFFF, and U+0080 to U+009F
      // (Unicode, table 3-7).
      let (count, second): (Int, ClosedRange<UInt8>)
      switch first {
      case 0xC2: (count, second) = (2, 0xA0...0xBF)
      case 0xC3...0xDF: (count, second) = (2, 0x80...0xBF)
      case 0xE0: (count, second) = (3, 0xA0...0xBF)
      case 0xED: (count, second) = (3, 0x80...0x9F)
      case 0xE1...0xEF: (count, second) = (3, 0x80...0xBF)
      case 0xF0: (count, second) = (4, 0x90...0xBF)
      case 0xF1...0xF3: (count, second) = (4, 0x80...0xBF)
      case 0xF4: (count, second) = (4, 0x80...0x8F)
      default: return false
      }
      guard offset + count <= bytes.byteCount,
        second.contains(bytes.unsafeLoad(fromByteOffset: offset + 1, as: UInt8.self))
      else { return false }
      for index in (offset + 2)..<(offset + count) {
        guard bytes.unsafeLoad(fromByteOffset: index, as: UInt8.self) & 0xC0 == 0x80 else { return false }
      }
      offset += count
    }
    return true
  }

  // MARK: Ranges

  // What refusals say of the checks above.
  package static var userRange: StaticString { "user: 1 to 255 bytes of UTF-8 without control characters" }
  package static var messageRange: StaticString { "message: 1 to 255 bytes of UTF-8 without control characters" }
  /// Of a thread's parent message.
  package static var threadRange: StaticString { "thread: 1 to 255 bytes of UTF-8 without control characters" }
  package static var tokenRange: StaticString { "jti: 1 to 255 bytes of UTF-8 without control characters" }
  package static var cidRange: StaticString {
    "cid: 1 to 64 of A-Z a-z 0-9 _ -, a colon, 1 to 255 bytes of UTF-8 without control characters"
  }
  package static var roleRange: StaticString { "role: 1 to 64 of A-Z a-z 0-9 _ . -" }

  // MARK: Legacy id ranges

  /// Return whether older builds (until 2026) accept this user id.
  static func isLegacyUser(_ bytes: RawSpan) -> Bool { allBytes(bytes, 1...128, .narrowUser) }
  /// Return whether older builds accept this message id.
  static func isLegacyMessage(_ bytes: RawSpan) -> Bool { allBytes(bytes, 1...128, .narrowMessage) }
  /// Return whether older builds accept this cid.
  static func isLegacyCID(_ bytes: RawSpan) -> Bool {
    guard let colon = colonOffset(bytes) else { return false }
    return allBytes(bytes.extracting((colon + 1)..<bytes.byteCount), 1...128, .narrowChannel)
  }

  private struct CharacterClass: OptionSet {
    let rawValue: UInt8
    static let typeName = CharacterClass(rawValue: 1)
    static let narrowChannel = CharacterClass(rawValue: 2)
    static let narrowUser = CharacterClass(rawValue: 4)
    static let narrowMessage = CharacterClass(rawValue: 8)
    static let role = CharacterClass(rawValue: 16)
  }

  private static func allBytes(_ bytes: RawSpan, _ lengths: ClosedRange<Int>, _ wanted: CharacterClass) -> Bool {
    guard lengths.contains(bytes.byteCount) else { return false }
    var agreed = wanted.rawValue
    for offset in 0..<bytes.byteCount {
      agreed &= classes[Int(bytes.unsafeLoad(fromByteOffset: offset, as: UInt8.self))]
    }
    return agreed != 0
  }

  /// Which character sets each byte value belongs to: one table look-up a byte.
  private static let classes: [UInt8] = (0...255).map { value -> UInt8 in
    let byte = UInt8(value)
    var sets: CharacterClass = []
    switch byte {
    case UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "a")...UInt8(ascii: "z"),
      UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "_"), UInt8(ascii: "-"):
      sets = [.typeName, .narrowChannel, .narrowUser, .role]
    case UInt8(ascii: "!"):
      sets = [.narrowChannel]
    case UInt8(ascii: "@"):
      sets = [.narrowUser]
    case UInt8(ascii: "."):
      sets = [.narrowUser, .role]
    default:
      break
    }
    if byte > 0x20, byte < 0x7F, byte != UInt8(ascii: "/") { sets.insert(.narrowMessage) }
    return sets.rawValue
  }
}

/// Text compared byte by byte, as ids are, for use as a dictionary key or set element. Two `String`s that are
/// canonically equivalent (`ë` as one scalar and as two) are equal, and would merge two users into one.
package struct ExactText: Hashable, Comparable, Sendable, CustomStringConvertible {
  package let text: String
  package init(_ text: String) { self.text = text }

  package static func == (a: ExactText, b: ExactText) -> Bool { a.text.isExactly(b.text) }

  package static func < (a: ExactText, b: ExactText) -> Bool {
    a.text.utf8.lexicographicallyPrecedes(b.text.utf8)
  }

  package func hash(into hasher: inout Hasher) {
    var text = text
    text.withUTF8 { hasher.combine(bytes: UnsafeRawBufferPointer($0)) }
    hasher.combine(0xFF as UInt8)
  }

  package var description: String { text }
}

extension String {
  /// Return whether both strings have the same bytes.
  package func isExactly(_ other: String) -> Bool {
    utf8.count == other.utf8.count && utf8.elementsEqual(other.utf8)
  }
}

/// The names under which a shard keeps channels and users' channel indexes (R13, R14) side by side. A channel's name is
/// its cid. An index's name is the user's id; if the id contains a colon, a zero byte comes before it. The two cannot
/// collide: a cid has a type before its colon, and no id contains a zero byte.
package enum IndexName {
  private static let colon = UInt8(ascii: ":")

  /// Return the name of a user's index.
  package static func bytes(of user: RawSpan) -> [UInt8] {
    user.withUnsafeBytes { $0.contains(colon) ? [0] + $0 : Array($0) }
  }

  /// Return the name of a user's index.
  package static func text(of user: String) -> String { user.utf8.contains(colon) ? "\0" + user : user }

  /// Return whether the name is an index's.
  package static func isIndex(_ name: [UInt8]) -> Bool { name.first == 0 || !name.contains(colon) }

  /// Return the offset of the user's id within an index's name.
  package static func userOffset(_ name: [UInt8]) -> Int { name.first == 0 ? 1 : 0 }

  /// Return the user whose index has this name.
  package static func user(_ name: [UInt8]) -> [UInt8] { Array(name[userOffset(name)...]) }
}
