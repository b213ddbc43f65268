import Foundation
import Glibc
import LocalStack
import Operations
import TestPrograms
import TestSupport
import Testing

extension RealProcesses {
  /// Backups of a running store: `tidemark backup`, `check` and `restore`.
  @Suite struct Backups {
    /// Ten backups under load, each restored and served: each contains everything acknowledged before it began.
    @Test func backupsUnderLoadContainAcknowledgedMarks() async throws {
      try await TestServices.with { services in
        let specification = try await services.prepareLoad(
          channels: (0..<5).map { "messaging:copy-\($0)" },
          messages: 2_000,
          users: 4
        )
        let client = try Companion(
          TestServices.python,
          [TestServices.client("Load/marks_under_load.py"), "\(services.h2cPort)", specification]
        )
        defer { client.end() }
        let to = services.directory + "/backups"
        var kept = 0
        var last = 0
        try await eventually("marks are acknowledged") {
          client.send("remember")
          return await client.line() != "remembered 0"
        }
        for round in 1...10 {
          client.send("remember")
          let remembered = Int((await client.line() ?? "").split(separator: " ").last ?? "") ?? -1
          #expect(remembered > last, "round \(round): no marks come in")
          last = remembered
          let summary = try await services.backup(to)
          kept += try #require(summary["files_kept"] as? Int)
          #expect(!FileManager.default.fileExists(atPath: services.stack.files.data + "/checkpoint"))
          let response = try await services.withRestored(to, "restored-\(round)") { port in
            client.send("recall \(port)")
            return await client.line() ?? "the client ended"
          }
          #expect(response == "ok \(remembered)", "round \(round)")
        }
        #expect(kept > 0, "no table was reused from the previous backup")
        let folders = try Self.backups(in: to)
        #expect(folders.count == 10)
        for folder in folders {
          let check = try await Self.tidemark("check", to + "/" + folder)
          #expect(check.status == 0 && check.out.contains(#""faults":0"#), "\(check)")
        }
        // The store still has its own data directory open.
        let check = try await Self.tidemark("check", services.stack.files.data)
        #expect(check.status == 1 && check.error.contains("has it open; stop that store"), "\(check)")
        await services.stack.stopStore()
        let stopped = try await Self.tidemark("check", services.stack.files.data)
        #expect(stopped.status == 0 && stopped.out.contains(#""faults":0"#), "\(stopped)")
      }
    }

    /// One backup runs at a time. If the client or the store dies during a backup, no partial backup passes for a
    /// whole one, and the next backup is not blocked.
    @Test func partialBackupsAreRejected() async throws {
      try await TestServices.with { services in
        let specification = try await services.prepareLoad(
          channels: (0..<5).map { "messaging:torn-\($0)" },
          messages: 2_000,
          users: 4
        )
        let client = try Companion(
          TestServices.python,
          [TestServices.client("Load/marks_under_load.py"), "\(services.h2cPort)", specification]
        )
        defer { client.end() }
        let to = services.directory + "/backups"
        let checkpoint = services.stack.files.data + "/checkpoint"

        // A client begins a backup and then disappears without closing it.
        let holder = try await Self.hold(services)
        #expect(FileManager.default.fileExists(atPath: checkpoint + "/CURRENT"))
        let refused = try await Self.tidemark("backup", services, to)
        #expect(refused.status == 1 && refused.error.contains("backup_under_way"), "\(refused)")
        holder.end()
        try await eventually("the checkpoint is removed with its connection") {
          !FileManager.default.fileExists(atPath: checkpoint)
        }
        try await services.backup(to)

        // The store is killed while it holds a checkpoint and clients copy it.
        let other = try await Self.hold(services)
        await services.stack.killStore()
        #expect(FileManager.default.fileExists(atPath: checkpoint))
        try await services.stack.startStore()
        #expect(!FileManager.default.fileExists(atPath: checkpoint))
        other.end()
        var generator = SplitMix64(printingSeedOf: "kills during backups")
        for round in 1...5 {
          try await services.stack.waitUntilGatewaysAreReady()
          let copying = Task { try await Self.tidemark("backup", services, to) }
          try await Task.sleep(for: .milliseconds(generator.number(in: 50...400)))
          await services.stack.killStore()
          let output = try await copying.value
          #expect(
            output.status == 0 || output.error.contains("\ntidemark backup: "),
            "round \(round): \(output)"
          )
          try await services.stack.startStore()
        }

        // The client is killed.
        for _ in 1...5 {
          let copying = try ChildProcess(
            name: "tidemark backup",
            executable: TestServices.binaries + "/tidemark",
            arguments: ["backup"] + Self.storeFlags(services) + [to],
            logFile: services.directory + "/backup.log"
          )
          try await Task.sleep(for: .milliseconds(generator.number(in: 50...400)))
          copying.kill()
          await copying.waitForExit()
        }
        try await eventually("the store has released the checkpoint") {
          !FileManager.default.fileExists(atPath: checkpoint)
        }
        try await services.stack.waitUntilGatewaysAreReady()
        client.send("remember")
        let remembered = await client.line() ?? "the client ended"
        try await services.backup(to)
        #expect(
          try FileManager.default.contentsOfDirectory(atPath: to).filter { $0.hasPrefix(".") } == [".lock"]
        )
        for folder in try Self.backups(in: to) {
          let check = try await Self.tidemark("check", to + "/" + folder)
          #expect(check.status == 0, "\(check)")
        }
        let response = try await services.withRestored(to, "restored") { port in
          client.send("recall \(port)")
          return await client.line() ?? "the client ended"
        }
        #expect(response == "ok " + remembered.split(separator: " ").last!)
      }
    }

    /// A backup that is damaged, cut short, of another store, or in the way is reported by name.
    @Test func backupFaultsAreReported() async throws {
      try await TestServices.with { services in
        try await services.makeChannel("messaging:a", message: "m1")
        let to = services.directory + "/backups"
        let backup = try #require(try await services.backup(to)["backup"] as? String)
        let data = backup + "/data"
        let table = try #require(
          try FileManager.default.contentsOfDirectory(atPath: data).first { $0.hasSuffix(".sst") }
        )

        func expectFault(_ text: String, _ change: () throws -> Void) async throws {
          let kept = services.directory + "/kept"
          try FileManager.default.copyItem(atPath: backup, toPath: kept)
          try change()
          let check = try await Self.tidemark("check", backup)
          #expect(check.status == 1 && check.error.contains(text), "\(text): \(check)")
          let restore = try await Self.tidemark("restore", backup, services.directory + "/never")
          #expect(restore.status == 1 && restore.error.contains("use another backup"), "\(text): \(restore)")
          try FileManager.default.removeItem(atPath: backup)
          try FileManager.default.moveItem(atPath: kept, toPath: backup)
          try? FileManager.default.removeItem(atPath: services.directory + "/never")
        }
        try await expectFault("its checksum is not the manifest's") {
          try Self.flip(data + "/" + table, at: 20)
        }
        try await expectFault("is missing") { try FileManager.default.removeItem(atPath: data + "/CURRENT") }
        try await expectFault("bytes, ") { truncate(data + "/" + table, 100) }
        try await expectFault("is corrupt") { try Self.flip(backup + "/manifest.json", at: 40) }
        try await expectFault("without it the backup is incomplete") {
          try FileManager.default.removeItem(atPath: backup + "/manifest.json")
          // The folder itself, as `restore` and `check` get it.
          try FileManager.default.createDirectory(
            atPath: backup + "/manifest.json",
            withIntermediateDirectories: true
          )
        }

        let full = try await Self.tidemark("restore", to, services.directory)
        #expect(full.status == 1 && full.error.contains("is not empty"), "\(full)")
        let nothing = try await Self.tidemark("check", services.directory + "/none")
        #expect(nothing.status == 1 && nothing.error.contains("no such directory"), "\(nothing)")
        let wrong = services.directory + "/wrong-secret"
        try "another secret of thirty-two bytes\n".write(toFile: wrong, atomically: true, encoding: .utf8)
        chmod(wrong, 0o600)
        let unproven = try await Self.tidemark(
          "backup",
          "--store",
          "\(services.stack.plan.store)",
          "--secret-file",
          wrong,
          to
        )
        #expect(unproven.status == 1 && unproven.error.contains("compare --secret-file"), "\(unproven)")

        // An unfinished restore is not a data directory, and can be run again.
        let half = services.directory + "/half"
        try FileManager.default.createDirectory(
          atPath: half + "/.restoring",
          withIntermediateDirectories: true
        )
        try Data().write(to: URL(fileURLWithPath: half + "/000007.sst"))
        let store = try await Command.run(
          TestServices.binaries + "/tidemark-store",
          ["--data", half, "--listen", "127.0.0.1:0"]
        )
        #expect(store.status != 0 && store.error.contains("run tidemark restore again"), "\(store)")
        let again = try await Self.tidemark("restore", to, half)
        #expect(again.status == 0, "\(again)")
        #expect(try await Self.tidemark("check", half).status == 0)

        // A directory does not mix backups of two stores.
        let restored = try await services.withRestored(to, "other", flags: []) { stack in
          try await Self.tidemark(
            "backup",
            "--store",
            "\(stack.plan.store)",
            "--secret-file",
            stack.files.frameSecret,
            to
          )
        }
        #expect(restored.status == 1 && restored.error.contains("another store"), "\(restored)")
      }
    }

    /// A full disk leaves no partial backup, and the store is not affected.
    @Test(.needs(canMount, "it mounts a file system, as root"))
    func fullDiskLeavesNoPartialBackup() async throws {
      try await TestServices.with { services in
        try await services.makeChannels(["messaging:full"], messages: 20_000, users: 2)
        let to = services.directory + "/small"
        try FileManager.default.createDirectory(atPath: to, withIntermediateDirectories: true)
        try #require(mount("tmpfs", to, "tmpfs", 0, "size=64k") == 0)
        defer { umount2(to, Int32(MNT_DETACH)) }
        let output = try await Self.tidemark("backup", services, to)
        #expect(
          output.status == 1 && output.error.contains("No space left on device; free disk space"),
          "\(output)"
        )
        #expect(try FileManager.default.contentsOfDirectory(atPath: to) == [".lock"])
        try await services.expect(200, "GET", "/v1/channels/messaging:full", token: services.serverToken)
        try await services.backup(services.directory + "/large")
      }
    }

    // MARK: Details

    static func tidemark(_ arguments: String...) async throws -> Command.Output {
      try await Command.run(TestServices.binaries + "/tidemark", arguments)
    }

    static func tidemark(_ command: String, _ services: TestServices, _ to: String) async throws
      -> Command.Output
    {
      try await Command.run(TestServices.binaries + "/tidemark", [command] + storeFlags(services) + [to])
    }

    static func storeFlags(_ services: TestServices) -> [String] {
      ["--store", "\(services.stack.plan.store)", "--secret-file", services.stack.files.frameSecret]
    }

    static func backups(in to: String) throws -> [String] {
      try FileManager.default.contentsOfDirectory(atPath: to).filter { !$0.hasPrefix(".") }.sorted()
    }

    /// A client that begins a backup and then does nothing.
    private static func hold(_ services: TestServices) async throws -> Companion {
      let script = services.directory + "/hold.probe"
      try "open\nsend backup_begin\nexpect backup_begin_reply\nexpect drain\n".write(
        toFile: script,
        atomically: true,
        encoding: .utf8
      )
      let holder = try Companion(
        TestServices.binaries + "/tidemark",
        [
          "probe", "run", "\(services.stack.plan.store)", script, "--secret-file",
          services.stack.files.frameSecret,
          "--timeout", "100s",
        ]
      )
      while let line = await holder.line(), !line.hasPrefix("← backup_begin_reply") {}
      return holder
    }

    private static func flip(_ path: String, at offset: Int) throws {
      let file = try FileHandle(forUpdating: URL(fileURLWithPath: path))
      try file.seek(toOffset: UInt64(offset))
      let byte = try file.read(upToCount: 1)![0]
      try file.seek(toOffset: UInt64(offset))
      try file.write(contentsOf: [byte ^ 1])
      try file.close()
    }
  }
}

extension TestServices {
  /// Back up the services' store, which has to succeed; return the command's report.
  @discardableResult
  func backup(_ to: String) async throws -> [String: Any] {
    let output = try await RealProcesses.Backups.tidemark("backup", self, to)
    let object = try? JSONSerialization.jsonObject(with: Data(output.out.utf8)) as? [String: Any]
    guard output.status == 0, let object else { throw Unexpected("tidemark backup: \(output)") }
    return object
  }

  /// Restore the newest backup and serve it beside this pair, with the same secrets.
  func withRestored<Result>(
    _ from: String,
    _ name: String,
    flags: [String] = [],
    body: (LocalStack) async throws -> Result
  ) async throws -> Result {
    let files = StackFiles(directory: directory + "/" + name)
    defer { files.remove() }
    try FileManager.default.createDirectory(atPath: files.directory, withIntermediateDirectories: true)
    for path in [stack.files.frameSecret, stack.files.jwtSecret, stack.files.ticketSecret] {
      try FileManager.default.copyItem(
        atPath: path,
        toPath: files.directory + "/" + (path as NSString).lastPathComponent
      )
    }
    let output = try await Command.run(
      TestServices.binaries + "/tidemark",
      ["restore", from, files.data] + flags
    )
    guard output.status == 0 else { throw Unexpected("tidemark restore: \(output)") }
    let restored = LocalStack(
      plan: try .onFreePorts(usesTLS: false),
      files: files,
      executables: try Executables(directory: TestServices.binaries)
    )
    do {
      try await restored.start()
      let result = try await body(restored)
      await restored.stop()
      return result
    } catch {
      await restored.stop()
      throw error
    }
  }

  /// The same for callers that need only the gateway's port.
  func withRestored<Result>(
    _ from: String,
    _ name: String,
    _ body: (Int) async throws -> Result
  ) async throws -> Result {
    try await withRestored(from, name) { stack in try await body(stack.plan.gateways[0].listen.port) }
  }
}
