import Foundation
import LocalStack
import TestPrograms
import TestSupport
import Testing

extension RealProcesses {
  /// Import and export over the real programs (docs/api/import-export.md).
  @Suite struct ImportsAndExports {
    private static let steps = TestRun.number("TIDEMARK_STEPS") ?? TestRun.count(100, long: 10_000)

    /// A random history with deletions, truncations, members who join again, threads and acknowledgements is exported
    /// and imported into an empty store. Every query then has the same answer. `TIDEMARK_SEED=n` replays one history.
    @Test func copyAnswersEveryQueryAlike() async throws {
      let seed = TestRun.printedSeed(of: "a random history that is exported and imported")
      try await TestServices.with { source in
        try await TestServices.with { target in
          // Both gateways take the same tokens.
          let secret = source.stack.files.jwtSecret
          try Data(contentsOf: URL(fileURLWithPath: secret)).write(
            to: URL(fileURLWithPath: target.stack.files.jwtSecret)
          )
          for gateway in 0..<2 {
            await target.stack.killGateway(gateway)
            try await target.stack.startGateway(gateway)
          }
          try await target.stack.waitUntilGatewaysAreReady()
          let history = [TestServices.client("API/random_history.py"), source.h2cURL, secret]
          try await Self.play(history + ["--seed", "\(seed)", "--steps", "\(Self.steps)"], seed)
          let copy = [TestServices.client("API/import_export.py"), source.h2cURL, target.h2cURL, secret]
          try await Self.play(copy, seed)
        }
      }
    }

    /// The programs' own import goes on while gateway and store are killed under it, and the result is that of an
    /// import without interruption.
    @Test func importGoesOnAfterKills() async throws {
      let lines = Self.lines(channels: 1_200)
      try await TestServices.with(gatewayFlags: []) { services in
        let file = services.directory + "/lines.ndjson"
        try lines.write(toFile: file, atomically: true, encoding: .utf8)
        let flags = ["--gateway", services.h2cURL, "--jwt-secret-file", services.stack.files.jwtSecret]
        let program = TestServices.binaries + "/tidemark"
        async let imported = Command.run(program, ["import", file] + flags)
        // The first kill comes when only a few of the lines can have been imported.
        try await eventually("the first line is imported") {
          try await services.curl("GET", "/v1/channels/messaging:0", token: services.serverToken).status == 200
        }
        for round in 0..<4 {
          if round > 0 { try await Task.sleep(for: .milliseconds(300)) }
          if round % 2 == 0 {
            await services.stack.killGateway(1)
            try await services.stack.startGateway(1)
          } else {
            await services.stack.killStore()
            try await services.stack.startStore()
          }
        }
        let output = try await imported
        #expect(output.status == 0 && output.out.isEmpty, "\(output)")
        let count = lines.split(separator: "\n").count
        #expect(output.error.contains("\(count) lines, 0 refused"), "\(output.error)")
        // An import that had ended before the kills would prove nothing.
        let goesOn = output.error.matches(of: /going on after line (\d+)/).contains { (Int($0.1) ?? count) < count }
        #expect(goesOn, "\(output.error)")
        let exported = try await Command.run(program, ["export"] + flags)
        #expect(exported.status == 0, "\(exported.error)")
        #expect(Self.summary(exported.out) == Self.summary(lines))
        // The same lines again, from standard input, change nothing.
        let again = try await Command.run(program, ["import", "-"] + flags, input: lines)
        #expect(again.status == 0, "\(again)")
        #expect(
          try await Command.run(program, ["export"] + flags).out.split(separator: "\n").sorted()
            == exported.out.split(separator: "\n").sorted()
        )
      }
    }

    /// Refused lines are reported with their numbers, a dry run imports nothing, and a person's data is a file.
    @Test func programsReportRefusedLines() async throws {
      try await TestServices.with { services in
        let flags = ["--gateway", services.h2cURL, "--jwt-secret-file", services.stack.files.jwtSecret]
        let program = TestServices.binaries + "/tidemark"
        let input = """
          {"channel":{"cid":"messaging:a"}}
          {"message":{"cid":"messaging:a","id":"m1","user_id":"alice"}}

          {"message":{"cid":"messaging:a","id":"m2","seq":5}}
          {"member":{"cid":"messaging:a","user_id":"bob","last_read_message_id":"m1"}}
          """
        let dry = try await Command.run(program, ["import", "-", "--dry-run"] + flags, input: input)
        #expect(dry.status == 0 && dry.error.contains("5 lines, 0 refused; nothing was imported"), "\(dry)")
        let report = services.directory + "/refused.ndjson"
        let output = try await Command.run(program, ["import", "-", "--report", report] + flags, input: input)
        #expect(output.status == 1 && output.error.contains("5 lines, 1 refused"), "\(output)")
        #expect(try String(contentsOfFile: report, encoding: .utf8).hasPrefix(#"{"code":"import_gap""#))
        let file = services.directory + "/bob.ndjson"
        let person = try await Command.run(program, ["export", "--user", "bob", "--output", file] + flags)
        #expect(person.status == 0, "\(person)")
        let lines = try String(contentsOfFile: file, encoding: .utf8).split(separator: "\n")
        #expect(lines.count == 2 && lines[0].contains(#""user":{"id":"bob""#) && lines[1].contains("last_read"))
      }
    }

    private static func play(_ arguments: [String], _ seed: Int) async throws {
      let output = try await Command.run(TestServices.python, arguments)
      #expect(output.status == 0, "TIDEMARK_SEED=\(seed): \(output)")
      print(output.out.prefix(120))
    }

    /// Channels of five members and four messages, each with positions.
    private static func lines(channels: Int) -> String {
      var lines: [String] = []
      for channel in 0..<channels {
        let cid = #""cid":"messaging:\#(channel)""#
        lines.append(#"{"channel":{\#(cid),"created_at":"2026-01-01T00:00:00.000Z"}}"#)
        for message in 1...4 {
          lines.append(
            #"{"message":{\#(cid),"id":"m\#(message)","seq":\#(message),"created_at":"2026-01-02T00:00:0\#(message).000Z","user_id":"u1"}}"#
          )
        }
        for user in 1...5 {
          let read = "m\(min(user, 4))"
          lines.append(
            #"{"member":{\#(cid),"user_id":"u\#(user)","joined_seq":0,"joined_at":"2026-01-01T00:00:00.000Z","last_read_message_id":"\#(read)","last_read_at":"2026-01-03T00:00:00.000Z"}}"#
          )
        }
      }
      return lines.joined(separator: "\n") + "\n"
    }

    /// The number of lines of each kind, and the positions.
    private static func summary(_ lines: String) -> [String: Int] {
      var summary: [String: Int] = [:]
      for line in lines.split(separator: "\n") {
        let kind = line.split(separator: "\"").dropFirst().first.map(String.init) ?? ""
        summary[kind, default: 0] += 1
        for word in line.split(separator: ",") where word.contains("last_read_message_id") || word.contains("\"seq\"") {
          summary[word.replacingOccurrences(of: "}", with: ""), default: 0] += 1
        }
      }
      return summary
    }
  }
}
