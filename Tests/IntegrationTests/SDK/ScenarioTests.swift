import Foundation
import LocalStack
import Operations
import TestPrograms
import TestSupport
import Testing

extension RealProcesses {
  /// The steps of SDK/scenario.json with each SDK, over TLS.
  @Suite struct SDKScenario {
    @Test(.waitsMostly, .timeLimit(.minutes(10))) func moduleBehavesAsTheScenarioSays() async throws {
      try await TestServices.with { services in
        let script = TestServices.packageRoot + "/SDK/js/test/scenario.mjs"
        let settings = try Self.writeSettings(services)
        try await Self.play("tidemark.js", "node", [script, settings], services.stack)
      }
    }

    @Test(
      .waitsMostly,
      .timeLimit(.minutes(10)),
      .needs(PythonTools.areInstalled, "playwright is not installed: `make test-deps` gets it")
    )
    func moduleBehavesInBrowserAsTheScenarioSays() async throws {
      let app = try LoopbackPorts.free(1)[0]
      try await TestServices.with(gatewayFlags: ["--cors-origin", "http://\(app)"]) { services in
        let home = services.directory + "/home"
        try FileManager.default.createDirectory(atPath: home, withIntermediateDirectories: true)
        let arguments = [
          TestServices.client("SDK/scenario_in_browser.py"), RunningSession.chromium, try Self.writeSettings(services),
          home, "\(app.port)", TestServices.packageRoot + "/SDK",
        ]
        let python = PythonTools.directory + "/python"
        try await Self.play("tidemark.js in Chromium", python, arguments, services.stack)
      }
    }

    /// What a real gateway does not bring about: answers that come late, a clock that is set back, a full queue.
    @Test func moduleHandlesAnswersOfEveryKind() async throws {
      let script = TestServices.packageRoot + "/SDK/js/test/client.test.mjs"
      let output = try await Command.run("timeout", ["60", "node", "--test", script])
      #expect(output.status == 0, "\(output.out) \(output.error)")
    }

    /// `URLSession` on Linux trusts only the system's certificates. The player runs in a mount namespace of its own,
    /// where the services' certificate stands in their place.
    @Test(
      .waitsMostly,
      .needs(canMount, "it mounts a certificate over the system's, as root"),
      .timeLimit(.minutes(10))
    )
    func swiftClientBehavesAsTheScenarioSays() async throws {
      try await TestServices.with { services in
        let commands = #"mount --bind "$0" /etc/ssl/certs/ca-certificates.crt; exec "$@""#
        let player = TestServices.binaries + "/SwiftScenarioPlayer"
        let scenario = TestServices.packageRoot + "/SDK/scenario.json"
        let settings = try Self.writeSettings(services)
        try await Self.play(
          "TidemarkClient",
          "unshare",
          ["--mount", "/bin/sh", "-ec", commands, services.certificate, player, settings, scenario],
          services.stack
        )
      }
    }

    /// Write the settings of a player.
    ///
    /// - Returns: The path of their file.
    private static func writeSettings(_ services: TestServices) throws -> String {
      let settings = services.directory + "/settings.json"
      let values = [
        "url": services.tlsURL, "ca": services.certificate, "jwtSecretFile": services.stack.files.jwtSecret,
        "admin": "http://\(services.stack.plan.gateways[0].admin)",
      ]
      try JSONSerialization.data(withJSONObject: values).write(to: URL(fileURLWithPath: settings))
      return settings
    }

    /// Run a player to its end.
    private static func play(
      _ client: String,
      _ program: String,
      _ arguments: [String],
      _ stack: LocalStack
    ) async throws {
      let player = try Companion(program, arguments, limit: .seconds(500))
      defer { player.end() }
      var last = ""
      for await line in player.lines {
        last = line
        guard line.hasPrefix("@") else { continue }
        try await Self.perform(line.dropFirst(), stack)
        player.send("done")
      }
      #expect(last.hasSuffix(" steps, all as expected"), "\(last) \(player.errors)")
      print("scenario of \(client):", last)
    }

    /// Perform a step of the host.
    private static func perform(_ command: Substring, _ stack: LocalStack) async throws {
      switch command {
      case "restart gateway":
        await stack.killGateway(0)
        try await stack.startGateway(0)
      case "restart store":
        await stack.killStore()
        try await stack.startStore()
      default: throw Unexpected("no such step: \(command)")
      }
    }
  }

  /// The files as a client gets them.
  @Suite struct SDKFiles {
    @Test func filesAreCompressedAndCached() async throws {
      try await TestServices.with { services in
        let file = services.directory + "/tidemark.js"
        func curl(_ headers: String...) async throws -> String {
          let written = "%{http_code} %header{content-encoding} %header{etag}"
          let options = ["-sS", "--http2", "--cacert", services.certificate, "-o", file, "-w", written]
          let url = services.tlsURL + "/sdk/tidemark.js"
          let output = try await Command.run("curl", options + headers.flatMap { ["-H", $0] } + [url])
          try #require(output.status == 0, "\(output)")
          return output.out
        }
        let plain = try await curl()
        #expect(plain.hasPrefix("200  "))
        let compressed = try await curl("accept-encoding: gzip")
        let tag = try #require(compressed.split(separator: " ").last)
        #expect(compressed.hasPrefix("200 gzip ") && !plain.hasSuffix(tag))
        let same = try await Command.run(
          "/bin/bash",
          ["-c", "zcat < '\(file)' | cmp - '\(TestServices.packageRoot)/SDK/js/tidemark.js'"]
        )
        #expect(same.status == 0, "\(same)")
        let known = try await curl("accept-encoding: gzip", "if-none-match: \(tag)")
        #expect(known.hasPrefix("304 "))
      }
    }
  }

  /// The types of the module, checked by TypeScript's compiler.
  @Suite struct SDKTypes {
    @Test func examplesCompileWithTheTypes() async throws {
      let examples = TestServices.packageRoot + "/SDK/js/test/types.ts"
      let output = try await Command.run(
        "tsc",
        ["--noEmit", "--strict", "--target", "es2022", "--module", "es2022", "--lib", "es2022,dom", examples]
      )
      #expect(output.status == 0, "\(output)")
    }
  }
}
