import TestSupport
import Testing

@testable import NaiveReceiptModel
@testable import ReceiptModel

/// Effects, pages and sessions: the contents of the log and of the pages.
@Suite("Effects and pages")
struct EffectTests {
  private static let channel = ChannelNumber(5)

  @Test("rows are addressed in pages of 256, messages in segments of 256 from 1")
  func rowsAreAddressedInPagesOf256() {
    for (row, page) in [(0, 0), (255, 0), (256, 1), (511, 1), (512, 2), (65_536, 256)] as [(UInt32, UInt32)] {
      let row = MemberOrdinal(row)
      let effects: [Effect] = [
        .channel(Self.channel, .rowAssigned(row, RowRecord(user: "a", joined: .zero, joinedAt: .none))),
        .channel(Self.channel, .rowLeft(row, at: .none)),
        .channel(Self.channel, .roleAssigned(row, role: "")),
        .channel(Self.channel, .readMoved(row, to: .zero, at: .none)),
        .channel(Self.channel, .deliveredMoved(row, to: .zero, at: .none)),
        .channel(Self.channel, .deliveredByPushAck(row, to: .zero, at: .none, ackedAt: .none)),
        .channel(Self.channel, .markerAssigned(row, marker: nil, epoch: 0)),
      ]
      for effect in effects {
        #expect(effect.page == .rows(page), "\(row)")
        #expect(effect.channel == Self.channel)
      }
    }
    for (message, page) in [(1, 0), (256, 0), (257, 1), (512, 1), (513, 2)] as [(UInt32, UInt32)] {
      let sequence = SequenceNumber(message)
      let record = MessageRecord(id: "m", sender: "", flags: [], registeredAt: .none)
      #expect(
        Effect.channel(Self.channel, .messageAssigned(sequence, record)).page == .segment(page),
        "\(message)"
      )
      #expect(
        Effect.channel(Self.channel, .messageDeleted(sequence, at: .none)).page == .segment(page),
        "\(message)"
      )
    }
    let head = Effect.channel(Self.channel, .channelAssigned(cid: "a:b", created: .none, own: OptionPatch()))
    #expect(head.page == .head)
    #expect(head.channel == Self.channel)
    let type = Effect.shard(.channelTypeAssigned(ChannelTypeRecord(name: "team")))
    #expect(type.page == .types)
    #expect(type.channel == nil)
    let session = Effect.shard(.sessionAssigned(SessionRecord(session: SessionID(high: 1, low: 2))))
    #expect(session.page == .shardHead)
    #expect(session.channel == nil)
    for effect in [.removed(name: "audit"), .switched(offSince: .none)] as [FeedConsumerEffect] {
      let consumer = Effect.shard(.consumer(effect))
      #expect(consumer.page == .consumers)
      #expect(consumer.channel == nil)
    }
  }

  /// An effect of each kind on the shard.
  private static let shardEffects: [(ShardEffect, ShardEffect.Traits)] = {
    let membership = Membership(cid: "team:x", channel: Self.channel, row: nil, isMember: false, joinedAt: .none)
    let timer = MessageTimer(channel: Self.channel, message: SequenceNumber(1), dueAt: .none, after: 1, .expiry)
    return [
      (.channelTypeAssigned(ChannelTypeRecord(name: "team")), .hasEvent),
      (.typeSettled(name: "team", version: 1), []),
      (.userAssigned(0, UserSettings(user: "alice")), [.hasEvent, .isInFeed, .hasConditions]),
      (.userSettled(0, version: 1), .hasConditions),
      (.userErased(0, version: 1, hash: 2, at: .none), [.hasEvent, .isInFeed, .hasConditions]),
      (.countersAssigned(nextChannel: Self.channel, time: .none), []),
      (.webhookNoted(1, until: .none), []),
      (.tokenRevoked(TokenRevocation(id: "t", until: .none, version: 1)), .hasConditions),
      (.sessionAssigned(SessionRecord(session: SessionID(high: 1, low: 2))), .hasRecovery),
      (.idsWidened, []),
      (.membershipQueued(1, MembershipChange(user: "alice", membership)), [.hasConditions, .hasRecovery]),
      (.membershipsConfirmed(by: ShardID(0), through: 1), [.hasConditions, .hasRecovery]),
      (.membershipsReceived(from: ShardID(0), through: 1), .hasConditions),
      (.indexEpochAssigned(1), []),
      (.consumer(.removed(name: "audit")), .hasRecovery),
      (.timerAssigned(1, timer), []),
      (.timerRemoved(1), []),
      (.pushJob(.removed(1)), []),
    ]
  }()

  @Test("the traits of an effect on the shard say which parts handle it", arguments: shardEffects)
  func shardEffectTraitsNameTheirParts(effect: ShardEffect, traits: ShardEffect.Traits) {
    #expect(effect.traits == traits)
    // The feed asserts that it handles all effects with its trait.
    let state = ShardState(id: ShardID(0))
    let record = state.feedRecord(of: effect, shardCount: 1)
    #expect(record == nil || traits.contains(.isInFeed))
  }

  @Test("an effect takes five words: large payloads are indirect")
  func effectTakesFiveWords() {
    #expect(MemoryLayout<Effect>.size <= 33)
    #expect(MemoryLayout<Effect>.stride == 40)
  }

  @Test("a page returns the effects assigned to it, field by field")
  func pageReturnsEffectsAssignedToIt() {
    var shard = ShardState(id: ShardID(0))
    let slot = shard.insert(
      Self.channel,
      cid: "team:x",
      created: Timestamp(milliseconds: 9),
      own: OptionPatch(["history": "hidden"])
    )
    let message = MessageRecord(
      id: "m1",
      sender: "alice",
      flags: [.silent, .deleted],
      registeredAt: Timestamp(milliseconds: 11),
      createdAt: Timestamp(milliseconds: 10)
    )
    let row = RowRecord(
      user: "alice",
      role: "admin",
      hidesHistory: true,
      joined: .zero,
      joinedAt: Timestamp(milliseconds: 10),
      read: SequenceNumber(1),
      readAt: Timestamp(milliseconds: 12),
      delivered: SequenceNumber(1),
      deliveredAt: Timestamp(milliseconds: 13),
      marker: .zero,
      unreadEpoch: 4
    )
    let head = Effect.channel(
      Self.channel,
      .channelAssigned(
        cid: "team:x",
        created: Timestamp(milliseconds: 9),
        own: OptionPatch(["history": "hidden"])
      )
    )
    let messageEffect = Effect.channel(Self.channel, .messageAssigned(SequenceNumber(1), message))
    let rowEffect = Effect.channel(Self.channel, .rowAssigned(MemberOrdinal(0), row))
    shard.assign(messageEffect, to: slot)
    shard.assign(rowEffect, to: slot)
    // The page's message is silent.
    let counts = Effect.channel(Self.channel, .messageCountsAssigned(newest: SequenceNumber(1), [0]))
    #expect(shard.effects(of: .head, in: slot) == [head, counts])
    #expect(shard.effects(of: .rows(0), in: slot) == [rowEffect])
    #expect(shard.effects(of: .segment(0), in: slot) == [messageEffect])
    // The page is empty.
    #expect(shard.effects(of: .rows(1), in: slot) == [])
    #expect(shard.effects(of: .segment(1), in: slot) == [])
    // Assigning the same effects again changes nothing.
    shard.assign(messageEffect, to: slot)
    shard.assign(rowEffect, to: slot)
    #expect(shard.effects(of: .rows(0), in: slot) == [rowEffect])
    #expect(shard.effects(of: .segment(0), in: slot) == [messageEffect])
    #expect(shard[slot].rows.activeCount == 1)
    // A former member keeps the row, the name and the times of joining and leaving.
    shard.assign(.rowLeft(MemberOrdinal(0), at: Timestamp(milliseconds: 20)), to: slot)
    let left = RowRecord(
      user: "alice",
      hasLeft: true,
      hidesHistory: true,
      joined: .zero,
      joinedAt: Timestamp(milliseconds: 10),
      readAt: Timestamp(milliseconds: 20)
    )
    #expect(
      shard.effects(of: .rows(0), in: slot) == [.channel(Self.channel, .rowAssigned(MemberOrdinal(0), left))]
    )
    #expect(shard[slot].rows.activeCount == 0)
  }

  @Test(
    "row pages can be assigned in any order; the index is built meanwhile",
    arguments: TestRun.seeds(3, long: 30)
  )
  func rowPagesAreAssignedInAnyOrder(seed: UInt64) {
    var random = SplitMix64(printing: seed, of: "row pages in random order")
    let story = TestShard()
    let users = (0..<700).map { MemberSpec(user: "u\($0)") }
    _ = story.perform(.put(cid: "team:x", settings: [:], members: Array(users[..<300])), clock: 1)
    _ = story.perform(.post(cid: "team:x", id: "m1", sender: "u0", created: 0, isSilent: false), clock: 2)
    _ = story.perform(.put(cid: "team:x", settings: [:], members: Array(users[300...])), clock: 3)
    _ = story.perform(.change(cid: "team:x", add: [], remove: (250..<400).map { "u\($0)" }), clock: 4)
    let slot = story.slot("team:x")!
    let number = story.state[slot].number
    var fresh = ShardState(id: ShardID(3))
    var slots: [ChannelNumber: ChannelSlot] = [:]
    fresh.assign(.countersAssigned(nextChannel: story.state.nextChannel, time: story.state.time))
    let pages = story.pageKeys(number).map(\.page)
    for page in [PageID.head] + random.shuffled(pages.filter { $0 != .head }) {
      let effects = story.state.effects(of: page, in: slot)
      // The channel comes before the other effects of its head.
      for effect in page == .head ? effects : random.shuffled(effects) {
        fresh.assign(addressed: effect, slots: &slots)
      }
    }
    for page in 0..<UInt32(PageID.outboxPages) {
      for effect in story.state.effects(ofOwn: .outbox(page)) { fresh.assign(effect) }
    }
    #expect(ShardDigest.difference(story.digest(), ShardDigest(fresh, slots)) == nil)
    #if DEBUG
      #expect(fresh.checkInvariants() == nil)
    #endif
  }

  @Test("a head page has the number of unread-counting messages of each segment")
  func headPageHasMessageCounts() {
    let story = TestShard()
    _ = story.perform(.put(cid: "team:x", settings: [:], members: []), clock: 1)
    let slot = story.slot("team:x")!
    func counts() -> [Effect] { Array(story.state.effects(of: .head, in: slot).dropFirst()) }
    #expect(counts() == [])
    for number in 1...514 {
      let isSilent = number % 100 == 0
      _ = story.perform(
        .post(cid: "team:x", id: "m\(number)", sender: "", created: 0, isSilent: isSilent),
        clock: 2
      )
    }
    let number = story.state[slot].number
    let newest = SequenceNumber(514)
    #expect(counts() == [.channel(number, .messageCountsAssigned(newest: newest, [254, 253, 2]))])
    for message in ["m1", "m256", "m257", "m514"] {
      _ = story.perform(.delete(cid: "team:x", id: message), clock: 3)
    }
    #expect(counts() == [.channel(number, .messageCountsAssigned(newest: newest, [252, 252, 1]))])
  }

  @Test("a session has applied the commands up to its highest counter, except those listed as not applied")
  func sessionHasAppliedCommandsUpToHighest() {
    var record = SessionRecord(session: SessionID(high: 1, low: 2))
    #expect(!record.hasApplied(1))
    record.highest = 5
    record.notApplied = [2, 4]
    #expect((1...7).map { record.hasApplied($0) } == [true, false, true, false, true, false, false])
  }

  @Test("options: the channel's override the type's, which override the defaults; a patch can be undone")
  func channelOptionsOverrideTypeAndDefaults() {
    let defaults = ChannelTypeOptions()
    #expect(defaults.asPatch.isEmpty)
    #expect(defaults.settings == NaiveModel.defaults)
    var random = SplitMix64(printingSeedOf: "option patches")
    for _ in 0..<200 {
      let (a, b) = (Self.randomPatch(&random), Self.randomPatch(&random))
      let both = defaults.applying(a).applying(b)
      #expect(both == defaults.applying(a.merging(b)))
      #expect(defaults.applying(both.asPatch) == both)
    }
  }

  private static func randomPatch(_ random: inout SplitMix64) -> OptionPatch {
    var patch = OptionPatch()
    patch.readEvents = random.pick([nil, true, false])
    patch.deliveryEvents = random.pick([nil, true, false])
    patch.markUnread = random.pick([nil, .private, .public, .off])
    patch.history = random.pick([nil, .visible, .hidden])
    return patch
  }
}
