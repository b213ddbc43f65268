internal import Foundation

/// A value of JSON. The fields of an object keep their order, which `JSONEncoder` does not promise.
package enum OrderedJSON: Sendable {
  case null
  case boolean(Bool)
  case integer(Int)
  case string(String)
  case array([OrderedJSON])
  case object([(name: String, value: OrderedJSON)])

  /// The value on one line.
  package var text: String {
    switch self {
    case .null: "null"
    case .boolean(let value): value ? "true" : "false"
    case .integer(let number): String(number)
    case .string(let text): Self.quoted(text)
    case .array(let elements): "[" + elements.map(\.text).joined(separator: ",") + "]"
    case .object(let fields):
      "{" + fields.map { "\(Self.quoted($0.name)):\($0.value.text)" }.joined(separator: ",") + "}"
    }
  }

  private static func quoted(_ text: String) -> String {
    let encoder = JSONEncoder()
    encoder.outputFormatting = .withoutEscapingSlashes
    guard let bytes = try? encoder.encode(text) else { return "null" }
    return String(decoding: bytes, as: UTF8.self)
  }
}
