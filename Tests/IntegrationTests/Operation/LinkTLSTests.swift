import Foundation
import LocalStack
import NIOCore
import Operations
import TestPrograms
import TestSupport
import Testing

extension RealProcesses {
  /// TLS between gateways and store: the bytes on the wire, the accepted peers, and the errors for rejected peers.
  @Suite struct LinkTLS {
    @Test func framesAreEncryptedAndBothEndsVerified() async throws {
      try await Self.withTLS { services in
        let store = services.stack.plan.store
        let proxy = try await RecordingProxy.start(to: store.port)
        defer { Task { await proxy.stop() } }

        // Through a gateway of each kind, and through one whose frames are recorded.
        try await services.makeChannel("messaging:secret-room", message: "m1")
        let token = try await services.token("bob")
        let own = Self.link(services, "gateway")
        let recorded = try await Self.gateway(services, "recorded", store: proxy.port, own)
        defer { recorded.process.kill() }
        try await eventually("the gateway behind the recorder is ready") { await recorded.isReady }
        let read = try await Command.run(
          "curl",
          [
            "-sS", "--http2-prior-knowledge", "-X", "POST", "-H", "authorization: Bearer \(token)",
            "http://127.0.0.1:\(recorded.port)/v1/channels/messaging:secret-room/read",
          ]
        )
        #expect(read.out.contains(#""last_read_message_id":"m1""#), "\(read)")
        let seen = try await services.expect(
          200,
          "GET",
          "/v1/channels/messaging:secret-room/messages/m1/status",
          token: try await services.token("alice")
        )
        #expect(seen["status"] as? String == "read")
        #expect(proxy.bytes.count > 2_000, "the recorder has seen \(proxy.bytes.count) bytes")
        for text in ["secret-room", "bob", "alice", "tidemark-gateway"] {
          #expect(!proxy.hasSeen(text), "\(text) is on the wire")
        }
        // TLS 1.3 only: a handshake, then application data.
        #expect(proxy.bytes.prefix(2) == [22, 3])

        // Valid for 825 days.
        let ends = [
          (services.stack.plan.storeAdmin, "tidemark_store_tls_certificate_expires_timestamp_seconds"),
          (recorded.admin, "tidemark_gateway_store_tls_certificate_expires_timestamp_seconds"),
        ]
        for (admin, name) in ends {
          let days = (try await Scrape.value(name, of: admin) - Date().timeIntervalSince1970) / 86_400
          #expect(days > 824 && days <= 825, "\(name): in \(days) days")
        }

        // The commands that connect to a store.
        let address = "\(store)"
        let storeFlags = ["--store", address, "--secret-file", services.stack.files.frameSecret]
        let backups = services.directory + "/backups"
        for line in [["backup"] + storeFlags + own + [backups], ["rebuild-index"] + storeFlags + own] {
          let output = try await Self.tidemark(line)
          #expect(output.status == 0, "\(line): \(output)")
        }
        let probe = ["probe", "send", address, "ping bytes=0102030405060708"]
        let secret = ["--secret-file", services.stack.files.frameSecret]
        let answered = try await Self.tidemark(probe + secret + own)
        #expect(answered.status == 0 && answered.out.contains("TLSv1.3"), "\(answered)")
        #expect(answered.out.contains("ALPN tidemark/1"), "\(answered)")

        try await services.withWellBehavedClient(
          "POST",
          "/v1/channels/messaging:secret-room/read",
          token: token,
          beside: "peers without the right certificate"
        ) {
          // Peers that the store rejects.
          let before = try await Self.failedHandshakes(services)
          let ca = ["--tls-ca", Self.file(services, "link-ca.pem")]
          let anonymous = try await Self.tidemark(probe + secret + ca)
          #expect(anonymous.status == 1, "\(anonymous)")
          let strange = Self.link(services, "stranger", authority: "link", directory: "strange")
          let foreign = try await Self.tidemark(["backup"] + storeFlags + strange + [backups])
          #expect(foreign.status == 1, "\(foreign)")
          #expect(foreign.error.contains("the store refuses this side's certificate"), "\(foreign)")
          let plain = try await Self.tidemark(["backup"] + storeFlags + [backups])
          #expect(plain.status == 1 && plain.error.contains("this store speaks TLS"), "\(plain)")
          try await eventually("the store has counted three failed handshakes") {
            try await Self.failedHandshakes(services) == before + 3
          }
          let log = try services.log(of: "tidemark-store")
          #expect(log.contains("tidemark-store is listening on \(address) (TLS)"), "\(log)")
          // A failed handshake is logged after it is counted.
          try await eventually("the store has logged the peer without a certificate") {
            let log = try services.log(of: "tidemark-store")
            return log.contains("the peer presented no certificate")
              && log.contains("remedy=give the gateway --store-tls-cert and --store-tls-key")
          }

          // Stores that a gateway rejects, and the error for each.
          let otherName = "localhost:\(store.port)"
          let foreignFlags = [
            "--tls-ca", Self.file(services, "strange/link-ca.pem"), "--tls-cert",
            Self.file(services, "gateway-cert.pem"),
            "--tls-key", Self.file(services, "gateway-key.pem"),
          ]
          for (name, address, flags, texts) in [
            ("other-authority", address, foreignFlags, ["self-signed certificate in certificate chain"]),
            ("other-name", otherName, own, ["hostname mismatch", "name the host of --store"]),
            ("no-tls", address, [], ["this store speaks TLS", "traffic to the store is not encrypted"]),
          ] {
            let gateway = try await Self.gateway(services, name, store: address, flags)
            try await eventually("\(name): the gateway says why it has no store") {
              let log = try String(contentsOfFile: gateway.log, encoding: .utf8)
              return texts.allSatisfy { log.contains($0) }
            }
            let ready = try await Command.run("curl", ["-sS", "http://\(gateway.admin)/ready"])
            #expect(ready.out.contains("no connection"), "\(name): \(ready)")
            #expect(gateway.process.isRunning)
            await gateway.process.stop()
          }
        }
        try await services.expect(
          200,
          "POST",
          "/v1/channels/messaging:secret-room/read",
          token: token
        )
      }
    }

    /// A store without TLS logs that, listens only on this machine, and reports the mismatch to a gateway with TLS.
    @Test func storeWithoutTLSListensLocally() async throws {
      try await Self.withTLS(isUsed: false) { services in
        let address = "\(services.stack.plan.store)"
        let log = try services.log(of: "tidemark-store")
        #expect(log.contains("tidemark-store is listening on \(address) (plaintext)"), "\(log)")
        let own = Self.link(services, "gateway")
        let gateway = try await Self.gateway(services, "tls", store: address, own)
        try await eventually("the gateway says that the store does not speak TLS") {
          try String(contentsOfFile: gateway.log, encoding: .utf8).contains("the store does not speak TLS")
        }
        try await eventually("the store says that a peer speaks TLS") {
          try services.log(of: "tidemark-store")
            .contains("the peer speaks TLS and this store does not")
        }
        #expect(gateway.process.isRunning)
        await gateway.process.stop()
        // It keeps serving peers that use plaintext.
        try await services.makeChannel("messaging:plain", message: "m1")

        let files = [
          "--tls-cert", Self.file(services, "store-cert.pem"), "--tls-key",
          Self.file(services, "store-key.pem"),
          "--tls-ca", Self.file(services, "link-ca.pem"),
        ]
        let base = [
          "--data", services.directory + "/other", "--secret-file", services.stack.files.frameSecret,
        ]
        let local = ["--listen", "127.0.0.1:0"]
        let (certificate, key, authority) = (files[1], files[3], files[5])
        let otherKey = Self.file(services, "gateway-key.pem")
        func flags(_ certificate: String?, _ key: String?, _ authority: String?) -> [String] {
          zip(["--tls-cert", "--tls-key", "--tls-ca"], [certificate, key, authority])
            .flatMap { flag, file in file.map { [flag, $0] } ?? [] }
        }
        let refused: [([String], String)] = [
          (["--listen", "0.0.0.0:0"], "--listen 0.0.0.0:0: other machines could reach the store"),
          (["--listen", "[::]:0"], "give --tls-cert, --tls-key and --tls-ca"),
          (local + flags(certificate, key, nil), "--tls-ca is missing"),
          (local + flags(nil, key, authority), "--tls-cert is missing"),
          (local + flags(certificate, nil, authority), "--tls-key is missing"),
          (local + flags(certificate, key, "/none"), "--tls-ca /none: No such file"),
          (
            local + flags(certificate, otherKey, authority),
            "gateway-key.pem: is not the private key of the certificate"
          ),
        ]
        for (flags, text) in refused {
          let output = try await Command.run(TestServices.binaries + "/tidemark-store", base + flags)
          #expect(output.status == 78 && output.error.contains(text), "\(flags): \(output)")
        }
        for flags in [["--allow-plaintext"], files] {
          let store = try ChildProcess(
            name: "store",
            executable: TestServices.binaries + "/tidemark-store",
            arguments: base + ["--listen", "0.0.0.0:0"] + flags,
            logFile: services.directory + "/other.log"
          )
          let kind = flags.count == 1 ? "plaintext" : "TLS"
          try await eventually("a store listens on every address, \(kind)") {
            try String(contentsOfFile: services.directory + "/other.log", encoding: .utf8).contains(
              "(\(kind))"
            )
          }
          await store.stop()
        }
        let said = try String(contentsOfFile: services.directory + "/other.log", encoding: .utf8)
        #expect(said.contains("Frames are not encrypted (--allow-plaintext)"), "\(said)")
      }
    }

    // MARK: Helpers

    static func file(_ services: TestServices, _ name: String) -> String {
      services.directory + "/link/" + name
    }

    /// Flags of a gateway, or of a command that connects to a store.
    static func link(
      _ services: TestServices,
      _ name: String,
      authority: String = "link",
      directory: String = "."
    ) -> [String] {
      [
        "--tls-ca", file(services, "\(authority)-ca.pem"), "--tls-cert",
        file(services, "\(directory)/\(name)-cert.pem"),
        "--tls-key", file(services, "\(directory)/\(name)-key.pem"),
      ]
    }

    /// Make a certificate in the way operators do.
    static func makeCertificate(_ directory: String, _ name: String, _ alternatives: String) async throws {
      let script = TestServices.packageRoot + "/Deploy/link-certificates.sh"
      let output = try await Command.run("/bin/bash", [script, directory, name, alternatives])
      guard output.status == 0 else { throw Unexpected("\(script): \(output)") }
    }

    /// A pair with link certificates, in use or not: an authority for store and gateways, and an unrelated one.
    static func withTLS(isUsed: Bool = true, _ body: (TestServices) async throws -> Void) async throws {
      let link = NSTemporaryDirectory() + "tidemark-link-\(UUID().uuidString)"
      defer { try? FileManager.default.removeItem(atPath: link) }
      try await makeCertificate(link, "store", "DNS:store.example.org,IP:127.0.0.1")
      try await makeCertificate(link, "gateway", "DNS:gateway")
      try await makeCertificate(link + "/strange", "stranger", "DNS:stranger,IP:127.0.0.1")
      let ca = ["--tls-ca", "\(link)/link-ca.pem"]
      let store = ca + ["--tls-cert", "\(link)/store-cert.pem", "--tls-key", "\(link)/store-key.pem"]
      let gateway =
        ca + ["--store-tls-cert", "\(link)/gateway-cert.pem", "--store-tls-key", "\(link)/gateway-key.pem"]
      try await TestServices.with(
        storeFlags: isUsed ? store : [],
        gatewayFlags: isUsed ? gateway : [],
        prepare: { files in
          try FileManager.default.createSymbolicLink(
            atPath: files.directory + "/link",
            withDestinationPath: link
          )
        },
        body
      )
    }

    static func tidemark(_ arguments: [String]) async throws -> Command.Output {
      try await Command.run(TestServices.binaries + "/tidemark", arguments, limit: .seconds(120))
    }

    static func failedHandshakes(_ services: TestServices) async throws -> Int {
      Int(try await Scrape.value("tidemark_store_tls_handshakes_failed_total", of: services.stack.plan.storeAdmin))
    }

    struct Gateway {
      let process: ChildProcess
      let port: Int
      let admin: Endpoint
      let log: String

      var isReady: Bool {
        get async { await HealthCheck.run("http://\(admin)/ready", timeout: .seconds(5)).exitCode == 0 }
      }
    }

    /// One more gateway of the services, with h2c.
    static func gateway(_ services: TestServices, _ name: String, store: Int, _ flags: [String]) async throws
      -> Gateway
    {
      try await gateway(services, name, store: "127.0.0.1:\(store)", flags)
    }

    static func gateway(_ services: TestServices, _ name: String, store: String, _ flags: [String])
      async throws
      -> Gateway
    {
      let ports = try LoopbackPorts.free(2)
      let log = "\(services.directory)/\(name).log"
      let files = services.stack.files
      let process = try ChildProcess(
        name: name,
        executable: TestServices.binaries + "/tidemark-gateway",
        arguments: [
          "--listen", "\(ports[0])", "--h2c", "--store", store, "--secret-file", files.frameSecret,
          "--jwt-secret-file", files.jwtSecret, "--admin", "\(ports[1])",
        ] + flags,
        logFile: log
      )
      return Gateway(process: process, port: ports[0].port, admin: ports[1], log: log)
    }
  }
}
