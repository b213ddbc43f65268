import Foundation
import Glibc
import LocalStack
import Operations
import TestPrograms
import TestSupport
import Testing

@testable import Worker

/// The program itself, with a fake feed and endpoint.
@Suite(.processLanes) struct ProgramTests {
  private static let binaries =
    ProcessInfo.processInfo.environment["TIDEMARK_BIN"] ?? packageRoot.path + "/.build/debug"
  private static let program = binaries + "/tidemark-worker"

  /// A folder with a tasks file and a secret.
  private struct Files {
    let folder = NSTemporaryDirectory() + "tidemark-worker-program-\(UUID().uuidString)"
    var tasks: String { folder + "/tasks.yaml" }
    var secret: String { folder + "/secret" }
    var log: String { folder + "/log" }

    init(_ url: String, more: String = "") throws {
      try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
      try "0123456789abcdef0123456789abcdef\n".write(toFile: secret, atomically: true, encoding: .utf8)
      let text = """
        webhooks:
          - name: crm
            url: \(url)
            secrets: [\(TasksFileTests.secret)]
            partitions: 4
            batch: {records: 2, wait: 60s}
            allow_http: true
            allow_private: true
            \(more)
        """
      try text.write(toFile: tasks, atomically: true, encoding: .utf8)
    }

    func remove() { try? FileManager.default.removeItem(atPath: folder) }
  }

  private static func run(_ arguments: [String]) async throws -> Command.Output {
    try await Command.run(program, arguments, limit: .seconds(100))
  }

  @Test func settingsAreChecked() async throws {
    let files = try Files("http://127.0.0.1:1/x")
    defer { files.remove() }
    let good = try await Self.run(["--check", "--config", files.tasks])
    #expect(good.status == 0 && good.out == "\(files.tasks): ok, 1 webhook\n", "\(good)")
    let version = try await Self.run(["--version"])
    #expect(version.out == "tidemark-worker \(ProductVersion.current)\n", "\(version)")
    let bad = try Files("http://127.0.0.1:1/x", more: "retry: 3")
    defer { bad.remove() }
    for (arguments, error) in [
      (["--check", "--config", bad.tasks], "webhooks[0].retry is unknown"), ([], "--config is missing"),
      (["--config", files.tasks], "--gateway is missing"),
      (["--config", files.tasks, "--gateway", "http://127.0.0.1:1"], "--token-file is missing"),
      (
        ["--config", files.tasks, "--gateway", "http://127.0.0.1:1", "--gateway-ca", files.secret],
        "--gateway-ca is for https://"
      ),
      (
        ["--config", files.tasks, "--gateway", "127.0.0.1:1", "--token-file", files.secret], "--gateway \"127.0.0.1:1\""
      ),
      (
        ["--config", files.tasks, "--gateway", "http://h:1", "--token-file", files.secret, "--name", "a b"],
        "--name \"a b\""
      ),
    ] {
      let output = try await Self.run(arguments)
      #expect(output.status == 78 && output.error.hasPrefix("tidemark-worker: "), "\(output)")
      #expect(output.error.contains(error) && output.error.split(separator: "\n").count == 1, "\(output)")
    }
  }

  /// `tidemark config check` and `tidemark-worker --check` find the same faults, and at most one of each webhook.
  @Test func configCheckNamesFileFieldAndRemedy() async throws {
    func check(_ files: String...) async throws -> Command.Output {
      try await Command.run(Self.binaries + "/tidemark", ["config", "check"] + files, limit: .seconds(100))
    }
    let good = try Files("http://127.0.0.1:1/x")
    defer { good.remove() }
    let valid = try await check(good.tasks)
    #expect(valid.status == 0 && valid.out == "\(good.tasks): ok, 1 webhook\n" && valid.error.isEmpty, "\(valid)")
    let bad = try Files(
      "http://127.0.0.1:1/x",
      more: "retry_for: soon\n  - {name: b, url: 'http://127.0.0.1:2/', secrets_file: \(good.folder)/none}"
    )
    defer { bad.remove() }
    let faulty = try await check(bad.tasks, good.tasks, good.folder + "/none.yaml")
    #expect(faulty.status == 1 && faulty.out == valid.out, "\(faulty)")
    let lines = faulty.error.split(separator: "\n").map(String.init)
    try #require(lines.count == 3, "\(faulty)")
    #expect(lines[0].contains("check: \(bad.tasks): webhooks[0].retry_for has to be a time such as 500ms"))
    #expect(lines[1].contains("check: \(bad.tasks): webhooks[1].url has to begin with https://; `allow_http: true`"))
    #expect(lines[2].contains("check: \(good.folder)/none.yaml: the file cannot be read"))
    let other = try await Self.run(["--check", "--config", bad.tasks])
    let faults = lines[...1].map { $0.replacing("tidemark config check: ", with: "tidemark-worker: --config ") + "\n" }
    #expect(other.status == 78 && other.out.isEmpty && other.error == faults.joined(), "\(other)")
  }

  @Test func programDeliversListsAndReplays() async throws {
    try await Feed.with { feed in
      try await FakeEndpoint.with { endpoint in
        endpoint.behave { webhook, _ in webhook.records.contains("0.1") ? .status(500) : .ok }
        let files = try Files(endpoint.url, more: "retry_for: 1s")
        defer { files.remove() }
        let flags = [
          "--config", files.tasks, "--gateway", "http://\(feed.endpoint)", "--jwt-secret-file", files.secret,
        ]
        try await feed.append(0, count: 4)
        let process = try ChildProcess(
          name: "tidemark-worker",
          executable: Self.program,
          arguments: flags + ["--admin", "127.0.0.1:0", "--name", "one"],
          logFile: files.log
        )
        do {
          try await eventually("every record passed") { try await feed.committed()[0] == 4 }
          let log = try String(contentsOfFile: files.log, encoding: .utf8)
          #expect(log.contains("tidemark-worker one delivers to crm, operations on 127.0.0.1:"))
          let address = try #require(log.firstMatch(of: /operations on ([0-9.:]+)/)).1
          try await eventually("ready") { await HealthCheck.run("http://\(address)/ready").exitCode == 0 }
          let metrics = try #require(await HealthCheck.get("http://\(address)/metrics")).body
          #expect(metrics.contains(#"tidemark_worker_dead_letters{webhook="crm"} 1"#))
          let list = try await Self.run(["dead-letters", "--json"] + flags)
          let id = try #require(list.out.firstMatch(of: /"id":"([\w-]+)"/), "\(list)").1
          let failed = try await Self.run(["replay", "--webhook", "crm", "--id=\(id)"] + flags)
          #expect(failed.status == 1 && failed.out.contains("not delivered: 500"), "\(failed)")
          endpoint.behave { _, _ in .ok }
          let replayed = try await Self.run(["replay", "--webhook", "crm", "--all"] + flags)
          #expect(replayed.status == 0 && replayed.out == "\(id): delivered 2 records\n", "\(replayed)")
          let empty = try await Self.run(["dead-letters"] + flags)
          #expect(empty.status == 0 && empty.out == "no dead letters\n", "\(empty)")
          let unknown = try await Self.run(["replay", "--webhook", "crm", "--id=x"] + flags)
          #expect(unknown.status == 78 && unknown.error.contains("is no dead letter of crm"), "\(unknown)")
        } catch {
          process.kill()
          throw error
        }
        process.signal(SIGTERM)
        let status = await process.waitForExit()
        #expect(status == .exited(code: 0), "\(status)")
        let left = try await feed.use { $0.left }
        #expect(left == ["one"] && Set(endpoint.records["0/4"] ?? []) == ["0.1", "0.2", "0.3", "0.4"])
      }
    }
  }

  /// A dead letter whose records are no longer in the feed can only be discarded, beside a running worker.
  @Test func programDiscardsDeadLetters() async throws {
    try await Feed.with { feed in
      try await FakeEndpoint.with { endpoint in
        let files = try Files(endpoint.url)
        defer { files.remove() }
        let flags = [
          "--config", files.tasks, "--gateway", "http://\(feed.endpoint)", "--jwt-secret-file", files.secret,
        ]
        try await feed.append(0, count: 4)
        let letters = [("p0-0", "p0-2"), ("p0-2", "p0-4")].map { from, to in
          DeadLetter(from: from, to: to, count: 2, firstErrorAt: 0, lastErrorAt: 0, error: "500")
        }
        try await feed.use { feed in
          feed.partitions[0].state = PartitionState(deadLetters: letters).text
          feed.partitions[0].committed = 4
          feed.kept[0] = 2
        }
        let process = try ChildProcess(
          name: "tidemark-worker",
          executable: Self.program,
          arguments: flags,
          logFile: files.log
        )
        do {
          try await eventually("the start is logged") {
            let log = (try? String(contentsOfFile: files.log, encoding: .utf8)) ?? ""
            return log.contains("The webhook has dead letters") && log.contains("dead_letters=2")
          }
          let ids = letters.map { $0.id(partition: "0/4") }
          let replayed = try await Self.run(["replay", "--webhook", "crm", "--id=\(ids[0])"] + flags)
          #expect(replayed.status == 1 && replayed.out.hasPrefix("\(ids[0]): delivered 0 records; "), "\(replayed)")
          #expect(try await feed.state(0).deadLetters == letters)
          let discard = ["dead-letters", "discard", "--webhook", "crm"]
          let one = try await Self.run(discard + ["--id=\(ids[0])"] + flags)
          #expect(one.status == 0 && one.out == "\(ids[0]): discarded 2 records\n", "\(one)")
          #expect(try await feed.state(0).deadLetters == [letters[1]])
          let unknown = try await Self.run(discard + ["--id=\(ids[0])"] + flags)
          #expect(unknown.status == 78 && unknown.error.contains("is no dead letter of crm"), "\(unknown)")
          let both = try await Self.run(discard + ["--all", "--id=\(ids[1])"] + flags)
          #expect(both.status == 64 && both.error.contains("give either --id or --all"), "\(both)")
          let all = try await Self.run(discard + ["--all"] + flags)
          #expect(all.status == 0 && all.out == "\(ids[1]): discarded 2 records\n", "\(all)")
          #expect(try await feed.state(0).deadLetters.isEmpty && endpoint.records.isEmpty)
        } catch {
          process.kill()
          throw error
        }
        process.signal(SIGTERM)
        let status = await process.waitForExit()
        #expect(status == .exited(code: 0), "\(status)")
      }
    }
  }
}
