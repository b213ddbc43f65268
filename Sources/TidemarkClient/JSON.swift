import Foundation

/// JSON as the API has it: times are RFC 3339 in UTC with milliseconds.
enum JSON {
  static func decode<Value: Decodable>(_: Value.Type = Value.self, from data: Data) throws -> Value {
    let decoder = JSONDecoder()
    decoder.dateDecodingStrategy = .custom { decoder in
      let container = try decoder.singleValueContainer()
      let text = try container.decode(String.self)
      guard let time = Self.time(text) else {
        throw DecodingError.dataCorruptedError(in: container, debugDescription: "\(text) is no time")
      }
      return time
    }
    return try decoder.decode(Value.self, from: data)
  }

  static func encode(_ value: some Encodable) throws -> Data {
    let encoder = JSONEncoder()
    encoder.dateEncodingStrategy = .custom { time, encoder in
      var container = encoder.singleValueContainer()
      try container.encode(Self.text(time))
    }
    return try encoder.encode(value)
  }

  private static let format = Date.ISO8601FormatStyle(includingFractionalSeconds: true)

  private static func time(_ text: String) -> Date? {
    (try? format.parse(text)) ?? (try? Date.ISO8601FormatStyle().parse(text))
  }

  private static func text(_ time: Date) -> String { format.format(time) }
}
