internal import Operations
internal import Yams

/// Value of a YAML file with the path of its key, for errors that name both.
struct YAMLValue {
  /// Path of the file.
  let file: String
  /// Path of the key, such as `webhooks[0].url`; empty for the whole file.
  let path: String
  let node: Node

  func error(_ problem: String) -> SettingsError {
    SettingsError("config", "\(file): \(path.isEmpty ? "" : path + " ")\(problem)")
  }

  /// The value's members, by key. Keys other than `known` are refused.
  func members(_ known: [String]) throws(SettingsError) -> [String: YAMLValue] {
    guard let mapping = node.mapping else {
      throw error("has to be `key: value` lines; known keys are \(known.joined(separator: ", "))")
    }
    var members: [String: YAMLValue] = [:]
    for (key, value) in mapping {
      let name = key.string ?? "?"
      let member = YAMLValue(file: file, path: path.isEmpty ? name : "\(path).\(name)", node: value)
      guard known.contains(name) else {
        throw member.error("is unknown; known keys are \(known.joined(separator: ", "))")
      }
      members[name] = member
    }
    return members
  }

  /// The value as a list.
  func list(_ example: String) throws(SettingsError) -> [YAMLValue] {
    guard let sequence = node.sequence else { throw error("has to be a list, such as \(example)") }
    return sequence.enumerated().map { YAMLValue(file: file, path: "\(path)[\($0.offset)]", node: $0.element) }
  }

  /// The value as a list of texts.
  func texts(_ example: String) throws(SettingsError) -> [String] {
    var texts: [String] = []
    for value in try list(example) { texts.append(try value.text(example)) }
    guard !texts.isEmpty else { throw error("is empty: give a list such as \(example), or leave it out") }
    return texts
  }

  /// The value as a text.
  func text(_ example: String) throws(SettingsError) -> String {
    guard let text = node.scalar?.string, !text.isEmpty else { throw error("has to be a text, such as \(example)") }
    return text
  }

  /// The value as a number in a range.
  func integer(_ range: ClosedRange<Int>) throws(SettingsError) -> Int {
    guard let value = node.scalar.flatMap({ Int($0.string) }), range.contains(value) else {
      throw error("has to be a whole number from \(range.lowerBound) to \(range.upperBound)")
    }
    return value
  }

  /// The value as a switch.
  func flag() throws(SettingsError) -> Bool {
    switch node.scalar?.string {
    case "true": return true
    case "false": return false
    default: throw error("has to be true or false")
    }
  }

  /// The value as a time span in milliseconds.
  func milliseconds(_ range: ClosedRange<Int64>) throws(SettingsError) -> Int64 {
    guard let value = node.scalar.flatMap({ TimeSpan.milliseconds($0.string) }), range.contains(value) else {
      let (first, last) = (
        TimeSpan.text(milliseconds: range.lowerBound), TimeSpan.text(milliseconds: range.upperBound)
      )
      throw error("has to be a time such as 500ms or 10s, from \(first) to \(last)")
    }
    return value
  }

  /// A member that has to be there.
  func required(_ key: String, _ members: [String: YAMLValue]) throws(SettingsError) -> YAMLValue {
    guard let member = members[key] else {
      throw YAMLValue(file: file, path: path.isEmpty ? key : "\(path).\(key)", node: node).error("is missing: give one")
    }
    return member
  }

  /// The bytes of the secret file whose path the value is.
  ///
  /// - Parameter warn: called with a line to log if other users may read the file.
  func secretFile(_ example: String, _ warn: (String) -> Void) throws(SettingsError) -> [UInt8] {
    let path = try text(example)
    do throws(SettingsError) {
      return try SecretFile.bytes(path, key: "config", warn: warn)
    } catch {
      throw self.error("\(error.problem); give a readable file of at most \(SecretFile.byteCountMax) bytes")
    }
  }

  /// The value as the path of a PEM file of certificates, which is checked.
  func certificateFile() throws(SettingsError) -> String {
    let path = try text("/etc/tidemark/ca.pem")
    let bytes: [UInt8]
    do throws(FileFault) {
      bytes = try RegularFile.bytes(path, byteCountMax: 1 << 20)
    } catch {
      throw self.error("\(path) cannot be read (\(error)); give a PEM file of certificates")
    }
    guard String(decoding: bytes, as: UTF8.self).contains("-----BEGIN CERTIFICATE-----") else {
      throw self.error("\(path) has no certificate; give a PEM file of certificates")
    }
    return path
  }

  /// The value as a URL of an endpoint.
  func endpointURL(_ example: String, allowsHTTP: Bool) throws(SettingsError) -> EndpointURL {
    guard let url = EndpointURL(try text(example)) else {
      throw error("has to be https://HOST[:PORT]/PATH in ASCII, without user and fragment")
    }
    guard url.usesTLS || allowsHTTP else {
      throw error("has to begin with https://; `allow_http: true` permits requests without TLS")
    }
    return url
  }
}
