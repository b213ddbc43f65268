import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine
import Testing

/// One append is in flight per loop while the next one collects requests. A reply leaves once the changes that it
/// shows are durable (docs/contribute/architecture.md, "One mark-read").
@Suite("Group commit")
struct GroupCommitTests {
  @Test("one commit is in flight; the next one collects more requests meanwhile")
  func oneCommitIsInFlightWhileNextCollectsRequests() throws {
    let (harness, gateway) = try harnessWithChannel()
    let before = harness.commitDescriptions.count
    gateway.post("team:a", "m1")
    harness.loop.endTurn()
    #expect(harness.commits.count == 1)
    for number in 2...4 {
      gateway.post("team:a", "m\(number)")
      harness.loop.endTurn()
    }
    #expect(harness.commits.count == 1)
    #expect(gateway.take() == [])
    try harness.persist()
    #expect(gateway.take() == ["2 message 1 new"])
    #expect(harness.commits.count == 1)
    try harness.persist()
    #expect(gateway.take() == ["3 message 2 new", "4 message 3 new", "5 message 4 new"])
    #expect(harness.commits.isEmpty && harness.commitDescriptions.count == before + 2)
  }

  @Test("requests of one turn share one batch")
  func requestsOfOneTurnShareOneBatch() throws {
    let (harness, gateway) = try harnessWithChannel()
    for number in 1...3 { gateway.post("team:a", "m\(number)") }
    #expect(harness.commits.isEmpty)
    harness.loop.endTurn()
    #expect(harness.commits[0].batches.count == 1)
    try harness.persist()
    #expect(gateway.take().count == 3)
  }

  @Test("all shards of a loop commit together")
  func allShardsOfLoopCommitTogether() throws {
    let harness = try EngineHarness(shards: [0, 1], of: 2)
    let gateway = harness.connect()
    gateway.send(.patchChannelType, "team", shard: 0) { $0.writeInteger(UInt8(0)) }
    gateway.send(.patchChannelType, "team", shard: 1) { $0.writeInteger(UInt8(0)) }
    harness.loop.endTurn()
    #expect(harness.commits.map { $0.batches.map(\.shard.rawValue) } == [[0, 1]])
    try harness.persist()
    #expect(gateway.take() == ["1 type team version 1", "2 type team version 1"])
  }

  @Test("a query waits for the change before it, whether in flight or pending")
  func queryWaitsForChangeBeforeIt() throws {
    let (harness, gateway) = try harnessWithChannel()
    let other = harness.connect(session: 2)
    gateway.change("team:a", add: ["carol"])
    harness.loop.endTurn()
    other.getChannel("team:a")
    harness.loop.endTurn()
    gateway.change("team:a", add: ["dave"])
    other.getChannel("team:a")
    harness.loop.endTurn()
    #expect(other.take() == [])
    try harness.persist()
    #expect(gateway.take() == ["2 channel of 3"])
    #expect(other.take() == ["1 channel of 3"])
    try harness.persist()
    #expect(gateway.take() == ["3 channel of 4"])
    #expect(other.take() == ["2 channel of 4"])
    // With no commit in flight it starts at once.
    other.getChannel("team:a")
    #expect(other.take() == [])
    harness.loop.endTurn()
    #expect(other.take() == ["3 channel of 4"])
  }

  @Test("a command without changes waits for the change that its answer shows")
  func commandWithoutChangesWaitsForChangeThatAnswerShows() throws {
    let (harness, gateway) = try harnessWithChannel()
    gateway.post("team:a", "m1")
    gateway.read("team:a", "alice")
    harness.loop.endTurn()
    gateway.read("team:a", "alice")
    gateway.post("team:a", "m1")
    gateway.change("team:a", remove: ["nobody"])
    harness.loop.endTurn()
    #expect(gateway.take() == [])
    #expect(harness.commits.count == 1)
    try harness.persist()
    #expect(
      gateway.take() == [
        "2 message 1 new", "3 row read 1 unread 0", "4 row read 1 unread 0", "5 message 1", "6 channel of 2",
      ]
    )
    #expect(harness.commits.isEmpty)
    // Now the mark changes nothing and does not wait.
    gateway.read("team:a", "alice")
    harness.loop.endTurn()
    #expect(gateway.take() == ["7 row read 1 unread 0"] && harness.commits.isEmpty)
  }

  @Test("a refusal that depends on a change waits for that change")
  func refusalThatDependsOnChangeWaitsForThatChange() throws {
    let (harness, gateway) = try harnessWithChannel()
    gateway.change("team:a", remove: ["alice"])
    gateway.read("team:a", "alice")
    harness.loop.endTurn()
    #expect(gateway.take() == [])
    try harness.persist()
    #expect(gateway.take() == ["2 channel of 1", "3 not_a_member"])
  }

  @Test("an answer that uses new options waits for the channel type's change")
  func answerThatUsesNewOptionsWaitsForChannelTypeChange() throws {
    let (harness, gateway) = try harnessWithChannel()
    gateway.patch("team", readEvents: false)
    gateway.getChannel("team:a")
    gateway.send(.getChannelType, "team")
    gateway.send(.listChannelTypes, nil)
    harness.loop.endTurn()
    #expect(gateway.take() == [])
    try harness.persist()
    #expect(
      gateway.take() == [
        "2 type team version 1 without read events", "3 channel of 2",
        "4 type team version 1 without read events",
        "5 1 types",
      ]
    )
  }

  @Test("a failed commit halts the loop: nothing more is answered, accepted or read")
  func failedCommitHaltsLoop() throws {
    let (harness, gateway) = try harnessWithChannel()
    let other = harness.connect(session: 2)
    harness.loop.open(other.lane)
    gateway.post("team:a", "m1")
    harness.loop.endTurn()
    gateway.post("team:a", "m2")
    harness.loop.endTurn()
    gateway.getChannel("team:none")
    harness.fail()
    #expect(harness.loop.isHalted && harness.halts == [.failed("no space")])
    #expect(gateway.lane.isClosed && other.lane.isClosed)
    other.getChannel("team:a")
    harness.loop.endTurn()
    harness.advance(60_000)
    harness.loop.tick()
    try harness.completeLoads()
    #expect(gateway.take() == [] && other.take() == [])
    #expect(harness.commits.isEmpty && harness.loads.isEmpty)
  }

  @Test("a stopped loop requests nothing more from its storage")
  func stoppedLoopRequestsNothingMoreFromStorage() throws {
    let (harness, gateway) = try harnessWithChannel()
    gateway.post("team:a", "m1")
    harness.loop.endTurn()
    gateway.post("team:a", "m2")
    gateway.getChannel("team:b")
    harness.loop.stop()
    try harness.persist()
    try harness.completeLoads()
    harness.advance(60_000)
    harness.loop.tick()
    #expect(harness.commits.isEmpty && harness.halts.isEmpty && gateway.take() == [])
  }

  @Test("a closed lane receives no replies, and its commands are still applied")
  func closedLaneReceivesNoRepliesAndCommandsAreApplied() throws {
    let (harness, gateway) = try harnessWithChannel()
    gateway.post("team:a", "m1")
    harness.loop.endTurn()
    harness.loop.close(gateway.lane)
    try harness.persist()
    #expect(gateway.take() == [])
    let again = harness.connect()
    again.post("team:a", "m1", counter: 2)
    again.post("team:a", "m1", counter: 3)
    harness.loop.endTurn()
    #expect(again.take() == ["1 message 1", "2 message 1"])
  }

  @Test("pages and the log trim follow the batches, by age and by size")
  func pagesAndLogTrimFollowBatches() throws {
    let (harness, gateway) = try harnessWithChannel { $0.pageWriteAgeMilliseconds = 1_000 }
    #expect(harness.commitDescriptions == ["batches [1] pages 0"])
    harness.advance(1_000)
    gateway.post("team:a", "m1")
    harness.loop.endTurn()
    // The pages are the shard head, the head and rows of batch 1, and the pending changes of the members' indexes. The
    // segment is not due.
    #expect(harness.commitDescriptions.last == "batches [2] pages 4")
    try harness.persist()
    harness.loop.tick()
    // The shard head was written with batch 2 and includes it. The segment still needs batch 2.
    #expect(harness.commitDescriptions.last == "batches [] pages 0 trim 1")
    try harness.persist()
    harness.advance(1_000)
    harness.loop.tick()
    #expect(harness.commitDescriptions.last == "batches [] pages 1")
    try harness.persist()
    harness.loop.tick()
    #expect(harness.commitDescriptions.last == "batches [] pages 0 trim 2")
    try harness.persist()
    let count = harness.commitDescriptions.count
    harness.advance(60_000)
    harness.loop.tick()
    #expect(harness.commitDescriptions.count == count && harness.storage.log[ShardID(0)]!.isEmpty)
  }

  @Test("a clock that steps back does not stop page writes")
  func clockThatStepsBackDoesNotStopPageWrites() throws {
    let (harness, gateway) = try harnessWithChannel { $0.pageWriteAgeMilliseconds = 1_000 }
    harness.advance(3_600_000)
    gateway.post("team:a", "m1")
    harness.loop.endTurn()
    try harness.persist()
    harness.advance(-3_600_000)
    harness.loop.tick()
    for _ in 0..<5 {
      harness.advance(500)
      harness.loop.tick()
      try harness.persistAll()
    }
    #expect(harness.loop.gauges.dirtyPages == 0)
  }

  @Test("a turn that ends during reply delivery loses no reply of any connection")
  func turnEndingDuringReplyDeliveryLosesNoReply() throws {
    let (harness, a) = try harnessWithChannel()
    let b = harness.connect(session: 2)
    let c = harness.connect(session: 3)
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
      harness.loop.endTurn()
    }
    harness.loop.endTurn()
    try harness.persistAll()
    try harness.completeLoads()
    try harness.persistAll()
    #expect(a.take() == ["2 message 1 new"])
    #expect(b.take() == ["1 channel of 2", "2 row read 1 unread 0"])
    #expect(c.take() == ["1 channel of 2", "2 channel_not_found"])
  }
}
