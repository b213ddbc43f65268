import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine
import Testing

/// Deletion of channels with many members and erasure of users with many messages: a slice in each turn, with other
/// requests between, and crashes between any two commits (R16).
@Suite("Removal in slices")
struct SlicedRemovalTests {
  private static let users = (0..<45).map { "user\($0)" }

  private func turn(_ harness: EngineHarness) throws {
    harness.loop.endTurn()
    try harness.completeLoads()
    try harness.persistAll()
  }

  /// A harness where `team:a` has 45 members and a sender who is no member, and `team:b` has two of the members. One
  /// turn queues up to 10 changes.
  private func crowd(
    _ configure: (inout StoreLoopConfiguration) -> Void = { _ in }
  ) throws -> (harness: EngineHarness, gateway: Gateway) {
    let harness = try EngineHarness { configuration in
      Self.small(&configuration)
      configure(&configuration)
    }
    let gateway = harness.connect()
    gateway.put("team:a", Self.users)
    gateway.put("team:b", ["user0", "alice"])
    gateway.post("team:a", "m1", by: "carol")
    try turn(harness)
    for _ in 0..<3 {
      try harness.runUntilIdle()
      harness.advance(1_000)
      harness.loop.tick()
    }
    try harness.runUntilIdle()
    _ = gateway.take()
    return (harness, gateway)
  }

  private static func small(_ configuration: inout StoreLoopConfiguration) {
    configuration.changesPerTurn = 10
    configuration.sliceEffects = 10
    configuration.shortEffects = 10
  }

  /// The number of effects in the largest log batch after an index.
  private func largestBatch(_ harness: EngineHarness, after index: UInt64) throws -> Int {
    let batches = harness.storage.log[ShardID(0), default: [:]].filter { $0.key > index }
    return try batches.values.map { try LogBatch($0.readableBytesSpan).effects.count }.max() ?? 0
  }

  private func lastIndex(_ harness: EngineHarness) -> UInt64 {
    harness.storage.log[ShardID(0), default: [:]].keys.max() ?? 0
  }

  /// The channels in the indexes of users.
  private func lists(_ users: [String], _ harness: EngineHarness) throws -> Set<String> {
    let gateway = harness.connect(session: 900)
    for user in users { gateway.list(user) }
    try turn(harness)
    return Set(gateway.take().map { String($0.drop { $0 != " " }.dropFirst()) })
  }

  // MARK: Channels

  @Test("a deletion over many turns hides the channel at once, and is answered when it ends")
  func deletionOverManyTurnsHidesChannelAtOnce() throws {
    let (harness, gateway) = try crowd()
    let start = lastIndex(harness)
    gateway.deleteChannel("team:a")
    try turn(harness)
    // The start of the deletion is durable, and slices are left.
    #expect(gateway.take() == [] && harness.slices == 1 && harness.loop.gauges.loadedChannels > 1)
    var rounds = 0
    while harness.slices > 0 {
      rounds += 1
      harness.slice()
      gateway.getChannel("team:a")
      gateway.read("team:a", "user1")
      gateway.change("team:a", add: ["zoe"])
      gateway.post("team:a", "m2", by: "user1")
      gateway.deleteChannel("team:a")
      gateway.erase("team:a", "user1")
      gateway.put("team:a", ["zoe"])
      gateway.read("team:b", "alice")
      gateway.send(.unreadCounts, nil) { payload in
        payload.writeVarint(1)
        payload.writeField("team:a")
        payload.writeField("user1")
        payload.writeVarint(0)
      }
      try turn(harness)
      let words = Set(gateway.take().map { String($0.drop { $0 != " " }.dropFirst()) })
      if harness.slices > 0 {
        #expect(
          words == [
            "channel_not_found", "no channel", "not known", "busy", "row read 0 unread 0",
            "unread channel_not_found",
          ]
        )
      } else {
        #expect(words.contains("channel deleted") && words.contains("channel of 1 new"))
      }
    }
    #expect(rounds >= 4)
    // The turns also have a few requests beside the slice.
    #expect(try largestBatch(harness, after: start) <= 24)
    try harness.runUntilIdle()
    #expect(try lists(["user1", "user44", "carol"], harness) == ["no channels"])
    #expect(try lists(["user0", "alice"], harness) == ["team:b"])
    #expect(try lists(["zoe"], harness) == ["team:a"])
    try harness.writePages()
    #expect(harness.storage.directory.count { $0.key.contains(UInt8(ascii: ":")) } == 2)
    #expect(harness.reports.isEmpty)
  }

  @Test("a deletion's answer waits for all of its index changes, those of the first slice included")
  func deletionAnswerWaitsForIndexChanges() throws {
    let (harness, gateway) = try crowd { $0.indexWaitMilliseconds = 1_000 }
    gateway.deleteChannel("team:a")
    try turn(harness)
    while harness.slices > 0 {
      harness.slice()
      try turn(harness)
    }
    #expect(gateway.take() == [])
    try harness.runUntilIdle()
    #expect(gateway.take().map { $0.drop { $0 != " " } } == [" channel deleted"])
  }

  @Test(
    "a deletion waits while enough index changes are pending; members can join elsewhere"
  )
  func deletionWaitsForPendingIndexChanges() throws {
    let (harness, gateway) = try crowd { $0.changesPendingMax = 15 }
    gateway.deleteChannel("team:a")
    try turn(harness)
    while harness.slices > 0 {
      harness.slice()
      try turn(harness)
    }
    #expect(harness.loop.gauges.changesPending <= 15 && gateway.take() == [])
    gateway.change("team:b", add: ["zoe"])
    try turn(harness)
    #expect(gateway.take().map { $0.drop { $0 != " " } } == [" channel of 3"])
    for _ in 0..<20 {
      #expect(harness.loop.gauges.changesPending <= 20)
      try harness.runUntilIdle()
      harness.advance(1_000)
      harness.loop.tick()
    }
    #expect(gateway.take().map { $0.drop { $0 != " " } } == [" channel deleted"])
    #expect(try lists(Array(Self.users.dropFirst()), harness) == ["no channels"])
  }

  @Test(
    "after a crash between any two commits a deletion continues at recovery, and a resend is answered as applied"
  )
  func deletionContinuesAfterCrashBetweenCommits() throws {
    for isResent in [false, true] {
      for hasWrittenPages in [false, true] {
        for commits in 0..<12 {
          let (harness, gateway) = try crowd()
          if hasWrittenPages { try harness.writePages() }
          gateway.deleteChannel("team:a", counter: 50)
          harness.loop.endTurn()
          var isBegun = false
          for number in 0..<commits {
            if !harness.commits.isEmpty {
              try harness.persist()
              isBegun = true
            }
            if harness.slices > 0 { harness.slice() }
            // Its pages may be written during the deletion.
            if hasWrittenPages, number == 2 {
              harness.advance(10_000)
              harness.loop.tick()
            }
          }
          let story = "\(commits) commits, \(hasWrittenPages ? "from pages" : "from the log")"
          let again = try EngineHarness(harness.storage, configure: Self.small)
          let other = again.connect(session: isResent ? 1 : 2)
          if isResent {
            other.deleteChannel("team:a", counter: 50)
          } else {
            other.getChannel("team:a")
          }
          try turn(again)
          for _ in 0..<8 {
            again.advance(1_000)
            again.loop.tick()
            try again.runUntilIdle()
          }
          let words = other.take().map { String($0.drop { $0 != " " }.dropFirst()) }
          if isResent {
            #expect(words == ["channel deleted"], "\(story)")
          } else {
            #expect(words == [isBegun ? "channel_not_found" : "channel of 45"], "\(story)")
          }
          guard isResent || isBegun else { continue }
          #expect(try lists(["user1", "user44", "carol"], again) == ["no channels"], "\(story)")
          other.put("team:a", ["zoe"], counter: 51)
          try turn(again)
          #expect(other.take().map { $0.drop { $0 != " " } } == [" channel of 1 new"], "\(story)")
          try again.runUntilIdle()
          try again.writePages()
          #expect(again.storage.log[ShardID(0)]!.isEmpty, "\(story)")
          #expect(again.reports.isEmpty, "\(story)")
          #expect(
            !again.storage.pages.keys.contains { $0.channel == ChannelNumber(1) },
            "\(story): pages are left"
          )
        }
      }
    }
  }

  @Test("the log is kept from the start of a deletion until it ends")
  func logIsKeptUntilDeletionEnds() throws {
    let (harness, gateway) = try crowd { $0.changesPendingMax = 15 }
    try harness.writePages()
    gateway.deleteChannel("team:a")
    try turn(harness)
    let begun = lastIndex(harness)
    // No change is delivered, so the deletion waits while all its pages are written.
    for _ in 0..<10 {
      harness.advance(10_000)
      harness.loop.tick()
      while harness.slices > 0 { harness.slice() }
      try harness.persistAll()
      harness.deliveries = []
    }
    #expect(harness.storage.log[ShardID(0)]![begun] != nil)
    let again = try EngineHarness(harness.storage, configure: Self.small)
    let other = again.connect(session: 2)
    again.loop.tick()
    try again.completeLoads()
    other.getChannel("team:a")
    other.put("team:a", ["zoe"])
    again.loop.endTurn()
    #expect(other.take().sorted() == ["1 channel_not_found", "2 busy"])
    for _ in 0..<8 {
      again.advance(1_000)
      again.loop.tick()
      try again.runUntilIdle()
    }
    try again.writePages()
    #expect(again.storage.log[ShardID(0)]!.isEmpty)
    #expect(try lists(Array(Self.users.dropFirst()), again) == ["no channels"])
  }

  @Test("an index rebuild skips a channel that is being deleted")
  func indexRebuildSkipsChannelThatIsBeingDeleted() throws {
    let (harness, gateway) = try crowd()
    gateway.rebuild(1, epoch: 7)
    gateway.deleteChannel("team:a")
    try turn(harness)
    for _ in 0..<6 {
      try harness.runUntilIdle()
      harness.advance(1_000)
      harness.loop.tick()
    }
    try harness.runUntilIdle()
    #expect(try lists(["user1", "user44", "carol"], harness) == ["no channels"])
    #expect(try lists(["user0", "alice"], harness) == ["team:b"])
  }

  // MARK: Users

  /// `team:a` of alice and bob. Bob has sent every other one of 120 messages, each with an acknowledgement request, and
  /// some replies.
  private func talk() throws -> (harness: EngineHarness, gateway: Gateway) {
    let (harness, gateway) = try harnessWithChannel(configure: Self.small)
    for number in 1...120 {
      gateway.post("team:a", "m\(number)", by: number % 2 == 0 ? "bob" : "alice", flags: 2)
    }
    gateway.acknowledge("team:a", "bob", (0..<20).map { "m\(2 * $0 + 1)" }, note: "bob was here")
    gateway.read("team:a", "alice")
    for number in 1...30 {
      gateway.send(.registerMessage, "team:a", thread: "m\(number % 3 + 1)") { payload in
        payload.writeField("r\(number)")
        payload.writeField("bob")
        payload.writeTime(.none)
        payload.writeVarint(0)
      }
    }
    try turn(harness)
    try harness.runUntilIdle()
    _ = gateway.take()
    return (harness, gateway)
  }

  /// Whether any page names bob after the dirty pages were written.
  private func namesBob(_ harness: EngineHarness) throws -> Bool {
    for _ in 0..<3 {
      try harness.runUntilIdle()
      try harness.writePages()
    }
    return try harness.storage.pages.values.contains {
      "\(try Page($0.readableBytesSpan).effects)".contains("\"bob")
    }
  }

  @Test("an erasure over many turns lets others be served, adds nothing in the name, and drops the name last")
  func erasureOverManyTurnsLetsOthersBeServed() throws {
    let (harness, gateway) = try talk()
    let start = lastIndex(harness)
    gateway.erase("team:a", "bob")
    try turn(harness)
    #expect(gateway.take() == [] && harness.slices == 1)
    var rounds = 0
    while harness.slices > 0 {
      rounds += 1
      if rounds == 3 { gateway.erase("team:a", "bob") }
      gateway.read("team:a", "alice")
      let isKnown = try lists(["bob"], harness) == ["team:a"]
      gateway.read("team:a", "bob", "m1")
      gateway.post("team:a", "new", by: "bob")
      gateway.change("team:a", add: ["bob"])
      gateway.put("team:a", ["bob"])
      gateway.acknowledge("team:a", "bob", ["m119"])
      harness.slice()
      try turn(harness)
      let words = Set(gateway.take().map { String($0.drop { $0 != " " }.dropFirst()) })
      if harness.slices > 1 || rounds < 4 {
        #expect(isKnown && words == ["busy", "row read 120 unread 0"], "round \(rounds): \(words)")
      }
      if words.contains("erased") {
        #expect(rounds > 8)
        break
      }
    }
    while harness.slices > 0 {
      harness.slice()
      try turn(harness)
    }
    #expect(try largestBatch(harness, after: start) <= 24)
    try harness.runUntilIdle()
    #expect(gateway.take().map { $0.drop { $0 != " " } } == [" not known"])
    #expect(try lists(["bob"], harness) == ["no channels"])
    #expect(try namesBob(harness) == false)
    gateway.change("team:a", add: ["bob"])
    try turn(harness)
    #expect(gateway.take().map { $0.drop { $0 != " " } } == [" channel of 2"])
  }

  @Test("after a crash between any two commits of an erasure a repeat completes it")
  func repeatCompletesErasureAfterCrash() throws {
    for isResent in [false, true] {
      for commits in 0..<16 {
        let (harness, gateway) = try talk()
        gateway.erase("team:a", "bob", counter: 500)
        harness.loop.endTurn()
        for _ in 0..<commits {
          if !harness.commits.isEmpty { try harness.persist() }
          if harness.slices > 0 { harness.slice() }
        }
        let isDone = gateway.take() != []
        let again = try EngineHarness(harness.storage, configure: Self.small)
        let other = again.connect(session: isResent ? 1 : 2)
        let mayBeKnown = try lists(["bob"], again) == ["team:a"]
        other.erase("team:a", "bob", counter: 500)
        try turn(again)
        try again.runUntilIdle()
        let words = other.take().map { String($0.drop { $0 != " " }.dropFirst()) }
        if isResent || !isDone {
          #expect(words == ["erased"] || !mayBeKnown && !isResent, "\(commits) commits: \(words)")
        }
        try again.runUntilIdle()
        for _ in 0..<4 {
          again.advance(1_000)
          again.loop.tick()
          try again.runUntilIdle()
        }
        #expect(try lists(["bob"], again) == ["no channels"], "\(commits) commits")
        #expect(try namesBob(again) == false, "\(commits) commits")
        #expect(again.reports.isEmpty)
      }
    }
  }

  @Test("a later command of a session does not answer for one whose connection closed")
  func laterCommandDoesNotAnswerForLostOne() throws {
    let (harness, gateway) = try talk()
    gateway.erase("team:a", "bob", counter: 500)
    gateway.read("team:a", "alice", counter: 501)
    try turn(harness)
    harness.loop.close(gateway.lane)
    let other = harness.connect(serial: 1)
    harness.loop.open(other.lane)
    other.read("team:a", "bob", "m1", counter: 502)
    other.erase("team:a", "bob", counter: 500)
    try turn(harness)
    try harness.runUntilIdle()
    #expect(other.take().map { $0.drop { $0 != " " } } == [" row read 120 unread 0", " erased"])
    #expect(try namesBob(harness) == false)
  }

  @Test("deleting the channel during a member's erasure ends the erasure")
  func deletionEndsErasureOfMember() throws {
    let (harness, gateway) = try talk()
    gateway.assign(user: "bob", version: 1, flags: 4)
    try turn(harness)
    try harness.runUntilIdle()
    _ = gateway.take()
    gateway.erase("team:a", "bob")
    try turn(harness)
    gateway.deleteChannel("team:a")
    try turn(harness)
    while harness.slices > 0 {
      harness.slice()
      try turn(harness)
    }
    try harness.runUntilIdle()
    #expect(gateway.take().map { $0.drop { $0 != " " } }.sorted() == [" channel deleted", " not known"])
    gateway.assign(user: "bob", version: 2, flags: 8)
    try turn(harness)
    #expect(try namesBob(harness) == false)
  }
}
