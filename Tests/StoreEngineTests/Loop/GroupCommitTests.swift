import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine
import Testing

/// One append is in flight per loop while the next one collects requests. An answer leaves once the changes that it
/// shows are durable (docs/architecture.md, "One mark-read").
@Suite("Group commit")
struct GroupCommitTests {
  @Test("one commit is in flight; the next one collects more requests meanwhile")
  func oneInFlight() throws {
    let (world, gateway) = try settledWorld()
    let before = world.commitDescriptions.count
    gateway.post("team:a", "m1")
    world.loop.endTurn()
    #expect(world.commits.count == 1)
    for number in 2...4 {
      gateway.post("team:a", "m\(number)")
      world.loop.endTurn()
    }
    #expect(world.commits.count == 1)
    #expect(gateway.take() == [])
    try world.persist()
    #expect(gateway.take() == ["2 message 1 new"])
    #expect(world.commits.count == 1)
    try world.persist()
    #expect(gateway.take() == ["3 message 2 new", "4 message 3 new", "5 message 4 new"])
    #expect(world.commits.isEmpty && world.commitDescriptions.count == before + 2)
  }

  @Test("requests of one turn share one batch")
  func oneTurn() throws {
    let (world, gateway) = try settledWorld()
    for number in 1...3 { gateway.post("team:a", "m\(number)") }
    #expect(world.commits.isEmpty)
    world.loop.endTurn()
    #expect(world.commits[0].batches.count == 1)
    try world.persist()
    #expect(gateway.take().count == 3)
  }

  @Test("all shards of a loop commit together")
  func shards() throws {
    let world = try EngineWorld(shards: [0, 1], of: 2)
    let gateway = world.connect()
    gateway.send(.patchChannelType, "team", shard: 0) { $0.writeInteger(UInt8(0)) }
    gateway.send(.patchChannelType, "team", shard: 1) { $0.writeInteger(UInt8(0)) }
    world.loop.endTurn()
    #expect(world.commits.map { $0.batches.map(\.shard.rawValue) } == [[0, 1]])
    try world.persist()
    #expect(gateway.take() == ["1 type team version 1", "2 type team version 1"])
  }

  @Test("a query waits for the change before it, whether in flight or pending")
  func query() throws {
    let (world, gateway) = try settledWorld()
    let other = world.connect(session: 2)
    gateway.change("team:a", add: ["carol"])
    world.loop.endTurn()
    other.getChannel("team:a")
    world.loop.endTurn()
    gateway.change("team:a", add: ["dave"])
    other.getChannel("team:a")
    world.loop.endTurn()
    #expect(other.take() == [])
    try world.persist()
    #expect(gateway.take() == ["2 channel of 3"])
    #expect(other.take() == ["1 channel of 3"])
    try world.persist()
    #expect(gateway.take() == ["3 channel of 4"])
    #expect(other.take() == ["2 channel of 4"])
    // With no commit in flight it starts at once.
    other.getChannel("team:a")
    #expect(other.take() == [])
    world.loop.endTurn()
    #expect(other.take() == ["3 channel of 4"])
  }

  @Test("a command without changes waits for the change that its answer shows")
  func noChange() throws {
    let (world, gateway) = try settledWorld()
    gateway.post("team:a", "m1")
    gateway.read("team:a", "alice")
    world.loop.endTurn()
    gateway.read("team:a", "alice")
    gateway.post("team:a", "m1")
    gateway.change("team:a", remove: ["nobody"])
    world.loop.endTurn()
    #expect(gateway.take() == [])
    #expect(world.commits.count == 1)
    try world.persist()
    #expect(
      gateway.take() == [
        "2 message 1 new", "3 row read 1 unread 0", "4 row read 1 unread 0", "5 message 1", "6 channel of 2",
      ]
    )
    #expect(world.commits.isEmpty)
    // Now the mark changes nothing and does not wait.
    gateway.read("team:a", "alice")
    world.loop.endTurn()
    #expect(gateway.take() == ["7 row read 1 unread 0"] && world.commits.isEmpty)
  }

  @Test("a refusal that depends on a change waits for that change")
  func refusal() throws {
    let (world, gateway) = try settledWorld()
    gateway.change("team:a", remove: ["alice"])
    gateway.read("team:a", "alice")
    world.loop.endTurn()
    #expect(gateway.take() == [])
    try world.persist()
    #expect(gateway.take() == ["2 channel of 1", "3 not_a_member"])
  }

  @Test("an answer that uses new options waits for the channel type's change")
  func types() throws {
    let (world, gateway) = try settledWorld()
    gateway.patch("team", readEvents: false)
    gateway.getChannel("team:a")
    gateway.send(.getChannelType, "team")
    gateway.send(.listChannelTypes, nil)
    world.loop.endTurn()
    #expect(gateway.take() == [])
    try world.persist()
    #expect(
      gateway.take() == [
        "2 type team version 1 without read events", "3 channel of 2",
        "4 type team version 1 without read events",
        "5 1 types",
      ]
    )
  }

  @Test("a failed commit halts the loop: nothing more is answered, accepted or read")
  func failure() throws {
    let (world, gateway) = try settledWorld()
    let other = world.connect(session: 2)
    world.loop.open(other.lane)
    gateway.post("team:a", "m1")
    world.loop.endTurn()
    gateway.post("team:a", "m2")
    world.loop.endTurn()
    gateway.getChannel("team:none")
    world.fail()
    #expect(world.loop.isHalted && world.halts == [.failed("no space")])
    #expect(gateway.lane.isClosed && other.lane.isClosed)
    other.getChannel("team:a")
    world.loop.endTurn()
    world.advance(60_000)
    world.loop.tick()
    try world.answerLoads()
    #expect(gateway.take() == [] && other.take() == [])
    #expect(world.commits.isEmpty && world.loads.isEmpty)
  }

  @Test("a stopped loop requests nothing more from its storage")
  func stop() throws {
    let (world, gateway) = try settledWorld()
    gateway.post("team:a", "m1")
    world.loop.endTurn()
    gateway.post("team:a", "m2")
    gateway.getChannel("team:b")
    world.loop.stop()
    try world.persist()
    try world.answerLoads()
    world.advance(60_000)
    world.loop.tick()
    #expect(world.commits.isEmpty && world.halts.isEmpty && gateway.take() == [])
  }

  @Test("a closed lane receives no replies, and its commands are still applied")
  func closedLane() throws {
    let (world, gateway) = try settledWorld()
    gateway.post("team:a", "m1")
    world.loop.endTurn()
    world.loop.close(gateway.lane)
    try world.persist()
    #expect(gateway.take() == [])
    let again = world.connect()
    again.post("team:a", "m1", counter: 2)
    again.post("team:a", "m1", counter: 3)
    world.loop.endTurn()
    #expect(again.take() == ["1 message 1", "2 message 1"])
  }

  @Test("pages and the log's cut follow the batches, by age and by size")
  func checkpoints() throws {
    let (world, gateway) = try settledWorld { $0.checkpointAgeMilliseconds = 1_000 }
    #expect(world.commitDescriptions == ["batches [1] pages 0"])
    world.advance(1_000)
    gateway.post("team:a", "m1")
    world.loop.endTurn()
    // The pages are the shard head, the head and rows of batch 1, and the pending changes of the members' indexes. The
    // segment is not due.
    #expect(world.commitDescriptions.last == "batches [2] pages 4")
    try world.persist()
    world.loop.tick()
    // The shard head was written with batch 2 and includes it. The segment still needs batch 2.
    #expect(world.commitDescriptions.last == "batches [] pages 0 cut 1")
    try world.persist()
    world.advance(1_000)
    world.loop.tick()
    #expect(world.commitDescriptions.last == "batches [] pages 1")
    try world.persist()
    world.loop.tick()
    #expect(world.commitDescriptions.last == "batches [] pages 0 cut 2")
    try world.persist()
    let count = world.commitDescriptions.count
    world.advance(60_000)
    world.loop.tick()
    #expect(world.commitDescriptions.count == count && world.storage.log[ShardID(0)]!.isEmpty)
  }

  @Test("a clock that steps back does not stop the checkpoints")
  func clockBack() throws {
    let (world, gateway) = try settledWorld { $0.checkpointAgeMilliseconds = 1_000 }
    world.advance(3_600_000)
    gateway.post("team:a", "m1")
    world.loop.endTurn()
    try world.persist()
    world.advance(-3_600_000)
    world.loop.tick()
    for _ in 0..<5 {
      world.advance(500)
      world.loop.tick()
      try world.persistAll()
    }
    #expect(world.loop.gauges.dirtyPages == 0)
  }

  @Test("a turn that ends during reply delivery loses no reply of any connection")
  func turnWithinDelivery() throws {
    let (world, a) = try settledWorld()
    let b = world.connect(session: 2)
    let c = world.connect(session: 3)
    a.post("team:a", "m1")
    b.getChannel("team:a")
    c.getChannel("team:a")
    // Simulates a failing write to the first connection: another one is read, and its turn ends, before the write
    // returns.
    var isFirst = true
    a.onDelivery = {
      guard isFirst else { return }
      isFirst = false
      b.read("team:a", "alice", "m1")
      c.getChannel("team:none")
      world.loop.endTurn()
    }
    world.loop.endTurn()
    try world.persistAll()
    try world.answerLoads()
    try world.persistAll()
    #expect(a.take() == ["2 message 1 new"])
    #expect(b.take() == ["1 channel of 2", "2 row read 1 unread 0"])
    #expect(c.take() == ["1 channel of 2", "2 channel_not_found"])
  }
}
