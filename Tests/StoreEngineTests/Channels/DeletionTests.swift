import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine
import StoreTestSupport
import TestSupport
import Testing

/// Deletion and new creation of a channel beside other operations (R16).
@Suite("Deleting channels", .computing)
struct DeletionTests {
  private static let a = ChannelReference.cid(Array("team:a".utf8))

  /// The numbers of `team:a`'s incarnations in storage.
  private func stored(_ harness: EngineHarness) -> [UInt64] {
    Set(harness.storage.pages.keys.map(\.channel.rawValue)).subtracting([0]).sorted()
  }

  private func turn(_ harness: EngineHarness) throws {
    harness.loop.endTurn()
    try harness.completeLoads()
    try harness.persistAll()
  }

  @Test("a deletion frees memory at once, is answered once durable, and then drops the pages")
  func deletionFreesMemoryAtOnce() throws {
    let (harness, gateway) = try harnessWithChannel()
    try harness.writePages()
    let empty = try EngineHarness().loop.gauges.residentBytes
    gateway.deleteChannel("team:a")
    gateway.getChannel("team:a")
    gateway.read("team:a", "alice")
    gateway.deleteChannel("team:a")
    harness.loop.endTurn()
    #expect(harness.loop.gauges.loadedChannels == 0 && harness.loop.gauges.residentBytes == empty)
    // The storage still has the channel, and is not read.
    #expect(harness.loads.isEmpty && stored(harness) == [1])
    #expect(gateway.take() == [])
    try harness.persist()
    #expect(
      gateway.take() == [
        "2 channel deleted", "3 channel_not_found", "4 channel_not_found", "5 no channel",
      ]
    )
    #expect(harness.commits.count == 1 && harness.commits[0].drops.map(\.channel.rawValue) == [1])
    gateway.getChannel("team:a")
    harness.loop.endTurn()
    #expect(gateway.take() == ["6 channel_not_found"] && harness.loads.isEmpty)
    try harness.persistAll()
    #expect(stored(harness) == [] && harness.storage.directory.isEmpty)
    gateway.getChannel("team:a")
    harness.loop.endTurn()
    #expect(harness.loads.count == 1)
    try harness.completeLoads()
    #expect(gateway.take() == ["7 channel_not_found"])
    try harness.writePages()
    #expect(harness.storage.log[ShardID(0)]!.isEmpty)
  }

  @Test("a channel created again after its deletion is another channel, with messages from 1")
  func channelCreatedAgainAfterDeletionIsAnotherChannel() throws {
    let (harness, gateway) = try harnessWithChannel()
    gateway.post("team:a", "m1", by: "alice")
    gateway.post("team:a", "m2", by: "alice")
    try turn(harness)
    gateway.deleteChannel("team:a")
    gateway.put("team:a", ["carol"])
    gateway.post("team:a", "m2", by: "carol")
    gateway.read("team:a", "alice")
    try turn(harness)
    #expect(
      gateway.take() == [
        "2 message 1 new", "3 message 2 new", "4 channel deleted", "5 channel of 1 new", "6 message 1 new",
        "7 not_a_member",
      ]
    )
    try harness.writePages()
    #expect(stored(harness) == [2] && harness.storage.directory.values.map(\.rawValue) == [2])
    let restarted = try EngineHarness(harness.storage)
    let other = restarted.connect(session: 2)
    other.getChannel("team:a")
    other.post("team:a", "m2", by: "carol")
    try turn(restarted)
    #expect(other.take() == ["1 channel of 1", "2 message 1"])
  }

  @Test("a resent deletion does not delete a channel that was created since")
  func resentDeletionSparesNewChannel() throws {
    let (harness, gateway) = try harnessWithChannel()
    gateway.deleteChannel("team:a")
    gateway.put("team:a", ["carol"])
    gateway.deleteChannel("team:a", counter: 2)
    gateway.getChannel("team:a")
    try turn(harness)
    #expect(
      gateway.take() == ["2 channel deleted", "3 channel of 1 new", "4 channel deleted", "5 channel of 1"]
    )
    gateway.deleteChannel("team:a")
    gateway.deleteChannel("team:a", counter: 4)
    try turn(harness)
    #expect(gateway.take() == ["6 channel deleted", "7 channel deleted"])
  }

  /// Steps on `team:a`, one letter each: `p` puts one member more than before, `d` deletes, `m` registers a message,
  /// `c` completes all commits, `b` only the first one, `x` crashes and restarts, `k` writes pages and trims the log.
  private static let words = [
    "", "c", "b", "x", "cx", "bx", "k", "kx", "m", "mc", "mx", "mcx", "mk", "mbx", "bmcx", "cmx", "kmx",
    "kmc", "xmc", "cxk",
  ]

  @Test(
    "deletion and creation are correct in every interleaving with commits, crashes and page writes",
    arguments: words
  )
  func deletionAndCreationWorkInEveryInterleaving(_ first: String) throws {
    for second in Self.words {
      for third in ["", "x"] {
        try history("p\(first)d\(second)p\(third)")
        try history("pk\(first)d\(second)d\(third)p")
        try history("pd\(first)pd\(second)pd\(third)p")
      }
    }
  }

  /// Perform a history, then crash once more and compare the recovered channel with the possible states.
  private func history(_ steps: String) throws {
    var harness = try EngineHarness { $0.pageWriteAgeMilliseconds = 0 }
    var session: UInt64 = 1
    var gateway = harness.connect(session: session)
    var members = 0
    var messages = 0
    /// The numbers of members and messages, nil for no channel: the current state, and all states possible after a
    /// crash.
    var state: (members: Int, messages: Int)?
    var possible: [(members: Int, messages: Int)?] = [nil]
    for step in steps + "x" {
      switch step {
      case "p":
        members += 1
        messages = 0
        gateway.put("team:a", (0..<members).map { "u\($0)" })
        state = (members, state?.messages ?? 0)
      case "d":
        gateway.deleteChannel("team:a")
        state = nil
      case "m":
        messages += 1
        gateway.post("team:a", "m\(members)-\(messages)")
        if state != nil { state!.messages += 1 }
      case "b":
        harness.loop.endTurn()
        try harness.completeLoads()
        possible.append(state)
        if !harness.commits.isEmpty { try harness.persist() }
      case "c", "k":
        try turn(harness)
        if step == "k" { try harness.writePages() }
        possible = [state]
      case "x":
        harness.loop.endTurn()
        let storage = harness.storage
        harness = try EngineHarness(storage) { $0.pageWriteAgeMilliseconds = 0 }
        session += 1
        gateway = harness.connect(session: session)
        // Uncommitted steps may be lost, all of them or the last ones. The history continues from the recovered state.
        possible.append(state)
        let found = try channelState(harness)
        let isPossible = possible.contains {
          $0?.members == found?.members && $0?.messages == found?.messages
        }
        #expect(isPossible, "\(steps): found \(String(describing: found)) of \(possible)")
        state = found
        possible = [found]
      default: break
      }
      if step != "b", step != "x" { possible.append(state) }
    }
    try harness.writePages()
    #expect(harness.storage.log[ShardID(0)]?.isEmpty ?? true, "\(steps)")
    #expect(stored(harness).count == (state == nil ? 0 : 1), "\(steps): \(stored(harness)) are on storage")
    #expect(harness.reports.isEmpty && harness.halts.isEmpty, "\(steps): \(harness.reports)")
  }

  /// The numbers of members and messages of `team:a`.
  private func channelState(_ harness: EngineHarness) throws -> (members: Int, messages: Int)? {
    let gateway = harness.connect(session: 1_000)
    gateway.getChannel("team:a")
    try turn(harness)
    guard gateway.take() != ["1 channel_not_found"] else { return nil }
    let payload = gateway.lastPayload
    let channel = try ChannelFields(payload.readableBytesSpan)
    return (Int(channel.memberCount), Int(channel.newest.rawValue))
  }

  @Test("the log is kept until the pages are dropped, and recovery from it drops them again")
  func logIsKeptUntilPagesAreDropped() throws {
    let (harness, gateway) = try harnessWithChannel()
    try harness.writePages()
    gateway.deleteChannel("team:a")
    harness.loop.endTurn()
    try harness.persist()
    // The drop is in flight and never completes.
    for _ in 0..<3 {
      harness.advance(10_000)
      harness.loop.tick()
    }
    #expect(harness.commits.count == 1 && harness.commits[0].logTrims.isEmpty)
    let restarted = try EngineHarness(harness.storage)
    let other = restarted.connect(session: 2)
    other.getChannel("team:a")
    restarted.loop.endTurn()
    #expect(other.take() == ["1 channel_not_found"] && restarted.loads.isEmpty)
    restarted.loop.tick()
    #expect(restarted.commits.first?.drops.map(\.channel.rawValue) == [1])
    try restarted.writePages()
    #expect(stored(restarted) == [] && restarted.storage.directory.isEmpty)
    #expect(restarted.storage.log[ShardID(0)]!.isEmpty)
    // Channel numbers are not reused.
    other.put("team:b", ["alice"])
    try turn(restarted)
    try restarted.writePages()
    #expect(stored(restarted) == [2])
  }

  @Test("a channel in the log's tail is deleted when it is loaded, and is not loaded afterwards")
  func channelInLogTailIsDeletedWhenItIsLoaded() throws {
    let (harness, _) = try harnessWithChannel()
    let restarted = try EngineHarness(harness.storage)
    restarted.loop.tick()
    let gateway = restarted.connect(session: 2)
    gateway.deleteChannel("team:a")
    gateway.getChannel("team:a")
    gateway.put("team:a", ["zoe"])
    restarted.loop.endTurn()
    #expect(restarted.loads.count == 2)
    // The read by name is answered first. The other read then belongs to a deleted channel.
    try restarted.completeLoad(Self.a)
    try restarted.completeLoads()
    try restarted.persistAll()
    #expect(gateway.take() == ["1 channel deleted", "2 channel_not_found", "3 channel of 1 new"])
    try restarted.writePages()
    #expect(stored(restarted) == [2])
  }

  @Test("a stale read without waiting requests does not restore a deleted channel")
  func staleReadRestoresNoDeletedChannel() throws {
    let (harness, _) = try harnessWithChannel()
    let restarted = try EngineHarness(harness.storage)
    let gateway = restarted.connect(session: 2)
    gateway.getChannel("team:a")
    let (request, reference) = restarted.loads[0]
    let early = try restarted.storage.read(request.shard, request.channel)
    restarted.loop.tick()
    // The channel is loaded by number, deleted and dropped, while the read by name is still in flight.
    try restarted.completeLoad(.number(ChannelNumber(1)))
    gateway.deleteChannel("team:a")
    restarted.loop.endTurn()
    try restarted.persistAll()
    gateway.put("team:a", ["zoe"])
    restarted.loop.endTurn()
    let place = restarted.loads.firstIndex { $0.request == request }!
    restarted.loads.remove(at: place)
    restarted.loop.loaded(request, as: reference, .success(early))
    try restarted.completeLoads()
    try restarted.persistAll()
    #expect(gateway.take() == ["1 channel of 2", "2 channel deleted", "3 channel of 1 new"])
  }

  @Test("dirty pages of a deleted channel are not written for the next channel in its slot")
  func dirtyPagesOfDeletedChannelAreNotWritten() throws {
    let (harness, gateway) = try harnessWithChannel()
    for number in 1...600 { gateway.post("team:a", "m\(number)", by: "alice", flags: 2) }
    gateway.acknowledge("team:a", "bob", ["m1", "m600"])
    try turn(harness)
    #expect(harness.loop.gauges.dirtyPages > 5)
    gateway.deleteChannel("team:a")
    gateway.put("team:b", ["carol"])
    try turn(harness)
    _ = gateway.take()
    try harness.writePages()
    let pages = harness.storage.pages.keys.filter { $0.channel.rawValue > 0 }
    #expect(Set(pages.map(\.channel.rawValue)) == [2])
    #expect(Set(pages.map(\.page)) == [.head, .rows(0)])
    #expect(harness.loop.gauges.dirtyPages == 0)
  }

  @Test("a sliced list ends with its channel's deletion, also when a new channel has the cid by then")
  func slicedListEndsWithChannelDeletion() throws {
    let harness = try EngineHarness { configuration in
      configuration.sliceRows = 40
      configuration.shortRows = 40
    }
    let gateway = harness.connect()
    gateway.put("team:a", (0..<500).map { "u\($0)" })
    gateway.post("team:a", "m1", by: "u0")
    try turn(harness)
    _ = gateway.take()
    for isPutAgain in [false, true] {
      gateway.send(.listMembers, "team:a") { payload in
        let (none, message) = ([UInt8](), Array("m1".utf8))
        payload.writeListMembers(
          viewer: none.span.bytes,
          isServer: true,
          message: message.span.bytes,
          list: .readers,
          order: .joined,
          limit: 100,
          cursor: none.span.bytes
        )
      }
      harness.loop.endTurn()
      #expect(harness.slices == 1 && gateway.take() == [])
      gateway.deleteChannel("team:a")
      if isPutAgain { gateway.put("team:a", ["zoe"]) }
      harness.loop.endTurn()
      #expect(gateway.take() == [])
      try harness.persistAll()
      #expect(gateway.take().map { $0.dropFirst(2) }.first == "channel_not_found")
      while harness.slices > 0 { harness.slice() }
      try harness.persistAll()
      _ = gateway.take()
      if !isPutAgain {
        gateway.put("team:a", (0..<500).map { "u\($0)" })
        gateway.post("team:a", "m1", by: "u0")
        try turn(harness)
        _ = gateway.take()
      }
    }
  }

  @Test("a deletion while memory is short leaves loading and eviction of other channels unchanged")
  func deletionWhileMemoryIsShortKeepsLoadingAndEviction() throws {
    let harness = try EngineHarness { $0.residentBytesMax = 20_000 }
    let gateway = harness.connect()
    for round in 0..<3 {
      for number in 0..<40 {
        gateway.put("team:\(number)", ["alice", "bob"])
        gateway.post("team:\(number)", "m\(round)")
        try turn(harness)
      }
      for number in stride(from: 0, to: 40, by: 3) {
        gateway.deleteChannel("team:\(number)")
        try turn(harness)
      }
      _ = gateway.take()
      for number in 0..<40 {
        gateway.getChannel("team:\(number)")
        try turn(harness)
        let isThere = gateway.take() == ["\(gateway.sent) channel of 2"]
        #expect(isThere == (number % 3 != 0), "round \(round), channel \(number)")
      }
    }
    #expect(harness.loop.counters.channelsEvicted > 0)
    try harness.writePages()
    #expect(harness.storage.directory.count == 26)
  }

  @Test("a failed commit leaves the outcome of a deletion open, as for every command")
  func failedCommitLeavesOutcomeOfDeletionOpen() throws {
    let (harness, gateway) = try harnessWithChannel()
    gateway.deleteChannel("team:a")
    harness.loop.endTurn()
    harness.fail()
    #expect(gateway.take() == [])
    let restarted = try EngineHarness(harness.storage)
    let resent = restarted.connect()
    resent.deleteChannel("team:a", counter: 2)
    try turn(restarted)
    #expect(resent.take() == ["1 channel deleted"])
    try restarted.writePages()
    #expect(stored(restarted) == [])
  }
}
