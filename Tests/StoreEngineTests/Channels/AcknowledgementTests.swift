import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine
import Testing

/// Acknowledgement requests over frames: acknowledging, requesting, and irrevocable expiry (R9, R20).
@Suite("Acknowledgement requests in the store")
struct AcknowledgementTests {
  @Test("a batch of acknowledgements is one command with one answer per message, sent once durable")
  func batchOfAcknowledgementsIsOneCommand() throws {
    let (harness, gateway) = try harnessWithChannel()
    for id in ["m1", "m2", "m3"] { gateway.post("team:a", id, by: "alice", flags: 2) }
    gateway.post("team:a", "m4", by: "alice")
    harness.loop.endTurn()
    try harness.persistAll()
    #expect(gateway.take().count == 4)
    gateway.acknowledge("team:a", "bob", ["m1", "m2", "m1", "m4", "m9"], note: "grüße")
    gateway.statuses("team:a", ["m1", "m3"])
    harness.loop.endTurn()
    #expect(gateway.take() == [])
    #expect(harness.commits.map(\.batches.count) == [1])
    try harness.persistAll()
    #expect(
      gateway.take() == [
        "6 acknowledged ok ok ok receipt_not_requested message_not_found", "7 requests done processing",
      ]
    )
    // A repeat changes nothing and does not wait.
    gateway.acknowledge("team:a", "bob", ["m1"])
    harness.loop.endTurn()
    #expect(gateway.take() == ["8 acknowledged ok"])
    #expect(harness.commits.isEmpty)
    gateway.acknowledge("team:a", "alice", ["m1", "m2"])
    gateway.acknowledge("team:a", "zoe", ["m1"])
    gateway.acknowledge("team:b", "bob", ["m1"])
    harness.loop.endTurn()
    try harness.completeLoads()
    #expect(
      gateway.take() == ["9 acknowledged own_message own_message", "10 not_a_member", "11 channel_not_found"]
    )
  }

  @Test("fields out of range refuse the request, and nothing is applied")
  func fieldsOutOfRangeRefuseRequest() throws {
    let (harness, gateway) = try harnessWithChannel()
    gateway.post("team:a", "m1", by: "alice", flags: 2)
    harness.loop.endTurn()
    try harness.persistAll()
    _ = gateway.take()
    gateway.acknowledge("team:a", "bob", [])
    gateway.acknowledge("team:a", "bob", Array(repeating: "m1", count: 101))
    gateway.acknowledge("team:a", "bob", ["m1"], note: String(repeating: "n", count: 1_025))
    gateway.acknowledge("team:a", "bob", ["m1"], noteBytes: [0x61, 0xC3])
    gateway.statuses("team:a", ["m1"])
    harness.loop.endTurn()
    #expect(gateway.take() == (3...6).map { "\($0) invalid_field" } + ["7 requests processing"])
    #expect(harness.commits.isEmpty)
    gateway.acknowledge(
      "team:a",
      "bob",
      Array(repeating: "m1", count: 100),
      note: String(repeating: "n", count: 1_024)
    )
    harness.loop.endTurn()
    try harness.persistAll()
    #expect(gateway.take() == ["8 acknowledged" + String(repeating: " ok", count: 100)])
  }

  @Test("a payload that is too short or too long ends the connection, and nothing is applied")
  func payloadThatIsTooShortOrTooLongEndsConnection() throws {
    var payload = ByteBuffer()
    payload.writeField("bob")
    payload.writeField("note")
    payload.writeVarint(2)
    payload.writeField("m1")
    payload.writeField("m2")
    for count in 0...payload.readableBytes + 1 where count != payload.readableBytes {
      let (harness, gateway) = try harnessWithChannel()
      gateway.post("team:a", "m1", by: "alice", flags: 2)
      harness.loop.endTurn()
      try harness.persistAll()
      let cut = count < payload.readableBytes ? payload.getSlice(at: 0, length: count)! : payload
      gateway.send(.acknowledge, "team:a") { buffer in
        buffer.writeImmutableBuffer(cut)
        if count > payload.readableBytes { buffer.writeEmptyField() }
      }
      harness.loop.endTurn()
      #expect(gateway.ended.count == 1, "\(count) bytes")
      #expect(harness.commits.isEmpty, "\(count) bytes")
    }
  }

  @Test("registering reports why an acknowledgement request is refused, and repeats that for a duplicate")
  func registeringReportsWhyRequestIsRefused() throws {
    let harness = try EngineHarness()
    let gateway = harness.connect()
    var options = OptionPatch()
    options.receiptDailyLimit = .value(1)
    options.receiptRequestRoles = .value(["host"])
    gateway.create("team:a", ["alice", "bob"], roles: ["host", ""], options)
    try harness.completeLoads()
    gateway.post("team:a", "m1", by: "bob", flags: 2)
    gateway.post("team:a", "m2", by: "alice", flags: 3)
    gateway.post("team:a", "m3", by: "alice", flags: 2)
    gateway.post("team:a", "m1", by: "bob", flags: 2)
    gateway.post("team:a", "m2", by: "alice", flags: 3)
    gateway.post("team:a", "m3", by: "alice", flags: 2)
    gateway.post("team:a", "m4", by: "alice", flags: 64)
    harness.loop.endTurn()
    try harness.persistAll()
    #expect(
      gateway.take() == [
        // The refusal of a field does not wait.
        "8 not_implemented", "1 channel of 2 new", "2 message 1 new not allowed", "3 message 2 new",
        "4 message 3 new over the limit", "5 message 1 not allowed", "6 message 2",
        "7 message 3 over the limit",
      ]
    )
  }

  @Test("a resent acknowledgement is answered from the current state, and applied once")
  func resentAcknowledgementIsAnsweredFromCurrentState() throws {
    let (harness, gateway) = try harnessWithChannel()
    for id in ["m1", "m2"] { gateway.post("team:a", id, by: "alice", flags: 2) }
    harness.loop.endTurn()
    try harness.persistAll()
    gateway.acknowledge("team:a", "bob", ["m1", "m9"], note: "first")
    let counter = gateway.counter
    harness.loop.endTurn()
    // The store crashes before the commit. The next one decides the command as a new one.
    let second = try EngineHarness(harness.storage)
    let again = second.connect()
    again.acknowledge("team:a", "bob", ["m1", "m9"], note: "first", counter: counter)
    again.statuses("team:a", ["m1", "m2"])
    second.loop.endTurn()
    try second.completeLoads()
    second.loop.endTurn()
    try second.persistAll()
    #expect(again.take() == ["1 acknowledged ok message_not_found", "2 requests done processing"])
    // The store crashes after the commit, but before the reply. The command is not applied again.
    let third = try EngineHarness(second.storage)
    let last = third.connect()
    last.acknowledge("team:a", "bob", ["m1", "m9"], note: "first", counter: counter)
    // Commands without an acknowledgement then have none now.
    last.acknowledge("team:a", "bob", ["m1", "m2"], counter: counter)
    last.statuses("team:a", ["m1", "m2"])
    third.loop.endTurn()
    try third.completeLoads()
    third.loop.endTurn()
    #expect(third.commits.isEmpty)
    #expect(
      last.take() == [
        "1 acknowledged ok message_not_found", "2 outcome_unknown", "3 requests done processing",
      ]
    )
  }

  @Test("acknowledgements survive recovery from pages and from the log, evicted records included")
  func acknowledgementsSurviveRecoveryFromPagesAndFromLog() throws {
    let harness = try EngineHarness()
    let gateway = harness.connect()
    var options = OptionPatch()
    options.receiptMembersMax = .value(1)
    gateway.create("team:a", ["alice", "bob", "carol", "dora"], roles: [], options)
    try harness.completeLoads()
    for id in ["m1", "m2"] { gateway.post("team:a", id, by: "alice", flags: 2) }
    gateway.acknowledge("team:a", "bob", ["m1", "m2"], note: "one")
    gateway.acknowledge("team:a", "carol", ["m1"], note: "two")
    harness.loop.endTurn()
    try harness.persistAll()
    try harness.writePages()
    gateway.acknowledge("team:a", "dora", ["m1"], note: "three")
    harness.loop.endTurn()
    try harness.persistAll()
    let second = try EngineHarness(harness.storage)
    let again = second.connect(session: 2)
    again.acknowledge("team:a", "carol", ["m2"])
    again.statuses("team:a", ["m1", "m2"])
    again.acknowledge("team:a", "dora", ["m2"])
    again.statuses("team:a", ["m2"])
    second.loop.endTurn()
    try second.completeLoads()
    second.loop.endTurn()
    try second.persistAll()
    #expect(
      again.take() == [
        "1 acknowledged ok", "2 requests done processing", "3 acknowledged ok", "4 requests done",
      ]
    )
  }

  /// A channel whose acknowledgement requests expire after ten seconds, with one such request, all in storage.
  private func expiringHarness() throws -> (harness: EngineHarness, gateway: Gateway) {
    let harness = try EngineHarness()
    let gateway = harness.connect()
    var options = OptionPatch()
    options.receiptTTL = .value(10)
    gateway.create("team:a", ["alice", "bob"], roles: [], options)
    try harness.completeLoads()
    gateway.post("team:a", "m1", by: "alice", flags: 2)
    harness.loop.endTurn()
    try harness.persistAll()
    _ = gateway.take()
    return (harness, gateway)
  }

  @Test(
    "a request's expiry is logged before it is reported, and survives a crash and a clock that steps back"
  )
  func requestExpiryIsLoggedBeforeItIsReported() throws {
    let (harness, gateway) = try expiringHarness()
    harness.advance(9_999)
    gateway.statuses("team:a", ["m1"])
    harness.loop.endTurn()
    #expect(gateway.take() == ["3 requests processing"])
    harness.advance(1)
    gateway.statuses("team:a", ["m1"])
    gateway.statuses("team:a", ["m1"])
    gateway.acknowledge("team:a", "bob", ["m1"])
    harness.loop.endTurn()
    #expect(gateway.take() == [])
    #expect(harness.commits.map(\.batches.count) == [1])
    // The expiry in flight is not durable yet.
    gateway.statuses("team:a", ["m1"])
    harness.loop.endTurn()
    #expect(gateway.take() == [])
    try harness.persistAll()
    #expect(
      gateway.take() == [
        "4 requests expired", "5 requests expired", "6 acknowledged receipt_expired", "7 requests expired",
      ]
    )
    // After the commit the reply does not wait.
    gateway.statuses("team:a", ["m1"])
    harness.loop.endTurn()
    #expect(gateway.take() == ["8 requests expired"])
    #expect(harness.commits.isEmpty)
    let second = try EngineHarness(harness.storage)
    #expect(second.clock < harness.clock)
    let again = second.connect(session: 2)
    again.statuses("team:a", ["m1"])
    again.acknowledge("team:a", "bob", ["m1"])
    second.loop.endTurn()
    try second.completeLoads()
    second.loop.endTurn()
    #expect(again.take() == ["1 requests expired", "2 acknowledged receipt_expired"])
    #expect(second.commits.isEmpty)
  }

  @Test("an expiry lost in a crash was reported to nobody, so the message can still be acknowledged")
  func expiryLostInCrashWasNotReported() throws {
    let (harness, gateway) = try expiringHarness()
    harness.advance(20_000)
    gateway.statuses("team:a", ["m1"])
    harness.loop.endTurn()
    #expect(gateway.take() == [])
    let second = try EngineHarness(harness.storage)
    let again = second.connect(session: 2)
    again.statuses("team:a", ["m1"])
    again.acknowledge("team:a", "bob", ["m1"])
    second.loop.endTurn()
    try second.completeLoads()
    second.loop.endTurn()
    try second.persistAll()
    #expect(again.take() == ["1 requests processing", "2 acknowledged ok"])
  }

  @Test("the refusal of a late acknowledgement is logged before it is sent")
  func refusalOfLateAcknowledgementIsLogged() throws {
    let (harness, gateway) = try expiringHarness()
    harness.advance(10_000)
    gateway.acknowledge("team:a", "bob", ["m1"])
    harness.loop.endTurn()
    #expect(gateway.take() == [])
    try harness.persistAll()
    #expect(gateway.take() == ["3 acknowledged receipt_expired"])
    let second = try EngineHarness(harness.storage)
    let again = second.connect(session: 2)
    again.acknowledge("team:a", "bob", ["m1"])
    second.loop.endTurn()
    try second.completeLoads()
    second.loop.endTurn()
    #expect(again.take() == ["1 acknowledged receipt_expired"])
  }
}

extension Gateway {
  func acknowledge(
    _ cid: String,
    _ user: String,
    _ messages: [String],
    note: String = "",
    noteBytes: [UInt8]? = nil,
    counter: UInt64? = nil
  ) {
    send(.acknowledge, cid, counter: counter) { payload in
      let bytes = noteBytes ?? Array(note.utf8)
      payload.writeField(user)
      payload.writeField(bytes.span.bytes)
      payload.writeVarint(messages.count)
      for message in messages { payload.writeField(message) }
    }
  }

  /// Create a channel with options. Members without a role in `roles` have none.
  fileprivate func create(_ cid: String, _ users: [String], roles: [String], _ options: OptionPatch) {
    send(.putChannel, cid) { payload in
      payload.writeOptionPatch(options)
      payload.writeVarint(users.count)
      for (place, user) in users.enumerated() {
        payload.writeField(user)
        payload.writeField(place < roles.count ? roles[place] : "")
      }
    }
  }
}
