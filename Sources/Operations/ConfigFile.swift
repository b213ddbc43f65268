internal import Foundation

/// The keys of a `--config` file, which swift-configuration does not tell: a misspelt key must not be
/// ignored.
enum ConfigFile {
  /// More than that is no file of settings.
  static let byteCountMax = 1 << 20

  /// The top-level keys of a YAML or JSON file, in order.
  static func keys(of path: String) throws(SettingsError) -> [String] {
    guard let data = FileManager.default.contents(atPath: path) else {
      throw SettingsError("config", "\(path): the file cannot be read (\(ErrorText.reading(path)))")
    }
    guard data.count <= byteCountMax else {
      throw SettingsError("config", "\(path): the file is larger than \(byteCountMax) bytes")
    }
    guard let text = String(data: data, encoding: .utf8) else {
      throw SettingsError("config", "\(path): the file is not UTF-8")
    }
    if text.first(where: { !$0.isWhitespace }) == "{" {
      guard let object = try? JSONSerialization.jsonObject(with: data) as? [String: Any] else {
        throw SettingsError("config", "\(path): the file starts like JSON and is not a JSON object")
      }
      return object.keys.sorted()
    }
    do {
      return try keys(ofYAML: text)
    } catch {
      throw SettingsError("config", "\(path): \(error.description)")
    }
  }

  /// The settings are flat, so a key is what stands before a colon at the start of a line; everything that is
  /// indented belongs to the key above it.
  static func keys(ofYAML text: String) throws(SettingsError) -> [String] {
    var keys: [String] = []
    for (number, line) in text.split(omittingEmptySubsequences: false, whereSeparator: \.isNewline)
      .enumerated()
    {
      guard let first = line.first, !first.isWhitespace, first != "#", !line.hasPrefix("---") else {
        continue
      }
      // A list's entries may stand at the margin below their key.
      if line.hasPrefix("- ") && !keys.isEmpty { continue }
      guard let key = key(ofYAMLLine: line) else {
        throw SettingsError("line \(number + 1) is not `key: value`")
      }
      guard !keys.contains(key) else { throw SettingsError("line \(number + 1) sets \"\(key)\" again") }
      keys.append(key)
    }
    return keys
  }

  private static func key(ofYAMLLine line: Substring) -> String? {
    if let quote = line.first, quote == "\"" || quote == "'" {
      guard let end = line.dropFirst().firstIndex(of: quote) else { return nil }
      guard line[line.index(after: end)...].drop(while: \.isWhitespace).first == ":" else { return nil }
      return String(line[line.index(after: line.startIndex)..<end])
    }
    guard let colon = line.firstIndex(of: ":") else { return nil }
    let after = line.index(after: colon)
    guard after == line.endIndex || line[after].isWhitespace else { return nil }
    var key = line[..<colon]
    while key.last?.isWhitespace == true { key.removeLast() }
    return key.isEmpty ? nil : String(key)
  }
}
