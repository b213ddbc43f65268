import NIOCore
import ReceiptModel
import ReceiptWire
import Testing

@testable import StoreEngine

/// Push acks by name and by ticket (R3, R20), with the channel in memory, in storage or in the tail.
@Suite("Push acks")
struct PushTests {
  private static let a = ChannelReference.cid(Array("team:a".utf8))

  /// `team:a` of alice and bob with alice's m1 to m3, sent at 1,000; it is 2,000 now.
  private func harness(
    configure: (inout StoreLoopConfiguration) -> Void = { _ in }
  ) throws -> (harness: EngineHarness, gateway: Gateway) {
    let (harness, gateway) = try harnessWithChannel(configure: configure)
    for id in ["m1", "m2", "m3"] { gateway.post("team:a", id, by: "alice") }
    try turn(harness)
    harness.advance(1_000)
    _ = gateway.take()
    return (harness, gateway)
  }

  private func turn(_ harness: EngineHarness) throws {
    harness.loop.endTurn()
    try harness.completeLoads()
    try harness.persistAll()
  }

  /// The replies since the last call, without their correlations.
  private func nextReplies(_ harness: EngineHarness, _ gateway: Gateway) throws -> [String] {
    try turn(harness)
    return taken(gateway)
  }

  private func taken(_ gateway: Gateway) -> [String] {
    gateway.take().map { String($0.drop { $0 != " " }.dropFirst()) }
  }

  /// Restart the store from storage.
  private func restarted(
    _ harness: EngineHarness,
    configure: (inout StoreLoopConfiguration) -> Void = { _ in }
  ) throws -> (harness: EngineHarness, gateway: Gateway) {
    let again = try EngineHarness(harness.storage, configure: configure)
    again.advance(harness.clock - again.clock)
    return (again, again.connect(session: 7))
  }

  // MARK: By names

  @Test("acknowledge_push marks the message delivered, and is answered once durable")
  func pushAckByNameMarksDelivered() throws {
    let (harness, gateway) = try harness()
    gateway.push("team:a", "bob", "m2")
    harness.loop.endTurn()
    #expect(gateway.take() == [])
    try harness.persistAll()
    #expect(gateway.take() == ["5 moved sent 1000 delivered 2000"])
    harness.advance(10)
    // Late and repeated acknowledgements do not move a later position.
    gateway.push("team:a", "bob", "m2", flags: 1)
    gateway.push("team:a", "bob", "m1")
    harness.loop.endTurn()
    #expect(
      gateway.take() == [
        "6 same sent 1000 delivered 2000 team:a bob m2", "7 same sent 1000 delivered 2000",
      ]
    )
    #expect(harness.commits.isEmpty)
  }

  @Test("an invalid push ack is refused by name, and not applied")
  func invalidPushAcknowledgementIsRefusedByName() throws {
    let (harness, gateway) = try harness()
    gateway.push("team:a", "bob", "m1", flags: 4)
    gateway.push("team:a", "zoe", "m1")
    gateway.push("team:a", "bob", "m9")
    gateway.push("team:a", "bob", "")
    gateway.push("team:b", "bob", "m1")
    gateway.place("team:a", "zoe", "m1")
    gateway.place("team:a", "bob", "m9")
    #expect(
      try nextReplies(harness, gateway) == [
        "invalid_field", "not_a_member", "message_not_found", "message_not_found", "not_a_member",
        "message_not_found", "channel_not_found",
      ]
    )
    gateway.deleteMessage("team:a", "m1")
    gateway.place("team:a", "bob", "m1")
    gateway.push("team:a", "bob", "m1")
    #expect(
      try nextReplies(harness, gateway) == ["deleted 1", "message_deleted", "moved sent 1000 delivered 2000"]
    )
  }

  @Test("the time of a push ack is bounded by the row's shown time and now")
  func ackTimesAreBounded() throws {
    let (harness, gateway) = try harness()
    gateway.push("team:a", "bob", "m1", acked: 1_500)
    harness.advance(100)
    // Times before the last one, and in the future.
    gateway.push("team:a", "bob", "m2", acked: 1_200)
    gateway.push("team:a", "bob", "m3", acked: 9_999)
    #expect(
      try nextReplies(harness, gateway) == [
        "moved sent 1000 delivered 1500", "moved sent 1000 delivered 1500", "moved sent 1000 delivered 2100",
      ]
    )
  }

  @Test("times of push acks survive recovery from the log and from pages")
  func ackTimesSurviveRecovery() throws {
    let (harness, gateway) = try harness()
    gateway.push("team:a", "bob", "m1", acked: 1_200)
    gateway.push("team:a", "bob", "m3", acked: 1_700)
    try turn(harness)
    for hasWrittenPages in [false, true] {
      if hasWrittenPages { try harness.writePages() }
      let (again, other) = try restarted(harness)
      for message in ["m1", "m2", "m3"] { other.delivered("team:a", message) }
      other.push("team:a", "bob", "m2")
      #expect(
        try nextReplies(again, other) == [
          "bob@1200", "bob@1700", "bob@1700", "same sent 1000 delivered 1700",
        ]
      )
    }
  }

  @Test("subscribe with `since` includes a backdated acknowledgement that arrived after it")
  func sinceIncludesBackdatedAcknowledgement() throws {
    let (harness, gateway) = try harness()
    harness.advance(60_000)
    gateway.push("team:a", "bob", "m1", acked: 1_200)
    try turn(harness)
    _ = gateway.take()
    gateway.subscribe(["team:a"], since: 30_000)
    let reply = try nextReplies(harness, gateway).joined()
    #expect(reply.contains("bob") && reply.contains("1-1 delivered"), "\(reply)")
    gateway.subscribe(["team:a"], since: harness.clock + 1)
    #expect(try !nextReplies(harness, gateway).joined().contains("bob"))
  }

  // MARK: By a ticket

  @Test("a ticket resolves to its names, and marks the message delivered")
  func ticketResolvesToNames() throws {
    let (harness, gateway) = try harness()
    gateway.place("team:a", "bob", "m2")
    #expect(try nextReplies(harness, gateway) == ["ticket channel 1 row 1 message 2"])
    let ticket = try gateway.ticket()
    gateway.redeem(ticket)
    harness.loop.endTurn()
    #expect(gateway.take() == [])
    try harness.persistAll()
    #expect(gateway.take() == ["6 moved sent 1000 delivered 2000 team:a bob m2"])
    gateway.redeem(ticket, acked: 1_500)
    #expect(try nextReplies(harness, gateway) == ["same sent 1000 delivered 2000 team:a bob m2"])
  }

  @Test("a ticket whose numbers resolve to other names or none is refused")
  func ticketWithOtherNumbersIsRefused() throws {
    let (harness, gateway) = try harness()
    let ticket = try gateway.ticket("team:a", "bob", "m2", harness)
    func changed(_ change: (inout TicketPlace) -> Void) {
      var other = ticket
      change(&other)
      gateway.redeem(other)
    }
    changed { $0.check ^= 1 }
    changed { $0.sequence = SequenceNumber(1) }
    changed { $0.row = MemberOrdinal(0) }
    changed { $0.row = MemberOrdinal(2) }
    changed { $0.sequence = SequenceNumber(4) }
    changed { $0.sequence = .zero }
    changed { $0.parent = SequenceNumber(1) }
    // The numbers of no channel, of a user's index, and of a channel that was never created.
    for number in [0, 2, 3, 4, 1 << 40, UInt64.max] { changed { $0.channel = ChannelNumber(number) } }
    #expect(
      try nextReplies(harness, gateway) == [
        "ticket_invalid", "ticket_invalid", "ticket_invalid", "not_a_member", "message_not_found",
        "message_not_found", "message_not_found",
      ] + Array(repeating: "channel_not_found", count: 6)
    )
    #expect(harness.reports.isEmpty)
  }

  @Test("a channel on storage is found by number: its name is read first, then its pages")
  func channelOnStorageIsFoundByNumber() throws {
    let (first, before) = try harness()
    let ticket = try before.ticket("team:a", "bob", "m2", first)
    try first.writePages()
    let (harness, gateway) = try restarted(first)
    gateway.redeem(ticket)
    gateway.redeem(ticket)
    gateway.getChannel("team:none")
    harness.loop.endTurn()
    let none = ChannelReference.cid(Array("team:none".utf8))
    #expect(harness.loads.map(\.reference) == [.head(ChannelNumber(1)), none])
    try harness.completeLoad()
    #expect(harness.loads.map(\.reference) == [none, Self.a])
    #expect(harness.loop.gauges.loadedChannels == 0)
    #expect(
      try nextReplies(harness, gateway) == [
        "channel_not_found", "moved sent 1000 delivered \(harness.clock) team:a bob m2",
        "same sent 1000 delivered \(harness.clock) team:a bob m2",
      ]
    )
    // The channel is in memory now.
    gateway.redeem(ticket)
    harness.loop.endTurn()
    #expect(harness.loads.isEmpty && gateway.take().count == 1)
  }

  @Test(
    "a channel of the log's tail is found by number, whether created in the tail or before it",
    arguments: [false, true]
  )
  func channelOfLogTailIsFoundByNumber(_ isMadeBefore: Bool) throws {
    let (first, before) = try harness()
    if isMadeBefore { try first.writePages() }
    let ticket = try before.ticket("team:a", "bob", "m3", first)
    before.push("team:a", "bob", "m1", acked: 1_100)
    try turn(first)
    let (harness, gateway) = try restarted(first)
    gateway.redeem(ticket, acked: 1_600)
    harness.loop.endTurn()
    let reference = isMadeBefore ? ChannelReference.head(ChannelNumber(1)) : Self.a
    #expect(harness.loads.map(\.reference) == [reference])
    #expect(try nextReplies(harness, gateway) == ["moved sent 1000 delivered 1600 team:a bob m3"])
    // The log's tail is still drained.
    try harness.writePages()
    #expect(harness.storage.log[ShardID(0)]!.isEmpty)
  }

  @Test("an evicted channel is found again by its number")
  func evictedChannelIsFoundAgainByNumber() throws {
    let (harness, gateway) = try harness { $0.residentBytesMax = 1 }
    let ticket = try gateway.ticket("team:a", "bob", "m2", harness)
    try harness.writePages()
    let cid = Array("team:a".utf8)
    let isLoaded = harness.loop.isLoaded(ShardID(0), cid: cid.span.bytes)
    #expect(!isLoaded)
    gateway.redeem(ticket)
    #expect(
      try nextReplies(harness, gateway) == ["moved sent 1000 delivered \(harness.clock) team:a bob m2"]
    )
  }

  @Test("waiting tickets and name reads are limited; further ones are busy")
  func waitingTicketsAndNameReadsAreLimited() throws {
    let (first, before) = try harness()
    let ticket = try before.ticket("team:a", "bob", "m2", first)
    try first.writePages()
    let (harness, gateway) = try restarted(first) {
      $0.waitingPerLoadMax = 2
      $0.loadsMax = 1
    }
    for _ in 0..<3 { gateway.redeem(ticket) }
    gateway.getChannel("team:b")
    harness.loop.endTurn()
    #expect(gateway.take() == ["3 busy", "4 busy"])
    _ = try nextReplies(harness, gateway)
    // The refused command does not count as applied: its resend is decided.
    gateway.redeem(ticket, counter: 3)
    #expect(
      try nextReplies(harness, gateway) == ["same sent 1000 delivered \(harness.clock) team:a bob m2"]
    )
  }

  @Test("a ticket whose channel name cannot be read is unavailable, and a retry finds it")
  func ticketWhoseChannelNameCannotBeReadIsUnavailable() throws {
    let (first, before) = try harness()
    let ticket = try before.ticket("team:a", "bob", "m2", first)
    try first.writePages()
    let (harness, gateway) = try restarted(first)
    gateway.redeem(ticket)
    harness.loop.endTurn()
    try harness.completeLoad(failing: true)
    #expect(gateway.take() == ["1 unavailable"] && harness.reports.count == 1)
    gateway.redeem(ticket, counter: 1)
    #expect(
      try nextReplies(harness, gateway) == ["moved sent 1000 delivered \(harness.clock) team:a bob m2"]
    )
  }

  @Test("a waiting ticket whose connection is lost is redeemed once when it is resent")
  func waitingTicketOfLostConnectionIsRedeemedOnce() throws {
    let (first, before) = try harness()
    let ticket = try before.ticket("team:a", "bob", "m2", first)
    try first.writePages()
    let (harness, gateway) = try restarted(first)
    gateway.redeem(ticket)
    harness.loop.endTurn()
    harness.loop.close(gateway.lane)
    try harness.completeLoads()
    #expect(harness.commits.isEmpty)
    let again = harness.connect(session: 7, serial: 1)
    again.redeem(ticket, counter: 1)
    #expect(try nextReplies(harness, again) == ["moved sent 1000 delivered \(harness.clock) team:a bob m2"])
  }

  @Test("a resent acknowledgement moves nothing, whatever has changed since")
  func resentAcknowledgementMovesNothing() throws {
    let (harness, gateway) = try harness()
    let ticket = try gateway.ticket("team:a", "bob", "m2", harness)
    gateway.redeem(ticket, acked: 1_500)
    let counter = gateway.counter
    try turn(harness)
    _ = gateway.take()
    gateway.redeem(ticket, acked: 1_500, counter: counter)
    #expect(try nextReplies(harness, gateway) == ["same sent 1000 delivered 1500 team:a bob m2"])
    gateway.change("team:a", remove: ["bob"])
    gateway.redeem(ticket, counter: counter)
    gateway.change("team:a", add: ["bob"])
    gateway.redeem(ticket, counter: counter)
    gateway.push("team:a", "bob", "m2", counter: counter)
    #expect(
      try nextReplies(harness, gateway) == [
        "outcome_unknown", "channel of 1", "not_a_member", "channel of 2", "not_a_member",
      ]
    )
    // The state after a restart.
    let (again, other) = try restarted(harness)
    let same = again.connect(session: 1)
    same.push("team:a", "bob", "m2", counter: counter)
    other.push("team:a", "bob", "m2")
    try turn(again)
    #expect(same.take() == ["1 outcome_unknown"])
    #expect(other.take() == ["1 moved sent 1000 delivered 2000"])
  }

  @Test("commands that waited when their connection was lost are applied when they are resent")
  func commandsDroppedWhileWaitingApplyWhenResent() throws {
    let (before, _) = try harness()
    let (harness, gateway) = try restarted(before)
    let counters = 1...UInt64(200)
    for counter in counters { gateway.push("team:a", "bob", "m2", counter: counter) }
    harness.loop.close(gateway.lane)
    try turn(harness)
    let again = harness.connect(session: 7)
    for counter in counters { again.push("team:a", "bob", "m2", counter: counter) }
    let replies = try nextReplies(harness, again)
    #expect(replies.first == "moved sent 1000 delivered 2000" && replies.count == counters.count)
    #expect(replies.dropFirst().allSatisfy { $0 == "same sent 1000 delivered 2000" })
  }

  @Test("a session forgets the oldest commands that were dropped while waiting, above its bound")
  func sessionForgetsOldestDroppedCommands() throws {
    let (before, _) = try harness()
    // All of them wait for one channel.
    let (harness, gateway) = try restarted(before) { $0.waitingPerLoadMax = 2 * SessionTable.droppedMax }
    let forgotten = 6
    let counters = 1...UInt64(SessionTable.droppedMax + forgotten)
    for counter in counters { gateway.push("team:a", "bob", "m2", counter: counter) }
    harness.loop.close(gateway.lane)
    try turn(harness)
    let again = harness.connect(session: 7)
    for counter in counters { again.push("team:a", "bob", "m2", counter: counter) }
    let replies = try nextReplies(harness, again)
    #expect(replies.count == counters.count)
    #expect(replies.prefix(forgotten).allSatisfy { $0 == "outcome_unknown" })
    #expect(replies.dropFirst(forgotten).first == "moved sent 1000 delivered 2000")
    #expect(replies.dropFirst(forgotten + 1).allSatisfy { $0 == "same sent 1000 delivered 2000" })
  }

  @Test("tickets of users who left, rejoined or were erased are refused")
  func ticketsOfFormerMembersAreRefused() throws {
    let (harness, gateway) = try harness()
    let ticket = try gateway.ticket("team:a", "bob", "m2", harness)
    gateway.change("team:a", remove: ["bob"])
    gateway.redeem(ticket)
    gateway.change("team:a", add: ["bob"])
    gateway.redeem(ticket)
    #expect(
      try nextReplies(harness, gateway) == ["channel of 1", "not_a_member", "channel of 2", "not_a_member"]
    )
    let second = try gateway.ticket("team:a", "bob", "m2", harness)
    #expect(second.row == MemberOrdinal(2))
    gateway.redeem(second)
    gateway.erase("team:a", "bob")
    gateway.redeem(second)
    #expect(
      try nextReplies(harness, gateway) == [
        "moved sent 1000 delivered 2000 team:a bob m2", "erased", "not_a_member",
      ]
    )
  }

  @Test("a deleted channel's ticket is refused at every stage of deletion and new creation")
  func deletedChannelTicketIsRefusedAtEveryStage() throws {
    let (harness, gateway) = try harness()
    let ticket = try gateway.ticket("team:a", "bob", "m2", harness)
    try harness.writePages()
    gateway.deleteChannel("team:a")
    gateway.redeem(ticket)
    harness.loop.endTurn()
    // The deletion is not reported before it is durable. The storage still has the channel.
    try harness.completeLoads()
    #expect(gateway.take() == [])
    try harness.persist()
    #expect(taken(gateway) == ["channel deleted", "channel_not_found"])
    gateway.redeem(ticket)
    #expect(try nextReplies(harness, gateway) == ["channel_not_found"])
    try harness.runUntilIdle()
    gateway.redeem(ticket)
    gateway.put("team:a", ["alice", "bob"])
    for id in ["m1", "m2"] { gateway.post("team:a", id, by: "alice") }
    #expect(
      try nextReplies(harness, gateway).sorted() == [
        "channel of 2 new", "channel_not_found", "message 1 new", "message 2 new",
      ]
    )
    gateway.redeem(ticket)
    #expect(try nextReplies(harness, gateway) == ["channel_not_found"])
    let (tail, other) = try restarted(harness)
    other.redeem(ticket)
    #expect(try nextReplies(tail, other) == ["channel_not_found"])
    try harness.writePages()
    let (cold, third) = try restarted(harness)
    third.redeem(ticket)
    #expect(try nextReplies(cold, third) == ["channel_not_found"])
    third.push("team:a", "bob", "m2")
    #expect(try nextReplies(cold, third).map { $0.prefix(5) } == ["moved"])
  }

  @Test("a channel in sliced deletion is not found by tickets from the first slice on")
  func ticketFindsNoChannelInSlicedDeletion() throws {
    let (harness, gateway) = try harnessWithChannel { $0.changesPerTurn = 2 }
    gateway.put("team:b", (0..<9).map { "user\($0)" })
    gateway.post("team:b", "m1")
    try harness.runUntilIdle()
    _ = gateway.take()
    let ticket = try gateway.ticket("team:b", "user3", "m1", harness)
    gateway.deleteChannel("team:b")
    gateway.redeem(ticket)
    harness.loop.endTurn()
    try harness.persist()
    #expect(taken(gateway) == ["channel_not_found"])
  }

  @Test("a reply's ticket marks the rows of thread participants only")
  func replyTicketMarksRowsOfThreadParticipantsOnly() throws {
    let (harness, gateway) = try harness()
    gateway.reply("team:a", "r1", by: "bob", to: "m1")
    _ = try nextReplies(harness, gateway)
    let ofAlice = try gateway.ticket("team:a", "alice", "r1", harness)
    #expect(ofAlice.parent == SequenceNumber(1) && ofAlice.sequence == SequenceNumber(1))
    gateway.change("team:a", add: ["carol"])
    // This time is before the registration of the reply.
    gateway.redeem(ofAlice, acked: 1_900)
    gateway.push("team:a", "carol", "r1", flags: 1)
    #expect(
      try nextReplies(harness, gateway) == [
        "channel of 3", "moved sent 2000 delivered 2000 team:a alice r1",
        "same sent 2000 delivered 0 team:a carol r1",
      ]
    )
    let ofCarol = try gateway.ticket("team:a", "carol", "r1", harness)
    gateway.redeem(ofCarol)
    #expect(try nextReplies(harness, gateway) == ["same sent 2000 delivered 0 team:a carol r1"])
    gateway.deleteMessage("team:a", "m1")
    gateway.redeem(ofAlice)
    gateway.place("team:a", "alice", "r1")
    #expect(try nextReplies(harness, gateway) == ["deleted 1", "message_deleted", "message_deleted"])
  }

  @Test("a ticket's answer has names where they are requested")
  func ticketAnswerHasNamesWhereTheyAreRequested() throws {
    let (harness, gateway) = try harness()
    let ticket = try gateway.ticket("team:a", "bob", "m1", harness)
    gateway.redeem(ticket, flags: 4)
    gateway.redeem(ticket, flags: 0)
    gateway.redeem(ticket, flags: 1)
    #expect(
      try nextReplies(harness, gateway) == [
        "invalid_field", "moved sent 1000 delivered 2000", "same sent 1000 delivered 2000 team:a bob m1",
      ]
    )
  }

  @Test("a revoked token acknowledges nothing, by name or by ticket")
  func revokedTokenAcknowledgesNothing() throws {
    let (harness, gateway) = try harness()
    let ticket = try gateway.ticket("team:a", "bob", "m1", harness)
    gateway.revoke("bob", before: 1_800_000)
    _ = try nextReplies(harness, gateway)
    gateway.push("team:a", "bob", "m1", issued: 1_799)
    gateway.redeem(ticket, issued: 1_799)
    gateway.push("team:a", "bob", "m1", issued: 1_800)
    #expect(
      try nextReplies(harness, gateway) == [
        "token_revoked", "token_revoked", "moved sent 1000 delivered 2000",
      ]
    )
  }

  @Test("a ticket waits behind postponed requests of its channel")
  func ticketWaitsBehindPostponedRequests() throws {
    let crowd = (0..<12).map { "\($0)" + String(repeating: "x", count: 100) }
    let (harness, gateway) = try harness { $0.entriesPerTurn = 10 }
    let ticket = try gateway.ticket("team:a", "bob", "m2", harness)
    try harness.runUntilIdle()
    harness.loop.tick()
    try harness.runUntilIdle()
    _ = gateway.take()
    gateway.change("team:a", add: crowd)
    gateway.change("team:a", add: crowd.map { $0 + "y" })
    gateway.change("team:a", remove: ["bob"])
    gateway.redeem(ticket)
    #expect(try nextReplies(harness, gateway) == ["channel of 14"])
    try harness.runUntilIdle()
    #expect(
      taken(gateway) == [
        "channel of 26", "channel of 25", "not_a_member",
      ]
    )
  }

  @Test("present_ticket is not implemented by a store")
  func presentTicketIsNotImplementedByStore() throws {
    let (harness, gateway) = try harness()
    gateway.send(.presentTicket, nil) { payload in
      payload.writeField("dGlja2V0")
      payload.writeTime(.none)
      payload.writeVarint(0)
    }
    #expect(try nextReplies(harness, gateway) == ["not_implemented"])
  }

  @Test("push payloads that are too short or too long end the connection, and are not applied")
  func pushPayloadsThatAreTooShortOrTooLongEndConnection() throws {
    for kind in [FrameKind.redeemTicket, .noteWebhook, .webhookKnown, .presentTicket, .acknowledgePush] {
      let (harness, gateway) = try harness()
      gateway.send(kind, kind == .acknowledgePush ? "team:a" : nil) { $0.writeInteger(UInt16(0)) }
      #expect(gateway.ended.count == 1, "\(kind)")
      #expect(harness.commits.isEmpty)
    }
  }
}
