internal import Foundation
internal import Yams

/// Keys of a `--config` file. swift-configuration does not list them, and a misspelt key must not be ignored.
enum ConfigFile {
  /// Larger files are not settings files.
  static let byteCountMax = 1 << 20

  /// Return the top-level keys of a YAML or JSON file, in order.
  static func keys(of path: String) throws(SettingsError) -> [String] {
    let data: Data
    do throws(FileFault) {
      data = try Data(RegularFile.bytes(path, byteCountMax: byteCountMax))
    } catch {
      throw SettingsError("config", "\(path): the file cannot be read (\(error))")
    }
    guard data.count <= byteCountMax else {
      throw SettingsError("config", "\(path): the file is larger than \(byteCountMax) bytes")
    }
    guard let text = String(data: data, encoding: .utf8) else {
      throw SettingsError("config", "\(path): the file is not UTF-8")
    }
    do {
      return try keys(ofYAML: text)
    } catch {
      throw SettingsError("config", "\(path): \(error.description)")
    }
  }

  /// Return the top-level keys of a YAML or JSON text, in order.
  static func keys(ofYAML text: String) throws(SettingsError) -> [String] {
    let root: Node?
    do {
      root = try Yams.compose(yaml: text)
    } catch YamlError.duplicatedKeysInMapping(let keys, _) {
      throw SettingsError("\(keys.map { "\"\($0)\"" }.joined(separator: ", ")) is set twice")
    } catch {
      throw SettingsError(unreadable(error))
    }
    // A file of comments only has no value, or an empty one behind `---`.
    guard let root, root.scalar?.string.isEmpty != true else { return [] }
    guard let mapping = root.mapping else {
      throw SettingsError("the file is not `key: value` lines or a JSON object")
    }
    return try mapping.keys.map { (key: Node) throws(SettingsError) in
      guard let name = key.string else { throw SettingsError("a key is not a text") }
      return name
    }
  }

  /// Describe a parser's error in one line.
  static func unreadable(_ error: any Error) -> String {
    let reason = "\(error)".split(whereSeparator: \.isNewline).map { $0.trimmed }.joined(separator: " ")
    return "not readable as YAML or JSON (\(reason))"
  }
}
