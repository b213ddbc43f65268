import NIOCore
import ReceiptModel
import ReceiptWire
import StoreTestSupport
import TestSupport
import Testing

@testable import StoreEngine

/// Copies whose shards are of different moments, as the backup of a cluster's node is (docs/operate/cluster.md,
/// "Backups").
extension IndexTests {
  /// Which shards of a copy are the older ones.
  enum Older: String, CaseIterable, CustomTestStringConvertible {
    case channels, users

    var testDescription: String { "the shards of \(rawValue) are older" }
  }

  /// A user, and channels that are in a shard of the other loop.
  private struct Names {
    let user: String
    let cids: [String]

    init() {
      user = (0..<100).map { "user\($0)" }.first { IndexHarness.shard($0) % 2 == 1 }!
      cids = Array((0..<200).map { "team:c\($0)" }.filter { IndexHarness.shard($0) == 0 }.prefix(8))
    }
  }

  /// Make a store whose even shards, those of the channels, and odd ones, those of the user, are of two moments. The
  /// user has one channel at the first moment, and six at the second.
  private func copy(_ names: Names, _ older: Older) throws -> MemoryStorage {
    let harness = try IndexHarness()
    harness.put(names.cids[0], [names.user])
    try harness.runUntilResent()
    let early = harness.storage.data
    for cid in names.cids[1...5] { harness.put(cid, [names.user]) }
    try harness.runUntilResent()
    let storage = MemoryStorage()
    storage.data = harness.storage.data
    for number in 0..<UInt16(IndexHarness.shardCount) where (number % 2 == 0) == (older == .channels) {
      storage.data.replace(ShardID(number), by: early)
    }
    return storage
  }

  private func align(_ storage: MemoryStorage) throws -> ShardAlignment.Report {
    var commit = LoopCommit()
    let report: ShardAlignment.Report
    (commit.batches, report) = try ShardAlignment.plan(for: storage, shardCount: IndexHarness.shardCount)
    try storage.commit(commit)
    return report
  }

  /// The user's channels after one more was made.
  private func channels(_ names: Names, of storage: MemoryStorage, rebuilds: Bool = false) throws -> [String] {
    let harness = try IndexHarness(storage, sessions: 2)
    if rebuilds { try rebuild(harness, epoch: 1) }
    harness.put(names.cids[6], [names.user])
    try harness.runUntilResent()
    return try harness.list(names.user).split(separator: ", ").map(String.init).sorted()
  }

  @Test("shards of different moments are aligned, so that no later change is lost", arguments: Older.allCases)
  func copiedShardsAreAligned(_ older: Older) throws {
    let names = Names()
    let new = names.cids[6]
    #expect(try !channels(names, of: copy(names, older)).contains(new), "control: without it the change is lost")
    let aligned = try copy(names, older)
    let report = try align(aligned)
    #expect(report == ShardAlignment.Report(changes: 1, settings: 0))
    #expect(try channels(names, of: aligned).contains(new))
    let again = try align(aligned)
    #expect(again == ShardAlignment.Report())

    let rebuilt = try copy(names, older)
    _ = try align(rebuilt)
    let kept = older == .channels ? names.cids[...0] : names.cids[...5]
    #expect(try channels(names, of: rebuilt, rebuilds: true) == (kept + [new]).sorted())
  }

  @Test("channel types and users' settings of different versions are aligned")
  func copiedSettingsAreAligned() throws {
    let storage = MemoryStorage()
    let harness = try IndexHarness(storage)
    harness.gateway("user0").send(.patchUser, "user0", shard: IndexHarness.shard("user0")) { payload in
      payload.writeVarint(PatchUserRequest.readReceipts)
      payload.writeVarint(UInt64(0))
      payload.writeTime(.none)
    }
    harness.gateways[0].patch("team", readEvents: false)
    harness.harnesses.forEach { $0.loop.endTurn() }
    try harness.runUntilResent()
    let report = try align(storage)
    #expect(report == ShardAlignment.Report(changes: 0, settings: 6))
    let states = try (0..<UInt16(IndexHarness.shardCount)).map { number in
      let loop = try StoreLoop(
        configuration: StoreLoopConfiguration(),
        shardCount: IndexHarness.shardCount,
        stored: [(ShardID(number), storage.recover(ShardID(number)))],
        driver: harness.harnesses[0]
      )
      let shard = loop.shards[0]
      return "\(shard.state.types.record("team").version) \(shard.state.settings["user0"].hidesRead)"
    }
    #expect(states == Array(repeating: "1 true", count: IndexHarness.shardCount))
  }
}
