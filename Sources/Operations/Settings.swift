internal import Configuration
internal import SystemPackage

/// The settings of a process: a flag wins over the environment (`TIDEMARK_…`), that over the `--config` file.
///
/// All three share one flat set of keys: `jwt-secret-file` is `--jwt-secret-file`, `TIDEMARK_JWT_SECRET_FILE`
/// and `jwt-secret-file:`. Values are read as text and checked here, because swift-configuration's optional
/// getters give the default for a wrong value instead of an error. An empty value counts as not set.
package struct Settings: Sendable {
  /// Flags, environment, file: the first that has a key wins.
  private let layers: [any ConfigProvider]

  /// Reads the file, if one is named by the flag or `TIDEMARK_CONFIG`.
  ///
  /// - Parameters:
  ///   - flags: the flags that were given, by key; `true` for a switch.
  ///   - keys: all keys of this process. A key of the file and a `TIDEMARK_…` variable that is not among them
  ///     are refused.
  ///   - environment: as in `ProcessInfo.processInfo.environment`.
  package init(
    flags: [String: String],
    keys: Set<String>,
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
      ),
      EnvironmentVariablesProvider(environmentVariables: variables).prefixKeys(with: ConfigKey(["tidemark"])),
    ]
    if let file {
      let found = try ConfigFile.keys(of: file)
      for key in found where !keys.contains(key) {
        throw SettingsError(
          "config",
          "\(file): unknown key \"\(key)\"; known are \(keys.sorted().joined(separator: ", "))"
        )
      }
      do {
        // YAML takes JSON as it is, so one reader serves both, and a number reads as the text it is written
        // as.
        layers.append(try await FileProvider<YAMLSnapshot>(filePath: FilePath(file)))
      } catch {
        let reason = "\(error)".split(whereSeparator: \.isNewline).map { $0.trimmed }.joined(separator: " ")
        throw SettingsError("config", "\(file): not readable as YAML or JSON (\(reason))")
      }
    }
    self.layers = layers
  }

  /// Variables that only our tests read, which they may leave to the processes that they start.
  private static let testVariables: Set<String> = [
    "TIDEMARK_SEED", "TIDEMARK_STEPS", "TIDEMARK_SEEDS", "TIDEMARK_BIN",
  ]

  /// Kubernetes puts such variables into every pod beside a Service called `tidemark-…`: `TIDEMARK_STORE_SERVICE_HOST`,
  /// `TIDEMARK_STORE_PORT`, `TIDEMARK_STORE_PORT_7410_TCP_ADDR`.
  private static func isServiceLink(_ name: String) -> Bool {
    name.contains("_SERVICE_") || name.hasSuffix("_PORT") || name.contains("_PORT_")
  }

  /// A misspelt variable must not be ignored.
  private static func check(
    _ variables: [String: String],
    _ keys: Set<String>
  ) throws(SettingsError) {
    let known = keys.map { key in
      "TIDEMARK_" + String(key.uppercased().map { $0 == "-" ? "_" : $0 })
    }
    let unknown = Set(variables.keys).subtracting(known).subtracting(testVariables)
      .filter { !isServiceLink($0) }
    guard let name = unknown.min() else { return }
    throw SettingsError(
      "\(name) is not a setting of this process; known are \(known.sorted().joined(separator: ", "))"
    )
  }

  /// The text of a setting, nil where it is not set.
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

  /// Those of `keys` that other settings give another value.
  package func differences(from other: Settings, among keys: Set<String>) -> [String] {
    keys.filter { value($0) != other.value($0) }.sorted()
  }

  /// Whatever is set, of whatever type.
  private func value(_ key: String) -> Value {
    for layer in layers {
      let value = Self.value(key, in: layer)
      if value != .none { return value }
    }
    return .none
  }

  /// The files that settings name, among those that are files.
  package func files(_ keys: [String]) -> [String] { keys.compactMap { (try? string($0)) ?? nil } }

  /// The text of a setting that has to be set.
  package func requiredString(_ key: String, for purpose: String) throws(SettingsError) -> String {
    guard let text = try string(key) else { throw SettingsError(key, "is missing: \(purpose)") }
    return text
  }

  /// A list: separated by commas, or a list in the file. Empty where it is not set.
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

  /// A switch. Not set is off.
  package func flag(_ key: String) throws(SettingsError) -> Bool {
    guard let text = try string(key) else { return false }
    switch text.lowercased() {
    case "true", "yes", "on", "1": return true
    case "false", "no", "off", "0": return false
    default: throw SettingsError(key, "\"\(text)\": give true or false")
    }
  }

  /// A whole number in `range`.
  package func integer(_ key: String, in range: ClosedRange<Int>) throws(SettingsError) -> Int? {
    guard let text = try string(key) else { return nil }
    guard let value = Int(text), range.contains(value) else {
      throw SettingsError(
        key,
        "\"\(text)\": give a whole number from \(range.lowerBound) to \(range.upperBound)"
      )
    }
    return value
  }

  /// A time span (``TimeSpan``).
  package func milliseconds(_ key: String, in range: ClosedRange<Int64>) throws(SettingsError) -> Int64? {
    guard let text = try string(key) else { return nil }
    guard let value = TimeSpan.milliseconds(text), range.contains(value) else {
      throw SettingsError(
        key,
        "\"\(text)\": give a time such as 500ms or 5s, from \(TimeSpan.text(milliseconds: range.lowerBound)) to \(TimeSpan.text(milliseconds: range.upperBound))"
      )
    }
    return value
  }

  /// A number of bytes: digits with an optional `K`, `M`, `G` or `T` (powers of 1,024; `KiB` and `KB` mean
  /// the same).
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

  /// A place to listen at or connect to.
  package func endpoint(_ key: String) throws(SettingsError) -> Endpoint? {
    guard let text = try string(key) else { return nil }
    return try Self.endpoint(key, text)
  }

  /// Places to connect to.
  package func endpoints(_ key: String) throws(SettingsError) -> [Endpoint] {
    var endpoints: [Endpoint] = []
    for text in try list(key) { endpoints.append(try Self.endpoint(key, text)) }
    return endpoints
  }

  private static func endpoint(_ key: String, _ text: String) throws(SettingsError) -> Endpoint {
    guard let endpoint = Endpoint(text) else {
      throw SettingsError(
        key,
        "\"\(text)\": give HOST:PORT, as in 127.0.0.1:8443 or [::1]:8443, port 0 to 65535"
      )
    }
    return endpoint
  }

  static func byteCount(_ text: String) -> Int? {
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
    /// Neither text nor a list of it.
    case other
  }

  /// A provider throws where a value is not of the type asked for, so both are tried.
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
  fileprivate var trimmed: String {
    String(drop { $0.isWhitespace }.reversed().drop { $0.isWhitespace }.reversed())
  }
}
