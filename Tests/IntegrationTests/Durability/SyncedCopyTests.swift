import Foundation
import Glibc
import LocalStack
import Operations
import TestPrograms
import TestSupport
import Testing

extension RealProcesses {
  /// The data that survives a power cut. A killed process leaves its page cache behind, so this test cuts off
  /// everything that was written after the last sync.
  @Suite struct SyncedCopies {
    /// The store is stopped at random moments under load. Each file of a copy is cut to the length that the kernel
    /// had synced. The copy has every mark acknowledged by then. As a control, a copy cut one sync earlier lacks
    /// marks.
    @Test func syncedDataHasAllAcknowledgedMarks() async throws {
      try await TestServices.with { services in
        let specification = try await services.prepareLoad(
          channels: (0..<5).map { "messaging:cut-\($0)" },
          messages: 4_000,
          users: 4
        )
        let trace = services.directory + "/trace"
        let store = try await services.storeProcess
        let strace = try ChildProcess(
          name: "strace",
          executable: "/usr/bin/strace",
          arguments: [
            "-f", "-y", "-s", "0", "-e", "trace=write,writev,pwrite64,pwritev,pwritev2,fdatasync,fsync", "-e",
            // So that most stops hit a write that is not synced yet.
            "inject=fdatasync:delay_enter=10000", "-o", trace, "-p", "\(store.processID)",
          ],
          logFile: services.directory + "/strace.log"
        )
        try await eventually("strace is attached") {
          (try? String(contentsOfFile: trace, encoding: .utf8))?.isEmpty == false
        }
        let client = try Companion(
          TestServices.python,
          [TestServices.client("Load/marks_under_load.py"), "\(services.h2cPort)", specification]
        )
        defer { client.end() }
        var generator = SplitMix64(printingSeedOf: "copies of synced data")
        var cutBytes = 0
        var earlierLost = 0
        // A stop that interrupts no write shows nothing: more rounds follow.
        for round in 1...16 where round <= 4 || cutBytes == 0 || earlierLost == 0 {
          try await Task.sleep(for: .milliseconds(generator.number(in: 300...1500)))
          store.signal(SIGSTOP)
          // Replies in flight arrive; meanwhile the last system calls return and are in the trace.
          client.send("hold")
          let held = await client.line() ?? "the client ended"
          #expect(held.hasPrefix("held "), "round \(round): \(held)")
          let lengths = SyncedLengths(
            try String(contentsOfFile: trace, encoding: .utf8),
            directory: services.stack.files.data
          )
          let (response, cut) = try await check(services, client, "synced-\(round)") { lengths.unsynced($0) }
          #expect(response.hasPrefix("ok "), "round \(round), \(cut) bytes cut off: \(response)")
          cutBytes += cut
          if earlierLost == 0 {
            let (earlier, _) = try await check(services, client, "earlier-\(round)") {
              lengths.unsyncedOneSyncEarlier($0)
            }
            if earlier.hasPrefix("lost: ") { earlierLost += 1 }
          }
          store.signal(SIGCONT)
          try await services.stack.waitUntilGatewaysAreReady()
          client.send("go")
          print("round \(round): \(held); \(cut) bytes that were not synced cut off; \(response)")
        }
        await strace.stop()
        #expect(cutBytes > 0, "nothing was ever written that was not synced: the copies show nothing")
        #expect(earlierLost > 0, "copies cut one sync earlier lost nothing: the test cannot fail")
      }
    }

    /// Start a pair over a copy in which each file has lost its last `unsynced` bytes. The client compares it with
    /// the marks that were acknowledged to it.
    private func check(
      _ services: TestServices,
      _ client: Companion,
      _ name: String,
      unsynced: (String) -> Int
    ) async throws -> (response: String, cut: Int) {
      let copy = services.directory + "/" + name
      let files = StackFiles(directory: copy)
      defer { files.remove() }
      try FileManager.default.createDirectory(atPath: copy, withIntermediateDirectories: true)
      for path in [
        services.stack.files.frameSecret, services.stack.files.jwtSecret, services.stack.files.data,
      ] {
        try FileManager.default.copyItem(
          atPath: path,
          toPath: copy + "/" + (path as NSString).lastPathComponent
        )
      }
      var cut = 0
      for file in try FileManager.default.contentsOfDirectory(atPath: files.data) {
        let bytes = unsynced(file)
        guard bytes > 0 else { continue }
        let path = files.data + "/" + file
        let size = (try FileManager.default.attributesOfItem(atPath: path)[.size] as? Int) ?? 0
        try #require(bytes <= size, "\(file) has \(size) bytes, \(bytes) of them not synced")
        try #require(truncate(path, off_t(size - bytes)) == 0)
        cut += bytes
      }
      let stack = LocalStack(
        plan: try .onFreePorts(usesTLS: false),
        files: files,
        executables: try Executables(directory: TestServices.binaries)
      )
      do {
        try await stack.start()
      } catch {
        await stack.stop()
        throw error
      }
      client.send("check \(stack.plan.gateways[0].listen.port)")
      let response = await client.line() ?? "the client ended"
      await stack.stop()
      return (response, cut)
    }
  }
}

/// Reads strace's report of a process's writes and syncs: the length of each file that was written before its last
/// completed sync began.
struct SyncedLengths {
  private struct File {
    var written = 0
    /// The length written when each completed sync began, in ascending order.
    var synced: [Int] = []
  }

  private var files: [String: File] = [:]
  /// Whether the process is stopped. What the kernel completes after that is too late for a power cut at this moment,
  /// and no reply can follow it.
  private var isStopped = false
  private var late: [(file: String, synced: Int)] = []

  init(_ trace: String, directory: String) {
    // By thread: the system call that the report shows as interrupted by another thread.
    var pending: [Substring: (file: String, syncedAtStart: Int?)] = [:]
    for line in trace.split(separator: "\n") {
      guard let space = line.firstIndex(of: " ") else { continue }
      let thread = line[..<space]
      let call = line[space...].drop { $0 == " " }
      if call.hasPrefix("--- ") {
        if call.contains("stopped by SIGSTOP") { isStopped = true }
        if call.hasPrefix("--- SIGCONT") { processResumed() }
      } else if call.hasPrefix("<... ") {
        guard let begun = pending.removeValue(forKey: thread) else { continue }
        end(begun.file, begun.syncedAtStart, call)
      } else if let file = Self.file(call, directory) {
        let isSync = call.hasPrefix("fdatasync(") || call.hasPrefix("fsync(")
        let start = isSync ? files[file, default: File()].written : nil
        if call.contains("<unfinished") {
          pending[thread] = (file, start)
        } else {
          end(file, start, call)
        }
      }
    }
  }

  /// Record a system call that has returned: a sync where `syncedAtStart` is set, else a write.
  private mutating func end(_ file: String, _ syncedAtStart: Int?, _ call: Substring) {
    guard let equals = call.range(of: "= ", options: .backwards) else { return }
    guard let result = Int(call[equals.upperBound...].prefix { $0.isNumber || $0 == "-" }), result >= 0 else {
      return
    }
    if let syncedAtStart {
      if isStopped { late.append((file, syncedAtStart)) } else { note(file, syncedAtStart) }
    } else {
      files[file, default: File()].written += result
    }
  }

  private mutating func note(_ file: String, _ synced: Int) {
    if synced > files[file, default: File()].synced.last ?? 0 { files[file]!.synced.append(synced) }
  }

  private mutating func processResumed() {
    isStopped = false
    for (file, synced) in late { note(file, synced) }
    late = []
  }

  /// The name of the file of a system call, if it is directly in that directory: strace shows `call(FD</path>, …`.
  private static func file(_ call: Substring, _ directory: String) -> String? {
    guard let open = call.firstIndex(of: "<"), let close = call[open...].firstIndex(of: ">") else {
      return nil
    }
    let path = call[call.index(after: open)..<close]
    guard path.hasPrefix(directory + "/") else { return nil }
    return String(path.dropFirst(directory.utf8.count + 1))
  }

  /// The number of bytes at the end of the file that a power cut could lose.
  func unsynced(_ file: String) -> Int {
    guard let file = files[file] else { return 0 }
    return file.written - (file.synced.last ?? 0)
  }

  /// The same number if the last sync had not completed.
  func unsyncedOneSyncEarlier(_ file: String) -> Int {
    guard let file = files[file] else { return 0 }
    return file.written - (file.synced.dropLast().last ?? 0)
  }
}

/// Tests of the trace reader itself.
@Suite struct SyncedLengthsTests {
  private func lengths(_ lines: [String]) -> SyncedLengths {
    SyncedLengths(lines.joined(separator: "\n"), directory: "/data")
  }

  @Test func writesAfterSyncStartAreUnsynced() {
    let lengths = lengths([
      #"7 write(12</data/4.log>, ""..., 100) = 100"#,
      "7 fdatasync(12</data/4.log> <unfinished ...>",
      #"8 write(12</data/4.log>, ""..., 30) = 30"#,
      "7 <... fdatasync resumed>) = 0",
      #"8 write(12</data/4.log>, ""..., 5 <unfinished ...>"#,
      #"7 write(13</data/5.sst>, ""..., 50) = 50"#,
      "8 <... write resumed>) = 5",
    ])
    #expect(lengths.unsynced("4.log") == 35)
    #expect(lengths.unsynced("5.sst") == 50)
    #expect(lengths.unsynced("6.sst") == 0)
  }

  @Test func syncsWhileStoppedAreIgnored() {
    let write = #"7 write(12</data/4.log>, ""..., 10) = 10"#
    var lines = [
      write, "7 fdatasync(12</data/4.log> <unfinished ...>", "8 --- stopped by SIGSTOP ---",
      "7 <... fdatasync resumed>) = 0 (DELAYED)",
    ]
    #expect(lengths(lines).unsynced("4.log") == 10)
    lines += ["8 --- SIGCONT {si_signo=SIGCONT, si_code=SI_USER, si_pid=1, si_uid=0} ---", write]
    #expect(lengths(lines).unsynced("4.log") == 10)
    #expect(lengths(lines).unsyncedOneSyncEarlier("4.log") == 20)
  }

  @Test func unreturnedSyncsAreIgnored() {
    let write = #"7 write(12</data/4.log>, ""..., 10) = 10"#
    let lengths = lengths([
      write, "7 fdatasync(12</data/4.log>) = 0", write, "7 fdatasync(12</data/4.log>) = 0", write,
      "7 fdatasync(12</data/4.log> <unfinished ...>",
      #"7 write(9<TCP:[127.0.0.1:1->127.0.0.1:2]>, ""..., 60) = 60"#,
    ])
    #expect(lengths.unsynced("4.log") == 10)
    #expect(lengths.unsyncedOneSyncEarlier("4.log") == 20)
  }
}
