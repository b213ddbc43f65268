import Foundation
import TestPrograms
import TestSupport
import Testing

extension RealProcesses {
  /// The console in Chromium, as `tidemark run` serves it.
  @Suite struct ConsolePages {
    private func tidemark(_ arguments: [String]) async throws -> Command.Output {
      try await Command.run(TestServices.binaries + "/tidemark", arguments)
    }

    @Test(
      .timeLimit(.minutes(10)),
      .needs(PythonTools.areInstalled, "playwright is not installed: `make test-deps` gets it")
    )
    func operatorSeesWhyMessageIsNotRead() async throws {
      try await RunningSession.with { session in
        let gateway = try session.gateway
        let options = ["--ca", session.file("tls-cert.pem"), "--jwt-secret-file", session.file("jwt-secret")]
        let output = try await tidemark(["console", "--gateway", gateway] + options)
        let link = output.out.trimmingCharacters(in: .whitespacesAndNewlines)
        #expect(output.status == 0 && link.hasPrefix(gateway + "/console#"), "\(output)")
        try await session.play("SDK/console.py", at: gateway, [session.file("server.token"), link])
        // Neither tokens nor the code are in a log.
        let code = try #require(link.split(separator: "#").last)
        let server = try session.text("server.token").trimmingCharacters(in: .whitespacesAndNewlines)
        for name in ["tidemark-gateway-tls.log", "tidemark-store.log"] {
          let text = try session.text(name)
          #expect(!text.contains(code) && !text.contains(server))
        }
        let plain = try await tidemark(["console", "--gateway", session.h2c] + options.suffix(2))
        #expect(plain.status != 0 && plain.error.contains("over TLS only"), "\(plain)")
      }
    }

    @Test func gatewayWithoutConsoleIsNamed() async throws {
      try await TestServices.with { services in
        let output = try await tidemark([
          "console", "--gateway", services.tlsURL, "--ca", services.certificate, "--token", services.serverToken,
        ])
        #expect(output.status == 1 && output.error.contains("start that gateway with --console"), "\(output)")
      }
    }
  }
}
