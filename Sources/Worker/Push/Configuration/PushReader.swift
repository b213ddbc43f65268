internal import Crypto
internal import Foundation
internal import JWTKit
internal import Operations

/// Reader of the section `push` of the tasks file.
struct PushReader {
  private static let keys = [
    "providers", "skip", "report", "badge", "ticket_ttl", "retry_for", "requests",
  ]
  private static let keysOfKinds = [
    "webpush": ["subject"], "apns": ["key_id", "team_id", "topic", "environment", "url"], "fcm": ["url"],
  ]
  private static let commonKeys = [
    "name", "kind", "key_file", "timeout", "pause", "allow_private", "allow_http", "ca_file",
  ]

  let value: YAMLValue
  let members: [String: YAMLValue]

  init(_ value: YAMLValue) throws(SettingsError) {
    self.value = value
    members = try value.members(Self.keys)
  }

  /// Read the section.
  ///
  /// - Parameter faults: the first fault of each provider is added.
  /// - Throws: the first fault of the rest.
  func task(_ warn: (String) -> Void, _ faults: inout [SettingsError]) throws(SettingsError) -> PushTask {
    let list = try value.required("providers", members).list("- name: ios")
    guard (1...64).contains(list.count) else { throw value.error("providers has to have 1 to 64 entries") }
    var task = PushTask(providers: [:])
    for item in list {
      do throws(SettingsError) {
        let provider = try self.provider(item, warn)
        guard task.providers[provider.name] == nil else {
          throw item.error("has the name \"\(provider.name)\" of another provider; jobs name providers")
        }
        task.providers[provider.name] = provider
      } catch {
        faults.append(error)
      }
    }
    task.skip = try choice("skip") ?? task.skip
    task.report = try choice("report") ?? task.report
    if let value = members["badge"] { task.sendsBadge = try value.flag() }
    if let value = members["ticket_ttl"] {
      task.ticketSeconds = try value.milliseconds(1_000...(PushJob.ttlSecondsMax * 1_000)) / 1_000
    }
    if let value = members["retry_for"] { task.retryMilliseconds = try value.milliseconds(1_000...(24 * 3_600_000)) }
    if let value = members["requests"] { task.requestsMax = try value.integer(1...1_000) }
    return task
  }

  private func choice<Choice: RawRepresentable<String> & CaseIterable>(
    _ key: String
  ) throws(SettingsError) -> Choice? {
    guard let member = members[key] else { return nil }
    let known = Choice.allCases.map(\.rawValue)
    guard let choice = Choice(rawValue: try member.text(known[0])) else {
      throw member.error("has to be \(known.joined(separator: " or "))")
    }
    return choice
  }

  // MARK: Providers

  private func provider(_ item: YAMLValue, _ warn: (String) -> Void) throws(SettingsError) -> PushProviderTask {
    let all = Self.commonKeys + Self.keysOfKinds.keys.sorted().flatMap { Self.keysOfKinds[$0] ?? [] }
    var members = try item.members(all)
    let kind = try item.required("kind", members)
    let kindName = try kind.text("webpush")
    guard let keys = Self.keysOfKinds[kindName] else { throw kind.error("has to be webpush, apns or fcm") }
    members = try item.members(Self.commonKeys + keys)
    let name = try item.required("name", members).text("ios")
    guard TaskName.isValid(name) else { throw item.error("name \"\(name)\" has to be 1 to 64 of a-z 0-9 _ -") }
    let allowsHTTP = try members["allow_http"]?.flag() ?? false
    let keyFile = try item.required("key_file", members)
    let key = String(decoding: try keyFile.secretFile("/etc/tidemark/push.pem", warn), as: UTF8.self)
    var provider: PushProviderTask
    switch kindName {
    case "webpush":
      let subject = try item.required("subject", members)
      let text = try subject.text("mailto:ops@example.com")
      guard text.hasPrefix("mailto:") || text.hasPrefix("https://") else {
        throw subject.error("has to be a mailto: or https: URL at which push services reach you")
      }
      let settings = PushProviderTask.WebPush(key: try signingKey(key, keyFile), subject: text)
      provider = PushProviderTask(name: name, kind: .webPush(settings))
    case "apns":
      provider = PushProviderTask(name: name, kind: .apns(try apns(item, members, key, keyFile, allowsHTTP)))
    default: provider = PushProviderTask(name: name, kind: .fcm(try fcm(members, key, keyFile, allowsHTTP)))
    }
    provider.allowsHTTP = allowsHTTP
    provider.allowsPrivateAddresses = try members["allow_private"]?.flag() ?? false
    provider.authorityFile = try members["ca_file"]?.certificateFile()
    if let value = members["timeout"] { provider.timeoutMilliseconds = try value.milliseconds(100...120_000) }
    if let value = members["pause"] { provider.pauseMilliseconds = try value.milliseconds(1_000...3_600_000) }
    return provider
  }

  private func signingKey(_ text: String, _ file: YAMLValue) throws(SettingsError) -> P256.Signing.PrivateKey {
    guard let key = try? P256.Signing.PrivateKey(pemRepresentation: text) else {
      throw file.error("has to name a PEM file with a private key of P-256")
    }
    return key
  }

  private func apns(
    _ item: YAMLValue,
    _ members: [String: YAMLValue],
    _ key: String,
    _ keyFile: YAMLValue,
    _ allowsHTTP: Bool
  ) throws(SettingsError) -> PushProviderTask.APNs {
    var identifiers: [String] = []
    for name in ["key_id", "team_id"] {
      let member = try item.required(name, members)
      let text = try member.text("ABCDE12345")
      guard text.utf8.count == 10, text.allSatisfy({ $0.isASCII && ($0.isLetter || $0.isNumber) }) else {
        throw member.error("\"\(text)\" has to be 10 letters and digits, as Apple's developer account shows it")
      }
      identifiers.append(text)
    }
    let topic = try item.required("topic", members)
    let topicText = try topic.text("com.example.chat")
    guard topicText.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F }), topicText.utf8.count <= 255 else {
      throw topic.error("has to be the app's bundle id")
    }
    let url: EndpointURL
    if let member = members["url"] {
      guard members["environment"] == nil else { throw member.error("cannot be given with environment: choose one") }
      url = try member.endpointURL("https://api.push.apple.com", allowsHTTP: allowsHTTP)
    } else {
      let member = try item.required("environment", members)
      let hosts = ["production": "api.push.apple.com", "development": "api.sandbox.push.apple.com"]
      guard let host = hosts[try member.text("production")], let known = EndpointURL("https://\(host)") else {
        throw member.error("has to be production or development")
      }
      url = known
    }
    return PushProviderTask.APNs(
      key: try signingKey(key, keyFile),
      keyID: identifiers[0],
      teamID: identifiers[1],
      topic: topicText,
      url: url
    )
  }

  private func fcm(
    _ members: [String: YAMLValue],
    _ key: String,
    _ keyFile: YAMLValue,
    _ allowsHTTP: Bool
  ) throws(SettingsError) -> PushProviderTask.FCM {
    let account = JSONValue(parsing: key.utf8)
    func field(_ name: String) throws(SettingsError) -> String {
      guard let text = account?[name]?.string, !text.isEmpty else {
        throw keyFile.error("has to name the JSON key file of a service account: it has no \"\(name)\"")
      }
      return text
    }
    let privateKey = try field("private_key")
    guard (try? Insecure.RSA.PrivateKey(pem: privateKey)) != nil else {
      throw keyFile.error("has to name the JSON key file of a service account: private_key is no RSA key")
    }
    let project = try field("project_id")
    guard project.utf8.count <= 128,
      project.allSatisfy({ $0.isASCII && ($0.isLetter || $0.isNumber || "-:.".contains($0)) })
    else { throw keyFile.error("has a malformed project_id") }
    let audience = try field("token_uri")
    guard let tokenURL = EndpointURL(audience), tokenURL.usesTLS || allowsHTTP else {
      throw keyFile.error("has a token_uri that is no https:// URL")
    }
    let url =
      try members["url"]?.endpointURL("https://fcm.googleapis.com", allowsHTTP: allowsHTTP)
      ?? EndpointURL("https://fcm.googleapis.com")
    guard let url else { throw keyFile.error("has no URL") }
    return PushProviderTask.FCM(
      clientEmail: try field("client_email"),
      privateKey: privateKey,
      keyID: account?["private_key_id"]?.string,
      tokenURL: tokenURL,
      tokenAudience: audience,
      url: url,
      path: "/v1/projects/\(project)/messages:send"
    )
  }
}
