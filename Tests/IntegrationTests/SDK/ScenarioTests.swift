import Foundation
import LocalStack
import TestPrograms
import TestSupport
import Testing

extension RealProcesses {
  /// The steps of SDK/scenario.json with each SDK, over TLS.
  @Suite struct SDKScenario {
    @Test(.timeLimit(.minutes(4))) func moduleBehavesAsTheScenarioSays() async throws {
      try await TestServices.with { services in
        let settings = services.directory + "/settings.json"
        let values = [
          "url": services.tlsURL, "ca": services.certificate, "jwtSecretFile": services.stack.files.jwtSecret,
          "admin": "http://\(services.stack.plan.gateways[0].admin)",
        ]
        try JSONSerialization.data(withJSONObject: values).write(to: URL(fileURLWithPath: settings))
        let script = TestServices.packageRoot + "/SDK/js/test/scenario.mjs"
        let player = try Companion("node", [script, settings], limit: .seconds(200))
        defer { player.end() }
        var last = ""
        for await line in player.lines {
          last = line
          guard line.hasPrefix("@") else { continue }
          try await Self.perform(line.dropFirst(), services.stack)
          player.send("done")
        }
        #expect(last.hasSuffix(" steps, all as expected"), "\(last) \(player.errors)")
        print("scenario of tidemark.js:", last)
      }
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
