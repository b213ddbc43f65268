internal import Foundation

/// An element of a list that is decoded on its own, so that a malformed one does not make the others unreadable.
struct Lenient<Value: Decodable>: Decodable {
  let result: Result<Value, any Error>

  init(from decoder: any Decoder) throws {
    result = Result { try Value(from: decoder) }
  }
}

/// Something of which only the presence counts.
struct Presence: Decodable {
  init(from decoder: any Decoder) throws {}
}

/// How many things a field has that are only counted: elements of a list, or the sum of an object's numbers. Any other
/// form counts as none.
struct FieldCount: Decodable {
  let count: Int

  init(from decoder: any Decoder) throws {
    if let list = try? decoder.unkeyedContainer() {
      count = list.count ?? 0
    } else {
      let counts = try? decoder.singleValueContainer().decode([String: Int].self)
      count = (counts ?? [:]).values.reduce(0) { $0 + min(max($1, 0), 1 << 32) }
    }
  }
}

/// A time as a number of milliseconds since 1970. 0 stands for none.
struct UnixMilliseconds: Decodable {
  let time: DumpTime?

  init(from decoder: any Decoder) throws {
    let container = try decoder.singleValueContainer()
    let milliseconds = try container.decode(Int64.self)
    time = milliseconds == 0 ? nil : DumpTime(milliseconds: milliseconds)
    guard milliseconds == 0 || time != nil else {
      throw DecodingError.dataCorruptedError(
        in: container,
        debugDescription: "must be milliseconds since 1970, of the years 1970 to 9999"
      )
    }
  }
}

extension Optional {
  /// Return the value of a field that a record needs.
  ///
  /// - Throws: ``RecordRefusal`` with the field's name.
  func required(_ field: String) throws -> Wrapped {
    guard let self else { throw RecordRefusal("\(field) is missing") }
    return self
  }
}

extension String? {
  /// The text, or nil if it is empty: some products write an empty text for none.
  var nonEmpty: String? { self.flatMap { $0.isEmpty ? nil : $0 } }
}

extension RecordRefusal {
  /// The refusal of what could not be decoded: the field by its path, and what it must be.
  ///
  /// - Parameter origin: the record, whose own path is left out.
  init(_ error: DecodingError, at origin: DumpOrigin) {
    func field(_ path: [any CodingKey]) -> String {
      let text = Self.text(path)
      if text == origin.path { return "it" }
      return text.hasPrefix(origin.path + ".") ? String(text.dropFirst(origin.path.count + 1)) : text
    }
    switch error {
    case .keyNotFound(let key, let context):
      self.init("\(field(context.codingPath + [key])) is missing")
    case .valueNotFound(let type, let context):
      self.init("\(field(context.codingPath)) is null: it must be \(Self.form(of: type))")
    case .typeMismatch(let type, let context):
      self.init("\(field(context.codingPath)) must be \(Self.form(of: type))")
    case .dataCorrupted(let context) where context.codingPath.isEmpty:
      self.init("it is not JSON, or was cut off")
    case .dataCorrupted(let context):
      self.init("\(field(context.codingPath)) \(context.debugDescription)")
    @unknown default:
      self.init("\(error)")
    }
  }

  /// Return a path as `user.teams[0].name`.
  private static func text(_ path: [any CodingKey]) -> String {
    let text = path.reduce(into: "") { text, key in
      if let index = key.intValue {
        text += "[\(index)]"
      } else {
        text += (text.isEmpty ? "" : ".") + key.stringValue
      }
    }
    return text.isEmpty ? "it" : text
  }

  private static func form(of type: Any.Type) -> String {
    switch type {
    case is String.Type: "a string"
    case is Bool.Type: "true or false"
    case is Int64.Type, is Int.Type: "a whole number"
    case is [Any].Type: "a list"
    default: "an object"
    }
  }
}
