internal import Foundation

/// A value of JSON.
package enum JSONValue: Sendable, Hashable, Codable {
  case null
  case boolean(Bool)
  case integer(Int64)
  case number(Double)
  case string(String)
  case array([JSONValue])
  case object([String: JSONValue])

  /// Decode a value of any kind.
  package init(from decoder: any Decoder) throws {
    let container = try decoder.singleValueContainer()
    // In the order of frequency: each failed attempt costs an error.
    if let value = try? container.decode(String.self) {
      self = .string(value)
    } else if let value = try? container.decode([String: JSONValue].self) {
      self = .object(value)
    } else if let value = try? container.decode([JSONValue].self) {
      self = .array(value)
    } else if container.decodeNil() {
      self = .null
    } else if let value = try? container.decode(Int64.self) {
      self = .integer(value)
    } else if let value = try? container.decode(Bool.self) {
      self = .boolean(value)
    } else {
      self = .number(try container.decode(Double.self))
    }
  }

  /// Encode the value.
  package func encode(to encoder: any Encoder) throws {
    var container = encoder.singleValueContainer()
    switch self {
    case .null: try container.encodeNil()
    case .boolean(let value): try container.encode(value)
    case .integer(let value): try container.encode(value)
    case .number(let value): try container.encode(value)
    case .string(let value): try container.encode(value)
    case .array(let values): try container.encode(values)
    case .object(let members): try container.encode(members)
    }
  }

  /// Parse a text; nil if it is not JSON.
  package init?(parsing bytes: some Sequence<UInt8>) {
    guard let value = try? JSONDecoder().decode(JSONValue.self, from: Data(bytes)) else { return nil }
    self = value
  }

  /// The text on one line, with sorted keys.
  package var bytes: [UInt8] {
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
    return (try? encoder.encode(self)).map { Array($0) } ?? []
  }

  /// The text on one line, with sorted keys.
  package var text: String { String(decoding: bytes, as: UTF8.self) }

  /// The string, if the value is one.
  package var string: String? { if case .string(let value) = self { value } else { nil } }

  /// The whole number, if the value is one.
  package var integer: Int64? { if case .integer(let value) = self { value } else { nil } }

  /// The elements, if the value is an array.
  package var array: [JSONValue]? { if case .array(let values) = self { values } else { nil } }

  /// The members, if the value is an object.
  package var object: [String: JSONValue]? { if case .object(let members) = self { members } else { nil } }

  /// The member of an object; nil without it.
  package subscript(_ name: String) -> JSONValue? { object?[name] }
}
