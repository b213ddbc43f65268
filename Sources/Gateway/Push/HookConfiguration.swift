internal import Foundation
package import Operations
internal import Yams

/// A sender of webhooks whose deliveries count as push acks.
package struct PushHook: Sendable {
  /// The last part of `/v1/push/hooks/{name}`.
  package let name: String
  package let signature: HookSignature
  /// The provider label of its push acks in metrics.
  package let provider: [UInt8]
  package let mapping: HookMapping
  /// Files that hold its secrets, besides the hooks file.
  package var secretFiles: [String] = []
}

/// Reading of the file of `--hooks-file`, YAML or JSON.
package enum HookConfiguration {
  private static let key = "hooks-file"
  private static let hookKeys: Set<String> = ["secrets", "secret-files", "provider", "events", "delivered", "fields"]
  private static let fieldKeys: Set<String> = [
    "ticket", "cid", "message_id", "user_id", "acked_at", "device", "provider_message_id",
  ]

  /// - Parameter warn: called with each warning to log.
  /// - Throws: the error, with the file, the hook and the field, and how to fix it.
  package static func load(_ path: String, warn: (String) -> Void) throws(SettingsError) -> [PushHook] {
    let bytes = try SecretFile.bytes(path, key: key, warn: warn)
    let text = String(decoding: bytes, as: UTF8.self)
    let root: Any?
    do {
      // JSON is a subset of YAML.
      root = try Yams.load(yaml: text)
    } catch {
      throw SettingsError(key, "\(path): the file is neither YAML nor JSON: \(reason(error))")
    }
    guard let root = root as? [String: Any], Set(root.keys) == ["hooks"],
      let hooks = root["hooks"] as? [String: Any], !hooks.isEmpty
    else {
      throw SettingsError(key, "\(path): the file has to be `hooks:` with a hook's name and settings below it")
    }
    var read: [PushHook] = []
    for name in hooks.keys.sorted() {
      read.append(try HookReader(path: path, name: name, hooks[name]).hook(warn))
    }
    return read
  }

  /// Return the parser's error and its position, without the line itself, which may contain a secret.
  private static func reason(_ error: any Error) -> String {
    switch error as? YamlError {
    case .scanner(_, let problem, let mark, _), .parser(_, let problem, let mark, _),
      .composer(_, let problem, let mark, _):
      "line \(mark.line), column \(mark.column): \(problem)"
    case .duplicatedKeysInMapping(let keys, let context):
      "line \(context.mark.line): duplicate key: \(keys.sorted().joined(separator: ", "))"
    case .reader(let problem, let offset, _, _): offset.map { "character \($0 + 1): \(problem)" } ?? problem
    default: "it cannot be read"
    }
  }

  /// Reader of one hook.
  private struct HookReader {
    let path: String
    let name: String
    let values: [String: Any]

    init(path: String, name: String, _ value: Any?) throws(SettingsError) {
      self.path = path
      self.name = name
      guard let values = value as? [String: Any] else {
        throw SettingsError(HookConfiguration.key, "\(path): hook \"\(name)\" has no settings; give at least `secrets`")
      }
      self.values = values
    }

    func hook(_ warn: (String) -> Void) throws(SettingsError) -> PushHook {
      guard isName(name) else {
        throw error(nil, "the name has to be 1 to 64 of A-Z a-z 0-9 _ -, as it stands in the URL")
      }
      try refuseUnknownKeys(values, HookConfiguration.hookKeys, in: nil)
      let provider = try text(values, "provider") ?? name
      guard LabelNames.isLabel(Array(provider.utf8).span.bytes) else {
        throw error("provider", "has to be 1 to 32 of A-Z a-z 0-9 _ . -, for metrics")
      }
      return PushHook(
        name: name,
        signature: HookSignature(secrets: try secrets(warn)),
        provider: Array(provider.utf8),
        mapping: try mapping(),
        secretFiles: try texts(values, "secret-files") ?? []
      )
    }

    private func isName(_ name: String) -> Bool {
      (1...64).contains(name.utf8.count)
        && name.utf8.allSatisfy { byte in
          switch byte {
          case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "_"), UInt8(ascii: "-"):
            true
          default: false
          }
        }
    }

    private func secrets(_ warn: (String) -> Void) throws(SettingsError) -> [[UInt8]] {
      var secrets: [[UInt8]] = []
      for (index, text) in (try texts(values, "secrets") ?? []).enumerated() {
        secrets.append(try secret(text, "secrets[\(index)]"))
      }
      for (index, file) in (try texts(values, "secret-files") ?? []).enumerated() {
        let lines = try SecretFile.load(file, key: HookConfiguration.key, warn: warn).all
        for line in lines {
          secrets.append(try secret(String(decoding: line, as: UTF8.self), "secret-files[\(index)]"))
        }
      }
      guard !secrets.isEmpty else {
        throw error("secrets", "is missing: give the `whsec_…` that the sender shows, or `secret-files`")
      }
      return secrets
    }

    private func secret(_ text: String, _ field: String) throws(SettingsError) -> [UInt8] {
      guard let secret = HookSignature.secret(text) else {
        let sizes = HookSignature.secretBytes
        throw error(
          field,
          "has to be `whsec_` and base64 of \(sizes.lowerBound) to \(sizes.upperBound) bytes, as the sender shows it"
        )
      }
      return secret
    }

    private func mapping() throws(SettingsError) -> HookMapping {
      var mapping = HookMapping()
      if let events = try path(values, "events", in: nil) { mapping.events = events }
      if let delivered = values["delivered"] {
        guard let delivered = delivered as? [String: Any], delivered.count == 1, let kind = delivered.keys.first,
          let path = HookMapping.path(ifAny: kind), let kinds = try texts(delivered, kind), !kinds.isEmpty
        else {
          throw error("delivered", "has to be one path with its values, as in `type: [push.delivered]`")
        }
        mapping.kind = path
        mapping.delivered = kinds.map { Array($0.utf8) }
      }
      guard let given = values["fields"] else { return mapping }
      guard let fields = given as? [String: Any] else {
        throw error("fields", "has to be names with paths, as in `ticket: data.ticket`")
      }
      try refuseUnknownKeys(fields, HookConfiguration.fieldKeys, in: "fields")
      // Once `fields` is given, fields that it does not list count as absent.
      mapping.ticket = try path(fields, "ticket", in: "fields")
      mapping.cid = try path(fields, "cid", in: "fields")
      mapping.message = try path(fields, "message_id", in: "fields")
      mapping.user = try path(fields, "user_id", in: "fields")
      mapping.ackedAt = try path(fields, "acked_at", in: "fields")
      mapping.device = try path(fields, "device", in: "fields")
      mapping.providerMessage = try path(fields, "provider_message_id", in: "fields")
      let names = [mapping.cid, mapping.message, mapping.user].compactMap { $0 }
      guard names.count == 3 || (names.isEmpty && mapping.ticket != nil) else {
        throw error("fields", "needs `ticket`, or `cid`, `message_id` and `user_id`, or all of them")
      }
      return mapping
    }

    private func path(
      _ values: [String: Any],
      _ key: String,
      in parent: String?
    ) throws(SettingsError) -> HookMapping.Path? {
      guard let text = try text(values, key, in: parent) else { return nil }
      guard let path = HookMapping.path(ifAny: text) else {
        throw error(field(key, in: parent), "has to be names with dots between them, as in data.ticket")
      }
      return path
    }

    private func text(
      _ values: [String: Any],
      _ key: String,
      in parent: String? = nil
    ) throws(SettingsError) -> String? {
      guard let value = values[key] else { return nil }
      guard let text = value as? String else { throw error(field(key, in: parent), "has to be a text") }
      return text
    }

    private func texts(_ values: [String: Any], _ key: String) throws(SettingsError) -> [String]? {
      guard let value = values[key] else { return nil }
      if let text = value as? String { return [text] }
      guard let texts = value as? [String] else { throw error(key, "must be a list of strings") }
      return texts
    }

    private func refuseUnknownKeys(
      _ values: [String: Any],
      _ known: Set<String>,
      in parent: String?
    ) throws(SettingsError) {
      guard let other = values.keys.sorted().first(where: { !known.contains($0) }) else { return }
      let names = known.sorted().joined(separator: ", ")
      throw error(field(other, in: parent), "is unknown; known keys are \(names)")
    }

    private func field(_ key: String, in parent: String?) -> String { parent.map { "\($0).\(key)" } ?? key }

    private func error(_ field: String?, _ problem: String) -> SettingsError {
      let location = field.map { ", \"\($0)\"" } ?? ""
      return SettingsError(HookConfiguration.key, "\(path): hook \"\(name)\"\(location): \(problem)")
    }
  }
}
