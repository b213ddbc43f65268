import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine
import Testing

/// Users' settings and their settlement over frames: answers leave once durable, and settings survive a crash (R7).
@Suite("Users' settings in a store")
struct SettingsTests {
  // MARK: Helpers

  /// Patch a user's settings; nil leaves a setting out.
  private func patch(
    _ gateway: Gateway,
    _ user: String,
    read: Bool? = nil,
    delivered: Bool? = nil,
    revoked: Int64? = nil,
    shard: UInt16 = 0,
    issued: UInt32? = nil
  ) {
    gateway.send(.patchUser, user, shard: shard, issued: issued) { payload in
      payload.writeVarint((read == nil ? 0 : 1) | (delivered == nil ? 0 : 2) | (revoked == nil ? 0 : 4))
      payload.writeVarint((read == true ? 1 : 0) | (delivered == true ? 2 : 0))
      payload.writeTime(Timestamp(milliseconds: revoked ?? 0))
    }
  }

  private func assign(_ gateway: Gateway, _ user: String, version: UInt64, flags: UInt64, shard: UInt16 = 0) {
    gateway.send(.assignUser, user, shard: shard) { payload in
      payload.writeVarint(version)
      payload.writeVarint(flags)
      for _ in 0..<3 { payload.writeTime(.none) }
    }
  }

  private func settle(
    _ gateway: Gateway,
    _ name: String,
    user: Bool,
    version: UInt64,
    shard: UInt16 = 0
  ) {
    gateway.send(.settle, name, shard: shard) { payload in
      payload.writeInteger(UInt8(user ? 1 : 0))
      payload.writeVarint(version)
    }
  }

  private func statuses(_ gateway: Gateway, as user: String, issued: UInt32? = nil) {
    gateway.send(.statuses, "team:a", issued: issued) { payload in
      payload.writeVarint(user.isEmpty ? 1 : 0)
      payload.writeField(user)
      payload.writeVarint(1)
      payload.writeField("m1")
    }
  }

  /// The number of readers of `m1` by its status.
  private func readers(_ gateway: Gateway) throws -> UInt32 {
    let payload = gateway.lastPayload
    var reader = FieldReader(payload.readableBytesSpan)
    guard try reader.count() == 1, try reader.byte() == 0 else { return .max }
    return try reader.status().readCount
  }

  private func nextReplies(_ harness: EngineHarness, _ gateway: Gateway) throws -> [String] {
    harness.loop.endTurn()
    try harness.completeLoads()
    try harness.persistAll()
    return gateway.take().map { $0.split(separator: " ").dropFirst().joined(separator: " ") }
  }

  // MARK: Tests

  @Test("settings can be patched, read, assigned and settled; each real change raises the version")
  func settingsArePatchedReadAssignedAndSettled() throws {
    let (harness, gateway) = try harnessWithChannel()
    gateway.send(.getUser, "bob")
    patch(gateway, "bob", read: true)
    patch(gateway, "bob", read: false)
    patch(gateway, "bob", read: false)
    harness.advance(500)
    patch(gateway, "bob", read: true, delivered: false, revoked: 7_000)
    gateway.send(.getUser, "bob")
    settle(gateway, "bob", user: true, version: 1)
    gateway.send(.listUnsettled, nil)
    settle(gateway, "bob", user: true, version: 2)
    gateway.send(.listUnsettled, nil)
    assign(gateway, "bob", version: 2, flags: 3)
    assign(gateway, "bob", version: 9, flags: 1)
    gateway.send(.listUnsettled, nil)
    #expect(
      try nextReplies(harness, gateway) == [
        "user bob version 0", "user bob version 0", "user bob version 1 hides read",
        "user bob version 1 hides read", "user bob version 2 hides delivered since 1500 revoked 7000",
        "user bob version 2 hides delivered since 1500 revoked 7000", "not settled",
        "unsettled types [] users [\"bob\"]", "settled", "unsettled types [] users []",
        "user bob version 2 hides delivered since 1500 revoked 7000", "user bob version 9 hides read",
        "unsettled types [] users [\"bob\"]",
      ]
    )
  }

  @Test("a channel type is unsettled until it is settled, and again from its next change")
  func channelTypeIsUnsettledUntilItIsSettled() throws {
    let (harness, gateway) = try harnessWithChannel()
    gateway.patch("team", readEvents: false)
    gateway.patch("dm", readEvents: false)
    gateway.send(.listUnsettled, nil)
    settle(gateway, "team", user: false, version: 1)
    settle(gateway, "dm", user: false, version: 2)
    gateway.send(.listUnsettled, nil)
    gateway.patch("team", readEvents: true)
    settle(gateway, "team", user: false, version: 1)
    gateway.send(.listUnsettled, nil)
    #expect(
      try nextReplies(harness, gateway) == [
        "type team version 1 without read events", "type dm version 1 without read events",
        "unsettled types [\"dm\", \"team\"] users []", "settled", "not settled",
        "unsettled types [\"dm\"] users []", "type team version 2", "not settled",
        "unsettled types [\"dm\", \"team\"] users []",
      ]
    )
    let again = try EngineHarness(harness.storage)
    let other = again.connect(session: 2)
    settle(other, "dm", user: false, version: 1)
    other.send(.listUnsettled, nil)
    #expect(try nextReplies(again, other) == ["settled", "unsettled types [\"team\"] users []"])
  }

  @Test("answers that depend on a change leave once it is durable")
  func answersLeaveOnceTheirChangeIsDurable() throws {
    let (harness, gateway) = try harnessWithChannel()
    gateway.post("team:a", "m1", by: "alice")
    gateway.read("team:a", "bob")
    _ = try nextReplies(harness, gateway)
    statuses(gateway, as: "alice")
    harness.loop.endTurn()
    #expect(try readers(gateway) == 1)
    _ = gateway.take()
    patch(gateway, "bob", read: false)
    statuses(gateway, as: "alice")
    gateway.send(.getUser, "bob")
    gateway.send(.listUnsettled, nil)
    gateway.getChannel("team:a")
    harness.loop.endTurn()
    #expect(gateway.take().isEmpty, "the change is in flight")
    let other = harness.connect(session: 2)
    statuses(other, as: "alice")
    harness.loop.endTurn()
    #expect(other.take().isEmpty)
    try harness.persist()
    #expect(gateway.take().count == 5 && other.take().count == 1)
    #expect(try readers(other) == 0)
  }

  @Test(
    "settings survive recovery from the log, from pages, and from both",
    arguments: [0, 1, 2]
  )
  func settingsSurviveRecovery(pageWrites: Int) throws {
    let (harness, gateway) = try harnessWithChannel()
    let users = (0..<300).map { "user\($0)" }
    gateway.post("team:a", "m1", by: "alice")
    gateway.read("team:a", "bob")
    for user in users { patch(gateway, user, read: false) }
    for user in users.prefix(10) { settle(gateway, user, user: true, version: 1) }
    _ = try nextReplies(harness, gateway)
    if pageWrites > 0 { try harness.writePages() }
    patch(gateway, users[3], read: true)
    patch(gateway, users[290], delivered: false)
    patch(gateway, "bob", read: false)
    settle(gateway, users[280], user: true, version: 1)
    _ = try nextReplies(harness, gateway)
    if pageWrites > 1 {
      try harness.writePages()
      let isTrimmed = harness.storage.log[ShardID(0)]?.isEmpty
      #expect(isTrimmed != false, "all effects are in pages")
    }
    let again = try EngineHarness(harness.storage)
    let other = again.connect(session: 2)
    for user in [users[0], users[3], users[290], users[299], "bob", "zoe"] { other.send(.getUser, user) }
    statuses(other, as: "alice")
    let since = pageWrites == 0 ? 1_000 : 201_000
    #expect(
      try nextReplies(again, other) == [
        "user user0 version 1 hides read", "user user3 version 2 since \(since)",
        "user user290 version 2 hides read hides delivered", "user user299 version 1 hides read",
        "user bob version 1 hides read", "user zoe version 0", "1 statuses",
      ]
    )
    #expect(try readers(other) == 0)
    other.send(.listUnsettled, nil)
    let unsettled = try nextReplies(again, other)[0]
    #expect(!unsettled.contains("\"user0\"") && !unsettled.contains("\"user280\""))
    #expect(unsettled.contains("\"user3\"") && unsettled.contains("\"user10\""))
    // 256 of the 290 unsettled users.
    #expect(unsettled.split(separator: ",").count == 256)
    // Numbers continue.
    patch(other, "zoe", read: false)
    #expect(try nextReplies(again, other) == ["user zoe version 1 hides read"])
    let third = try EngineHarness(harness.storage)
    let last = third.connect(session: 3)
    last.send(.getUser, "zoe")
    #expect(try nextReplies(third, last) == ["user zoe version 1 hides read"])
  }

  @Test("a shard with users out of order on storage does not start")
  func shardWithUsersOutOfOrderOnStorageDoesNotStart() throws {
    let (harness, gateway) = try harnessWithChannel()
    patch(gateway, "bob", read: false)
    patch(gateway, "zoe", read: false)
    _ = try nextReplies(harness, gateway)
    try harness.writePages()
    let key = PageKey(shard: ShardID(0), channel: ChannelNumber(0), page: .users(0))
    let stored = try #require(harness.storage.pages[key])
    let page = try Page(stored.readableBytesSpan)
    for effects in [
      Array(page.effects.reversed()), [page.effects[1]], [page.effects[0], page.effects[0].twin],
    ] {
      var bytes = ByteBuffer()
      Page(index: page.index, effects: effects).write(into: &bytes)
      harness.storage.pages[key] = bytes
      #expect(throws: StorageError.self) { _ = try EngineHarness(harness.storage) }
    }
  }

  @Test("an evicted channel applies settings changed meanwhile and before")
  func evictedChannelAppliesChangedSettings() throws {
    let harness = try EngineHarness { $0.residentBytesMax = 1 }
    let gateway = harness.connect()
    gateway.put("team:a", ["alice", "bob", "carol"])
    gateway.post("team:a", "m1", by: "alice")
    _ = try nextReplies(harness, gateway)
    patch(gateway, "bob", read: false)
    _ = try nextReplies(harness, gateway)
    gateway.read("team:a", "bob")
    gateway.read("team:a", "carol")
    _ = try nextReplies(harness, gateway)
    func letGo() throws {
      try harness.writePages()
      let cid = Array("team:a".utf8)
      let isLoaded = harness.loop.isLoaded(ShardID(0), cid: cid.span.bytes)
      #expect(!isLoaded)
    }
    try letGo()
    statuses(gateway, as: "alice")
    _ = try nextReplies(harness, gateway)
    #expect(try readers(gateway) == 1)
    try letGo()
    patch(gateway, "carol", read: false)
    patch(gateway, "bob", read: true)
    _ = try nextReplies(harness, gateway)
    statuses(gateway, as: "alice")
    _ = try nextReplies(harness, gateway)
    #expect(try readers(gateway) == 1)
    patch(gateway, "carol", read: true)
    statuses(gateway, as: "alice")
    _ = try nextReplies(harness, gateway)
    #expect(try readers(gateway) == 2)
    #expect(harness.loop.gauges.settingsBytes > 0)
  }

  @Test("settings belong to the user's home shard, and are copied by the others")
  func settingsBelongToUserHomeShard() throws {
    let harness = try EngineHarness(shards: [0, 1, 2, 3], of: 4)
    let gateway = harness.connect()
    let home = ["bob", "team"].map { name -> UInt16 in
      let bytes = Array(name.utf8)
      return ShardID.owning(bytes.span.bytes, count: 4).rawValue
    }
    let elsewhere = home.map { ($0 + 1) % 4 }
    patch(gateway, "bob", read: false, shard: elsewhere[0])
    patch(gateway, "bob", read: false, shard: home[0])
    assign(gateway, "bob", version: 1, flags: 1, shard: elsewhere[0])
    gateway.send(.getUser, "bob", shard: elsewhere[0])
    gateway.send(.listUnsettled, nil, shard: elsewhere[0])
    gateway.send(.listUnsettled, nil, shard: home[0])
    settle(gateway, "bob", user: true, version: 1, shard: elsewhere[0])
    settle(gateway, "team", user: false, version: 0, shard: elsewhere[1])
    settle(gateway, "team", user: false, version: 0, shard: home[1])
    let found = Set(try nextReplies(harness, gateway))
    #expect(
      found == [
        "wrong_shard", "user bob version 1 hides read", "unsettled types [] users []",
        "unsettled types [] users [\"bob\"]", "settled",
      ]
    )
    // After a restart the shard still distinguishes its own users from copied ones.
    let again = try EngineHarness(harness.storage, shards: [0, 1, 2, 3], of: 4)
    let other = again.connect(session: 2)
    for shard in 0..<4 as Range<UInt16> { other.send(.listUnsettled, nil, shard: shard) }
    let lists = try nextReplies(again, other)
    #expect(lists.enumerated().filter { $0.element.contains("bob") }.map { UInt16($0.offset) } == [home[0]])
  }

  // MARK: Tokens

  @Test(
    "a token revoked by its user is refused in every command and query; other users' and newer tokens are not"
  )
  func revokedTokenIsRefusedInEveryRequest() throws {
    let (harness, gateway) = try harnessWithChannel()
    gateway.post("team:a", "m1", by: "alice")
    patch(gateway, "bob", revoked: 5_000)
    _ = try nextReplies(harness, gateway)
    func mark(_ kind: FrameKind, _ user: String, issued: UInt32?) {
      gateway.send(kind, "team:a", issued: issued) { payload in
        payload.writeField(user)
        payload.writeField("m1")
        if kind != .markDelivered { payload.writeVarint(0) }
      }
    }
    func readState(_ user: String, issued: UInt32?) {
      gateway.send(.readState, "team:a", issued: issued) { payload in
        payload.writeVarint(0)
        payload.writeField(user)
        payload.writeVarint(10)
        payload.writeVarint(0)
      }
    }
    for issued in [0, 4] as [UInt32] {
      for kind in [FrameKind.markRead, .markUnread, .markDelivered] { mark(kind, "bob", issued: issued) }
      statuses(gateway, as: "bob", issued: issued)
      readState("bob", issued: issued)
      gateway.send(.getUser, "bob", issued: issued)
      patch(gateway, "bob", read: false, issued: issued)
    }
    #expect(try nextReplies(harness, gateway) == Array(repeating: "token_revoked", count: 14))
    // The result is the same for a missing channel.
    for cid in ["team:a", "team:none"] {
      gateway.send(.listRoster, cid, issued: 4) { payload in
        payload.writeVarint(0)
        payload.writeField("bob")
        payload.writeVarint(10)
        payload.writeVarint(0)
      }
      gateway.send(.threadReadState, cid, issued: 4) { payload in
        payload.writeVarint(0)
        payload.writeField("bob")
        payload.writeField("m1")
        payload.writeVarint(10)
        payload.writeField("")
      }
      for kind in [FrameKind.userReceipts, .userThreads] {
        gateway.send(kind, cid, issued: 4) { payload in
          payload.writeField("bob")
          payload.writeInteger(UInt8(0))
          payload.writeVarint(10)
          payload.writeVarint(0)
        }
      }
      gateway.send(.setMember, cid, issued: 4) { payload in
        payload.writeField("bob")
        payload.writeField("")
        payload.writeVarint(3)
      }
      gateway.send(.markUnreadSince, cid, issued: 4) { payload in
        payload.writeField("bob")
        payload.writeTime(Timestamp(milliseconds: 1))
        payload.writeVarint(0)
      }
    }
    #expect(try nextReplies(harness, gateway) == Array(repeating: "token_revoked", count: 12))
    // Nothing has changed. Requests without a token's time, with a later one, or of another user are served.
    mark(.markRead, "alice", issued: 4)
    statuses(gateway, as: "alice", issued: 4)
    gateway.send(.getUser, "bob", issued: 5)
    statuses(gateway, as: "bob", issued: 5)
    readState("bob", issued: nil)
    gateway.send(.getUser, "zoe", issued: 0)
    mark(.markRead, "bob", issued: 6)
    #expect(
      try nextReplies(harness, gateway) == [
        "row read 1 unread 0", "1 statuses", "user bob version 1 revoked 5000", "1 statuses", "2 rows",
        "user zoe version 0", "row read 1 unread 0",
      ]
    )
  }

  @Test(
    "a token from before its user's erasure is refused in every command and query, before and after a restart"
  )
  func tokenFromBeforeErasureIsRefused() throws {
    let (harness, gateway) = try harnessWithChannel()
    gateway.post("team:a", "m1", by: "alice")
    harness.advance(600_000)
    gateway.assign(user: "bob", version: 1, flags: 8)
    gateway.change("team:a", add: ["bob"])
    harness.advance(5_000)
    _ = try nextReplies(harness, gateway)
    let erased: UInt32 = 601
    func askAll(_ gateway: Gateway, _ issued: UInt32) {
      func send(_ kind: FrameKind, _ fields: @escaping (inout ByteBuffer) -> Void) {
        gateway.send(kind, "team:a", issued: issued) { payload in fields(&payload) }
      }
      for kind in [FrameKind.markRead, .markUnread, .markDelivered] {
        send(kind) { payload in
          payload.writeField("bob")
          payload.writeField("m1")
          if kind != .markDelivered { payload.writeVarint(0) }
        }
      }
      send(.acknowledge) { payload in
        payload.writeField("bob")
        payload.writeField("")
        payload.writeVarint(1)
        payload.writeField("m1")
      }
      statuses(gateway, as: "bob", issued: issued)
      send(.readState) { payload in
        payload.writeVarint(0)
        payload.writeField("bob")
        payload.writeVarint(10)
        payload.writeVarint(0)
      }
      send(.listMembers) { payload in
        payload.writeVarint(0)
        payload.writeField("bob")
        payload.writeField("m1")
        payload.writeVarint(0)
        payload.writeVarint(0)
        payload.writeVarint(10)
        payload.writeField("")
      }
      send(.memberStatuses) { payload in
        payload.writeVarint(0)
        payload.writeField("bob")
        payload.writeField("m1")
        payload.writeVarint(1)
        payload.writeField("bob")
      }
      gateway.unreadCounts([CountsEntry("team:a", "bob")], issued: issued)
      gateway.send(.listChannels, "bob", issued: issued) { payload in
        payload.writeVarint(0)
        payload.writeVarint(10)
        payload.writeVarint(0)
      }
      gateway.send(.getUser, "bob", issued: issued)
    }
    func refusals(_ harness: EngineHarness, _ gateway: Gateway) throws -> Int {
      let all = try nextReplies(harness, gateway)
      #expect(all.count == 11)
      return all.count { $0 == "token_revoked" }
    }
    askAll(gateway, erased - 1)
    #expect(try refusals(harness, gateway) == 11)
    // The refused commands were not applied.
    gateway.getChannel("team:a")
    _ = try nextReplies(harness, gateway)
    let again = try EngineHarness(harness.storage)
    let other = again.connect(session: 2)
    askAll(other, erased - 1)
    #expect(try refusals(again, other) == 11)
    askAll(other, erased)
    #expect(try refusals(again, other) == 0)
    // The first setting of a new user with the id keeps the time.
    patch(other, "bob", read: true, issued: erased - 1)
    patch(other, "bob", read: false, issued: erased)
    _ = try nextReplies(again, other)
    askAll(other, erased - 1)
    #expect(try refusals(again, other) == 11)
  }

  @Test("a refused command does not consume its counter: with a newer token it is decided")
  func refusedCommandKeepsCounter() throws {
    let (harness, gateway) = try harnessWithChannel()
    gateway.post("team:a", "m1", by: "alice")
    patch(gateway, "bob", revoked: 5_000)
    _ = try nextReplies(harness, gateway)
    for issued in [4, 6] as [UInt32] {
      gateway.send(.markRead, "team:a", counter: 77, issued: issued) { payload in
        payload.writeField("bob")
        payload.writeField("")
        payload.writeVarint(0)
      }
    }
    #expect(try nextReplies(harness, gateway) == ["token_revoked", "row read 1 unread 0"])
  }

  @Test("requests that wait for their channel keep their token's time")
  func requestsThatWaitForChannelKeepTokenTime() throws {
    let (harness, gateway) = try harnessWithChannel()
    gateway.post("team:a", "m1", by: "alice")
    patch(gateway, "bob", revoked: 5_000)
    _ = try nextReplies(harness, gateway)
    let again = try EngineHarness(harness.storage)
    let other = again.connect(session: 2)
    for issued in [4, nil, 5] as [UInt32?] { statuses(other, as: "bob", issued: issued) }
    statuses(other, as: "alice", issued: 4)
    #expect(again.loads.count == 1)
    #expect(try nextReplies(again, other) == ["token_revoked", "1 statuses", "1 statuses", "1 statuses"])
  }

  @Test("a payload too short for its token's time ends the connection")
  func payloadTooShortForTokenTimeEndsConnection() throws {
    let (harness, gateway) = try harnessWithChannel()
    var payload = ByteBuffer()
    payload.writeBytes([0, 0, 0])
    #expect(throws: WireError.truncated) {
      try harness.loop.receive(
        FrameHeader(.getUser, flags: .issued, correlation: 1),
        payload.readableBytesSpan,
        lane: gateway.lane
      )
    }
  }

  // MARK: Fields

  struct Row: Sendable, CustomTestStringConvertible {
    var testDescription: String
    var kind: FrameKind
    var name: String
    var fields: [UInt8]
    var reply: String

    init(_ text: String, _ kind: FrameKind, _ name: String, _ fields: [UInt8], _ reply: String) {
      testDescription = text
      self.kind = kind
      self.name = name
      self.fields = fields
      self.reply = reply
    }
  }

  private static let large = [UInt8](repeating: 0xFF, count: 9) + [1]

  static let rows: [Row] = [
    Row("no user", .getUser, "", [], "invalid_field"),
    Row("a user with a control character", .getUser, "a\u{7}b", [], "invalid_field"),
    Row("a user too long", .getUser, String(repeating: "u", count: 256), [], "invalid_field"),
    Row("a patch without a user", .patchUser, "", [1, 1, 0], "invalid_field"),
    Row("a patch of an unknown setting", .patchUser, "bob", [9, 0, 0], "invalid_field"),
    Row("an erasure with a value", .patchUser, "bob", [8, 1, 0], "invalid_field"),
    Row("an erasure with a time", .patchUser, "bob", [8, 0, 1], "invalid_field"),
    Row("a value of a setting outside the patch", .patchUser, "bob", [1, 2, 0], "invalid_field"),
    Row("an unknown value", .patchUser, "bob", [3, 4, 0], "invalid_field"),
    Row("a time outside the patch", .patchUser, "bob", [3, 0, 1], "invalid_field"),
    Row("an empty patch", .patchUser, "bob", [0, 0, 0], "user bob version 0"),
    Row(
      "a patch of all settings",
      .patchUser,
      "bob",
      [7, 1, 9],
      "user bob version 1 hides delivered revoked 9"
    ),
    Row("an assignment without a user", .assignUser, "", [1, 0, 0, 0, 0], "invalid_field"),
    Row("unknown flags", .assignUser, "bob", [1, 9, 0, 0, 0], "invalid_field"),
    Row("the largest version", .assignUser, "bob", large + [0, 0, 0, 0], "invalid_field"),
    Row("version 0", .assignUser, "bob", [0, 3, 0, 0, 0], "user bob version 0"),
    Row("an unknown kind of settings", .settle, "bob", [2, 0], "invalid_field"),
    Row("an invalid type", .settle, "a.b", [0, 0], "invalid_field"),
    Row("an invalid user", .settle, "a\u{7}b", [1, 0], "invalid_field"),
    Row("a version too large to settle", .settle, "bob", [1] + large, "invalid_field"),
  ]

  @Test("values out of range refuse the request, which does not count as applied", arguments: rows)
  func valuesOutOfRangeRefuseRequest(row: Row) throws {
    let (harness, _) = try harnessWithChannel()
    let gateway = harness.connect(session: 5)
    gateway.send(row.kind, row.name) { $0.writeBytes(row.fields) }
    #expect(try nextReplies(harness, gateway) == [row.reply])
    guard row.kind.isCommand, row.reply == "invalid_field" else { return }
    // The same counter with other fields is decided.
    gateway.send(.patchUser, "zoe", counter: 1) { $0.writeBytes([1, 0, 0]) }
    #expect(try nextReplies(harness, gateway) == ["user zoe version 1 hides read"])
  }
}

extension Effect {
  /// The same settings with the next user number.
  fileprivate var twin: Effect {
    guard case .shard(.userAssigned(let number, let settings)) = self else { return self }
    return .shard(.userAssigned(number + 1, settings))
  }
}
