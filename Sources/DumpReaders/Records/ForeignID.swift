internal import ReceiptModel

/// A record that is left out and named, because it is malformed or Tidemark cannot take it.
struct RecordRefusal: Error, Hashable {
  var detail: String

  init(_ detail: String) { self.detail = detail }
}

/// Checks and maps the ids of other products. ``Identifier`` has the rules.
///
/// Ids of users, messages and channels stay as they are: Tidemark allows 1 to 255 bytes of UTF-8 without control
/// characters. Others are refused by name, since a shortened id could be that of somebody else.
enum ForeignID {
  /// Return the user's id.
  ///
  /// - Throws: ``RecordRefusal``.
  static func user(_ id: String) throws -> String { try checked(id, "user id") }

  /// Return the message's id.
  ///
  /// - Throws: ``RecordRefusal``.
  static func message(_ id: String) throws -> String { try checked(id, "message id") }

  /// Return `type:id`.
  ///
  /// - Throws: ``RecordRefusal``.
  static func channel(type: String, id: String) throws -> String {
    guard Identifier.isType(Array(type.utf8).span.bytes) else {
      throw RecordRefusal("channel type \(quoted(type)): Tidemark takes 1 to 64 of A-Z a-z 0-9 _ -")
    }
    return type + ":" + (try checked(id, "channel id"))
  }

  /// Whether a role may stand in a line.
  static func isRole(_ role: String) -> Bool { Identifier.isRole(Array(role.utf8).span.bytes) }

  /// Escape a part of an id that is made of several: `%`, `/`, `,` and `:` as `%25`, `%2F`, `%2C` and `%3A`. Different
  /// parts then never make the same id.
  static func part(_ text: String) -> String {
    guard text.utf8.contains(where: { "%/,:".utf8.contains($0) }) else { return text }
    return text.unicodeScalars.reduce(into: "") { escaped, scalar in
      switch scalar {
      case "%": escaped += "%25"
      case "/": escaped += "%2F"
      case ",": escaped += "%2C"
      case ":": escaped += "%3A"
      default: escaped.unicodeScalars.append(scalar)
      }
    }
  }

  /// Return a name of the dump for a message to a person: itself if it is a plain one.
  static func shown(_ name: String) -> String { isRole(name) ? name : quoted(name) }

  private static func checked(_ id: String, _ kind: String) throws -> String {
    guard !id.isEmpty else { throw RecordRefusal("\(kind) is empty: Tidemark takes 1 to 255 bytes") }
    guard id.utf8.count <= Identifier.idLengthMax else {
      throw RecordRefusal("\(kind) \(quoted(id)) has \(id.utf8.count) bytes: Tidemark takes 1 to 255")
    }
    guard Identifier.isID(Array(id.utf8).span.bytes) else {
      throw RecordRefusal("\(kind) \(quoted(id)) has control characters, which Tidemark does not take")
    }
    return id
  }

  private static func isControl(_ scalar: Unicode.Scalar) -> Bool {
    scalar.value < 0x20 || (0x7F...0x9F).contains(scalar.value)
  }

  /// Return the text for a message to a person: at most 80 characters of it, control characters as `\u{…}`.
  static func quoted(_ text: String) -> String {
    let scalars = text.unicodeScalars.prefix(80)
    let shown = scalars.map { isControl($0) ? "\\u{\(String($0.value, radix: 16))}" : String($0) }.joined()
    return "\"\(shown)\(text.unicodeScalars.count > 80 ? "…" : "")\""
  }
}
