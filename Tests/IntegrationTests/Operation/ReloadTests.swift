import Foundation
import GatewayClient
import Glibc
import HTTP2Session
import LocalStack
import NIOConcurrencyHelpers
import Operations
import TLSSession
import TestPrograms
import TestSupport
import Testing

extension RealProcesses {
  /// Certificates, secrets and limits are reloaded while clients send requests without a pause.
  @Suite struct Reloads {
    @Test func secretsAndCertificatesRotateUnderLoad() async throws {
      let live = NSTemporaryDirectory() + "tidemark-reload-\(UUID().uuidString)"
      defer { try? FileManager.default.removeItem(atPath: live) }
      let files = try await LiveFiles(live)
      try await TestServices.with(
        storeFlags: files.link("store"),
        gatewayFlags: files.link("gateway", flags: "--store-tls") + [
          "--jwks-file", files.path("jwks.json"), "--hooks-file", files.path("hooks.yaml"),
          "--config", files.path("config.yaml"),
        ],
        prepare: { try await files.mountCertificate(in: $0) }
      ) { services in
        try await services.makeChannel("messaging:rotated", message: "m1")
        let load = try Load.start(
          services,
          try await services.token("bob"),
          trusting: files.path("web-1/link-ca.pem")
        )
        do {
          try await rotate(services, files, load)
        } catch {
          _ = await load.stop()
          throw error
        }
        let (count, failures) = await load.stop()
        #expect(failures.isEmpty, "\(failures.count) of \(count) failed: \(failures.prefix(3))")
        #expect(count > 1_000, "only \(count) requests were made")

        // Every process now has the final settings: a new store and new connections to it must work with them too.
        await services.stack.stopStore()
        try await services.stack.startStore()
        try await services.stack.waitUntilGatewaysAreReady()
        for name in ["gateway-tls", "gateway-h2c"] {
          let log = try services.log(of: name)
          #expect(
            !log.contains("TLS handshake between gateway and store failed"),
            "\(name): \(log.suffix(2_000))"
          )
        }
      }
    }

    private func rotate(_ services: TestServices, _ files: LiveFiles, _ load: Load) async throws {
      try await rotateListener(services, files, load)
      try await rotateTokens(services, files, load)
      try await rotateFrameSecret(services, files)
      try await rotateLink(services, files)
      try await rotatePush(services, files)
      try await rejectUnusableSettings(services, files)
    }

    /// Rotate the listener's certificate without a signal, as Kubernetes replaces a mounted Secret. A client's
    /// session stays.
    private func rotateListener(_ services: TestServices, _ files: LiveFiles, _ load: Load) async throws {
      let next = files.path("web-2")
      try await LiveFiles.makeCertificate(next, services.directory + "/..v2")
      load.trust(next + "/link-ca.pem")
      symlink("..v2", services.directory + "/..next")
      #expect(rename(services.directory + "/..next", services.directory + "/..data") == 0)
      let onlyNew = try TLSContext(client: TLSClientConfiguration(authorityFile: next + "/link-ca.pem"))
      let listen = Endpoint(host: "localhost", port: services.stack.plan.gateways[0].listen.port)
      try await eventually("new connections get the new certificate") {
        guard let caller = try? await AsyncHTTP2Client.connect(to: listen, tls: onlyNew) else { return false }
        await caller.close()
        return true
      }
    }

    private func rotateTokens(_ services: TestServices, _ files: LiveFiles, _ load: Load) async throws {
      let path = "/v1/channels/messaging:rotated/read-state"
      let (old, secret) = (try await services.token("bob"), services.stack.files.jwtSecret)
      let first = try String(contentsOfFile: secret, encoding: .utf8).prefix { $0 != "\n" }
      let second = String(repeating: "fresh-", count: 8)
      let new = try await TokenIssuer(secret: Array(second.utf8)).user("bob", lifetime: .seconds(3_600))

      // A connection of its own, on which the old token has been verified and cached.
      let caller = try await AsyncHTTP2Client.connect(to: services.stack.plan.gateways[1].listen)
      #expect(try await caller.call(.get, path, token: old).status == 200)
      #expect(try await caller.call(.get, path, token: new).status == 401)
      #expect(try await caller.call(.get, path, token: old).status == 200)

      try files.replace(secret, "\(second)\n\(first)\n")
      try await Self.hangUp(services)
      try await eventually("both gateways accept tokens of the new secret") {
        for gateway in 0...1 where try await load.status(gateway, path, token: new) != 200 { return false }
        return true
      }
      #expect(try await caller.call(.get, path, token: old).status == 200)
      try await load.use(new)
      try files.replace(secret, "\(second)\n")
      try await Self.hangUp(services)
      try await eventually("both gateways refuse tokens of the old secret") {
        for gateway in 0...1 where try await load.status(gateway, path, token: old) != 401 { return false }
        return true
      }
      // Neither the token cache nor the connection still accepts it.
      #expect(try await caller.call(.get, path, token: old).text.contains("token_signature_invalid"))
      #expect(try await caller.call(.get, path, token: new).status == 200)

      // The same with public keys.
      let tokens = files.keyTokens
      #expect(try await caller.call(.get, path, token: tokens.first).status == 200)
      try files.replace(files.path("jwks.json"), files.keySets.second)
      try await Self.hangUp(services)
      try await eventually("a token of the added key is accepted") {
        try await load.status(1, path, token: tokens.second) == 200
      }
      #expect(try await caller.call(.get, path, token: tokens.first).status == 401)
      await caller.close()
    }

    private func rotateFrameSecret(_ services: TestServices, _ files: LiveFiles) async throws {
      let secret = services.stack.files.frameSecret
      let first = try String(contentsOfFile: secret, encoding: .utf8).prefix { $0 != "\n" }
      let second = String(repeating: "shared", count: 6)
      let (onlyFirst, onlySecond) = (files.path("first-secret"), files.path("second-secret"))
      try files.replace(onlyFirst, "\(first)\n")
      try files.replace(onlySecond, "\(second)\n")
      let probe = ["probe", "send", "\(services.stack.plan.store)", "ping bytes=0102030405060708"]
      func opens(_ secret: String) async throws -> Bool {
        let line = probe + ["--secret-file", secret] + files.link("gateway")
        return try await LinkTLS.tidemark(line).status == 0
      }
      #expect(try await opens(onlyFirst))
      try files.replace(secret, "\(second)\n\(first)\n")
      try await Self.hangUp(services)
      try await eventually("the store proves itself with the new secret") { try await opens(onlySecond) }
      try files.replace(secret, "\(second)\n")
      try await Self.hangUp(services)
      try await eventually("the store refuses the old secret") { try await !opens(onlyFirst) }
    }

    private func rotateLink(_ services: TestServices, _ files: LiveFiles) async throws {
      let line = [
        "probe", "send", "\(services.stack.plan.store)", "ping bytes=0102030405060708", "--secret-file",
        files.path("second-secret"),
      ]
      func opens(_ identity: [String]) async throws -> Bool {
        try await LinkTLS.tidemark(line + identity).status == 0
      }
      let next = files.path("next")
      try await LinkTLS.makeCertificate(next, "store", "IP:127.0.0.1")
      try await LinkTLS.makeCertificate(next, "gateway", "DNS:gateway")
      let authorities = try [files.path("link-ca.pem"), next + "/link-ca.pem"].map {
        try String(contentsOfFile: $0, encoding: .utf8)
      }
      let ofBefore = files.path("before")
      try FileManager.default.createDirectory(atPath: ofBefore, withIntermediateDirectories: true)
      for name in ["gateway-cert.pem", "gateway-key.pem"] {
        try FileManager.default.copyItem(atPath: files.path(name), toPath: "\(ofBefore)/\(name)")
      }
      // Both authorities everywhere, then certificates of the new one, then the new one alone.
      try files.replace(files.path("link-ca.pem"), authorities.joined())
      try await Self.hangUp(services)
      try await eventually("the store accepts certificates by the new authority") {
        try await opens(files.link("gateway", certificates: next))
      }
      for end in ["store", "gateway"] {
        // The key first: a key that does not match its certificate is not loaded.
        for part in ["key", "cert"] {
          let text = try String(contentsOfFile: "\(next)/\(end)-\(part).pem", encoding: .utf8)
          try files.replace(files.path("\(end)-\(part).pem"), text)
        }
      }
      try await Self.hangUp(services)
      try await eventually("the store presents the certificate by the new authority") {
        try await opens(files.link("gateway", authority: next + "/link-ca.pem"))
      }
      try files.replace(files.path("link-ca.pem"), authorities[1])
      try await Self.hangUp(services)
      try await eventually("the store refuses certificates by the old authority") {
        try await !opens(files.link("gateway", certificates: ofBefore))
      }
      #expect(try await opens(files.link("gateway")))
    }

    private func rotatePush(_ services: TestServices, _ files: LiveFiles) async throws {
      let secret = services.stack.files.ticketSecret
      let first = try String(contentsOfFile: secret, encoding: .utf8).prefix { $0 != "\n" }
      let second = String(repeating: "ticket", count: 6)
      let tokenIssuer = await TokenIssuer(secret: Array(String(repeating: "fresh-", count: 8).utf8))
      let server = try await tokenIssuer.server(lifetime: .seconds(3_600))
      let issued = try await services.curl(
        "POST",
        "/v1/push/tickets",
        token: server,
        json: #"{"tickets":[{"cid":"messaging:rotated","message_id":"m1","user_id":"bob"}]}"#
      )
      let tickets = try JSONSerialization.jsonObject(with: Data(issued.body.utf8)) as? [String: [String]]
      let ticket = try #require(tickets?["tickets"]?.first, "\(issued)")
      func acknowledged() async throws -> String {
        try await services.curl("POST", "/v1/push/acks", json: #"{"tickets":["\#(ticket)"]}"#).body
      }
      #expect(try await acknowledged().contains(#""ok":true"#))
      func hook(_ name: String) async throws -> String {
        try await services.curl("POST", "/v1/push/hooks/\(name)", json: "{}").body
      }
      // Before the files change: the reload of the previous step may still be going on.
      #expect(try await hook("second").contains("hook_not_found"))
      try files.replace(secret, "\(second)\n\(first)\n")
      try files.replace(files.path("hooks.yaml"), LiveFiles.hooks(["relay", "second"]))
      try await Self.hangUp(services)
      try await eventually("the new hook is known") { try await !hook("second").contains("hook_not_found") }
      #expect(try await acknowledged().contains(#""ok":true"#))
      try files.replace(secret, "\(second)\n")
      try await Self.hangUp(services)
      try await eventually("tickets of the old secret are refused") {
        try await acknowledged().contains("ticket_invalid")
      }
    }

    /// Unusable settings are reported by name and the old ones stay in use. A limit is applied at once; settings that
    /// need a restart are named.
    private func rejectUnusableSettings(_ services: TestServices, _ files: LiveFiles) async throws {
      let (store, gateway) = (services.stack.plan.storeAdmin, services.stack.plan.gateways[1].admin)
      let failed = (
        store: try await Scrape.value("tidemark_store_reloads_total{result=\"failed\"}", of: store),
        gateway: try await Scrape.value("tidemark_gateway_reloads_total{result=\"failed\"}", of: gateway)
      )
      let good = try String(contentsOfFile: files.path("store-cert.pem"), encoding: .utf8)
      try files.replace(files.path("store-cert.pem"), "no certificate\n")
      try files.replace(files.path("config.yaml"), "connections: 0\n")
      try await Self.hangUp(services)
      try await eventually("both count a failed reload") {
        let ofStore = try await Scrape.value("tidemark_store_reloads_total{result=\"failed\"}", of: store)
        let ofGateway = try await Scrape.value(
          "tidemark_gateway_reloads_total{result=\"failed\"}",
          of: gateway
        )
        return ofStore > failed.store && ofGateway > failed.gateway
      }
      #expect(try await Scrape.value("tidemark_store_last_reload_successful", of: store) == 0)
      func log(_ name: String) throws -> String {
        try services.log(of: name)
      }
      // A failed reload is logged after it is counted.
      try await eventually("both have logged the unusable setting") {
        try log("tidemark-store").contains("--tls-cert \(files.path("store-cert.pem")): ")
          && log("gateway-h2c").contains("--connections \"0\": give a whole number")
      }

      // An empty limit is a mistake in a template, not a request for no limit.
      try files.replace(files.path("config.yaml"), "rate-user: \"\"\n")
      try await Self.hangUp(services)
      try await eventually("an empty limit is refused") {
        try log("gateway-h2c").contains("--rate-user is empty")
      }

      // A FIFO has no writer: reading it would never end, and the processes could not be stopped.
      for name in ["store-cert.pem", "config.yaml"] {
        try FileManager.default.removeItem(atPath: files.path(name))
        #expect(mkfifo(files.path(name), 0o600) == 0)
      }
      try await Self.hangUp(services)
      try await eventually("both refuse a FIFO") {
        try log("tidemark-store").contains("store-cert.pem: it is not a regular file")
          && log("gateway-h2c").contains("config.yaml: the file cannot be read (it is not a regular file)")
      }

      let before = try await Scrape.value(
        "tidemark_gateway_last_reload_success_timestamp_seconds",
        of: gateway
      )
      try files.replace(files.path("store-cert.pem"), good)
      try files.replace(files.path("config.yaml"), "connections: 900\nloops: 7\n")
      // Without a signal: the processes notice that the files have changed.
      try await eventually("both have loaded valid files again") {
        let isGood = try await Scrape.value("tidemark_store_last_reload_successful", of: store)
        let name = "tidemark_gateway_last_reload_success_timestamp_seconds"
        let taken = try await Scrape.value(name, of: gateway)
        return isGood == 1 && taken > before
      }
      try await eventually("the gateway names settings that need a restart") {
        try log("gateway-h2c").contains("settings=--loops")
      }
    }

    // MARK: Helpers

    private static func hangUp(_ services: TestServices) async throws {
      for process in await services.stack.gatewayProcesses { process.signal(SIGHUP) }
      await services.stack.storeProcess?.signal(SIGHUP)
    }
  }

  /// The files that a pair uses and that the test replaces while the services runs.
  struct LiveFiles: Sendable {
    let directory: String
    /// JWKS files with one key each.
    let keySets: (first: String, second: String)
    /// Tokens signed with those keys.
    let keyTokens: (first: String, second: String)

    init(_ directory: String) async throws {
      self.directory = directory
      try await LinkTLS.makeCertificate(directory, "store", "IP:127.0.0.1")
      try await LinkTLS.makeCertificate(directory, "gateway", "DNS:gateway")
      func key(_ name: String) async throws -> (set: String, token: String) {
        let modulus = try await KeySets.makeKey("\(directory)/\(name).pem")
        return (
          #"{"keys":[{"kty":"RSA","use":"sig","alg":"RS256","kid":"\#(name)","n":"\#(modulus)","e":"AQAB"}]}"#,
          try await KeySets.token("\(directory)/\(name).pem", kid: name, "RS256")
        )
      }
      let (first, second) = (try await key("one"), try await key("two"))
      keySets = (first.set, second.set)
      keyTokens = (first.token, second.token)
      try replace(path("jwks.json"), first.set)
      try replace(path("hooks.yaml"), Self.hooks(["relay"]))
      try replace(path("config.yaml"), "connections: 1000\n")
    }

    func path(_ name: String) -> String { directory + "/" + name }

    /// Link flags of one end of the link, or of a command.
    ///
    /// - Parameters:
    ///   - flags: the prefix of the certificate and key flags.
    ///   - certificates: the directory with the certificates.
    func link(
      _ end: String,
      flags: String = "--tls",
      certificates: String? = nil,
      authority: String? = nil
    ) -> [String] {
      let certificates = certificates ?? directory
      return [
        "--tls-ca", authority ?? path("link-ca.pem"), "\(flags)-cert", "\(certificates)/\(end)-cert.pem",
        "\(flags)-key", "\(certificates)/\(end)-key.pem",
      ]
    }

    /// Replace a file atomically, as `mv` does: no reader sees half of either version.
    func replace(_ path: String, _ text: String) throws {
      let new = path + ".new"
      guard
        FileManager.default.createFile(
          atPath: new,
          contents: Data(text.utf8),
          attributes: [.posixPermissions: 0o600]
        ), rename(new, path) == 0
      else { throw Unexpected("\(path) cannot be written") }
    }

    /// Put the listener's certificate behind symbolic links, as in a volume that Kubernetes mounts.
    func mountCertificate(in files: StackFiles) async throws {
      try await Self.makeCertificate(path("web-1"), files.directory + "/..v1")
      symlink("..v1", files.directory + "/..data")
      symlink("..data/tls-cert.pem", files.certificate)
      symlink("..data/tls-key.pem", files.key)
    }

    /// Make a certificate for this machine with an authority of its own, in a directory with the file names of a
    /// pair.
    static func makeCertificate(_ authority: String, _ directory: String) async throws {
      try await LinkTLS.makeCertificate(authority, "web", "DNS:localhost,IP:127.0.0.1")
      let manager = FileManager.default
      try manager.createDirectory(atPath: directory, withIntermediateDirectories: true)
      for (part, name) in [("cert", "tls-cert.pem"), ("key", "tls-key.pem")] {
        try manager.copyItem(atPath: "\(authority)/web-\(part).pem", toPath: "\(directory)/\(name)")
      }
    }

    static func hooks(_ names: [String]) -> String {
      let lines = names.map { "  \($0): {secrets: [whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=]}\n" }
      return "hooks:\n" + lines.joined()
    }
  }

  /// Clients that send requests without a pause: one persistent connection to each gateway, and a new connection each
  /// time.
  final class Load: Sendable {
    private struct State {
      var token: String
      var authority: String
      var isEnding = false
      var counts: [Int] = [0, 0, 0]
      var failures: [String] = []
    }

    private let services: TestServices
    private let state: NIOLockedValueBox<State>
    private let tasks: NIOLockedValueBox<[Task<Void, Never>]> = NIOLockedValueBox([])

    private init(_ services: TestServices, _ token: String, _ certificate: String) throws {
      self.services = services
      let authority = services.directory + "/trusted.pem"
      try FileManager.default.copyItem(atPath: certificate, toPath: authority)
      state = NIOLockedValueBox(State(token: token, authority: authority))
    }

    static func start(_ services: TestServices, _ token: String, trusting certificate: String) throws -> Load {
      let load = try Load(services, token, certificate)
      for number in 0...2 {
        let task = Task { await load.ask(number) }
        load.tasks.withLockedValue { $0.append(task) }
      }
      return load
    }

    /// Stop the load; return the number of requests, and a description of each failure.
    func stop() async -> (Int, [String]) {
      state.withLockedValue { $0.isEnding = true }
      for task in tasks.withLockedValue({ $0 }) { await task.value }
      return state.withLockedValue { ($0.counts.reduce(0, +), $0.failures) }
    }

    /// Make new connections trust one more certificate.
    func trust(_ certificate: String) {
      state.withLockedValue { state in
        let texts = [state.authority, certificate].compactMap {
          try? String(contentsOfFile: $0, encoding: .utf8)
        }
        state.authority += "+"
        try? texts.joined().write(toFile: state.authority, atomically: true, encoding: .utf8)
      }
    }

    /// Return when all clients use another token.
    func use(_ token: String) async throws {
      let counts = state.withLockedValue { state in
        state.token = token
        return state.counts
      }
      try await eventually("every client has sent two requests") {
        state.withLockedValue { state in zip(state.counts, counts).allSatisfy { $0 >= $1 + 2 } }
      }
    }

    /// The status of a request on a new connection to a gateway.
    func status(_ gateway: Int, _ path: String, token: String) async throws -> Int {
      let caller = try await connect(gateway)
      let response = try await caller.call(.get, path, token: token)
      await caller.close()
      return response.status
    }

    private func connect(_ gateway: Int) async throws -> AsyncHTTP2Client {
      let port = services.stack.plan.gateways[gateway].listen.port
      guard gateway == 0 else {
        return try await AsyncHTTP2Client.connect(to: Endpoint(host: "127.0.0.1", port: port))
      }
      let authority = state.withLockedValue { $0.authority }
      let tls = try TLSContext(client: TLSClientConfiguration(authorityFile: authority))
      return try await AsyncHTTP2Client.connect(to: Endpoint(host: "localhost", port: port), tls: tls)
    }

    private func ask(_ number: Int) async {
      var kept: AsyncHTTP2Client?
      while !state.withLockedValue({ $0.isEnding }) {
        let token = state.withLockedValue { $0.token }
        var failure: String?
        do {
          let caller: AsyncHTTP2Client
          if let kept { caller = kept } else { caller = try await connect(min(number, 1)) }
          kept = number < 2 ? caller : nil
          let response = try await caller.call(
            .post,
            "/v1/channels/messaging:rotated/read",
            body: [],
            token: token
          )
          if response.status != 200 { failure = "\(response.status) \(response.text)" }
          if kept == nil { await caller.close() }
        } catch {
          failure = "\(error)"
          // A persistent connection has closed: that counts as a failure, and the next one is opened.
          kept = nil
        }
        state.withLockedValue { state in
          state.counts[number] += 1
          if let failure { state.failures.append("client \(number): \(failure)") }
        }
      }
      await kept?.close()
    }
  }
}
