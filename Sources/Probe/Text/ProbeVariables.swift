import Foundation

/// Values of `$NAME` in scripts and frames, such as tokens, which should not be in files.
///
/// ```
/// $TOKEN  ${TOKEN}     the variable's value
/// $NOW                 time at which the script was read, in milliseconds since 1970, unless given
/// ${x*17000}           a text repeated
/// $$                   a dollar sign, like one before any other character
/// ```
package struct ProbeVariables: Sendable {
  /// Size limit of a repetition.
  static let byteCountMax = 1 << 21

  private var given: [String: String]
  private let environment: [String: String]

  /// - Parameter environment: values of variables that are not given.
  package init(given: [String: String] = [:], environment: [String: String] = [:]) {
    self.given = given
    self.environment = environment
  }

  /// Parse `NAME=VALUE` settings.
  ///
  /// - Throws: ``ProbeError`` for another form.
  package init(settings: [String], environment: [String: String]) throws {
    let now = Int64(Date.now.timeIntervalSince1970 * 1_000)
    self.init(given: ["NOW": String(now)], environment: environment)
    for setting in settings {
      guard let equals = setting.firstIndex(of: "="), equals > setting.startIndex,
        setting[..<equals].allSatisfy(Self.isOfName)
      else { throw ProbeError("--set: NAME=VALUE is expected: \(setting.prefix { $0 != "=" })") }
      given[String(setting[..<equals])] = String(setting[setting.index(after: equals)...])
    }
  }

  /// Replace variables by their values.
  ///
  /// - Throws: ``ProbeError`` for a variable without a value.
  package func expand(_ text: String) throws -> String {
    guard text.contains("$") else { return text }
    var result = ""
    var rest = text[...]
    while let dollar = rest.firstIndex(of: "$") {
      result += rest[..<dollar]
      rest = rest[rest.index(after: dollar)...]
      if rest.first == "$" {
        result += "$"
        rest = rest.dropFirst()
      } else if rest.first == "{" {
        guard let end = rest.firstIndex(of: "}") else { throw ProbeError("'}' is missing behind '${'") }
        result += try braced(rest[rest.index(after: rest.startIndex)..<end])
        rest = rest[rest.index(after: end)...]
      } else if let first = rest.first, Self.isOfName(first), !first.isNumber {
        let name = rest.prefix(while: Self.isOfName)
        result += try value(String(name))
        rest = rest[name.endIndex...]
      } else {
        result += "$"
      }
    }
    return result + rest
  }

  private func braced(_ content: Substring) throws -> String {
    guard let star = content.lastIndex(of: "*") else { return try value(String(content)) }
    let text = content[..<star]
    guard let count = Int(content[content.index(after: star)...]), count >= 0,
      count <= Self.byteCountMax / max(text.utf8.count, 1)
    else { throw ProbeError("${\(content)}: TEXT*COUNT makes at most \(Self.byteCountMax) bytes") }
    return String(repeating: String(text), count: count)
  }

  private func value(_ name: String) throws -> String {
    guard let value = given[name] ?? environment[name] else {
      throw ProbeError("$\(name) has no value: give --set \(name)=…, or set it in the environment")
    }
    return value
  }

  private static func isOfName(_ character: Character) -> Bool {
    character.isASCII && (character.isLetter || character.isNumber || character == "_")
  }
}
