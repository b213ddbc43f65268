import Testing

@testable import NaiveReceiptModel
@testable import ReceiptModel

/// R3, R16, R20: acknowledgements of push notifications, by names and by tickets.
@Suite("Stories of push acks")
struct PushStoryTests {
  @Test("an acknowledgement marks its message and all before it delivered; late ones change nothing")
  func acknowledgementMarksMessageAndAllBeforeItDelivered() {
    story(
      """
      join alice bob
      post m1…m4 by alice
      clock 2000
      push bob m3          -> moved sent 1000 delivered 2000
      row bob              -> delivered 3 dat 2000
      clock 3000
      push bob m3          -> same sent 1000 delivered 2000
      push bob m1          -> same delivered 2000
      delivered bob m2     -> same dat 2000
      status m3            -> delivered received 1
      status m4            -> sent
      push bob m4          -> moved delivered 3000
      push carol m4        -> not_a_member
      push bob m9          -> message_not_found
      """
    )
  }

  @Test("R20: the time of the push ack is shown, bounded by the message, the last step and now")
  func acknowledgedTimeIsShown() {
    story(
      """
      join alice bob
      post m1…m5 by alice
      clock 60000
      # Before the message was registered.
      push bob m1 acked 500    -> moved sent 1000 delivered 1000
      push bob m2 acked 2000   -> moved delivered 2000
      row bob                  -> delivered 2 dat 2000
      shown bob                -> delivered 2 dat 2000
      # Earlier than the previous one; then later than now.
      push bob m3 acked 1500   -> moved delivered 2000
      push bob m4 acked 70000  -> moved delivered 60000
      push bob m5 acked 59000  -> moved delivered 60000
      row bob                  -> delivered 5 dat 60000
      recover
      row bob                  -> delivered 5 dat 60000
      """
    )
  }

  @Test("R20: duplicate and reordered acknowledgements keep the furthest position and its time")
  func reorderedAcknowledgementsKeepFurthestPosition() {
    story(
      """
      join alice bob
      post m1…m9 by alice
      clock 9000
      push bob m4 acked 4000   -> moved delivered 4000
      push bob m2 acked 2000   -> same delivered 4000
      push bob m9 acked 8000   -> moved delivered 8000
      push bob m9 acked 8500   -> same delivered 8000
      push bob m4 acked 4000   -> same delivered 8000
      row bob                  -> delivered 9 dat 8000
      # A mark at the current time has no such time, and later ones are not earlier than it.
      post m10 by alice
      delivered bob m10        -> moved delivered 10 dat 9000
      post m11 by alice
      clock 10000
      push bob m11 acked 8000  -> moved delivered 9000
      evict
      row bob                  -> delivered 11 dat 9000
      """
    )
  }

  @Test("sending and reading are unaffected; a read shows its own time")
  func sendingAndReadingAreUnaffected() {
    story(
      """
      join alice bob
      post m1 m2 by alice
      clock 5000
      push bob m1 acked 3000   -> moved delivered 3000
      read bob m2              -> moved seq 2 delivered 2 dat 5000
      push bob m2 acked 4000   -> moved delivered 4000
      row bob                  -> delivered 2 dat 4000
      clock 6000
      post m3 by bob
      row bob                  -> delivered 3 dat 6000
      """
    )
  }

  @Test("a ticket is valid for one member of one channel, while they are a member")
  func ticketIsValidForOneMemberOfOneChannel() {
    story(
      """
      join alice bob
      post m1 m2 by alice
      ticket bob m2            -> 0
      ticket carol m2          -> not_a_member
      ticket bob m9            -> message_not_found
      clock 3000
      redeem 0 acked 2000      -> moved sent 1000 delivered 2000
      redeem 0                 -> same delivered 2000
      delete m1                -> moved seq 1
      ticket bob m1            -> message_deleted
      # A ticket from before the deletion still marks its position.
      delete m2                -> moved seq 2
      redeem 0                 -> same
      leave bob
      redeem 0                 -> not_a_member
      join bob
      redeem 0                 -> not_a_member
      post m3 by alice
      ticket bob m3            -> 1
      recover
      redeem 1                 -> moved delivered 3000
      erase bob                -> done
      redeem 1                 -> not_a_member
      """
    )
  }

  @Test("a deleted channel's ticket is invalid, also after the cid is created again")
  func deletedChannelTicketIsInvalid() {
    story(
      """
      join alice bob
      post m1 by alice
      ticket bob m1            -> 0
      end                      -> done
      redeem 0                 -> channel_not_found
      push bob m1              -> channel_not_found
      channel team:room        -> created members 0
      join alice bob
      post m1 by alice
      redeem 0                 -> channel_not_found
      recover
      redeem 0                 -> channel_not_found
      ticket bob m1            -> 1
      redeem 1                 -> moved
      """
    )
  }

  @Test("R7: an acknowledgement while hidden shows no time, and later ones do not reveal it")
  func acknowledgementWhileHiddenShowsNoTime() {
    story(
      """
      join alice bob
      post m1…m4 by alice
      hide bob
      clock 2000
      push bob m1 acked 1500   -> moved delivered 1500
      shown bob                -> delivered 0
      row bob                  -> delivered 1 dat 1500
      clock 3000
      show bob
      shown bob                -> delivered 1 dat 3000
      # Others have already seen 3,000.
      clock 4000
      push bob m2 acked 1800   -> moved delivered 3000
      push bob m3 acked 3500   -> moved delivered 3500
      shown bob                -> delivered 3 dat 3500
      """
    )
  }

  @Test("R15: in a thread it marks the member's row there; without a row it changes nothing")
  func acknowledgementInThreadMarksExistingRow() {
    let shard = TestShard()
    shard.checksEverything = true
    let cid = "team:room"
    func outcome(_ command: Command, _ clock: Int) -> Outcome {
      defer { shard.seal() }
      return shard.perform(command, clock: clock)
    }
    _ = outcome(
      .put(cid: cid, settings: [:], members: ["alice", "bob", "carol"].map { MemberSpec(user: $0) }),
      1_000
    )
    _ = outcome(.post(cid: cid, id: "m1", sender: "alice", created: 0, isSilent: false), 1_000)
    _ = outcome(.inThread("m1", .post(cid: cid, id: "r1", sender: "bob", created: 0, isSilent: false)), 2_000)
    #expect(
      outcome(.push(cid: cid, user: "alice", message: "r1", acked: 2_500), 3_000)
        == .delivery(isMoved: true, sentAt: 2_000, deliveredAt: 2_500)
    )
    #expect(shard.threadRow(cid, "alice", under: "m1")?.lastDeliveredAt == 2_500)
    #expect(
      outcome(.push(cid: cid, user: "carol", message: "r1", acked: 0), 3_000)
        == .delivery(isMoved: false, sentAt: 2_000, deliveredAt: 0)
    )
    #expect(outcome(.ticket(cid: cid, user: "carol", message: "r1"), 3_000) == .ticket(0))
    _ = outcome(.inThread("m1", .read(cid: cid, user: "carol", message: "", epoch: nil)), 4_000)
    shard.crash()
    #expect(shard.threadRow(cid, "alice", under: "m1")?.lastDeliveredAt == 2_500)
    #expect(
      outcome(.redeem(cid: cid, ticket: 0, acked: 1), 5_000)
        == .delivery(isMoved: true, sentAt: 2_000, deliveredAt: 2_000)
    )
    _ = outcome(.delete(cid: cid, id: "m1"), 6_000)
    #expect(outcome(.redeem(cid: cid, ticket: 0, acked: 0), 6_000) == .refused("message_deleted"))
    #expect(shard.faults == [])
  }

  @Test("lists and their order use the time of the push ack, changes use the arrival time")
  func listsUseAckTimeAndChangesArrivalTime() {
    let room = ListRoom(["alice", "bob", "carol"])
    room.post("m1", by: "alice")
    room.clock = 2_000
    room.receive("carol", 1)
    room.clock = 60_000
    room.receive("bob", 1, acked: 1_500)
    #expect(room.page(.delivered) == "bob@1500 carol@2000")
    #expect(room.page(.delivered, order: .time) == "bob@1500 carol@2000")
    #expect(room.page(.delivered, order: .time, limit: 1) == "bob@1500 | t1500-bob")
    eventStory(
      """
      join alice bob
      post m1 m2 by alice
      events               -> added alice, added bob, new m1 moving both, new m2 moving both
      clock 60000
      push bob m1 acked 2000
      events times             -> bob: +delivered@60000, alice:m1=delivered@60000
      since 60000 times        -> bob: +delivered@60000, alice:m1=delivered@60000
      since 59000              -> bob: +delivered, alice:m1=delivered
      since 60001              -> nothing
      clock 70000
      push bob m1 acked 65000
      since 60001              -> nothing
      recover
      since 60000              -> bob: +delivered, alice:m1=delivered
      clock 80000
      push bob m2 acked 3000
      # By the steps in memory: m1 was delivered earlier.
      since 75000              -> bob: +delivered, alice:m2=delivered
      """
    )
  }
}

/// Remembered webhooks, by the shard's time.
@Suite("Remembered webhooks in the model")
struct WebhookTableTests {
  private static func at(_ milliseconds: Int64) -> Timestamp { Timestamp(milliseconds: milliseconds) }

  @Test("webhooks expire in order, and no earlier than their time")
  func webhooksExpireInOrder() {
    var table = WebhookTable()
    // Keys of many pages, with expiry times in no order.
    let untils = (0..<500).map { Int64(1_000 + $0 * 37 % 500) }
    for (number, until) in untils.enumerated() {
      table.record(UInt64(number) &* 0x9E37_79B9_7F4A_7C15, until: Self.at(until), at: Self.at(1))
    }
    #expect(table.count == 500)
    for time in stride(from: Int64(900), through: 1_600, by: 50) {
      table.record(1, until: Self.at(2_000), at: Self.at(time))
      let left = untils.count { $0 >= time }
      #expect(table.count == left + 1)
      for (number, until) in untils.enumerated() where until >= time {
        #expect(table.until(UInt64(number) &* 0x9E37_79B9_7F4A_7C15) == Self.at(until))
      }
    }
    #expect(table.count == 1)
  }

  @Test("a page has its keys' webhooks, and restores them")
  func pageRestoresWebhooks() {
    var table = WebhookTable()
    #expect(table.effects(of: 7, at: Self.at(1)) == [])
    let keys = [7 << 56 | 3, 7 << 56 | 1, 8 << 56] as [UInt64]
    for (number, key) in keys.enumerated() {
      table.record(key, until: Self.at(1_000 + Int64(number)), at: Self.at(1))
    }
    let effects = table.effects(of: 7, at: Self.at(1))
    #expect(
      effects == [
        .shard(.webhookNoted(keys[1], until: Self.at(1_001))),
        .shard(.webhookNoted(keys[0], until: Self.at(1_000))),
      ]
    )
    #expect(table.effects(of: 7, at: Self.at(1_001)).count == 1)
    #expect(effects.allSatisfy { $0.page == .webhooks(7) && $0.channel == nil })
    var again = ShardState(id: ShardID(0))
    for effect in effects + effects { again.assign(effect) }
    #expect(again.webhooks.count == 2 && again.effects(ofOwn: .webhooks(7)) == effects)
  }

  @Test("a webhook is remembered for an hour at most, and not at all after its expiry")
  func webhookIsRememberedForHourAtMost() {
    let shard = ShardState(id: ShardID(0))
    func decided(until: Int64) -> [Effect] {
      var effects: [Effect] = []
      shard.webhooks.decideRemember(5, until: Self.at(until), at: Self.at(10_000), into: &effects)
      return effects
    }
    #expect(decided(until: 9_999) == [])
    #expect(decided(until: 10_000) == [.shard(.webhookNoted(5, until: Self.at(10_000)))])
    #expect(decided(until: 3_610_000) == [.shard(.webhookNoted(5, until: Self.at(3_610_000)))])
    #expect(decided(until: 3_610_001) == [.shard(.webhookNoted(5, until: Self.at(3_610_000)))])
  }

  @Test("a full table refuses webhooks, and reports when it has room again")
  func fullTableRefusesWebhooks() {
    var table = WebhookTable()
    for number in 0..<WebhookTable.countMax {
      #expect(table.full(at: Self.at(1)) == .none)
      table.record(UInt64(number), until: Self.at(5_000 + Int64(number)), at: Self.at(1))
    }
    #expect(table.full(at: Self.at(1)) == Self.at(5_001))
    #expect(table.full(at: Self.at(5_000)) == Self.at(5_001))
    #expect(table.full(at: Self.at(5_001)) == .none)
  }
}

/// Push acks as a store performs them, in plain text and integers.
extension TestShard {
  func push(_ cid: String, _ user: String, _ message: String, acked: Int, clock: Int) -> Outcome {
    deciding(cid, clock) { slot, time, effects throws(Refusal) in
      let (user, message) = (Array(user.utf8), Array(message.utf8))
      let targetSlot = state.targetSlot(of: message.span.bytes, in: slot)
      let target = try state.pushTarget(targetSlot, user: user.span.bytes, message: message.span.bytes)
      return try deliver(target, acked: acked, time, &effects)
    }
  }

  /// Create a ticket, identified by its index among those of the cid.
  func makeTicket(_ cid: String, _ user: String, _ message: String, clock: Int) -> Outcome {
    deciding(cid, clock) { slot, _, _ throws(Refusal) in
      let (user, message) = (Array(user.utf8), Array(message.utf8))
      let targetSlot = state.targetSlot(of: message.span.bytes, in: slot)
      let target = try state.pushTarget(targetSlot, user: user.span.bytes, message: message.span.bytes)
      let ticket = try state.ticketPlace(target)
      apply([])
      tickets[cid, default: []].append(ticket)
      return .ticket(tickets[cid]!.count - 1)
    }
  }

  /// Acknowledge with the ticket's numbers alone.
  func redeem(_ cid: String, _ number: Int, acked: Int, clock: Int) -> Outcome {
    let ticket = tickets[cid]![number]
    guard let slot = state.slot(numbered: ticket.channel) else {
      pass(to: clock)
      apply([])
      return .refused(Refusal.channelNotFound.wireName)
    }
    state.refresh(slot)
    return deciding(String(decoding: state[slot].cid, as: UTF8.self), clock) {
      slot,
      time,
      effects throws(Refusal) in
      let target = try state.pushTarget(slot, ticket)
      return try deliver(target, acked: acked, time, &effects)
    }
  }

  private func deliver(
    _ target: ShardState.PushTarget,
    acked: Int,
    _ time: Timestamp,
    _ effects: inout [Effect]
  ) throws(Refusal) -> Outcome {
    state.refresh(target.slot)
    try state.decidePush(target, acked: Timestamp(milliseconds: Int64(acked)), at: time, into: &effects)
    let isMoved = !effects.isEmpty
    apply(effects)
    return .delivery(
      isMoved: isMoved,
      sentAt: Int(state.sentAt(target).milliseconds),
      deliveredAt: Int(state.deliveredAt(target).milliseconds)
    )
  }
}
