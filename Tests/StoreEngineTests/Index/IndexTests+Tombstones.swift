import NIOCore
import ReceiptModel
import ReceiptWire
import TestSupport
import Testing

@testable import StoreEngine

/// Deleted channels in the index: tombstones for clients that resume (R16).
extension IndexTests {
  @Test("a deleted channel leaves a tombstone, which is not listed as a channel and survives a crash")
  func tombstones() throws {
    let world = try IndexWorld()
    world.put("team:a", ["user1", "user2", "user3"])
    try world.settle()
    world.put("team:b", ["user1"])
    world.post("team:a", "m1", by: "user4")
    try world.settle()
    world.advance(10)
    world.change("team:a", remove: ["user2"])
    world.advance(10)
    world.delete("team:a")
    try world.settle()
    world.advance(10)
    #expect(try world.differences() == [])
    for flags in [0, 1] as [UInt64] {
      #expect(try world.list("user1", flags: flags) == "team:b")
      #expect(try world.list("user2", flags: flags) == "no channels")
    }
    func check() throws {
      #expect(try world.list("user1", flags: 2, since: 1_020) == "team:a (deleted 1020), team:b")
      // A former member was a member until they left.
      #expect(try world.list("user2", flags: 3, since: 1_010) == "team:a (deleted 1010)")
      #expect(try world.list("user2", flags: 3, since: 1_011) == "no channels")
      // This user never was a member.
      #expect(try world.list("user4", flags: 3, since: 1_000) == "no channels")
    }
    try check()
    #expect(try world.list("user1", flags: 3, since: 1_021) == "team:b")
    #expect(try world.list("user1", flags: 2, limit: 1, since: 1_000) == "team:a (deleted 1020) + 1")
    #expect(try world.list("user1", flags: 2, limit: 1, from: 1, since: 1_000) == "team:b")
    try world.crash(0)
    try world.crash(1)
    try check()
    // Recovery from pages alone.
    for _ in 0..<20 {
      world.advance(10_000)
      try world.settle()
    }
    #expect(world.logLength == 0)
    try world.crash(0)
    try world.crash(1)
    try check()
  }

  @Test("a new channel replaces the tombstone of its cid, and its entry reports both")
  func madeAnew() throws {
    let world = try IndexWorld()
    world.put("team:a", ["user1", "user2", "user3"])
    try world.settle()
    world.advance(10)
    world.delete("team:a")
    world.advance(10)
    world.put("team:a", ["user1"])
    world.post("team:a", "m1", by: "user2")
    try world.settle()
    #expect(try world.list("user1", flags: 2, since: 1_010) == "team:a (new since deleted 1010)")
    #expect(try world.list("user1", flags: 2, since: 1_011) == "team:a")
    // user2 only sent a message to the new channel, and the new channel does not know the other user.
    #expect(try world.list("user2", flags: 2, since: 1_010) == "team:a (deleted 1010)")
    #expect(try world.list("user2", flags: 1) == "team:a (sent)")
    #expect(try world.list("user3", flags: 3, since: 1_010) == "team:a (deleted 1010)")
    #expect(try world.differences() == [])
    world.advance(10)
    world.delete("team:a")
    try world.settle()
    #expect(try world.list("user1", flags: 3, since: 1_011) == "team:a (deleted 1030)")
    // They were not members of the second channel.
    #expect(try world.list("user2", flags: 3, since: 1_010) == "team:a (deleted 1010)")
    #expect(try world.list("user2", flags: 3, since: 1_011) == "no channels")
  }

  @Test("tombstones are kept for 7 days and removed with later changes; an older `since` is refused")
  func forgotten() throws {
    let day: Int64 = 86_400_000
    let world = try IndexWorld()
    for number in 0..<5 { world.put("team:c\(number)", ["user1"]) }
    world.put("team:stays", ["user1"])
    try world.settle()
    let start = world.clock
    for number in 0..<4 { world.delete("team:c\(number)") }
    try world.settle()
    world.advance(7 * day)
    #expect(try world.list("user1", flags: 3, since: start).contains("team:c3 (deleted \(start))"))
    world.advance(1)
    #expect(try world.list("user1", flags: 3, since: start) == "limit_reached")
    #expect(try world.list("user1", flags: 3, since: world.clock + 1) == "limit_reached")
    let first = try world.list("user1", flags: 3, since: start + 1)
    #expect(first == "team:c4, team:stays" || first == "team:stays, team:c4")
    // Each change removes two tombstones.
    #expect(try deletions(of: "user1", world) == 4)
    world.delete("team:c4")
    try world.settle()
    #expect(try deletions(of: "user1", world) == 3)
    world.put("team:c4", ["user1"])
    try world.settle()
    #expect(try deletions(of: "user1", world) == 1)
    #expect(try world.differences() == [])
    // An empty index leaves nothing behind.
    world.put("team:short", ["user2"])
    try world.settle()
    world.delete("team:short")
    try world.settle()
    world.advance(8 * day)
    world.post("team:stays", "m1", by: "user2")
    try world.settle()
    #expect(try world.list("user2", flags: 1) == "team:stays (sent)")
    world.delete("team:stays")
    try world.settleAll()
    let home = world.worlds[Int(IndexWorld.shard("user2")) % 2]
    let name = Array("user2".utf8)
    #expect(home.loop.shards.allSatisfy { $0.state.index(of: name.span.bytes) == nil })
  }

  /// The number of tombstones in a user's index.
  private func deletions(of user: String, _ world: IndexWorld) throws -> Int {
    let home = world.worlds[Int(IndexWorld.shard(user)) % 2]
    let name = Array(user.utf8)
    let counts = home.loop.shards.compactMap { shard in
      shard.state.index(of: name.span.bytes).map { shard.state[$0].memberships.deletions.count }
    }
    return try #require(counts.first)
  }

  @Test("a user being erased leaves no tombstone, and no index that has nothing else")
  func erasedTombstones() throws {
    let world = try IndexWorld()
    world.put("team:a", ["user1", "user2"])
    world.put("team:b", ["user1"])
    world.put("team:c", ["user1", "user2"])
    try world.settle()
    world.delete("team:a")
    try world.settle()
    let home = IndexWorld.shard("user1")
    world.gateway("user1").assign(user: "user1", version: 1, flags: 4, shard: home)
    world.worlds.forEach { $0.loop.endTurn() }
    try world.settle()
    // A channel deleted during the erasure leaves no tombstone.
    world.delete("team:b")
    try world.settle()
    #expect(try deletions(of: "user1", world) == 1)
    world.gateway("team:c").erase("team:c", "user1", shard: IndexWorld.shard("team:c"))
    world.worlds.forEach { $0.loop.endTurn() }
    try world.settle()
    let index = { (user: String) in
      let name = Array(user.utf8)
      return world.worlds.contains { target in
        target.loop.shards.contains { $0.state.index(of: name.span.bytes) != nil }
      }
    }
    #expect(!index("user1"))
    // Erasure of a user whose index has only tombstones removes the index on request.
    world.delete("team:c")
    try world.settle()
    let other = IndexWorld.shard("user2")
    world.gateway("user2").assign(user: "user2", version: 1, flags: 4, shard: other)
    world.worlds.forEach { $0.loop.endTurn() }
    try world.settle()
    #expect(index("user2"))
    #expect(try world.list("user2") == "no channels")
    #expect(!index("user2"))
    #expect(try world.list("user2", flags: 3, since: 1_000) == "no channels")
  }

  @Test("a rebuild neither removes tombstones nor restores deleted channels")
  func rebuiltTombstones() throws {
    let world = try IndexWorld()
    world.put("team:a", ["user1", "user2"])
    try world.settle()
    world.put("team:b", ["user1"])
    try world.settle()
    world.delete("team:a")
    try world.settle()
    world.put("team:a", ["user2"])
    try world.settle()
    try rebuild(world, epoch: 1)
    #expect(try world.list("user1", flags: 3, since: 1_000) == "team:a (deleted 1000), team:b")
    #expect(try world.list("user2", flags: 3, since: 1_000) == "team:a (new since deleted 1000)")
    #expect(try world.differences() == [])
    world.advance(7 * 86_400_000 + 1)
    try rebuild(world, epoch: 2)
    #expect(try deletions(of: "user1", world) == 0)
    #expect(try world.differences() == [])
  }
}
