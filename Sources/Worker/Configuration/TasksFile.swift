internal import FeedClient
internal import Foundation
package import Operations
internal import Yams

/// The worker's tasks file: YAML with a section for each kind of task.
package struct TasksFile: Sendable {
  /// Webhooks in the order of the file; their names differ.
  package var webhooks: [WebhookTask]
  /// How pushes are sent; nil without the section.
  package var push: PushTask?

  /// Create the tasks of a file.
  package init(webhooks: [WebhookTask], push: PushTask? = nil) {
    self.webhooks = webhooks
    self.push = push
  }

  /// Larger files are not tasks files.
  private static let byteCountMax = 1 << 20

  /// Number of webhooks and push providers, such as `2 webhooks, push with 1 provider`.
  package var summary: String {
    var parts: [String] = []
    if !webhooks.isEmpty { parts.append("\(webhooks.count) webhook\(webhooks.count == 1 ? "" : "s")") }
    if let count = push?.providers.count { parts.append("push with \(count) provider\(count == 1 ? "" : "s")") }
    return parts.joined(separator: ", ")
  }

  // MARK: Reading

  /// Read and check a file, with the files of secrets, keys and certificates that it names.
  ///
  /// - Parameter warn: called with each warning to log.
  /// - Throws: the first of ``check(_:warn:)``'s faults.
  package static func load(_ path: String, warn: (String) -> Void) throws(SettingsError) -> TasksFile {
    try tasks(check(path, warn: warn))
  }

  /// Parse the text of a file.
  package static func parse(_ text: String, file: String, warn: (String) -> Void) throws(SettingsError) -> TasksFile {
    try tasks(check(text, file: file, warn: warn))
  }

  private static func tasks(_ outcome: Result<TasksFile, TasksFaults>) throws(SettingsError) -> TasksFile {
    switch outcome {
    case .success(let tasks): return tasks
    case .failure(let faults): throw faults.all[0]
    }
  }

  /// Read and check a file, and find more than one fault. Nothing is started, and no address is called.
  ///
  /// - Parameter warn: called with each warning to log.
  package static func check(_ path: String, warn: (String) -> Void) -> Result<TasksFile, TasksFaults> {
    let bytes: [UInt8]
    do throws(FileFault) {
      bytes = try RegularFile.bytes(path, byteCountMax: byteCountMax)
    } catch {
      let problem = "\(path): the file cannot be read (\(error)); give the path of the tasks file"
      return .failure(TasksFaults(SettingsError("config", problem)))
    }
    guard bytes.count <= byteCountMax else {
      let problem = "\(path): the file is larger than \(byteCountMax) bytes; give the path of the tasks file"
      return .failure(TasksFaults(SettingsError("config", problem)))
    }
    return check(String(decoding: bytes, as: UTF8.self), file: path, warn: warn)
  }

  private static func check(
    _ text: String,
    file: String,
    warn: (String) -> Void
  ) -> Result<TasksFile, TasksFaults> {
    var faults: [SettingsError] = []
    do throws(SettingsError) {
      let tasks = try read(text, file: file, warn, &faults)
      guard let first = faults.first else { return .success(tasks) }
      return .failure(TasksFaults(first, faults.dropFirst()))
    } catch {
      return .failure(TasksFaults(error))
    }
  }

  /// Read the text of a file.
  ///
  /// - Parameter faults: the first fault of each webhook and of each push provider is added.
  /// - Throws: a fault of the file as a whole.
  private static func read(
    _ text: String,
    file: String,
    _ warn: (String) -> Void,
    _ faults: inout [SettingsError]
  ) throws(SettingsError) -> TasksFile {
    let root: Node?
    do {
      root = try Yams.compose(yaml: text)
    } catch {
      throw SettingsError("config", "\(file): not readable as YAML: \(reason(error))")
    }
    guard let root, root.scalar?.string.isEmpty != true else {
      throw SettingsError("config", "\(file): the file is empty; give `webhooks:` with a list of webhooks, or `push:`")
    }
    let top = try YAMLValue(file: file, path: "", node: root).members(["webhooks", "push"])
    let list = try top["webhooks"]?.list("- name: crm") ?? []
    guard !list.isEmpty || (top["push"] != nil && top["webhooks"] == nil) else {
      throw SettingsError("config", "\(file): webhooks is missing or empty; give a list of webhooks, or `push:`")
    }
    var tasks = TasksFile(webhooks: [])
    for value in list {
      do throws(SettingsError) {
        let webhook = try WebhookReader(value).webhook(warn)
        guard !tasks.webhooks.contains(where: { $0.name == webhook.name }) else {
          throw value.error("has the name \"\(webhook.name)\" of another webhook; names are consumers of the feed")
        }
        tasks.webhooks.append(webhook)
      } catch {
        faults.append(error)
      }
    }
    if let value = top["push"] {
      do throws(SettingsError) {
        tasks.push = try PushReader(value).task(warn, &faults)
      } catch {
        faults.append(error)
      }
    }
    return tasks
  }

  /// Describe a parser's error without the line itself, which may contain a secret.
  private static func reason(_ error: any Error) -> String {
    switch error as? YamlError {
    case .scanner(_, let problem, let mark, _), .parser(_, let problem, let mark, _),
      .composer(_, let problem, let mark, _):
      "line \(mark.line), column \(mark.column): \(problem)"
    case .duplicatedKeysInMapping(let keys, let context):
      "line \(context.mark.line): \(keys.sorted().joined(separator: ", ")) is set twice"
    case .reader(let problem, let offset, _, _): offset.map { "character \($0 + 1): \(problem)" } ?? problem
    default: "it cannot be parsed"
    }
  }
}

/// Faults of a tasks file: one of the file as a whole, or the first of each webhook and of each push provider.
package struct TasksFaults: Error {
  /// Each in one line with the file, the path of the key and the remedy. Never empty.
  package let all: [SettingsError]

  init(_ first: SettingsError, _ others: ArraySlice<SettingsError> = []) { all = [first] + others }
}

/// Reader of one webhook of the tasks file.
private struct WebhookReader {
  private static let keys = [
    "name", "url", "secrets", "secrets_file", "types", "channel_types", "from", "partitions", "batch", "timeout",
    "retry_for", "allow_private", "allow_http", "ca_file", "version",
  ]

  let value: YAMLValue
  let members: [String: YAMLValue]

  init(_ value: YAMLValue) throws(SettingsError) {
    self.value = value
    members = try value.members(Self.keys)
  }

  func webhook(_ warn: (String) -> Void) throws(SettingsError) -> WebhookTask {
    let name = try required("name").text("crm")
    guard TaskName.isValid(name) else {
      throw try required("name").error("\"\(name)\" has to be 1 to 64 of a-z 0-9 _ -")
    }
    var webhook = WebhookTask(name: name, url: try url(), secrets: try secrets(warn))
    webhook.types = try types()
    if let list = members["channel_types"] {
      webhook.channelTypes = try list.texts("[messaging]")
      for type in webhook.channelTypes where !(1...64).contains(type.utf8.count) {
        throw list.error("\"\(type)\" has to be 1 to 64 bytes, as in PUT /v1/channel-types")
      }
    }
    webhook.start = try start()
    if let value = members["partitions"] { webhook.partitionCount = try value.integer(1...1_024) }
    if let batch = try members["batch"]?.members(["records", "wait"]) {
      if let value = batch["records"] { webhook.batchRecordsMax = try value.integer(1...1_000) }
      if let value = batch["wait"] { webhook.batchWaitMilliseconds = try value.milliseconds(0...60_000) }
    }
    if let value = members["timeout"] { webhook.timeoutMilliseconds = try value.milliseconds(100...120_000) }
    if let value = members["retry_for"] {
      webhook.retryMilliseconds = try value.milliseconds(1_000...(30 * 24 * 3_600_000))
    }
    webhook.allowsPrivateAddresses = try members["allow_private"]?.flag() ?? false
    webhook.authorityFile = try members["ca_file"]?.certificateFile()
    if let value = members["version"] {
      guard let version = WebhookTask.Version(rawValue: try value.text("auto")) else {
        throw value.error("has to be auto or http/1.1")
      }
      webhook.version = version
    }
    return webhook
  }

  private func required(_ key: String) throws(SettingsError) -> YAMLValue { try value.required(key, members) }

  private func url() throws(SettingsError) -> EndpointURL {
    let member = try required("url")
    let allowsHTTP = try members["allow_http"]?.flag() ?? false
    let url = try member.endpointURL("https://example.com/tidemark", allowsHTTP: allowsHTTP)
    let allowsPrivate = try members["allow_private"]?.flag() ?? false
    if let address = url.literalAddress, !allowsPrivate, let reason = AddressRules.refusal(of: address) {
      throw member.error("has a \(reason) address; `allow_private: true` permits it")
    }
    return url
  }

  private func secrets(_ warn: (String) -> Void) throws(SettingsError) -> [[UInt8]] {
    var texts: [(YAMLValue, String)] = []
    if let inline = members["secrets"] {
      for item in try inline.list("[whsec_...]") { texts.append((item, try item.text("whsec_..."))) }
    }
    if let file = members["secrets_file"] {
      guard members["secrets"] == nil else { throw file.error("cannot be given with secrets: choose one") }
      let bytes = try file.secretFile("/etc/tidemark/crm.secrets", warn)
      for line in bytes.split(separator: UInt8(ascii: "\n")) where line != [UInt8(ascii: "\r")] {
        texts.append((file, String(decoding: line.last == 0x0D ? line.dropLast() : line, as: UTF8.self)))
      }
    }
    var secrets: [[UInt8]] = []
    for (item, text) in texts {
      guard let secret = WebhookSignature.secret(text) else {
        throw item.error("has to be whsec_ and base64 of 24 to 64 random bytes, one for each secret")
      }
      secrets.append(secret)
    }
    guard !secrets.isEmpty else { throw value.error("has no secrets: give `secrets: [whsec_...]` or `secrets_file`") }
    guard secrets.count <= 8 else { throw value.error("has more than 8 secrets: remove old ones") }
    return secrets
  }

  private func types() throws(SettingsError) -> [String] {
    guard let list = members["types"] else { return [] }
    let types = try list.texts("[read, delivered]")
    for type in types where !FeedRecordType.known.contains(type) {
      throw list.error("\"\(type)\" is unknown; known are \(FeedRecordType.known.joined(separator: ", "))")
    }
    return types
  }

  private func start() throws(SettingsError) -> WebhookTask.Start {
    guard let member = members["from"] else { return .now }
    switch try member.text("now") {
    case "now": return .now
    case "earliest": return .earliest
    case let text:
      guard Times.milliseconds(text) != nil else {
        throw member.error("\"\(text)\" has to be now, earliest or a time such as 2026-01-31T12:00:00Z")
      }
      return .time(text)
    }
  }
}

/// Names of webhooks and push providers.
enum TaskName {
  /// Whether a name is 1 to 64 of a-z 0-9 _ -.
  static func isValid(_ name: String) -> Bool {
    (1...64).contains(name.utf8.count) && name.utf8.allSatisfy(isNameByte)
  }

  private static func isNameByte(_ byte: UInt8) -> Bool {
    switch byte {
    case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "_"),
      UInt8(ascii: "-"):
      true
    default: false
    }
  }
}
