internal import Foundation

/// A text as a string of JSON, with its quotes.
func jsonString(_ text: String) -> String {
  let encoder = JSONEncoder()
  encoder.outputFormatting = .withoutEscapingSlashes
  guard let bytes = try? encoder.encode(text) else { return "null" }
  return String(decoding: bytes, as: UTF8.self)
}
