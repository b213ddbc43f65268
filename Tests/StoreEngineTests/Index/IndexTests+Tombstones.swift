import NIOCore
import ReceiptModel
import ReceiptWire
import TestSupport
import Testing

@testable import StoreEngine

/// Deleted channels in the index: tombstones for clients that resume (R16).
extension IndexTests {
  @Test("a deleted channel leaves a tombstone, which is not listed as a channel and survives a crash")
  func deletedChannelLeavesTombstone() throws {
    let harness = try IndexHarness()
    harness.put("team:a", ["user1", "user2", "user3"])
    try harness.runUntilIdle()
    harness.put("team:b", ["user1"])
    harness.post("team:a", "m1", by: "user4")
    try harness.runUntilIdle()
    harness.advance(10)
    harness.change("team:a", remove: ["user2"])
    harness.advance(10)
    harness.delete("team:a")
    try harness.runUntilIdle()
    harness.advance(10)
    #expect(try harness.differences() == [])
    for flags in [0, 1] as [UInt64] {
      #expect(try harness.list("user1", flags: flags) == "team:b")
      #expect(try harness.list("user2", flags: flags) == "no channels")
    }
    func check() throws {
      #expect(try harness.list("user1", flags: 2, since: 1_020) == "team:a (deleted 1020), team:b")
      // A former member was a member until they left.
      #expect(try harness.list("user2", flags: 3, since: 1_010) == "team:a (deleted 1010)")
      #expect(try harness.list("user2", flags: 3, since: 1_011) == "no channels")
      // This user never was a member.
      #expect(try harness.list("user4", flags: 3, since: 1_000) == "no channels")
    }
    try check()
    #expect(try harness.list("user1", flags: 3, since: 1_021) == "team:b")
    #expect(try harness.list("user1", flags: 2, limit: 1, since: 1_000) == "team:a (deleted 1020) + 1")
    #expect(try harness.list("user1", flags: 2, limit: 1, from: 1, since: 1_000) == "team:b")
    try harness.crash(0)
    try harness.crash(1)
    try check()
    // Recovery from pages alone.
    for _ in 0..<20 {
      harness.advance(10_000)
      try harness.runUntilIdle()
    }
    #expect(harness.logLength == 0)
    try harness.crash(0)
    try harness.crash(1)
    try check()
  }

  @Test("a new channel replaces the tombstone of its cid, and its entry reports both")
  func newChannelReplacesTombstone() throws {
    let harness = try IndexHarness()
    harness.put("team:a", ["user1", "user2", "user3"])
    try harness.runUntilIdle()
    harness.advance(10)
    harness.delete("team:a")
    harness.advance(10)
    harness.put("team:a", ["user1"])
    harness.post("team:a", "m1", by: "user2")
    try harness.runUntilIdle()
    #expect(try harness.list("user1", flags: 2, since: 1_010) == "team:a (new since deleted 1010)")
    #expect(try harness.list("user1", flags: 2, since: 1_011) == "team:a")
    // user2 only sent a message to the new channel, and the new channel does not know the other user.
    #expect(try harness.list("user2", flags: 2, since: 1_010) == "team:a (deleted 1010)")
    #expect(try harness.list("user2", flags: 1) == "team:a (sent)")
    #expect(try harness.list("user3", flags: 3, since: 1_010) == "team:a (deleted 1010)")
    #expect(try harness.differences() == [])
    harness.advance(10)
    harness.delete("team:a")
    try harness.runUntilIdle()
    #expect(try harness.list("user1", flags: 3, since: 1_011) == "team:a (deleted 1030)")
    // They were not members of the second channel.
    #expect(try harness.list("user2", flags: 3, since: 1_010) == "team:a (deleted 1010)")
    #expect(try harness.list("user2", flags: 3, since: 1_011) == "no channels")
  }

  @Test("tombstones are kept for 7 days and removed with later changes; an older `since` is refused")
  func tombstonesAreKeptFor7DaysAndRemovedWithLaterChanges() throws {
    let day: Int64 = 86_400_000
    let harness = try IndexHarness()
    for number in 0..<5 { harness.put("team:c\(number)", ["user1"]) }
    harness.put("team:stays", ["user1"])
    try harness.runUntilIdle()
    let start = harness.clock
    for number in 0..<4 { harness.delete("team:c\(number)") }
    try harness.runUntilIdle()
    harness.advance(7 * day)
    #expect(try harness.list("user1", flags: 3, since: start).contains("team:c3 (deleted \(start))"))
    harness.advance(1)
    #expect(try harness.list("user1", flags: 3, since: start) == "limit_reached")
    #expect(try harness.list("user1", flags: 3, since: harness.clock + 1) == "limit_reached")
    let first = try harness.list("user1", flags: 3, since: start + 1)
    #expect(first == "team:c4, team:stays" || first == "team:stays, team:c4")
    // Each change removes two tombstones.
    #expect(try deletions(of: "user1", harness) == 4)
    harness.delete("team:c4")
    try harness.runUntilIdle()
    #expect(try deletions(of: "user1", harness) == 3)
    harness.put("team:c4", ["user1"])
    try harness.runUntilIdle()
    #expect(try deletions(of: "user1", harness) == 1)
    #expect(try harness.differences() == [])
    // An empty index leaves nothing behind.
    harness.put("team:short", ["user2"])
    try harness.runUntilIdle()
    harness.delete("team:short")
    try harness.runUntilIdle()
    harness.advance(8 * day)
    harness.post("team:stays", "m1", by: "user2")
    try harness.runUntilIdle()
    #expect(try harness.list("user2", flags: 1) == "team:stays (sent)")
    harness.delete("team:stays")
    try harness.runUntilResent()
    let home = harness.harnesses[Int(IndexHarness.shard("user2")) % 2]
    let name = Array("user2".utf8)
    #expect(home.loop.shards.allSatisfy { $0.state.index(of: name.span.bytes) == nil })
  }

  /// The number of tombstones in a user's index.
  private func deletions(of user: String, _ harness: IndexHarness) throws -> Int {
    let home = harness.harnesses[Int(IndexHarness.shard(user)) % 2]
    let name = Array(user.utf8)
    let counts = home.loop.shards.compactMap { shard in
      shard.state.index(of: name.span.bytes).map { shard.state[$0].memberships.deletions.count }
    }
    return try #require(counts.first)
  }

  @Test("a user being erased leaves no tombstone, and no index that has nothing else")
  func erasedUserLeavesNoTombstone() throws {
    let harness = try IndexHarness()
    harness.put("team:a", ["user1", "user2"])
    harness.put("team:b", ["user1"])
    harness.put("team:c", ["user1", "user2"])
    try harness.runUntilIdle()
    harness.delete("team:a")
    try harness.runUntilIdle()
    let home = IndexHarness.shard("user1")
    harness.gateway("user1").assign(user: "user1", version: 1, flags: 4, shard: home)
    harness.harnesses.forEach { $0.loop.endTurn() }
    try harness.runUntilIdle()
    // A channel deleted during the erasure leaves no tombstone.
    harness.delete("team:b")
    try harness.runUntilIdle()
    #expect(try deletions(of: "user1", harness) == 1)
    harness.gateway("team:c").erase("team:c", "user1", shard: IndexHarness.shard("team:c"))
    harness.harnesses.forEach { $0.loop.endTurn() }
    try harness.runUntilIdle()
    let index = { (user: String) in
      let name = Array(user.utf8)
      return harness.harnesses.contains { target in
        target.loop.shards.contains { $0.state.index(of: name.span.bytes) != nil }
      }
    }
    #expect(!index("user1"))
    // Erasure of a user whose index has only tombstones removes the index on request.
    harness.delete("team:c")
    try harness.runUntilIdle()
    let other = IndexHarness.shard("user2")
    harness.gateway("user2").assign(user: "user2", version: 1, flags: 4, shard: other)
    harness.harnesses.forEach { $0.loop.endTurn() }
    try harness.runUntilIdle()
    #expect(index("user2"))
    #expect(try harness.list("user2") == "no channels")
    #expect(!index("user2"))
    #expect(try harness.list("user2", flags: 3, since: 1_000) == "no channels")
  }

  @Test("a rebuild neither removes tombstones nor restores deleted channels")
  func rebuildKeepsTombstones() throws {
    let harness = try IndexHarness()
    harness.put("team:a", ["user1", "user2"])
    try harness.runUntilIdle()
    harness.put("team:b", ["user1"])
    try harness.runUntilIdle()
    harness.delete("team:a")
    try harness.runUntilIdle()
    harness.put("team:a", ["user2"])
    try harness.runUntilIdle()
    try rebuild(harness, epoch: 1)
    #expect(try harness.list("user1", flags: 3, since: 1_000) == "team:a (deleted 1000), team:b")
    #expect(try harness.list("user2", flags: 3, since: 1_000) == "team:a (new since deleted 1000)")
    #expect(try harness.differences() == [])
    harness.advance(7 * 86_400_000 + 1)
    try rebuild(harness, epoch: 2)
    #expect(try deletions(of: "user1", harness) == 0)
    #expect(try harness.differences() == [])
  }
}
