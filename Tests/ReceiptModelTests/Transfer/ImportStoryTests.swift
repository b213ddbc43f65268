@testable import ReceiptModel
import Testing

/// Imports as the model decides them (docs/api/import-export.md).
@Suite struct ImportStoryTests {
  /// A shard with one imported channel, at time 1,000,000.
  private final class Story {
    let shard = TestShard()
    private(set) var refusal: Refusal?

    init(options: OptionPatch = OptionPatch(), messages: Int = 0) {
      perform { shard, time, effects throws(Refusal) in
        try shard.state.decideImport(
          channel: "team:a",
          in: nil,
          options: options,
          created: Timestamp(milliseconds: 1_000),
          at: time,
          into: &effects
        )
      }
      for number in 0..<messages { message("m\(number + 1)", at: 2_000 + Int64(number) * 100) }
    }

    var slot: ChannelSlot { shard.slot("team:a")! }
    var channel: ChannelSlot { slot }

    /// Decide and apply; returns the number of effects.
    @discardableResult
    func perform(_ decide: (TestShard, Timestamp, inout [Effect]) throws(Refusal) -> Void) -> Int {
      let time = shard.state.advance(clock: Timestamp(milliseconds: 1_000_000))
      var effects: [Effect] = []
      refusal = nil
      do throws(Refusal) { try decide(shard, time, &effects) } catch { refusal = error }
      shard.apply(effects)
      return effects.count
    }

    @discardableResult
    func message(
      _ id: String,
      by sender: String = "ann",
      seq: UInt32 = 0,
      at time: Int64 = 0,
      parent: String = "",
      flags: TransferredMessage.Flags = [],
      mentions: [String] = []
    ) -> Int {
      let message = TransferredMessage(
        id: id,
        sender: sender,
        parent: parent,
        sequence: SequenceNumber(seq),
        registeredAt: Timestamp(milliseconds: time),
        flags: flags,
        mentions: mentions
      )
      return perform { shard, time, effects throws(Refusal) in
        try shard.state.decideImport(message, in: slot, at: time, into: &effects)
      }
    }

    @discardableResult
    func member(_ member: TransferredMember) -> Int {
      var imported: ShardState.ImportedRow?
      let count = perform { shard, time, effects throws(Refusal) in
        imported = try shard.state.decideImport(member, in: slot, at: time, into: &effects)
      }
      guard let imported, !imported.steps.isEmpty else { return count }
      return count
        + perform { shard, _, effects in
          shard.state.decideImport(imported.steps[...], of: imported.row, in: imported.slot, into: &effects)
        }
    }

    /// When a member read a message, as others see it: the time, and `~` if it is not exact.
    func readTime(_ user: String, _ sequence: UInt32) -> String {
      let row = shard.state[slot].row(of: user)!
      switch shard.state[slot].stepTime(.read, row, reaching: SequenceNumber(sequence), kept: 64, in: ReadSegments()) {
      case .exact(let time): return "\(time.milliseconds)"
      case .latest(let time): return "~\(time.milliseconds)"
      case .hidden(let time): return "hidden \(time.milliseconds)"
      case .stored: return "stored"
      }
    }

    func unread(_ user: String) throws(Refusal) -> UnreadCounts {
      let user = Array(user.utf8)
      return try shard.state.unread(slot, user.span.bytes)
    }
  }

  private static func steps(_ moves: (UInt32, Int64)...) -> [TransferredMember.Move] {
    moves.map { .init(.read, to: SequenceNumber($0.0), at: Timestamp(milliseconds: $0.1)) }
  }

  @Test("original times are kept; a time before the message before it counts as equal to that one")
  func originalTimesAreKept() {
    let story = Story()
    story.message("m1", at: 5_000)
    story.message("m2", at: 4_000)
    let messages = [SequenceNumber(1), SequenceNumber(2)]
    let state = story.shard.state[story.slot].messages.registeredAt(messages[0]).milliseconds
    #expect(state == 5_000)
    #expect(story.shard.state[story.slot].messages.registeredAt(messages[1]).milliseconds == 5_000)
    #expect(story.shard.state[story.slot].messages.createdAt(messages[1]).milliseconds == 4_000)
  }

  @Test("a message moves no position, and its sender's own messages are not unread")
  func messagesMoveNothing() throws {
    let story = Story()
    story.message("m1", by: "ann", at: 2_000, flags: .keepsSenderPosition)
    story.message("m2", by: "bob", at: 2_100, flags: .keepsSenderPosition)
    story.member(TransferredMember(user: "ann"))
    #expect(try story.unread("ann").messages == 1)
    #expect(story.shard.state[story.slot].rows.read[MemberOrdinal(0)] == .zero)
  }

  @Test("steps with their number of moves are exact; without it, the first step is the latest possible time")
  func timesAreExactOnlyIfKnown() {
    let story = Story(messages: 6)
    let moves = Self.steps((2, 10_000), (5, 20_000))
    story.member(TransferredMember(user: "bob", read: "m5", readMoves: 2, moves: moves))
    story.member(TransferredMember(user: "carol", read: "m5", moves: moves))
    story.member(TransferredMember(user: "dave", read: "m5", readAt: Timestamp(milliseconds: 20_000)))
    story.member(TransferredMember(user: "erin", read: "m6", readAt: Timestamp(milliseconds: 30_000), moves: moves))
    #expect([1, 2, 3, 5].map { story.readTime("bob", $0) } == ["10000", "10000", "20000", "20000"])
    #expect([1, 2, 3, 5].map { story.readTime("carol", $0) } == ["~10000", "~10000", "20000", "20000"])
    #expect([1, 5].map { story.readTime("dave", $0) } == ["~20000", "~20000"])
    #expect([5, 6].map { story.readTime("erin", $0) } == ["20000", "30000"])
  }

  @Test("a position without a time has the time of the import, which is not exact")
  func missingTimesAreNotExact() {
    let story = Story(messages: 2)
    story.member(TransferredMember(user: "bob", read: "m2"))
    #expect(story.readTime("bob", 1) == "~1000000")
  }

  @Test("the same lines again change nothing")
  func sameLinesAgainChangeNothing() {
    let story = Story()
    story.message("m1", at: 2_000, flags: .requestsAcknowledgement, mentions: ["bob"])
    story.message("r1", at: 2_100, parent: "m1")
    let left = TransferredMember(user: "bob", joined: .zero, leftAt: Timestamp(milliseconds: 2_050))
    let again = TransferredMember(user: "bob", joined: SequenceNumber(1), read: "m1", unreadFrom: "m1", unreadEpoch: 2)
    let inThread = TransferredMember(user: "bob", thread: "m1", joined: .zero, read: "r1")
    for member in [left, again, inThread] { #expect(story.member(member) > 0) }
    story.shard.checkAll()
    for member in [left, again, inThread] { #expect(story.member(member) == 0) }
    #expect(story.message("m1", at: 2_000, flags: .requestsAcknowledgement, mentions: ["bob"]) == 0)
    #expect(story.message("r1", at: 2_100, parent: "m1") == 0)
    #expect(story.refusal == nil && story.shard.faults.isEmpty)
  }

  @Test("what has changed since is not undone by the same lines; a later dump raises positions")
  func laterDumpRaisesPositions() {
    let story = Story(messages: 4)
    let first = TransferredMember(
      user: "bob",
      joined: .zero,
      read: "m1",
      readAt: Timestamp(milliseconds: 10_000),
      unreadFrom: "m1",
      unreadEpoch: 1
    )
    story.member(first)
    let row = MemberOrdinal(0)
    var later = first
    (later.read, later.readAt, later.unreadFrom) = ("m3", Timestamp(milliseconds: 30_000), "")
    #expect(story.member(later) > 0)
    #expect(story.shard.state[story.slot].rows.read[row] == SequenceNumber(3))
    #expect(story.shard.state[story.slot].rows.marker(row) == nil)
    #expect(story.readTime("bob", 2) == "~30000")
    #expect(story.member(first) == 0)
    #expect(story.shard.state[story.slot].rows.marker(row) == nil, "an equal epoch sets no marker")
  }

  @Test("mentions wait for the rows of their users, of the stay that they meant")
  func mentionsWaitForRows() throws {
    let story = Story()
    story.message("m1", at: 2_000, mentions: ["bob", "carol"])
    story.message("m2", at: 2_100)
    story.message("m3", at: 2_200, mentions: ["bob"])
    story.member(TransferredMember(user: "bob", joined: .zero, leftAt: Timestamp(milliseconds: 2_050)))
    story.member(TransferredMember(user: "bob", joined: SequenceNumber(1)))
    // Carol joined after the message that mentions her.
    story.member(TransferredMember(user: "carol", joined: SequenceNumber(2)))
    #expect(try story.unread("bob").mentions == 1)
    #expect(try story.unread("carol").mentions == 0)
    story.shard.seal()
    #expect(story.shard.recovered().digest() == story.shard.digest())
  }

  @Test("gaps, contradictions, a wrong order and times to come are refused by name")
  func wrongRecordsAreRefused() {
    let story = Story(messages: 2)
    story.message("m4", seq: 4)
    #expect(story.refusal == .importGap)
    story.message("m3", seq: 2)
    #expect(story.refusal == .importConflict)
    story.message("m1", by: "bob")
    #expect(story.refusal == .messageConflict)
    story.message("m3", at: 1_000_001)
    #expect(story.refusal == .timeInFuture)
    story.message("r", parent: "none")
    #expect(story.refusal == .messageNotFound)
    story.member(TransferredMember(user: "bob", joined: SequenceNumber(3)))
    #expect(story.refusal == .importConflict)
    story.member(TransferredMember(user: "bob", joined: SequenceNumber(2)))
    story.member(TransferredMember(user: "carol", joined: SequenceNumber(1)))
    #expect(story.refusal == .importOrder)
    story.member(TransferredMember(user: "bob", joined: SequenceNumber(2), leftAt: Timestamp(milliseconds: 5_000)))
    #expect(story.refusal == .importConflict)
    story.member(TransferredMember(user: "bob", thread: "m1"))
    #expect(story.refusal == .importOrder)
    story.member(TransferredMember(user: "dave", joined: SequenceNumber(2), moves: Self.steps((3, 5))))
    #expect(story.refusal == .importConflict)
  }

  @Test("under visible history a member starts read up to the join, under hidden history with nothing")
  func joinsFollowHistory() throws {
    var hidden = OptionPatch()
    hidden.history = .hidden
    for (options, read) in [(OptionPatch(), UInt32(3)), (hidden, 0)] {
      let story = Story(options: options, messages: 4)
      story.member(TransferredMember(user: "bob", joinedAt: Timestamp(milliseconds: 2_250)))
      #expect(story.shard.state[story.slot].rows.joined(MemberOrdinal(0)) == SequenceNumber(3))
      #expect(story.shard.state[story.slot].rows.read[MemberOrdinal(0)] == SequenceNumber(read))
      #expect(try story.unread("bob").messages == 1)
    }
  }

  @Test("an export has what an import needs, also after recovery from pages and log")
  func exportsAreWhole() {
    let story = Story()
    story.message("m1", at: 2_000, flags: [.requestsAcknowledgement, .silent])
    story.message("m2", at: 2_100, flags: .deleted)
    story.message("r1", by: "bob", at: 2_200, parent: "m1", mentions: ["ann"])
    let moves = Self.steps((1, 10_000), (2, 20_000))
    let bob = TransferredMember(
      user: "bob",
      role: "admin",
      joined: .zero,
      joinedAt: Timestamp(milliseconds: 1_500),
      read: "m2",
      readAt: Timestamp(milliseconds: 20_000),
      unreadFrom: "m1",
      unreadEpoch: 3,
      readMoves: 2,
      flags: [.muted, .showsHistory],
      moves: moves
    )
    story.member(bob)
    story.perform { shard, time, effects throws(Refusal) in
      let record = TransferredAcknowledgement(
        message: "m1",
        user: "bob",
        at: Timestamp(milliseconds: 9_000),
        note: "fine"
      )
      try shard.state.decideImport(record, in: story.slot, at: time, into: &effects)
    }
    let state = story.shard
    let steps = state.state.exportedSteps(of: 0, in: story.slot, ReadSegments())
    #expect(state.state.exported(MemberOrdinal(0), in: story.slot, steps) == bob)
    #expect(state.state.exported(SequenceNumber(1), in: story.slot).flags == [.requestsAcknowledgement, .silent])
    #expect(state.state.exported(SequenceNumber(2), in: story.slot).flags == .deleted)
    let thread = state.state.threadSlots(of: story.slot)[0]
    #expect(state.state.exported(SequenceNumber(1), in: thread).parent == "m1")
    #expect(state.state.acknowledgedMessages(in: story.slot) == [SequenceNumber(1)])
    #expect(state.state.exportedAcknowledgements(of: SequenceNumber(1), in: story.slot).map(\.note) == ["fine"])
    story.shard.seal()
    #expect(story.shard.recovered().digest() == story.shard.digest())
    #expect(story.shard.replayed().digest() == story.shard.digest())
  }
}

/// Lines that contradict each other, or what users have done since.
extension ImportStoryTests {
  private static func at(_ milliseconds: Int64) -> Timestamp { Timestamp(milliseconds: milliseconds) }

  @Test("moves from before the join count as made with it")
  func movesBeforeJoinCountAsMadeWithIt() {
    let story = Story(messages: 5)
    let move = TransferredMember.Move(.read, to: SequenceNumber(1), at: Self.at(1))
    story.member(
      TransferredMember(
        user: "bob",
        joinedAt: Self.at(2_150),
        read: "m4",
        readAt: Self.at(1),
        delivered: "m4",
        deliveredAt: Self.at(1),
        moves: [TransferredMember.Move(.read, to: SequenceNumber(3), at: Self.at(2)), move].reversed()
      )
    )
    #expect(story.refusal == nil)
    let row = story.shard.state[story.slot].row(of: "bob")!
    let record = story.shard.state[story.slot].record(of: row)
    #expect(record.readAt >= record.joinedAt && record.deliveredAt >= record.joinedAt)
    #expect(story.shard.faults == [])
  }

  @Test("a marker and a flag have an epoch of at least 1")
  func markerAndFlagHaveAnEpoch() {
    let story = Story(messages: 5)
    story.member(TransferredMember(user: "bob", read: "m3", unreadFrom: "m2"))
    story.member(TransferredMember(user: "carl", flags: .flaggedUnread))
    for user in ["bob", "carl"] {
      let row = story.shard.state[story.slot].row(of: user)!
      #expect(story.shard.state[story.slot].record(of: row).unreadEpoch == 1, "\(user)")
    }
    #expect(story.member(TransferredMember(user: "carl", flags: .flaggedUnread)) == 0)
    #expect(story.shard.faults == [])
  }

  @Test("what a user has marked unread since stays, unless the line has a higher epoch")
  func sameEpochLeavesMarkUnread() {
    let story = Story(messages: 6)
    story.member(TransferredMember(user: "bob", read: "m4"))
    let row = story.shard.state[story.slot].row(of: "bob")!
    story.perform { shard, time, effects in
      let number = shard.state[story.slot].number
      effects.append(.channel(number, .markerAssigned(row, marker: SequenceNumber(1), epoch: 1, at: time)))
    }
    story.member(TransferredMember(user: "bob", read: "m6", unreadEpoch: 1))
    #expect(story.shard.state[story.slot].record(of: row).marker == SequenceNumber(1))
    story.member(TransferredMember(user: "bob", read: "m6", unreadEpoch: 2))
    #expect(story.shard.state[story.slot].record(of: row).marker == nil)
  }

  @Test("a line of an earlier stay changes nothing once its user has joined again")
  func lineOfEarlierStayChangesNothing() {
    let story = Story(messages: 5)
    let line = TransferredMember(user: "bob", joinedAt: Self.at(2_150), read: "m4", unreadFrom: "m3", unreadEpoch: 3)
    story.member(line)
    for (add, remove) in [([], ["bob"]), (["bob"], [])] as [([String], [String])] {
      story.perform { shard, time, effects throws(Refusal) in
        let members = add.map { ShardState.NewMember(user: $0) }
        try shard.state.decideMembers(story.slot, add: members, remove: remove, at: time, into: &effects)
      }
    }
    #expect(story.member(line) == 0)
    #expect(story.refusal == nil)
    let row = story.shard.state[story.slot].row(of: "bob")!
    #expect(story.shard.state[story.slot].record(of: row).unreadEpoch == 0)
  }

  @Test("leaving before joining is refused")
  func leavingBeforeJoiningIsRefused() {
    let story = Story(messages: 5)
    #expect(story.member(TransferredMember(user: "bob", joinedAt: Self.at(2_150), leftAt: Self.at(2_000))) == 0)
    #expect(story.refusal == .importConflict)
  }

  @Test("the largest counts do not overflow")
  func largestCountsDoNotOverflow() {
    let story = Story(messages: 6)
    let most = TransferredMember.countMax
    story.member(
      TransferredMember(user: "bob", read: "m2", unreadEpoch: most, readMoves: most, deliveredMoves: most)
    )
    story.member(TransferredMember(user: "bob", read: "m4"))
    story.member(TransferredMember(user: "bob", read: "m6"))
    #expect(story.refusal == nil && story.shard.faults == [])
  }
}
