package import FeedClient
internal import Foundation
package import Logging
package import Operations

/// Settings of the worker's process.
package struct WorkerConfiguration: Sendable {
  /// All keys. `config` is not among them: it names the tasks file, not a file of settings.
  package static let keys: Set<String> = [
    "gateway", "gateway-ca", "token-file", "jwt-secret-file", "admin", "name", "log-level",
  ]

  /// The gateway, with the credential for it.
  package let gateway: FeedGateway
  /// Address of the operations listener.
  package let admin: Endpoint?
  /// Name of this worker among those that share partitions.
  package let name: String
  /// Level of the process's log.
  package let logLevel: Logger.Level

  /// Check the settings, and read the files that they name.
  package init(_ settings: Settings, warn: (String) -> Void) async throws(SettingsError) {
    let text = try settings.requiredString("gateway", for: "give the gateway's URL, such as https://gateway:8443")
    let address = try GatewayAddress(text, authorityFile: try settings.string("gateway-ca"))
    let credential: ServerCredential
    switch (try settings.string("token-file"), try settings.string("jwt-secret-file")) {
    case (let file?, nil): credential = try ServerCredential.tokenFile(file, warn: warn)
    case (nil, let file?): credential = try await ServerCredential.secretFile(file, warn: warn)
    case (nil, nil): throw SettingsError("token-file", "is missing: give a server token, or --jwt-secret-file")
    case (_?, _?): throw SettingsError("token-file", "and --jwt-secret-file exclude each other: give one")
    }
    gateway = FeedGateway(url: address.url, tls: address.tls, credential: credential)
    admin = try settings.endpoint("admin")
    name = try settings.string("name") ?? Self.defaultName
    guard (1...Self.nameBytesMax).contains(name.utf8.count), name.allSatisfy(Self.isOfName), name != ".", name != ".."
    else { throw SettingsError("name", "\"\(name)\": give 1 to \(Self.nameBytesMax) of A-Z a-z 0-9 _ - .") }
    logLevel = try ProcessRunner.logLevel(settings)
  }

  /// The longest name of a worker that a gateway takes.
  private static let nameBytesMax = 64

  private static func isOfName(_ character: Character) -> Bool {
    character.isASCII && (character.isLetter || character.isNumber || "_-.".contains(character))
  }

  /// Host and a random part: a restarted worker is another one, until the old one's share has expired.
  private static var defaultName: String {
    let host = ProcessInfo.processInfo.hostName.prefix { $0 != "." }.filter(isOfName)
    return "\(host.prefix(nameBytesMax - 9))-\(UUID().uuidString.lowercased().prefix(8))"
  }
}
