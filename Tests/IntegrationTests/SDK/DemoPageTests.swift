import Foundation
import LocalStack
import TestPrograms
import TestSupport
import Testing

extension RealProcesses {
  /// The demo page in Chromium, as `tidemark run` serves it.
  @Suite struct DemoPages {
    @Test(
      .timeLimit(.minutes(4)),
      .needs(PythonTools.areInstalled, "playwright is not installed: `make test-deps` gets it")
    )
    func twoWindowsShowTheTicksOfAConversation() async throws {
      let directory = NSTemporaryDirectory() + "tidemark-test-\(UUID().uuidString)"
      try FileManager.default.createDirectory(atPath: directory + "/home", withIntermediateDirectories: true)
      defer { try? FileManager.default.removeItem(atPath: directory) }
      let session = try ChildProcess(
        name: "run",
        executable: TestServices.binaries + "/tidemark",
        arguments: ["run", "--free-ports", "--directory", directory + "/run"],
        logFile: directory + "/run.log"
      )
      func log() throws -> String { try String(contentsOfFile: directory + "/run.log", encoding: .utf8) }
      do {
        try await eventually("the session is up") {
          guard session.isRunning else { throw Unexpected("the session ended: \(try log())") }
          return try log().contains("Ctrl-C stops it")
        }
        let address = try #require(try log().firstMatch(of: /demo page +(https:\S+)/)?.1)
        let output = try await Command.run(
          PythonTools.directory + "/python",
          [
            TestServices.client("SDK/demo_page.py"), "/usr/lib/chromium/chromium-headless-shell", String(address),
            directory + "/run/tls-cert.pem", directory + "/home",
          ]
        )
        #expect(output.status == 0 && output.out.hasPrefix("ok: "), "\(output)")
        // Neither tokens nor the code are in a log.
        let code = try #require(address.split(separator: "#").last)
        let server = try String(contentsOfFile: directory + "/run/server.token", encoding: .utf8)
        for name in ["tidemark-gateway-tls.log", "tidemark-store.log"] {
          let text = try String(contentsOfFile: directory + "/run/" + name, encoding: .utf8)
          #expect(!text.contains(code) && !text.contains(server.trimmingCharacters(in: .whitespacesAndNewlines)))
        }
      } catch {
        print(try log())
        await session.stop(grace: .seconds(30))
        throw error
      }
      #expect(await session.stop(grace: .seconds(30)) == .exited(code: 0))
    }
  }
}
