import Foundation
import LinkSecurity
import Logging
import Operations
import Testing

@testable import Gateway

@Suite struct ConfigurationTests {
  private func read(_ flags: [String: String]) async throws -> (GatewayConfiguration, [String]) {
    let settings = try await Settings(flags: flags, keys: GatewayConfiguration.keys, environment: [:])
    var warnings: [String] = []
    let configuration = try GatewayConfiguration(settings) { warnings.append($0) }
    return (configuration, warnings)
  }

  private func withFiles(_ body: (_ secret: String, _ short: String) async throws -> Void) async throws {
    let directory =
      FileManager.default.temporaryDirectory.path + "/tidemark-\(UInt64.random(in: 0...UInt64.max))"
    try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(atPath: directory) }
    for (name, text) in [("secret", TestTokens.secret), ("short", "short")] {
      try text.write(toFile: "\(directory)/\(name)", atomically: true, encoding: .utf8)
      try FileManager.default.setAttributes([.posixPermissions: 0o600], ofItemAtPath: "\(directory)/\(name)")
    }
    try await body("\(directory)/secret", "\(directory)/short")
  }

  @Test func allSettingsAreRead() async throws {
    try await withFiles { secret, _ in
      let (configuration, warnings) = try await read([
        "listen": "127.0.0.1:0", "h2c": "true", "store": "127.0.0.1:1,127.0.0.1:2", "jwt-secret-file": secret,
        "secret-file": secret, "admin": "127.0.0.1:3", "loops": "3", "log-level": "DEBUG",
        "cors-origin": "https://chat.example.org,http://localhost:3000",
      ])
      #expect(configuration.stores.map(\.port) == [1, 2] && configuration.admin?.port == 3)
      #expect(
        configuration.origins == (try CrossOrigins(["https://chat.example.org", "http://localhost:3000"]))
      )
      #expect(configuration.tls == nil && configuration.loopCount == 3 && configuration.logLevel == .debug)
      #expect(configuration.tokenKeys.secrets == [Array(TestTokens.secret.utf8)])
      #expect(configuration.storeSecrets == [Array(TestTokens.secret.utf8)] && warnings.isEmpty)
      #expect(GatewayConfiguration.defaultLoopCount >= 1)
    }
  }

  @Test func storeTLSUsesOwnCertificateOrListeners() async throws {
    try await withFiles { secret, _ in
      let base = ["listen": "127.0.0.1:0", "store": "store:1", "jwt-secret-file": secret]
      let listener = ["tls-cert": "c", "tls-key": "k"]
      let own = ["store-tls-cert": "sc", "store-tls-key": "sk"]
      for (flags, servesTLS, certificate) in [
        (["h2c": "true"], false, nil), (listener, true, nil),
        (listener.merging(["h2c": "true", "tls-ca": "a"]) { $1 }, false, "c"),
        (listener.merging(["tls-ca": "a"]) { $1 }, true, "c"),
        (own.merging(["h2c": "true", "tls-ca": "a"]) { $1 }, false, "sc"),
        (own.merging(listener) { $1 }.merging(["tls-ca": "a"]) { $1 }, true, "sc"),
      ] as [([String: String], Bool, String?)] {
        let (configuration, _) = try await read(base.merging(flags) { $1 })
        #expect((configuration.tls != nil) == servesTLS, "\(flags)")
        #expect(configuration.storeTLS?.certificate.path == certificate, "\(flags)")
        #expect(
          configuration.storeTLS?.privateKey.path == certificate.map { $0.dropLast() + "k" },
          "\(flags)"
        )
      }
    }
  }

  @Test func missingFrameSecretIsWarnedAbout() async throws {
    try await withFiles { secret, _ in
      let (configuration, warnings) = try await read([
        "listen": "127.0.0.1:0", "h2c": "true", "store": "127.0.0.1:1", "jwt-secret-file": secret,
      ])
      #expect(configuration.storeSecrets.isEmpty)
      #expect(
        warnings == [
          "no --secret-file: any process at this address is trusted as the store: 127.0.0.1:1"
        ]
      )
    }
  }

  @Test func missingOrInvalidSettingIsNamed() async throws {
    try await withFiles { secret, short in
      let good = ["listen": "127.0.0.1:0", "h2c": "true", "store": "127.0.0.1:1", "jwt-secret-file": secret]
      let table: [([String: String], String)] = [
        (["listen": ""], "--listen is missing"), (["store": ""], "--store is missing"),
        (["store": "nowhere"], "--store \"nowhere\": give HOST:PORT"),
        (["h2c": ""], "--tls-cert and --tls-key are missing"),
        (["tls-cert": "c"], "--tls-key is missing"), (["tls-key": "c"], "--tls-cert is missing"),
        (["tls-cert": "c", "tls-key": "k"], "--h2c serves without TLS"),
        (["tls-ca": "a"], "--tls-cert is missing: with --tls-ca the store asks"),
        (["tls-ca": "a", "tls-cert": "c"], "--tls-key is missing: --tls-cert needs"),
        (["tls-ca": "a", "tls-key": "k"], "--tls-cert is missing: with --tls-ca"),
        (["store-tls-cert": "c"], "--store-tls-cert is for TLS with the store: give --tls-ca"),
        (["tls-ca": "a", "store-tls-cert": "c"], "--store-tls-key is missing"),
        (
          [
            "tls-ca": "a", "store-tls-cert": "c", "store-tls-key": "k", "tls-cert": "c", "tls-key": "k",
          ], "--h2c serves without TLS"
        ),
        (["jwt-secret-file": ""], "--jwt-secret-file is missing"),
        (["jwt-secret-file": short], "too short; give at least 32 bytes"),
        (["secret-file": short], "too short; give at least 16 bytes"),
        (["jwt-secret-file": "/none"], "--jwt-secret-file /none: "),
        (["loops": "0"], "--loops \"0\""),
        (["log-level": "loud"], "--log-level \"loud\": give one of trace, debug"),
        (["proxy-protocol": "true"], "--proxy-protocol needs --trusted-proxies"),
        (["trusted-proxies": "10.0.0.0/33"], "--trusted-proxies \"10.0.0.0/33\": give an address"),
        (["rate-user": "0"], "--rate-user \"0\""),
        (["cors-origin": "https://x/path"], "--cors-origin \"https://x/path\": give origins"),
        (["admin": "here"], "--admin \"here\""),
        (["ticket-secret-file": "/none"], "--ticket-secret-file /none"),
        (["hooks-file": "/none"], "--hooks-file /none"),
      ]
      for (change, part) in table {
        let flags = good.merging(change) { $1 }
        let error = await #expect(throws: SettingsError.self) { _ = try await read(flags) }
        #expect(error?.description.contains(part) == true, "\(change): \(error?.description ?? "")")
        #expect(error?.description.contains("\n") == false)
      }
    }
  }
}
