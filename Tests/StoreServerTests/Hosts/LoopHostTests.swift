import NIOCore
import NIOEmbedded
import ReceiptWire
import StoreEngine
import Testing

@testable import StoreServer

/// The driver of a loop's shards: commits, failures, refusals, stopping.
@Suite struct LoopHostTests {
  private static let noSpace = StorageError.failed("no space")

  @Test func repliesWaitForCommit() throws {
    let harness = try ServerHarness()
    let gateway = try harness.open()
    gateway.send(gateway.frames.note("a"), gateway.frames.known("b"))
    #expect(gateway.take() == ["2 not known"])
    #expect(harness.hosts[0].loop.isBusy)
    harness.run()
    #expect(gateway.take() == ["1 noted"])
    #expect(!harness.hosts[0].loop.isBusy)
  }

  @Test func hostsStartFromCommittedState() throws {
    let harness = try ServerHarness(loops: 2)
    let before = try harness.open(session: 1)
    before.send(before.frames.note("a", of: 0), before.frames.note("b", of: 1))
    harness.run()
    #expect(before.take() == ["1 noted", "2 noted"])
    before.close()
    for host in harness.hosts { _ = host.stop() }
    harness.run()
    try harness.start()
    let after = try harness.open(session: 2)
    after.send(after.frames.known("a", of: 0), after.frames.known("b", of: 1), after.frames.known("c", of: 1))
    harness.run()
    #expect(after.take() == ["1 known", "2 known", "3 not known"])
  }

  /// The index of a user's channels is in the home shard, which may be another loop's.
  @Test func membershipsReachHomeShardOnAnotherLoop() throws {
    let harness = try ServerHarness(loops: 2)
    let gateway = try harness.open()
    gateway.send(
      gateway.frames.put("team:a", of: 0, member: "alice", of: 1),
      gateway.frames.put("team:b", of: 0, member: "alice", of: 1),
      gateway.frames.put("team:c", of: 1, member: "alice", of: 1),
      gateway.frames.put("team:d", of: 0, member: "bob", of: 0)
    )
    harness.run()
    #expect(gateway.take().sorted() == ["1 created", "2 created", "3 created", "4 created"])
    gateway.send(gateway.frames.channels(of: "alice", of: 1), gateway.frames.channels(of: "bob", of: 0))
    harness.run()
    #expect(gateway.take().sorted() == ["5 channels: 3", "6 channels: 1"])
    #expect(harness.remains == [])
  }

  // MARK: - Failed storage

  /// The outcome of a failed commit is unknown until the storage is read again, so its commands get no reply. The
  /// server closes the connections.
  @Test func failedCommitHaltsHost() throws {
    let harness = try ServerHarness(loops: 2)
    let gateway = try harness.open(session: 1)
    harness.storage.failure = Self.noSpace
    gateway.send(gateway.frames.note("a", of: 0), gateway.frames.known("a", of: 0))
    harness.run()
    #expect(harness.halts == [Self.noSpace])
    #expect(harness.hosts[0].loop.isHalted && !harness.hosts[1].loop.isHalted)
    gateway.send(gateway.frames.known("b", of: 0), gateway.frames.note("c", of: 0))
    harness.run()
    #expect(gateway.take() == [])
    #expect(harness.halts == [Self.noSpace], "it halts once")

    // The server then takes the hosts away, and makes new ones from the storage.
    harness.serving.replace(nil)
    gateway.close()
    let early = try harness.connect(session: 2)
    early.open()
    #expect(early.take() == ["challenge", "error unavailable, retry after 500 ms"])
    for host in harness.hosts { _ = host.stop() }
    harness.run()
    harness.storage.failure = nil
    try harness.start()
    let late = try harness.open(session: 3)
    late.send(late.frames.known("a", of: 0))
    #expect(late.take() == ["1 not known"])
    #expect(harness.remains == [])
  }

  /// Where commits do not sync, a failed sync means the same as a failed commit.
  @Test func failedSyncHaltsHost() throws {
    let harness = try ServerHarness()
    let gateway = try harness.open()
    harness.hosts[0].startSync(everyMilliseconds: 100)
    harness.loops[0].advanceTime(by: .milliseconds(100))
    #expect(harness.storage.syncs == 1 && harness.halts == [])
    harness.storage.failure = Self.noSpace
    harness.loops[0].advanceTime(by: .milliseconds(99))
    #expect(harness.storage.syncs == 1)
    harness.loops[0].advanceTime(by: .milliseconds(1))
    #expect(harness.storage.syncs == 2 && harness.halts == [Self.noSpace])
    gateway.send(gateway.frames.known("a"))
    #expect(gateway.take() == [])
    // A halted host syncs no more.
    harness.loops[0].advanceTime(by: .seconds(1))
    #expect(harness.storage.syncs == 2 && harness.halts == [Self.noSpace])
  }

  /// Commands would be lost with the directory. Queries are answered from memory.
  @Test func commandsAreRefusedWhileDataDirectoryIsLost() throws {
    let harness = try ServerHarness(loops: 2)
    let gateway = try harness.open()
    gateway.send(gateway.frames.note("a", of: 0), gateway.frames.note("b", of: 1))
    harness.run()
    #expect(gateway.take() == ["1 noted", "2 noted"])
    harness.storage.locationFault = "the directory was moved"
    harness.directory.check()
    gateway.send(
      gateway.frames.note("c", of: 0),
      gateway.frames.note("d", of: 1),
      gateway.frames.known("a", of: 0),
      gateway.frames.known("b", of: 1)
    )
    harness.run()
    let refused = "data_directory_lost, retry after 10000 ms"
    #expect(gateway.take() == ["3 \(refused)", "5 known", "4 \(refused)", "6 known"])
    harness.storage.locationFault = nil
    harness.directory.check()
    gateway.send(gateway.frames.note("c", of: 0), gateway.frames.note("d", of: 1))
    harness.run()
    #expect(gateway.take() == ["7 noted", "8 noted"])
  }

  // MARK: - Stopping

  /// A stopped host may still have a commit in flight. The storage is closed only after it.
  @Test func stoppingWaitsForCommitInFlight() throws {
    let harness = try ServerHarness()
    let gateway = try harness.open(session: 1)
    gateway.send(gateway.frames.note("a"))
    let stopped = Flag()
    for _ in 1...2 { harness.hosts[0].stop().whenSuccess { stopped.count += 1 } }
    #expect(stopped.count == 0)
    harness.run()
    #expect(stopped.count == 2)
    #expect(gateway.take() == [])
    gateway.send(gateway.frames.known("a"))
    #expect(gateway.take() == [])
    try harness.start()
    let other = try harness.open(session: 2)
    other.send(other.frames.known("a"))
    #expect(other.take() == ["1 known"])
  }

  @Test func idleHostStopsAtOnce() throws {
    let harness = try ServerHarness()
    let stopped = Flag()
    harness.hosts[0].stop().whenSuccess { stopped.count += 1 }
    #expect(stopped.count == 1)
  }

  /// `@unchecked Sendable`: these tests have one thread.
  private final class Flag: @unchecked Sendable {
    var count = 0
  }
}
