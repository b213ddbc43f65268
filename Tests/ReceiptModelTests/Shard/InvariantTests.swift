import Testing

@testable import ReceiptModel

#if DEBUG
  /// Breaks each invariant once: a check that cannot fail would be useless.
  @Suite("Invariants")
  struct InvariantTests {
    private static let channel = ChannelNumber(1)

    private struct Shard: ~Copyable {
      var state: ShardState
      let slot: ChannelSlot
    }

    /// A channel with two messages, and alice in row 0, who has read and received the first.
    private static func channel(_ effects: [ChannelEffect] = []) -> Shard {
      var state = ShardState(id: ShardID(0))
      state.assign(.countersAssigned(nextChannel: ChannelNumber(2), time: time(1)))
      let slot = state.insert(channel, cid: "team:room", created: time(1), own: OptionPatch())
      for (number, id) in ["m1", "m2"].enumerated() {
        let record = MessageRecord(id: id, sender: "bob", flags: [], registeredAt: time(2))
        state.assign(.messageAssigned(SequenceNumber(UInt32(number + 1)), record), to: slot)
      }
      state.assign(.rowAssigned(MemberOrdinal(0), alice), to: slot)
      for effect in effects { state.assign(effect, to: slot) }
      return Shard(state: state, slot: slot)
    }

    private static let alice = RowRecord(
      user: "alice",
      joined: .zero,
      joinedAt: time(1),
      read: SequenceNumber(1),
      readAt: time(3),
      delivered: SequenceNumber(1),
      deliveredAt: time(3)
    )

    private static func time(_ milliseconds: Int64) -> Timestamp { Timestamp(milliseconds: milliseconds) }

    private static func row(_ number: UInt32, _ change: (inout RowRecord) -> Void) -> ChannelEffect {
      var record = alice
      change(&record)
      return .rowAssigned(MemberOrdinal(number), record)
    }

    struct Break: Sendable, CustomTestStringConvertible {
      let testDescription: String
      let effects: [ChannelEffect]
      /// Whether checking the effect's own row or message finds the violation.
      let isLocal: Bool
      init(_ fault: String, isLocal: Bool = true, _ effects: ChannelEffect...) {
        testDescription = fault
        self.effects = effects
        self.isLocal = isLocal
      }
    }

    private static let first = MemberOrdinal(0)

    static let breaks: [Break] = [
      Break(
        "marker not below the watermark",
        .markerAssigned(first, marker: SequenceNumber(1), epoch: 1)
      ),
      Break("a marker without an epoch", .markerAssigned(first, marker: .zero, epoch: 0)),
      Break("read past the newest", .readMoved(first, to: SequenceNumber(3), at: time(4))),
      Break("received past the newest", .deliveredMoved(first, to: SequenceNumber(3), at: time(4))),
      Break("moved before it joined", .readMoved(first, to: SequenceNumber(2), at: time(-1))),
      Break("read without a time", row(0) { $0.readAt = .none }),
      Break("delivered without a time", row(0) { $0.deliveredAt = .none }),
      Break("joined after the newest", row(0) { $0.joined = SequenceNumber(3) }),
      Break("read watermark below where it joined", row(0) { $0.joined = SequenceNumber(2) }),
      Break("not cleared", row(0) { $0.hasLeft = true }),
      Break("nobody's", row(0) { $0.user = "" }),
      Break("not found by its user", row(1) { $0.user = "alice" }, row(0) { _ in }),
      Break(
        "joined before the row before it",
        row(1) {
          $0.user = "carol"; $0.joined = SequenceNumber(2); $0.read = SequenceNumber(2)
        },
        row(2) { $0.user = "dave" }
      ),
      Break("acknowledged past the newest", row(0) { $0.acknowledgedThrough = SequenceNumber(3) }),
      Break(
        "acknowledged without an acknowledgement request",
        .acknowledged(SequenceNumber(1), Acknowledgement(row: first, at: time(4)))
      ),
      Break("a member has two rows", isLocal: false, row(1) { $0.user = "alice" }),
    ]

    @Test("invariants hold at first, and every violation is found", arguments: breaks)
    func everyViolationIsFound(example: Break) {
      let whole = Self.channel()
      #expect(whole.state.checkInvariants() == nil)
      #expect(whole.state[whole.slot].checkInvariants(changedBy: Self.row(0) { _ in }) == nil)
      let broken = Self.channel(example.effects)
      #expect(broken.state.checkInvariants() != nil)
      guard example.isLocal else { return }
      let fault = broken.state[broken.slot].checkInvariants(changedBy: example.effects.last!)
      #expect(fault?.contains(example.testDescription) == true, "\(fault ?? "nothing")")
    }

    @Test("finds a channel number that was never assigned")
    func unassignedChannelNumberIsFound() {
      var shard = Self.channel()
      _ = shard.state.insert(ChannelNumber(2), cid: "team:other", created: Self.time(1), own: OptionPatch())
      #expect(shard.state.checkInvariants()?.contains("not assigned") == true)
    }

    @Test("finds a row whose hidden kinds differ from its user's settings")
    func findsRowWhoseHiddenKindsDifferFromUserSettings() {
      var shard = Self.channel()
      shard.state[shard.slot].rows.hide(Self.first, read: true, delivered: false)
      #expect(shard.state.checkInvariants()?.contains("does not hide") == true)
      var other = Self.channel()
      other.state.assign(.userAssigned(0, UserSettings(user: "alice", version: 1, hidesDelivered: true)))
      // Settings that the channel has not copied yet are no violation.
      #expect(other.state.checkInvariants() == nil)
      other.state.refresh(other.slot)
      #expect(other.state.checkInvariants() == nil)
      other.state[other.slot].rows.hide(Self.first, read: false, delivered: false)
      #expect(other.state.checkInvariants()?.contains("does not hide") == true)
    }

    @Test("finds a reference to a missing message")
    func findsReferenceToMissingMessage() {
      let shard = Self.channel()
      for number in [UInt32(0), 3] {
        let effect = ChannelEffect.messageDeleted(SequenceNumber(number), at: Self.time(1))
        #expect(shard.state[shard.slot].checkInvariants(changedBy: effect) != nil, "\(number)")
      }
    }
  }
#endif
