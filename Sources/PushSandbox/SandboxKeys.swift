internal import Crypto
internal import CryptoExtras
internal import Foundation
internal import LocalStack
package import Operations
internal import Worker

/// Paths in the sandbox's directory.
package struct SandboxFiles: Sendable {
  /// The directory, as an absolute path.
  package let directory: String

  /// - Parameter directory: created if it is missing.
  package init(directory: String) { self.directory = URL(fileURLWithPath: directory).path }

  /// The tasks file of a worker that sends to the sandbox.
  package var tasks: String { directory + "/tasks.yaml" }
  /// The CA of the sandbox's certificate.
  package var authority: String { directory + "/ca.pem" }
  var certificate: String { directory + "/cert.pem" }
  var certificateKey: String { directory + "/key.pem" }
  var vapidKey: String { directory + "/vapid.pem" }
  var apnsKey: String { directory + "/apns.p8" }
  var fcmKey: String { directory + "/fcm-key.pem" }
  /// The service account of FCM.
  package var serviceAccount: String { directory + "/service-account.json" }

  /// Write the tasks file and the service account of a sandbox on that port.
  ///
  /// - Parameter more: further keys of the section `push`, indented by two spaces.
  package func writeTasks(port: Int, more: String = "") throws(SettingsError) {
    let url = "https://localhost:\(port)"
    let common = "allow_private: true, ca_file: \(Self.quoted(authority))"
    do {
      let account: JSONValue = .object([
        "type": .string("service_account"), "project_id": .string(SandboxKeys.project),
        "private_key_id": .string(SandboxKeys.serviceKeyID), "client_email": .string(SandboxKeys.clientEmail),
        "private_key": .string(try String(contentsOfFile: fcmKey, encoding: .utf8)),
        "token_uri": .string(url + "/token"),
      ])
      try SandboxKeys.write(account.text + "\n", to: serviceAccount)
      let text = """
        push:
        \(more)
          providers:
            - {name: web, kind: webpush, key_file: \(Self.quoted(vapidKey)), subject: "mailto:ops@example.com", \(common)}
            - {name: ios, kind: apns, key_file: \(Self.quoted(apnsKey)), key_id: \(SandboxKeys.keyID), \
        team_id: \(SandboxKeys.teamID), topic: \(SandboxKeys.topic), url: "\(url)", \(common)}
            - {name: android, kind: fcm, key_file: \(Self.quoted(serviceAccount)), url: "\(url)", \(common)}

        """
      try SandboxKeys.write(text, to: tasks)
    } catch {
      throw SettingsError("directory", "\(directory): \(error)")
    }
  }

  private static func quoted(_ path: String) -> String { JSONValue.string(path).text }
}

/// Credentials of the sandbox: those that the worker sends with, and those of its own server.
package struct SandboxKeys: Sendable {
  static let keyID = "SANDBOXKEY"
  static let teamID = "SANDBOXTEA"
  static let topic = "com.example.chat"
  static let project = "tidemark-sandbox"
  static let clientEmail = "push@tidemark-sandbox.example"
  static let serviceKeyID = "sandbox-1"

  var vapid: P256.Signing.PublicKey
  var apns: P256.Signing.PublicKey
  var fcm: _RSA.Signing.PublicKey
  var certificate: String
  var certificateKey: String

  /// Read the files of a directory. Missing ones are created.
  package static func loadOrCreate(_ files: SandboxFiles) throws(SettingsError) -> SandboxKeys {
    do {
      try FileManager.default.createDirectory(atPath: files.directory, withIntermediateDirectories: true)
      func text(_ path: String, _ make: () throws -> String) throws -> String {
        if !FileManager.default.fileExists(atPath: path) { try write(make(), to: path) }
        return try String(contentsOfFile: path, encoding: .utf8)
      }
      let vapid = try text(files.vapidKey) { P256.Signing.PrivateKey().pemRepresentation + "\n" }
      let apns = try text(files.apnsKey) { P256.Signing.PrivateKey().pemRepresentation + "\n" }
      let fcm = try text(files.fcmKey) { try _RSA.Signing.PrivateKey(keySize: .bits2048).pemRepresentation + "\n" }
      if !FileManager.default.fileExists(atPath: files.certificate) {
        let made = try LoopbackCertificate.makeWithAuthority(
          named: "Tidemark push sandbox CA",
          now: Date(),
          lifetime: 3_650 * 86_400
        )
        try write(made.authority, to: files.authority)
        try write(made.key, to: files.certificateKey)
        try write(made.certificate, to: files.certificate)
      }
      return SandboxKeys(
        vapid: try P256.Signing.PrivateKey(pemRepresentation: vapid).publicKey,
        apns: try P256.Signing.PrivateKey(pemRepresentation: apns).publicKey,
        fcm: try _RSA.Signing.PrivateKey(pemRepresentation: fcm).publicKey,
        certificate: try String(contentsOfFile: files.certificate, encoding: .utf8),
        certificateKey: try String(contentsOfFile: files.certificateKey, encoding: .utf8)
      )
    } catch {
      throw SettingsError("directory", "\(files.directory): \(error); give a directory that may be written")
    }
  }

  /// Write a file that only the owner may read.
  static func write(_ text: String, to path: String) throws {
    let attributes: [FileAttributeKey: Any] = [.posixPermissions: 0o600]
    guard FileManager.default.createFile(atPath: path, contents: Data(text.utf8), attributes: attributes) else {
      throw CocoaError(.fileWriteUnknown)
    }
  }
}
