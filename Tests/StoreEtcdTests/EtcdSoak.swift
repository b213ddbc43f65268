import Foundation
import LocalStack
import StoreEngine
import StoreEtcd
import StoreTestSupport
import Synchronization
import TestPrograms
import TestSupport
import Testing

/// The append path for a long time at a fixed rate: three nodes append to a group each, follow the other two, report
/// positions and trim, on three servers (docs/operate/cluster.md, "The shared log in etcd").
///
/// `make log-soak` runs it; TIDEMARK_LOG_SOAK_SECONDS, _RATE (appends a second in all) and _BYTES (of a record) change
/// it. It prints a line every minute.
@Suite(.enabled(if: soakSeconds != nil, "make log-soak"))
struct EtcdSoak {
  private static let rate = TestRun.number("TIDEMARK_LOG_SOAK_RATE") ?? 288
  private static let recordBytes = TestRun.number("TIDEMARK_LOG_SOAK_BYTES") ?? 32_768
  /// Bytes of a mark in a record.
  private static let markBytes = 27
  private static let nodes = 3

  /// What the nodes have measured since the last line.
  private struct Measured: Sendable {
    var milliseconds: [Double] = []
    var appends = 0
    var longest = 0.0
    var late = 0
  }

  private final class Measurements: Sendable {
    private let state = Mutex(Measured())
    func withLock<Value: Sendable>(_ body: (inout Measured) -> Value) -> Value { state.withLock { body(&$0) } }
  }

  /// Follows one group, and checks the chain of records.
  private final class Follower: Sendable {
    private struct State {
      var cursor = LogCursor.start
      var isEnded = false
    }

    private let state = Mutex(State())
    var position: RecordPosition { state.withLock { $0.cursor.position } }
    var isEnded: Bool { state.withLock { $0.isEnded } }

    func begin() { state.withLock { $0.isEnded = false } }

    func receive(_ event: FollowEvent) {
      state.withLock { state in
        switch event {
        case .ended: state.isEnded = true
        case .records(let records):
          for record in records {
            #expect(record.position == state.cursor.position.next && record.previous == state.cursor.hash)
            state.cursor = LogCursor(after: record)
          }
        }
      }
    }
  }

  @Test func appendsForLong() async throws {
    let measured = Measurements()
    let seconds = try #require(soakSeconds)
    try await EtcdProcesses.with(3, onDisk: true) { etcd in
      let end = ContinuousClock.now + .seconds(seconds)
      try await withThrowingTaskGroup(of: Void.self) { group in
        for node in 1...Self.nodes {
          let configuration = try etcd.serviceConfiguration()
          group.addTask {
            try await AsyncGroupLog.with(configuration) { log in
              try await Self.run(node: node, log, until: end, measured)
            }
          }
        }
        group.addTask { try await Self.report(etcd, until: end, measured) }
        try await group.waitForAll()
      }
    }
  }

  private static func run(
    node: Int,
    _ log: AsyncGroupLog,
    until end: ContinuousClock.Instant,
    _ measured: Measurements
  ) async throws {
    var owner = TestOwner(log, group: UInt8(node), node: UInt16(node))
    try await owner.claim()
    let others = (1...nodes).filter { $0 != node }.map { (GroupID(UInt8($0)), Follower()) }
    for (group, follower) in others { try await follow(log, group, follower) }
    let payload = (0..<recordBytes).map { _ in UInt8.random(in: .min ... .max) }
    let pause = Duration.seconds(1) * nodes / rate
    var next = ContinuousClock.now
    var reportAt = next
    while ContinuousClock.now < end {
      let start = ContinuousClock.now
      try await owner.append(payload)
      let milliseconds = (ContinuousClock.now - start) / .milliseconds(1)
      measured.withLock { measured in
        measured.milliseconds.append(milliseconds)
        measured.appends += 1
        measured.longest = max(measured.longest, milliseconds)
      }
      if ContinuousClock.now >= reportAt {
        reportAt += .seconds(1)
        try await maintain(log, owner, others)
      }
      next += pause
      if next < ContinuousClock.now {
        measured.withLock { $0.late += 1 }
        next = max(next, ContinuousClock.now - .seconds(1))
      } else {
        try await Task.sleep(until: next)
      }
    }
    // The others' last records, in order.
    for (group, follower) in others {
      try await eventually("group \(group.rawValue) is followed to its end") {
        if follower.isEnded { try await follow(log, group, follower) }
        return try await log.ends(of: [group])?[0].last == follower.position
      }
    }
  }

  /// Report what the node has synced, trim up to what all have, and follow again where a watch has ended.
  private static func maintain(
    _ log: AsyncGroupLog,
    _ owner: TestOwner,
    _ others: [(GroupID, Follower)]
  ) async throws {
    for (group, follower) in others {
      if follower.isEnded { try await follow(log, group, follower) }
      _ = try await log.report(group, by: owner.owner.node, synced: follower.position.rawValue)
    }
    let position = owner.cursor.position.rawValue
    let synced = try await log.report(owner.group, by: owner.owner.node, synced: position)
    guard let synced, synced.count == nodes, let least = synced.values.map(\.position).min(), least > .zero else {
      return
    }
    let before = min(least.next, owner.cursor.position)
    log.trim(GroupTrim(group: owner.group, before: before, fence: owner.owner.fence))
  }

  private static func follow(_ log: AsyncGroupLog, _ group: GroupID, _ follower: Follower) async throws {
    follower.begin()
    try await log.inspect { log in
      log.follow(group, from: follower.position.next) { follower.receive($0) }
    }
  }

  /// Print a line every minute: the servers' memory, database and CPU time, and the appends' latencies.
  private static func report(
    _ etcd: EtcdProcesses,
    until end: ContinuousClock.Instant,
    _ measured: Measurements
  ) async throws {
    let interval = Duration.seconds(min(60, soakSeconds ?? 60))
    var (elapsed, late, longest) = (Duration.zero, 0, 0.0)
    var cpu = etcd.cpuSeconds()
    print("soak: \(rate) appends/s of \(recordBytes) bytes, \(nodes) groups, 3 servers")
    while ContinuousClock.now < end {
      try await Task.sleep(until: min(end, .now + interval))
      elapsed += interval
      let part = measured.withLock { measured in
        defer { measured = Measured() }
        return measured
      }
      guard part.appends > 0 else { continue }
      let sorted = part.milliseconds.sorted()
      let after = etcd.cpuSeconds()
      let perAppend = (after - cpu) / Double(part.appends)
      (cpu, late, longest) = (after, late + part.late, max(longest, part.longest))
      let marks = Double(recordBytes / markBytes)
      let line = [
        "\(elapsed / .seconds(1)) s", "\(part.appends) appends",
        "p50 \(round(sorted[sorted.count / 2], 2)) ms, p99 \(round(sorted[sorted.count * 99 / 100], 1)) ms",
        "longest \(round(part.longest, 0)) ms (so far \(round(longest, 0)) ms)",
        "CPU of etcd \(round(perAppend * 1e3, 2)) ms an append, \(round(perAppend * 1e6 / marks, 2)) µs a mark",
        "resident " + etcd.residentMebibytes().map { "\($0)" }.joined(separator: "/") + " MiB",
        "databases " + etcd.databaseMebibytes().map { "\($0)" }.joined(separator: "/") + " MiB",
        "\(late) late so far",
      ]
      print("soak: " + line.joined(separator: ", "))
    }
  }

  private static func round(_ value: Double, _ digits: Int) -> String { String(format: "%.\(digits)f", value) }
}

private let soakSeconds = TestRun.number("TIDEMARK_LOG_SOAK_SECONDS")
