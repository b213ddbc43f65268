import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine
import Testing

/// Truncation and erasure over frames (R16).
@Suite("Removal in the store")
struct RemovalTests {
  private func turn(_ harness: EngineHarness) throws {
    harness.loop.endTurn()
    try harness.completeLoads()
    try harness.persistAll()
  }

  /// Run until no page, index or log contains the erased data.
  private func forget(_ harness: EngineHarness) throws {
    for _ in 0..<3 {
      try harness.runUntilIdle()
      try harness.writePages()
    }
  }

  /// The number of messages in `team:a` that bob has not read.
  private func unread(_ harness: EngineHarness, session: UInt64) throws -> String {
    let gateway = harness.connect(session: session)
    gateway.send(.markDelivered, "team:a") { payload in
      payload.writeField("bob")
      payload.writeField("m1")
    }
    try turn(harness)
    return gateway.take().first ?? ""
  }

  private func effects(of key: PageKey, _ harness: EngineHarness) throws -> [Effect] {
    let bytes = try #require(harness.storage.pages[key])
    return try Page(bytes.readableBytesSpan).effects
  }

  // MARK: Messages

  @Test("a truncation is answered once durable, and survives recovery from log and pages")
  func truncationIsAnsweredOnceDurable() throws {
    for hasWrittenPages in [false, true] {
      let (harness, gateway) = try harnessWithChannel()
      for number in 1...600 { gateway.post("team:a", "m\(number)", by: "alice", flags: 2) }
      gateway.acknowledge("team:a", "bob", ["m1", "m400", "m600"])
      try turn(harness)
      try harness.writePages()
      _ = gateway.take()
      gateway.truncate("team:a", before: "m500")
      harness.loop.endTurn()
      #expect(gateway.take() == [])
      try harness.persistAll()
      #expect(gateway.take() == ["603 channel of 2"])
      if hasWrittenPages { try harness.writePages() }
      for session in [2, 3] as [UInt64] {
        let again = try EngineHarness(harness.storage)
        let other = again.connect(session: session)
        #expect(try unread(again, session: 10 + session) == "1 row read 0 unread 101")
        other.statuses("team:a", ["m499", "m600"])
        // The truncation was applied, and a repeat changes nothing.
        other.truncate("team:a", before: "m500")
        other.truncate("team:a", before: "m7")
        other.truncate("team:a", before: "nothing")
        try turn(again)
        #expect(
          other.take().sorted() == [
            "1 requests done", "2 channel of 2", "3 channel of 2", "4 message_not_found",
          ]
        )
        try again.writePages()
        // Acknowledgements of deleted messages have left storage too.
        for (key, bytes) in again.storage.pages {
          guard case .acknowledgements(let sequence) = key.page else { continue }
          let page = try Page(bytes.readableBytesSpan)
          #expect(page.effects.isEmpty == (sequence.rawValue < 500), "\(key.page)")
        }
      }
    }
  }

  @Test("a deleted message's acknowledgements leave storage, in any order of page writes")
  func acknowledgementsOfDeletedMessageLeaveStorage() throws {
    // Crashes between any two commits of the following page writes.
    for crash in 0..<6 {
      let harness = try EngineHarness { configuration in
        configuration.pageWriteSliceBytes = 1
        configuration.pageWriteAgeMilliseconds = 0
      }
      let gateway = harness.connect()
      gateway.put("team:a", ["alice", "bob"])
      gateway.post("team:a", "m1", by: "alice", flags: 2)
      gateway.acknowledge("team:a", "bob", ["m1"], note: "seen")
      try turn(harness)
      try harness.writePages()
      let key = PageKey(
        shard: ShardID(0),
        channel: ChannelNumber(1),
        page: .acknowledgements(SequenceNumber(1))
      )
      #expect(try effects(of: key, harness).count == 1)
      gateway.deleteMessage("team:a", "m1")
      harness.loop.endTurn()
      for _ in 0..<crash where !harness.commits.isEmpty { try harness.persist() }
      let again = try EngineHarness(harness.storage)
      let other = again.connect(session: 2)
      if crash == 0 { other.deleteMessage("team:a", "m1") } else { other.getChannel("team:a") }
      try turn(again)
      try again.writePages()
      #expect(try effects(of: key, again).isEmpty, "crash \(crash)")
      #expect(again.reports.isEmpty)
    }
  }

  // MARK: Members

  @Test("an erased member's rows are nameless, in memory and after recovery from log and pages")
  func rowsOfErasedMemberAreNameless() throws {
    for hasWrittenPages in [false, true] {
      let (harness, gateway) = try harnessWithChannel()
      for number in 1...300 {
        gateway.post("team:a", "m\(number)", by: number % 2 == 0 ? "bob" : "alice", flags: 2)
      }
      gateway.acknowledge("team:a", "bob", ["m1", "m299"], note: "from bob")
      gateway.change("team:a", remove: ["bob"])
      gateway.change("team:a", add: ["bob"])
      try turn(harness)
      try harness.runUntilIdle()
      try harness.writePages()
      #expect(try harness.traces("bob").count > 3)
      _ = gateway.take()
      gateway.erase("team:a", "bob")
      gateway.read("team:a", "bob")
      gateway.erase("team:a", "bob")
      gateway.erase("team:none", "bob")
      gateway.erase("team:a", "no\u{7}user")
      harness.loop.endTurn()
      #expect(gateway.take() == ["309 invalid_field"])
      try harness.completeLoads()
      try harness.persistAll()
      #expect(gateway.take() == ["308 not known", "305 erased", "306 not_a_member", "307 not known"])
      if hasWrittenPages {
        try forget(harness)
        #expect(try harness.traces("bob") == [])
      }
      let again = try EngineHarness(harness.storage)
      let other = again.connect(session: 2)
      other.read("team:a", "bob")
      other.getChannel("team:a")
      other.erase("team:a", "bob")
      try turn(again)
      #expect(other.take() == ["1 not_a_member", "2 channel of 1", "3 not known"])
      try forget(again)
      #expect(try again.traces("bob") == [])
      other.change("team:a", add: ["bob"])
      try turn(again)
      #expect(other.take() == ["4 channel of 2"])
      #expect(again.reports.isEmpty)
    }
  }

  // MARK: Users

  @Test("a user being erased gets nothing new in their name; marks continue")
  func userBeingErasedGetsNothingNew() throws {
    let (harness, gateway) = try harnessWithChannel()
    gateway.post("team:a", "m1", by: "bob")
    gateway.patchErasing("bob")
    gateway.patchErasing("bob")
    gateway.put("team:a", ["bob"])
    gateway.put("team:b", ["carol", "bob"])
    gateway.change("team:a", add: ["bob"])
    gateway.post("team:a", "m2", by: "bob")
    gateway.post("team:a", "m1", by: "bob")
    gateway.send(.patchUser, "bob") { payload in
      payload.writeVarint(UInt64(1))
      payload.writeVarint(UInt64(0))
      payload.writeTime(.none)
    }
    gateway.read("team:a", "bob", "m1")
    gateway.send(.listUnsettled, nil)
    gateway.send(.settle, "bob") { payload in
      payload.writeInteger(UInt8(1))
      payload.writeVarint(UInt64(1))
    }
    gateway.change("team:a", remove: ["bob"])
    try turn(harness)
    #expect(
      gateway.take().sorted { Int($0.split(separator: " ")[0])! < Int($1.split(separator: " ")[0])! } == [
        "2 message 1 new", "3 user bob version 1 erasing", "4 user bob version 1 erasing",
        "5 user_erased", "6 user_erased", "7 user_erased", "8 user_erased", "9 message 1",
        "10 user_erased", "11 row read 1 unread 0", "12 unsettled types [] users [\"bob\"]",
        "13 not settled", "14 channel of 1",
      ]
    )
    let again = try EngineHarness(harness.storage)
    let other = again.connect(session: 2)
    other.send(.listUnsettled, nil)
    other.change("team:a", add: ["bob"])
    try turn(again)
    #expect(other.take() == ["1 unsettled types [] users [\"bob\"]", "2 user_erased"])
  }

  @Test("erasing a user removes the id from the settings and ignores older versions, also after a restart")
  func erasureRemovesIDFromSettings() throws {
    for hasWrittenPages in [false, true] {
      let harness = try EngineHarness()
      let gateway = harness.connect()
      gateway.assign(user: "alice", version: 3, flags: 1)
      gateway.assign(user: "bob", version: 3, flags: 1)
      gateway.assign(user: "carol", version: 3, flags: 0)
      gateway.assign(user: "bob", version: 4, flags: 5)
      try turn(harness)
      try harness.writePages()
      #expect(try harness.traces("bob") == ["users(0) of 0"])
      _ = gateway.take()
      gateway.assign(user: "bob", version: 5, flags: 8)
      gateway.assign(user: "bob", version: 4, flags: 5)
      gateway.assign(user: "bob", version: 5, flags: 8)
      gateway.assign(user: "bob", version: 5, flags: 9)
      gateway.send(.getUser, "bob")
      gateway.send(.listUnsettled, nil)
      try turn(harness)
      #expect(
        gateway.take() == [
          "8 invalid_field", "5 user bob version 5 erased revoked 201000",
          "6 user bob version 5 erased revoked 201000",
          "7 user bob version 5 erased revoked 201000", "9 user bob version 5 erased revoked 201000",
          "10 unsettled types [] users [\"alice\", \"carol\"]",
        ]
      )
      if hasWrittenPages { try harness.writePages() }
      let again = try EngineHarness(harness.storage)
      let other = again.connect(session: 2)
      // A late copy of earlier settings.
      other.assign(user: "bob", version: 3, flags: 1)
      other.send(.getUser, "alice")
      try turn(again)
      #expect(
        other.take() == ["1 user bob version 5 erased revoked 201000", "2 user alice version 3 hides read"]
      )
      try again.writePages()
      #expect(try again.traces("bob") == [])
      #expect(try again.traces("carol") == ["users(0) of 0"])
      // A new user with the old id starts from that version, under the same number.
      other.send(.patchUser, "bob") { payload in
        payload.writeVarint(UInt64(1))
        payload.writeVarint(UInt64(0))
        payload.writeTime(.none)
      }
      try turn(again)
      #expect(other.take() == ["3 user bob version 6 hides read revoked 201000"])
      let last = try EngineHarness(again.storage)
      let third = last.connect(session: 3)
      for user in ["alice", "bob", "carol"] { third.send(.getUser, user) }
      third.patchErasing("zoe")
      third.assign(user: "zoe", version: 2, flags: 8)
      third.send(.listUnsettled, nil)
      try turn(last)
      // The clock is behind. The shard's time is that of the log, or of the page that was written ten seconds later.
      let time = hasWrittenPages ? 211_000 : 201_000
      #expect(
        third.take() == [
          "1 user alice version 3 hides read", "2 user bob version 6 hides read revoked 201000",
          "3 user carol version 3",
          "4 user zoe version 1 erasing", "5 user zoe version 2 erased revoked \(time)",
          "6 unsettled types [] users [\"alice\", \"bob\", \"carol\"]",
        ]
      )
    }
  }

  @Test("an erased user's number is reused after a day, and never earlier")
  func erasedUserNumberIsReusedAfterDay() throws {
    let harness = try EngineHarness()
    let gateway = harness.connect()
    for user in ["alice", "bob", "carol"] { gateway.assign(user: user, version: 1, flags: 1) }
    try turn(harness)
    gateway.assign(user: "bob", version: 2, flags: 8)
    harness.advance(1_000)
    gateway.assign(user: "alice", version: 2, flags: 8)
    harness.advance(86_398_999)
    gateway.assign(user: "dave", version: 1, flags: 1)
    harness.advance(1)
    gateway.assign(user: "erin", version: 1, flags: 2)
    gateway.assign(user: "frank", version: 1, flags: 2)
    // This is too late: the id counts as a new user.
    gateway.assign(user: "bob", version: 1, flags: 1)
    try turn(harness)
    var users: [String] = []
    for effect in try Self.effects(harness) {
      if case .shard(.userAssigned(let number, let settings)) = effect {
        users.append("\(number) \(settings.user)")
      }
      if case .shard(.userErased(let number, let version, _, _)) = effect {
        users.append("\(number) - \(version)")
      }
    }
    #expect(
      users == [
        "0 alice", "1 bob", "2 carol", "1 - 2", "0 - 2", "3 dave", "1 erin", "4 frank", "5 bob",
      ]
    )
    for _ in 0..<2 {
      let again = try EngineHarness(harness.storage)
      let other = again.connect(session: 2)
      for user in ["alice", "bob", "carol", "dave", "erin", "frank"] { other.send(.getUser, user) }
      try turn(again)
      #expect(
        other.take() == [
          "1 user alice version 2 erased revoked 2000", "2 user bob version 1 hides read",
          "3 user carol version 1 hides read",
          "4 user dave version 1 hides read", "5 user erin version 1 hides delivered",
          "6 user frank version 1 hides delivered",
        ]
      )
      try harness.writePages()
    }
  }

  private static func effects(_ harness: EngineHarness) throws -> [Effect] {
    try harness.storage.log[ShardID(0), default: [:]].sorted { $0.key < $1.key }.flatMap {
      try LogBatch($0.value.readableBytesSpan).effects
    }
  }

  @Test("a hidden user who was erased and returns is shown, and rows copy that")
  func erasedHiddenUserReturnsShown() throws {
    let (harness, gateway) = try harnessWithChannel()
    gateway.post("team:a", "m1", by: "alice")
    gateway.read("team:a", "bob", "m1")
    gateway.assign(user: "bob", version: 1, flags: 1)
    gateway.statuses("team:a", ["m1"])
    gateway.erase("team:a", "bob")
    gateway.assign(user: "bob", version: 2, flags: 8)
    gateway.change("team:a", add: ["bob"])
    gateway.post("team:a", "m2", by: "alice")
    gateway.read("team:a", "bob", "m2")
    gateway.statuses("team:a", ["m2"])
    try turn(harness)
    let payload = gateway.lastPayload
    guard case .found(let status)? = try StatusResultFields.all(payload.readableBytesSpan).first else {
      return #expect(Bool(false), "no status")
    }
    #expect(status.readCount == 1)
  }

  // MARK: Fields

  @Test(
    "a removal payload that is too short or too long ends the connection, and nothing is applied",
    arguments: [FrameKind.deleteChannel, .truncateChannel, .eraseMember]
  )
  func removalPayloadThatIsTooShortOrTooLongEndsConnection(_ kind: FrameKind) throws {
    var payload = ByteBuffer()
    if kind != .deleteChannel { payload.writeField(kind == .eraseMember ? "bob" : "m1") }
    for cid in ["team:a", "team:none"] {
      for count in 0...payload.readableBytes + 1 where count != payload.readableBytes {
        // The truncation of a missing channel is refused before its fields are read.
        if cid == "team:none", kind == .truncateChannel { continue }
        let (harness, gateway) = try harnessWithChannel()
        gateway.post("team:a", "m1", by: "alice")
        try turn(harness)
        _ = gateway.take()
        gateway.send(kind, cid) { bytes in
          bytes.writeBytes(payload.readableBytesView.prefix(count))
          if count > payload.readableBytes { bytes.writeInteger(UInt8(0)) }
        }
        try turn(harness)
        #expect(gateway.ended.count == 1, "\(kind) \(cid) \(count)")
        #expect(harness.commits.isEmpty)
      }
    }
  }
}
