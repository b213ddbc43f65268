import NIOCore
import ReceiptModel
import ReceiptWire
import TestSupport
import Testing

@testable import StoreEngine

/// Damaged indexes, and rebuilding them from the channels.
extension IndexTests {
  /// Both phases of a rebuild, in all shards.
  func rebuild(_ world: IndexWorld, epoch: UInt64) throws {
    for phase in [1, 2] as [UInt8] {
      for round in 0... {
        var isDone = true
        for shard in 0..<UInt16(IndexWorld.shardCount) {
          let gateway = world.gateways[Int(shard) % 2]
          _ = gateway.take()
          gateway.rebuild(phase, epoch: epoch, shard: shard)
          world.worlds[Int(shard) % 2].loop.endTurn()
          try world.settle()
          guard gateway.take().last?.contains("rebuild none epoch \(epoch)") == true else {
            isDone = false
            continue
          }
        }
        if isDone { break }
        world.advance(1_000)
        try world.settle()
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
  func damage() throws {
    let world = try IndexWorld()
    for cid in ["team:a", "team:b", "team:c"] { world.put(cid, ["user1", "user2"]) }
    world.post("team:c", "m1", by: "user3")
    world.change("team:b", remove: ["user2"])
    try world.settleAll()
    for _ in 0..<20 {
      world.advance(10_000)
      try world.settle()
    }
    let home = ShardID(IndexWorld.shard("user1"))
    let number = world.storage.directory[Array("user1".utf8)]!
    let key = PageKey(shard: home, channel: number, page: .memberships(0))
    world.storage.pages[key] = ByteBuffer(bytes: [1, 2, 3])
    try world.crash(0)
    try world.crash(1)
    // A damaged index is unavailable instead of empty.
    #expect(try world.list("user1") == "unavailable")
    world.put("team:d", ["user1"])
    try world.settleAll()
    #expect(try world.list("user1") == "team:d")
    let reports = world.worlds.flatMap(\.reports).map(\.description)
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
      ["team:a", "team:b", "team:c", "team:d"].allSatisfy { IndexWorld.shard($0) != shard }
    }
    if let from {
      let to = ShardID(IndexWorld.shard("user2"))
      world.deliver([MembershipDelivery(from: ShardID(from), to: to, after: 0, changes: [queued])])
      try world.settle()
      let found = try world.list("user2")
      #expect(found.contains("team:stray"))
    }
    let lost = try world.differences()
    #expect(!lost.isEmpty)
    try rebuild(world, epoch: 1)
    #expect(try world.differences() == [])
    // Recovery from storage alone, with an empty memory.
    for _ in 0..<20 {
      world.advance(10_000)
      try world.settle()
    }
    try world.crash(0)
    try world.crash(1)
    try rebuild(world, epoch: 2)
    #expect(try world.differences() == [])
  }

  @Test("a rebuild runs in slices between requests, and an older epoch is refused")
  func slices() throws {
    let world = try IndexWorld { $0.changesPerTurn = 10 }
    let shard = IndexWorld.shard("team:a")
    let gateway = world.gateway("team:a")
    world.put("team:a", (0..<95).map { "user\($0)" })
    try world.settleAll()
    _ = gateway.take()
    gateway.rebuild(1, epoch: 5, shard: shard)
    let source = world.worlds[Int(shard) % 2]
    source.loop.endTurn()
    #expect(source.slices == 1)
    source.slice()
    // Members join and leave during the rebuild.
    world.change("team:a", add: ["late"], remove: ["user90", "user1"])
    gateway.rebuild(2, epoch: 5, shard: shard)
    source.loop.endTurn()
    #expect(gateway.take().last?.hasSuffix("busy") == true)
    gateway.rebuild(0, epoch: 0, shard: shard)
    source.loop.endTurn()
    try source.persistAll()
    #expect(gateway.take().contains { $0.contains("rebuild resending epoch 5") })
    try world.settleAll()
    try rebuild(world, epoch: 5)
    #expect(try world.differences() == [])
    gateway.rebuild(1, epoch: 4, shard: shard)
    source.loop.endTurn()
    #expect(gateway.take().last?.hasSuffix("invalid_field") == true)
  }
}
