internal import Foundation

/// Comparison of a JSON answer with the expected one. Additional members of the answer are ignored, so that a script
/// stays valid when answers get new members.
enum JSONComparison {
  /// - Throws: ``ProbeError`` if `expected` is not JSON.
  static func differences(_ expected: [UInt8], from actual: [UInt8]) throws -> [String] {
    guard let wanted = parse(expected) else {
      throw ProbeError("json: this is none: \(String(decoding: expected, as: UTF8.self))")
    }
    guard let value = parse(actual) else { return ["json: received none: \(Hex.word(actual))"] }
    return differences(wanted, from: value, path: "json")
  }

  private static func parse(_ bytes: [UInt8]) -> Any? {
    try? JSONSerialization.jsonObject(with: Data(bytes), options: .fragmentsAllowed)
  }

  private static func differences(_ expected: Any, from actual: Any, path: String) -> [String] {
    switch (expected, actual) {
    case (let wanted as [String: Any], let object as [String: Any]):
      return wanted.keys.sorted().flatMap { key -> [String] in
        guard let value = object[key] else { return ["\(path).\(key): expected, but it is not there"] }
        return wanted[key].map { differences($0, from: value, path: "\(path).\(key)") } ?? []
      }
    case (let wanted as [Any], let list as [Any]):
      guard wanted.count == list.count else {
        return ["\(path): expected \(wanted.count) entries, received \(list.count)"]
      }
      return zip(wanted, list).enumerated().flatMap {
        differences($0.element.0, from: $0.element.1, path: "\(path)[\($0.offset)]")
      }
    case (let wanted as String, _) where wanted == "*": return []
    default:
      let (wanted, value) = (text(expected), text(actual))
      return wanted == value ? [] : ["\(path): expected \(wanted), received \(value)"]
    }
  }

  private static func text(_ value: Any) -> String {
    let options: JSONSerialization.WritingOptions = [.fragmentsAllowed, .sortedKeys, .withoutEscapingSlashes]
    return (try? JSONSerialization.data(withJSONObject: value, options: options)).map {
      String(decoding: $0, as: UTF8.self)
    } ?? "\(value)"
  }
}
