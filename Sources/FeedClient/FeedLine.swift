internal import Foundation

/// Types of records in the feed.
package enum FeedRecordType {
  /// All types, in the order of the documentation.
  package static let known = [
    "message.registered", "message.deleted", "read", "delivered", "marked_unread", "acknowledged", "receipt.done",
    "receipt.expired", "status", "member.added", "member.removed", "channel.created", "channel.updated",
    "channel.deleted", "channel.truncated", "row.changed", "user.updated", "user.erased",
    "reminder.due",
  ]
}

/// Record of the feed as it is delivered.
package struct FeedRecord: Sendable, Hashable {
  /// Position after the record.
  package var cursor: String
  /// Identifier, the same at each delivery.
  package var id: String
  /// The record's JSON object without `cursor`; otherwise the bytes as received.
  package var json: [UInt8]

  /// Create a record.
  package init(cursor: String, id: String, json: [UInt8]) {
    self.cursor = cursor
    self.id = id
    self.json = json
  }
}

/// Line of a partition's stream.
package enum FeedLine: Sendable, Hashable {
  /// The beginning of a stream.
  case lease(FeedLease)
  case record(FeedRecord)
  /// No record was behind this position when the line was sent.
  case heartbeat(cursor: String)
  /// Records before this position are no longer kept.
  case gap(cursor: String, from: String, to: String)
  /// A newer stream of the partition has been opened.
  case leaseLost

  /// Why a line is refused.
  package struct Fault: Error, Equatable {
    /// The gateway ends the stream with this problem code; nil: the line is none of a feed.
    package var code: String?

    package init(code: String? = nil) { self.code = code }
  }

  /// Parse a line without its line feed.
  package init(_ bytes: ArraySlice<UInt8>) throws(Fault) {
    guard let object = JSONMembers(bytes), let type = object.text("type") else { throw Fault() }
    switch type {
    case "lease":
      guard let epoch = object.integer("epoch") else { throw Fault() }
      self = .lease(FeedLease(epoch: epoch, cursor: object.text("cursor"), state: object.text("state")))
    case "lease_lost": self = .leaseLost
    case "error": throw Fault(code: object.text("code") ?? "error")
    case "heartbeat":
      guard let cursor = object.text("cursor") else { throw Fault() }
      self = .heartbeat(cursor: cursor)
    case "gap":
      guard let cursor = object.text("cursor") else { throw Fault() }
      self = .gap(cursor: cursor, from: object.text("from") ?? "", to: object.text("to") ?? "")
    default:
      guard let cursor = object.text("cursor"), let id = object.text("id") else { throw Fault() }
      self = .record(FeedRecord(cursor: cursor, id: id, json: object.removing("cursor")))
    }
  }
}

/// Right to commit a partition, as told at the beginning of a stream.
package struct FeedLease: Sendable, Hashable {
  /// Rises with each stream of the partition.
  package var epoch: Int64
  /// The committed position; nil if the gateway does not tell it.
  package var cursor: String?
  /// The state that was stored last.
  package var state: String?

  /// Create a lease.
  package init(epoch: Int64, cursor: String? = nil, state: String? = nil) {
    self.epoch = epoch
    self.cursor = cursor
    self.state = state
  }
}

/// Members of a JSON object, found without parsing their values. A webhook's body contains the bytes that the gateway
/// sent, so values are not decoded and encoded again.
struct JSONMembers {
  private struct Member {
    var name: Range<Int>
    var value: Range<Int>
  }

  private let bytes: ArraySlice<UInt8>
  private var members: [Member] = []

  /// Nil if the bytes are not an object with balanced values.
  init?(_ bytes: ArraySlice<UInt8>) {
    self.bytes = bytes
    var at = bytes.startIndex
    func skipSpaces() { while at < bytes.endIndex, Self.isSpace(bytes[at]) { at += 1 } }
    func take(_ byte: Character) -> Bool {
      guard at < bytes.endIndex, bytes[at] == byte.asciiValue else { return false }
      at += 1
      return true
    }
    skipSpaces()
    guard take("{") else { return nil }
    skipSpaces()
    if !take("}") {
      repeat {
        skipSpaces()
        guard let name = Self.string(bytes, at) else { return nil }
        at = name.upperBound
        skipSpaces()
        guard take(":") else { return nil }
        skipSpaces()
        guard let value = Self.value(bytes, at), !value.isEmpty else { return nil }
        at = value.upperBound
        members.append(Member(name: name, value: value))
        skipSpaces()
      } while take(",")
      guard take("}") else { return nil }
    }
    skipSpaces()
    guard at == bytes.endIndex else { return nil }
  }

  /// Return a member's text; nil if it is missing or not a text.
  func text(_ name: String) -> String? {
    guard let value = find(name), bytes[value.lowerBound] == UInt8(ascii: "\"") else { return nil }
    let raw = bytes[value]
    guard raw.contains(UInt8(ascii: "\\")) else {
      return String(validating: raw.dropFirst().dropLast(), as: UTF8.self)
    }
    return try? JSONDecoder().decode(String.self, from: Data(raw))
  }

  /// Return a member's whole number; nil if it is missing or not one.
  func integer(_ name: String) -> Int64? {
    find(name).flatMap { Int64(String(decoding: bytes[$0], as: UTF8.self)) }
  }

  /// Return the object without a member. The other members keep their order and bytes.
  func removing(_ name: String) -> [UInt8] {
    let removed = Array(name.utf8)
    var result: [UInt8] = []
    result.reserveCapacity(bytes.count)
    result.append(UInt8(ascii: "{"))
    for member in members where !bytes[member.name].dropFirst().dropLast().elementsEqual(removed) {
      if result.count > 1 { result.append(UInt8(ascii: ",")) }
      result += bytes[member.name]
      result.append(UInt8(ascii: ":"))
      result += bytes[member.value]
    }
    result.append(UInt8(ascii: "}"))
    return result
  }

  private func find(_ name: String) -> Range<Int>? {
    members.first { bytes[$0.name].dropFirst().dropLast().elementsEqual(name.utf8) }?.value
  }

  private static func isSpace(_ byte: UInt8) -> Bool { byte == 0x20 || byte == 0x09 || byte == 0x0A || byte == 0x0D }

  /// Return the range of a string with its quotes.
  private static func string(_ bytes: ArraySlice<UInt8>, _ start: Int) -> Range<Int>? {
    guard start < bytes.endIndex, bytes[start] == UInt8(ascii: "\"") else { return nil }
    var at = start + 1
    while at < bytes.endIndex {
      switch bytes[at] {
      case UInt8(ascii: "\""): return start..<at + 1
      case UInt8(ascii: "\\"): at += 2
      default: at += 1
      }
    }
    return nil
  }

  /// Return the range of any value. Brackets have to balance; scalars end at a separator.
  private static func value(_ bytes: ArraySlice<UInt8>, _ start: Int) -> Range<Int>? {
    var at = start
    var depth = 0
    while at < bytes.endIndex {
      switch bytes[at] {
      case UInt8(ascii: "\""):
        guard let string = string(bytes, at) else { return nil }
        at = string.upperBound
        if depth == 0 { return start..<at }
        continue
      case UInt8(ascii: "{"), UInt8(ascii: "["): depth += 1
      case UInt8(ascii: "}"), UInt8(ascii: "]"):
        guard depth > 0 else { return start..<at }
        depth -= 1
        if depth == 0 { return start..<at + 1 }
      case UInt8(ascii: ",") where depth == 0: return start..<at
      case let byte where depth == 0 && isSpace(byte): return start..<at
      default: break
      }
      at += 1
    }
    return nil
  }
}
