import NIOCore
import ReceiptModel
import ReceiptWire
import TestSupport
import Testing

@testable import StoreEngine

/// Damaged indexes, and rebuilding them from the channels.
extension IndexTests {
  /// Both phases of a rebuild, in all shards.
  func rebuild(_ harness: IndexHarness, epoch: UInt64) throws {
    for phase in [1, 2] as [UInt8] {
      for round in 0... {
        var isDone = true
        for shard in 0..<UInt16(IndexHarness.shardCount) {
          let gateway = harness.gateways[Int(shard) % 2]
          _ = gateway.take()
          gateway.rebuild(phase, epoch: epoch, shard: shard)
          harness.harnesses[Int(shard) % 2].loop.endTurn()
          try harness.runUntilIdle()
          guard gateway.take().last?.contains("rebuild none epoch \(epoch)") == true else {
            isDone = false
            continue
          }
        }
        if isDone { break }
        harness.advance(1_000)
        try harness.runUntilIdle()
        if round > 50 {
          Issue.record("the rebuild does not come to its end")
          return
        }
      }
    }
  }

  @Test(
    "a damaged index is recreated empty and reported; a rebuild restores lost entries and removes wrong ones"
  )
  func damagedIndexIsRecreatedEmptyAndReported() throws {
    let harness = try IndexHarness()
    for cid in ["team:a", "team:b", "team:c"] { harness.put(cid, ["user1", "user2"]) }
    harness.post("team:c", "m1", by: "user3")
    harness.change("team:b", remove: ["user2"])
    try harness.runUntilResent()
    for _ in 0..<20 {
      harness.advance(10_000)
      try harness.runUntilIdle()
    }
    let home = ShardID(IndexHarness.shard("user1"))
    let number = harness.storage.directory[Array("user1".utf8)]!
    let key = PageKey(shard: home, channel: number, page: .memberships(0))
    harness.storage.pages[key] = ByteBuffer(bytes: [1, 2, 3])
    try harness.crash(0)
    try harness.crash(1)
    // A damaged index is unavailable instead of empty.
    #expect(try harness.list("user1") == "unavailable")
    harness.put("team:d", ["user1"])
    try harness.runUntilResent()
    #expect(try harness.list("user1") == "team:d")
    let reports = harness.harnesses.flatMap(\.reports).map(\.description)
    #expect(reports.contains { $0.contains("recreated empty") } && !reports.contains { $0.contains("user1") })
    // An entry of a channel that does not exist.
    let stray = Membership(
      cid: "team:stray",
      channel: ChannelNumber(99),
      row: MemberOrdinal(0),
      isMember: true,
      joinedAt: .none,
      epoch: 0
    )
    let queued = Outbox.QueuedChange(number: 1_000, change: MembershipChange(user: "user2", stray))
    // The entry claims a shard that has sent nothing.
    let from = (0..<4 as Range<UInt16>).first { shard in
      ["team:a", "team:b", "team:c", "team:d"].allSatisfy { IndexHarness.shard($0) != shard }
    }
    if let from {
      let to = ShardID(IndexHarness.shard("user2"))
      harness.deliver([MembershipDelivery(from: ShardID(from), to: to, after: 0, changes: [queued])])
      try harness.runUntilIdle()
      let found = try harness.list("user2")
      #expect(found.contains("team:stray"))
    }
    let lost = try harness.differences()
    #expect(!lost.isEmpty)
    try rebuild(harness, epoch: 1)
    #expect(try harness.differences() == [])
    // Recovery from storage alone, with an empty memory.
    for _ in 0..<20 {
      harness.advance(10_000)
      try harness.runUntilIdle()
    }
    try harness.crash(0)
    try harness.crash(1)
    try rebuild(harness, epoch: 2)
    #expect(try harness.differences() == [])
  }

  @Test("a rebuild runs in slices between requests, and an older epoch is refused")
  func rebuildRunsInSlicesBetweenRequests() throws {
    let harness = try IndexHarness { $0.changesPerTurn = 10 }
    let shard = IndexHarness.shard("team:a")
    let gateway = harness.gateway("team:a")
    harness.put("team:a", (0..<95).map { "user\($0)" })
    try harness.runUntilResent()
    _ = gateway.take()
    gateway.rebuild(1, epoch: 5, shard: shard)
    let source = harness.harnesses[Int(shard) % 2]
    source.loop.endTurn()
    #expect(source.slices == 1)
    source.slice()
    // Members join and leave during the rebuild.
    harness.change("team:a", add: ["late"], remove: ["user90", "user1"])
    gateway.rebuild(2, epoch: 5, shard: shard)
    source.loop.endTurn()
    #expect(gateway.take().last?.hasSuffix("busy") == true)
    gateway.rebuild(0, epoch: 0, shard: shard)
    source.loop.endTurn()
    try source.persistAll()
    #expect(gateway.take().contains { $0.contains("rebuild resending epoch 5") })
    try harness.runUntilResent()
    try rebuild(harness, epoch: 5)
    #expect(try harness.differences() == [])
    gateway.rebuild(1, epoch: 4, shard: shard)
    source.loop.endTurn()
    #expect(gateway.take().last?.hasSuffix("invalid_field") == true)
  }
}
