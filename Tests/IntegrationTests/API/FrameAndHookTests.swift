import Foundation
import LocalStack
import TestPrograms
import TestSupport
import Testing

extension RealProcesses {
  /// Frames over HTTP/2 and signed webhooks, by foreign clients against the real services.
  @Suite struct FramesAndHooks {
    @Test func framesFromForeignClientsAreAnswered() async throws {
      try await TestServices.with { services in
        let output = try await Command.run(
          TestServices.python,
          [
            TestServices.client("Push/push_frames.py"), "\(services.h2cPort)", services.serverToken,
            services.directory,
          ]
        )
        #expect(output.status == 0 && output.out.hasPrefix("ok"), "\(output)")
      }
    }

    @Test(
      .needs(
        PythonTools.areInstalled,
        "standardwebhooks is not installed: `make test-deps` gets it from PyPI"
      )
    )
    func webhooksFromStandardWebhooksAreAccepted() async throws {
      let secret = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
      let other = "whsec_ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8="
      let hooks = NSTemporaryDirectory() + "tidemark-hooks-\(UUID().uuidString)"
      // The older of the two secrets signs.
      try "hooks: {relay: {secrets: [\(other.replacing("IC", with: "IB")), \(secret)]}}"
        .write(toFile: hooks, atomically: true, encoding: .utf8)
      defer { try? FileManager.default.removeItem(atPath: hooks) }
      try await TestServices.with(gatewayFlags: ["--hooks-file", hooks, "--log-level", "debug"]) { services in
        let path = "/v1/channels/messaging:hooks"
        try await services.makeChannel("messaging:hooks", message: "m1")
        let issued = try await services.curl(
          "POST",
          "/v1/push/tickets",
          token: services.serverToken,
          json: #"{"tickets":[{"cid":"messaging:hooks","message_id":"m1","user_id":"bob"}]}"#
        )
        let response = try JSONSerialization.jsonObject(with: Data(issued.body.utf8)) as? [String: [String]]
        let ticket = try #require(response?["tickets"]?.first)
        let output = try await Command.run(
          PythonTools.directory + "/python",
          [TestServices.client("Push/push_hooks.py"), services.h2cURL, secret, other, ticket]
        )
        #expect(output.status == 0 && output.out.hasPrefix("ok"), "\(output)")
        let status = try await services.curl(
          "GET",
          path + "/messages/m1/status",
          token: services.serverToken
        )
        #expect(status.body.contains(#""status":"delivered""#), "\(status)")
        let log = try services.log(of: "gateway-h2c")
        let lines = log.split(separator: "\n").filter { $0.contains("cannot be acknowledged") }
        let escaped = #"provider_message_id=id\n2026 forged \u{1B}[31m\u{9B}1m\u{2028}end"#
        #expect(lines.contains { $0.contains(escaped) }, "\(lines)")
        let isRaw = log.unicodeScalars.contains { $0 != "\n" && $0.properties.generalCategory == .control }
        #expect(!isRaw, "a control character in the log")
      }
    }
  }
}
