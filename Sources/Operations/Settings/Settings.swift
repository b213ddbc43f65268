internal import Configuration
internal import Foundation
internal import SystemPackage
internal import Yams

/// Settings of a process: flags take precedence over the environment (`TIDEMARK_…`), and that over the `--config` file.
///
/// All three share one flat set of keys: `jwt-secret-file` is `--jwt-secret-file`, `TIDEMARK_JWT_SECRET_FILE` and
/// `jwt-secret-file:`. Values are read as text and checked here, because swift-configuration's optional getters return
/// the default for an invalid value instead of an error. An empty value counts as not set, except where that would lift
/// a restriction.
package struct Settings: Sendable {
  /// Flags, environment, file: the first layer that has a key wins.
  private let layers: [any ConfigProvider]

  /// Read the settings, including the file named by the flag or `TIDEMARK_CONFIG`.
  ///
  /// - Parameters:
  ///   - flags: the flags that were given, by key; `true` for a switch.
  ///   - keys: all keys of this process. Unknown keys in the file and unknown `TIDEMARK_…` variables are refused.
  ///   - restrictions: keys that may not be empty, nor have an empty entry: an unset variable in a script would lift
  ///     the restriction without a trace.
  ///   - environment: as in `ProcessInfo.processInfo.environment`.
  package init(
    flags: [String: String],
    keys: Set<String>,
    restrictions: Set<String> = [],
    environment: [String: String]
  ) async throws(SettingsError) {
    let given = flags.filter { !$0.value.isEmpty }
    let variables = environment.filter { $0.key.hasPrefix("TIDEMARK_") && !$0.value.isEmpty }
    try Self.check(variables, keys)
    let file = given["config"] ?? variables["TIDEMARK_CONFIG"]
    var layers: [any ConfigProvider] = [
      InMemoryProvider(
        name: "flags",
        values: Dictionary(
          uniqueKeysWithValues: given.map {
            (AbsoluteConfigKey([$0.key]), ConfigValue(.string($0.value), isSecret: false))
          }
        )
      ), EnvironmentVariablesProvider(environmentVariables: variables).prefixKeys(with: ConfigKey(["tidemark"])),
    ]
    if let file {
      let found = try ConfigFile.keys(of: file)
      for key in found where !keys.contains(key) {
        throw SettingsError(
          "config",
          "\(file): unknown key \"\(key)\"; known are \(keys.sorted().joined(separator: ", "))"
        )
      }
      // The YAML reader refuses a file without a value, such as one of comments only.
      if !found.isEmpty {
        do {
          // The YAML reader accepts JSON too, and returns a number as its original text.
          layers.append(try await FileProvider<YAMLSnapshot>(filePath: FilePath(file)))
        } catch {
          throw SettingsError("config", "\(file): \(ConfigFile.unreadable(error))")
        }
      }
    }
    self.layers = layers
    for key in restrictions.sorted() {
      let given = flags[key] ?? environment[Self.variable(key)]
      let entries = given.map {
        $0.split(separator: ",", omittingEmptySubsequences: false).map { $0.trimmed }
      }
      guard (entries ?? (layers.count > 2 ? Self.entries(key, in: layers[2]) : [])).contains("") else { continue }
      throw SettingsError(key, "is empty, or has an empty entry: give a value, or leave the setting out")
    }
  }

  /// Return the environment variable of a key.
  private static func variable(_ key: String) -> String {
    "TIDEMARK_" + String(key.uppercased().map { $0 == "-" ? "_" : $0 })
  }

  /// Return the value in a layer as a list, empty texts included; empty if the layer has none.
  private static func entries(_ key: String, in layer: any ConfigProvider) -> [String] {
    let key = AbsoluteConfigKey([key])
    if case .string(let text)? = (try? layer.value(forKey: key, type: .string))?.value?.content {
      return [text]
    }
    if case .stringArray(let texts)? = (try? layer.value(forKey: key, type: .stringArray))?.value?.content {
      return texts
    }
    return []
  }

  /// Return whether Kubernetes may have set a variable. It adds such variables to every pod next to a Service called
  /// `tidemark-…`: `TIDEMARK_STORE_SERVICE_HOST`, `TIDEMARK_STORE_PORT`, `TIDEMARK_STORE_PORT_7410_TCP_ADDR`.
  private static func isServiceLink(_ name: String) -> Bool {
    name.contains("_SERVICE_") || name.hasSuffix("_PORT") || name.contains("_PORT_")
  }

  /// Throw for an unknown variable: a misspelt one must not be ignored.
  private static func check(_ variables: [String: String], _ keys: Set<String>) throws(SettingsError) {
    let known = keys.map(variable)
    let unknown = Set(variables.keys).subtracting(known).filter { !isServiceLink($0) }
    guard let name = unknown.min() else { return }
    throw SettingsError("\(name) is not a setting of this process; known are \(known.sorted().joined(separator: ", "))")
  }

  /// Return the text of a setting, or nil if it is not set.
  package func string(_ key: String) throws(SettingsError) -> String? {
    for layer in layers {
      switch Self.value(key, in: layer) {
      case .none: continue
      case .text(let text): return text
      case .list: throw SettingsError(key, "takes one value, not a list")
      case .other: throw SettingsError(key, "takes a single value")
      }
    }
    return nil
  }

  /// Return those of `keys` whose values differ in other settings.
  package func differences(from other: Settings, among keys: Set<String>) -> [String] {
    keys.filter { value($0) != other.value($0) }.sorted()
  }

  /// Return the value of a setting, of any type.
  private func value(_ key: String) -> Value {
    for layer in layers {
      let value = Self.value(key, in: layer)
      if value != .none { return value }
    }
    return .none
  }

  /// Return the paths of the given settings; unset ones are skipped.
  package func files(_ keys: [String]) -> [String] { keys.compactMap { (try? string($0)) ?? nil } }

  /// Return the text of a required setting.
  package func requiredString(_ key: String, for purpose: String) throws(SettingsError) -> String {
    guard let text = try string(key) else { throw SettingsError(key, "is missing: \(purpose)") }
    return text
  }

  /// Return a list: separated by commas, or a list in the file. Empty if it is not set.
  package func list(_ key: String) throws(SettingsError) -> [String] {
    for layer in layers {
      switch Self.value(key, in: layer) {
      case .none: continue
      case .text(let text): return text.split(separator: ",").map { $0.trimmed }.filter { !$0.isEmpty }
      case .list(let texts): return texts
      case .other: throw SettingsError(key, "takes a list of values")
      }
    }
    return []
  }

  /// Return a switch; false if it is not set.
  package func flag(_ key: String) throws(SettingsError) -> Bool {
    guard let text = try string(key) else { return false }
    switch text.lowercased() {
    case "true", "yes", "on", "1": return true
    case "false", "no", "off", "0": return false
    default: throw SettingsError(key, "\"\(text)\": give true or false")
    }
  }

  /// Return a whole number in `range`.
  package func integer(_ key: String, in range: ClosedRange<Int>) throws(SettingsError) -> Int? {
    guard let text = try string(key) else { return nil }
    guard let value = Int(text), range.contains(value) else {
      throw SettingsError(key, "\"\(text)\": give a whole number from \(range.lowerBound) to \(range.upperBound)")
    }
    return value
  }

  /// Return a time span (``TimeSpan``).
  package func milliseconds(_ key: String, in range: ClosedRange<Int64>) throws(SettingsError) -> Int64? {
    guard let text = try string(key) else { return nil }
    guard let value = TimeSpan.milliseconds(text), range.contains(value) else {
      throw SettingsError(
        key,
        """
        "\(text)": give a time such as 500ms or 5s, from \(TimeSpan.text(milliseconds: range.lowerBound)) to \
        \(TimeSpan.text(milliseconds: range.upperBound))
        """
      )
    }
    return value
  }

  /// Return a number of bytes: digits with an optional `K`, `M`, `G` or `T` (powers of 1,024; `KiB` and `KB` mean the
  /// same).
  package func byteCount(_ key: String, in range: ClosedRange<Int>) throws(SettingsError) -> Int? {
    guard let text = try string(key) else { return nil }
    guard let value = Self.byteCount(text), range.contains(value) else {
      throw SettingsError(
        key,
        "\"\(text)\": give a size such as 512M or 4G, from \(range.lowerBound) to \(range.upperBound) bytes"
      )
    }
    return value
  }

  /// Return an address to listen on or connect to.
  package func endpoint(_ key: String) throws(SettingsError) -> Endpoint? {
    guard let text = try string(key) else { return nil }
    return try Self.endpoint(key, text)
  }

  /// Return addresses to connect to.
  package func endpoints(_ key: String) throws(SettingsError) -> [Endpoint] {
    var endpoints: [Endpoint] = []
    for text in try list(key) { endpoints.append(try Self.endpoint(key, text)) }
    return endpoints
  }

  private static func endpoint(_ key: String, _ text: String) throws(SettingsError) -> Endpoint {
    guard let endpoint = Endpoint(text) else {
      throw SettingsError(key, "\"\(text)\": give HOST:PORT, as in 127.0.0.1:8443 or [::1]:8443, port 0 to 65535")
    }
    return endpoint
  }

  /// Parse a number of bytes, as ``byteCount(_:in:)`` describes it.
  package static func byteCount(_ text: String) -> Int? {
    let digits = text.prefix { $0.isASCII && $0.isNumber }
    guard let number = Int(digits) else { return nil }
    let shift: Int
    switch text.dropFirst(digits.count).uppercased() {
    case "", "B": shift = 0
    case "K", "KB", "KIB": shift = 10
    case "M", "MB", "MIB": shift = 20
    case "G", "GB", "GIB": shift = 30
    case "T", "TB", "TIB": shift = 40
    default: return nil
    }
    let (value, overflow) = number.multipliedReportingOverflow(by: 1 << shift)
    return overflow ? nil : value
  }
}

extension Settings {
  private enum Value: Equatable {
    case none
    case text(String)
    case list([String])
    /// Neither text nor a list of texts.
    case other
  }

  /// Return a key's value in a layer. A provider throws if a value is not of the requested type, so both types are
  /// tried.
  private static func value(_ key: String, in layer: any ConfigProvider) -> Value {
    let key = AbsoluteConfigKey([key])
    do {
      guard let found = try layer.value(forKey: key, type: .string).value else { return .none }
      guard case .string(let text) = found.content else { return .other }
      return text.isEmpty ? .none : .text(text)
    } catch {
      guard let found = try? layer.value(forKey: key, type: .stringArray).value,
        case .stringArray(let texts) = found.content
      else { return .other }
      return .list(texts)
    }
  }
}

extension StringProtocol {
  var trimmed: String {
    String(drop { $0.isWhitespace }.reversed().drop { $0.isWhitespace }.reversed())
  }
}

/// Error in a setting that prevents the start of the process. The executables print ``description`` as their one line
/// and exit with ``exitCode``.
package struct SettingsError: Error, Equatable, CustomStringConvertible {
  /// `EX_CONFIG` of sysexits.h.
  package static let exitCode: Int32 = 78

  /// Problem and remedy, in one line that names the flag.
  package let description: String
  /// The same without the flag, for values that are not given by it.
  package let problem: String

  package init(_ description: String) {
    self.description = description
    problem = description
  }

  /// Create an error about the setting `key`: the flag, the environment variable and the file's key.
  package init(_ key: String, _ problem: String) {
    description = "--\(key) \(problem)"
    self.problem = problem
  }
}

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
    guard let mapping = root.mapping else { throw SettingsError("the file is not `key: value` lines or a JSON object") }
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
