import Foundation

/// A value of JSON, compared as a whole.
enum JSONValue: Hashable, Codable {
  case null
  case bool(Bool)
  case int(Int)
  case string(String)
  case array([JSONValue])
  case object([String: JSONValue])

  init(from decoder: any Decoder) throws {
    let container = try decoder.singleValueContainer()
    if container.decodeNil() {
      self = .null
    } else if let value = try? container.decode(Bool.self) {
      self = .bool(value)
    } else if let value = try? container.decode(Int.self) {
      self = .int(value)
    } else if let value = try? container.decode(String.self) {
      self = .string(value)
    } else if let value = try? container.decode([JSONValue].self) {
      self = .array(value)
    } else {
      self = .object(try container.decode([String: JSONValue].self))
    }
  }

  func encode(to encoder: any Encoder) throws {
    var container = encoder.singleValueContainer()
    switch self {
    case .null: try container.encodeNil()
    case .bool(let value): try container.encode(value)
    case .int(let value): try container.encode(value)
    case .string(let value): try container.encode(value)
    case .array(let value): try container.encode(value)
    case .object(let value): try container.encode(value)
    }
  }

  init(_ value: Int?) { self = value.map(JSONValue.int) ?? .null }
  init(_ value: Bool?) { self = value.map(JSONValue.bool) ?? .null }
  init(_ value: String?) { self = value.map(JSONValue.string) ?? .null }
  init(_ value: [String]) { self = .array(value.map(JSONValue.string)) }

  subscript(_ name: String) -> JSONValue {
    if case .object(let fields) = self { return fields[name] ?? .null }
    return .null
  }

  var string: String? { if case .string(let value) = self { value } else { nil } }
  var int: Int? { if case .int(let value) = self { value } else { nil } }
  var bool: Bool? { if case .bool(let value) = self { value } else { nil } }
  var strings: [String]? { array?.compactMap(\.string) }
  var array: [JSONValue]? { if case .array(let value) = self { value } else { nil } }
}

extension JSONValue: CustomStringConvertible {
  var description: String {
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
    return (try? encoder.encode(self)).map { String(decoding: $0, as: UTF8.self) } ?? "?"
  }
}

/// A step failed, or a state is not as expected.
struct Failure: Error, CustomStringConvertible {
  var description: String

  init(_ description: String) { self.description = description }
}

/// The arguments of a step. What a step needs and does not have fails it.
struct Arguments {
  var fields: [String: JSONValue]

  subscript(_ name: String) -> JSONValue { fields[name] ?? .null }

  func string(_ name: String) throws -> String {
    guard let value = self[name].string else { throw Failure("\(name) is missing") }
    return value
  }

  func int(_ name: String) throws -> Int {
    guard let value = self[name].int else { throw Failure("\(name) is missing") }
    return value
  }

  func strings(_ name: String) throws -> [String] {
    guard let value = self[name].strings else { throw Failure("\(name) is missing") }
    return value
  }

  /// All fields except some, for a body.
  func body(without names: String...) -> JSONValue { .object(fields.filter { !names.contains($0.key) }) }
}
