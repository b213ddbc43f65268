import Foundation
import LocalStack
import Operations
import TestPrograms
import TestSupport
import Testing

extension RealProcesses {
  /// The demo page in Chromium, as `tidemark run` serves it.
  @Suite struct DemoPages {
    @Test(
      .timeLimit(.minutes(10)),
      .needs(PythonTools.areInstalled, "playwright is not installed: `make test-deps` gets it")
    )
    func twoWindowsShowTheTicksOfAConversation() async throws {
      try await RunningSession.with { session in
        let page = try session.page
        try await session.play("SDK/demo_page.py", at: page)
        // Neither tokens nor the code are in a log.
        let code = try #require(page.split(separator: "#").last)
        let server = try session.text("server.token").trimmingCharacters(in: .whitespacesAndNewlines)
        for name in ["tidemark-gateway-tls.log", "tidemark-store.log"] {
          let text = try session.text(name)
          #expect(!text.contains(code) && !text.contains(server))
        }
      }
    }
  }

  /// tidemark-sw.js in Chromium: pushes arrive at a service worker of an app of another origin.
  @Suite struct PushWorker {
    @Test(
      .timeLimit(.minutes(10)),
      .needs(PythonTools.areInstalled, "playwright is not installed: `make test-deps` gets it")
    )
    func pushesMarkMessagesDelivered() async throws {
      let app = try LoopbackPorts.free(1)[0]
      try await RunningSession.with(["--cors-origin", "http://\(app)"]) { session in
        let arguments = [session.file("server.token"), "\(app.port)"]
        try await session.play("SDK/push_worker.py", at: try session.gateway, arguments)
      }
    }
  }
}
