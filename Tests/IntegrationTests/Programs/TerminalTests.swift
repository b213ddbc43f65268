import Foundation
import LocalStack
import Operations
import TestPrograms
import TestSupport
import Testing

extension RealProcesses {
  /// The errors of the command-line program: one line, at once.
  @Suite struct TerminalProgram {
    private func tidemark(_ arguments: [String]) async throws -> Command.Output {
      try await Command.run(TestServices.binaries + "/tidemark", arguments, limit: .seconds(60))
    }

    @Test(.needs(EtcdProcesses.isInstalled, "needs Debian's etcd-server"))
    func clusterCommandsNameWhatIsMissing() async throws {
      try await EtcdProcesses.with(1) { etcd in
        let flags = ["--cluster", "demo", "--log", "http://\(etcd.servers[0].client)"]
        let commands = [
          ["status"], ["status", "--json"], ["move", "0", "1"], ["drain", "1"], ["balance"], ["add", "1"],
          ["remove", "1"],
        ]
        for command in commands {
          let run = try await tidemark(["cluster"] + command + flags)
          #expect(run.status == 1 && run.out.isEmpty, "\(run)")
          #expect(
            run.error == """
              tidemark cluster \(command[0]): etcd has no cluster "demo": check --cluster and --log; a cluster begins \
              when its first node starts

              """
          )
        }
      }
      let remote = try await tidemark(["cluster", "status", "--cluster", "demo", "--log", "http://10.0.0.1:2379"])
      #expect(remote.status == 78 && remote.out.isEmpty, "\(remote)")
      #expect(remote.error.hasPrefix("tidemark cluster status: --log 10.0.0.1:2379: is not on this machine"))
      let group = try await tidemark(["cluster", "move", "x", "1", "--cluster", "demo", "--log", "http://[::1]:1"])
      #expect(group.status == 64 && group.error.contains("give the number of a group, 0 to 63"), "\(group)")
    }

    /// A failure that a retry cannot fix is not retried.
    @Test func permanentFailuresAreNotRetried() async throws {
      try await TestServices.with { services in
        let watch = try await tidemark([
          "watch", "--gateway", "https://localhost:\(services.stack.plan.gateways[0].listen.port)", "--user",
          "alice", "--jwt-secret-file",
          services.stack.files.jwtSecret,
        ])
        #expect(watch.status == 1 && watch.out.isEmpty, "\(watch)")
        #expect(
          watch.error.hasPrefix(
            "tidemark watch: the gateway's certificate is not accepted (self-signed certificate"
          ),
          "\(watch)"
        )
        #expect(watch.error.hasSuffix("with --ca FILE\n") && !watch.error.contains("again"), "\(watch)")

        let wrong = services.directory + "/wrong-secret"
        try services.stack.files.write("a-secret-that-the-store-does-not-have\n", to: wrong)
        let store = "\(services.stack.plan.store)"
        for arguments in [["--secret-file", wrong], []] {
          let rebuild = try await tidemark(["rebuild-index", "--store", store] + arguments)
          #expect(rebuild.status == 1 && rebuild.out.isEmpty, "\(rebuild)")
          let last = rebuild.error.split(separator: "\n").last ?? ""
          #expect(
            last
              == "tidemark rebuild-index: the store does not have the same secret: --secret-file has to be the "
              + "file that it was started with, or a copy",
            "\(rebuild)"
          )
        }

        // A port in use is reported in plain text.
        let gateway = try await Command.run(
          TestServices.binaries + "/tidemark-gateway",
          [
            "--h2c", "--listen", "127.0.0.1:\(services.h2cPort)", "--store", store, "--jwt-secret-file",
            services.stack.files.jwtSecret,
          ],
          limit: .seconds(60)
        )
        #expect(gateway.status != 0 && gateway.error.contains("(Address already in use)"), "\(gateway)")
        #expect(!gateway.error.contains("errno"), "\(gateway)")
      }
    }

    /// A cluster answers while one of its nodes is down, and starts it again.
    @Test(.needs(EtcdProcesses.isInstalled, "needs Debian's etcd-server"))
    func runStartsNodesAgain() async throws {
      try await RunningSession.with(["--nodes", "3"]) { session in
        try await eventually("the nodes are printed") { try session.log().contains("kill -9 ") }
        let lines = try session.log().split(separator: "\n").map { $0.drop { $0 == " " } }
        let status = try #require(lines.first { $0.contains(" cluster status ") }).split(separator: " ")
        func ownersAreKnown() async throws -> Bool {
          let output = try await tidemark(status.dropFirst().map(String.init))
          return output.status == 0 && !output.out.contains("has no owner")
        }
        try await eventually("all groups have owners") { try await ownersAreKnown() }
        let victim = try #require(lines.first { $0.hasPrefix("kill -9 ") }?.split(separator: " ").last)
        let h2c = try session.h2c
        let token = try session.text("server.token")
        _ = try await Command.run("kill", ["-9", String(victim)])
        for number in 0..<8 {
          let answer = try await Command.run(
            "curl",
            [
              "-sS", "--http2-prior-knowledge", "-o", "/dev/null", "-w", "%{http_code}", "-X", "PUT", "-d",
              #"{"members":["alice"]}"#, "-H", "content-type: application/json", "-H",
              "authorization: Bearer " + token.filter { !$0.isWhitespace }, "\(h2c)/v1/channels/team:\(number)",
            ]
          )
          #expect(answer.out == "201" || answer.out == "200", "\(answer)")
        }
        try await eventually("the node runs again") {
          let output = try await tidemark(status.dropFirst().map(String.init))
          return try session.log().contains("it starts again") && !output.out.contains("not running")
        }
        let servers = try session.text("etcd-addresses").split(separator: "\n")
        #expect(servers.count == 3)
        // The next session has the same servers, which know each other by address.
        try await session.restart()
        #expect(try session.text("etcd-addresses").split(separator: "\n") == servers)
        let answer = try await Command.run(
          "curl",
          [
            "-sS", "--http2-prior-knowledge", "-H", "authorization: Bearer " + token.filter { !$0.isWhitespace },
            "\(try session.h2c)/v1/users/alice/channels",
          ]
        )
        #expect(answer.out.contains(#""team:7""#), "\(answer)")
      }
    }

    /// Two sessions side by side, on ports that each has chosen.
    @Test func runUsesFreePorts() async throws {
      let directory = NSTemporaryDirectory() + "tidemark-test-\(UUID().uuidString)"
      try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
      defer { try? FileManager.default.removeItem(atPath: directory) }
      var sessions: [ChildProcess] = []
      do {
        for number in 1...2 {
          sessions.append(
            try ChildProcess(
              name: "run-\(number)",
              executable: TestServices.binaries + "/tidemark",
              arguments: ["run", "--free-ports", "--directory", "\(directory)/\(number)"],
              logFile: "\(directory)/run-\(number).log"
            )
          )
        }
        for number in 1...2 {
          try await eventually("session \(number) is up") {
            guard sessions[number - 1].isRunning else { throw Unexpected("session \(number) ended") }
            let log = try String(contentsOfFile: "\(directory)/run-\(number).log", encoding: .utf8)
            return log.contains("Tidemark is up.")
          }
          let log = try String(contentsOfFile: "\(directory)/run-\(number).log", encoding: .utf8)
          #expect(!log.contains("is taken"), "\(log)")
        }
      } catch {
        for session in sessions { await session.stop(grace: .seconds(30)) }
        throw error
      }
      for session in sessions { await session.stop(grace: .seconds(30)) }
    }
  }
}
