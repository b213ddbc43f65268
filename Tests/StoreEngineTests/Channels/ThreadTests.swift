import NIOCore
import ReceiptModel
import ReceiptWire
import Testing

@testable import StoreEngine

/// Threads over frames: the flag, refusals, and that threads survive restarts, eviction and loading (R15).
@Suite("Threads in the store")
struct ThreadTests {
  private let cid = "team:a"

  /// A harness with `team:a` of alice, bob and carol, and message m1 of alice.
  private func harness(configure: (inout StoreLoopConfiguration) -> Void = { _ in }) throws -> (
    harness: EngineHarness, gateway: Gateway
  ) {
    let harness = try EngineHarness(configure: configure)
    let gateway = harness.connect()
    gateway.put(cid, ["alice", "bob", "carol"])
    gateway.post(cid, "m1", by: "alice")
    harness.loop.endTurn()
    try harness.completeLoads()
    try harness.persistAll()
    _ = gateway.take()
    return (harness, gateway)
  }

  /// The replies since the last call, without their correlations.
  private func nextReplies(_ harness: EngineHarness, _ gateway: Gateway) throws -> [String] {
    harness.loop.endTurn()
    try harness.completeLoads()
    try harness.persistAll()
    return gateway.take().map { $0.split(separator: " ").dropFirst().joined(separator: " ") }
  }

  // MARK: The flag

  @Test("replies and marks act in threads, by the parent or by a reply's id alone")
  func repliesAndMarksActInThreads() throws {
    let (harness, gateway) = try harness()
    gateway.reply(cid, to: "m1", "r1", by: "bob")
    gateway.reply(cid, to: "m1", "r2", by: "bob", flags: 2)
    gateway.reply(cid, to: "m1", "r2", by: "bob", flags: 2)
    gateway.mark(.markRead, cid, "carol", in: "m1")
    gateway.mark(.markDelivered, cid, "alice", in: "m1", "r1")
    gateway.mark(.markRead, cid, "alice", in: "m1", "r1")
    gateway.read(cid, "alice", "r2")
    gateway.mark(.markUnread, cid, "alice", in: "m1", "r2")
    gateway.mark(.markUnread, cid, "alice", in: "m1")
    gateway.post(cid, "m2", by: "bob")
    gateway.read(cid, "alice", "m2")
    #expect(
      try nextReplies(harness, gateway) == [
        "message 1 new", "message 2 new not allowed", "message 2 not allowed", "row read 2 unread 0",
        "row read 0 unread 2", "row read 1 unread 1", "row read 2 unread 0", "row read 1 unread 1",
        "row read 0 unread 2", "message 2 new", "row read 2 unread 0",
      ]
    )
  }

  @Test("refused thread requests change nothing")
  func refusedThreadRequestsChangeNothing() throws {
    let (harness, gateway) = try harness()
    gateway.reply(cid, to: "m1", "r1", by: "bob")
    gateway.post(cid, "m2")
    gateway.send(.deleteMessage, cid) { $0.writeField("m2") }
    _ = try nextReplies(harness, gateway)
    gateway.reply(cid, to: "m9", "r2", by: "bob")
    gateway.reply(cid, to: "m2", "r2", by: "bob")
    gateway.reply(cid, to: "r1", "r2", by: "bob")
    gateway.reply(cid, to: "m1", "r\u{7}2", by: "bob")
    gateway.mark(.markRead, cid, "zoe", in: "m1")
    gateway.mark(.markRead, cid, "alice", in: "m9")
    gateway.mark(.markRead, cid, "alice", in: "m2")
    gateway.mark(.markRead, cid, "alice", in: "r1")
    gateway.mark(.markRead, cid, "alice", in: "m1", "m1")
    gateway.mark(.markUnread, cid, "carol", in: "m1")
    gateway.read(cid, "alice", "r9")
    gateway.mark(.markDelivered, cid, "carol", in: "m1")
    gateway.mark(.markRead, "team:b", "alice", in: "m1")
    harness.loop.endTurn()
    #expect(harness.commits.isEmpty)
    try harness.completeLoads()
    #expect(
      try nextReplies(harness, gateway) == [
        "message_not_found", "message_deleted", "invalid_field", "invalid_field", "not_a_member",
        "message_not_found", "message_deleted", "invalid_field", "message_not_found", "not_in_thread",
        "message_not_found", "row read 0 unread 0 uncounted 1", "channel_not_found",
      ]
    )
  }

  @Test("a reply's id alone identifies its thread, for each mark")
  func replyIDIdentifiesItsThread() throws {
    let (harness, gateway) = try harness()
    for id in ["r1", "r2"] { gateway.reply(cid, to: "m1", id, by: "bob") }
    gateway.mark(.markDelivered, cid, "alice", in: nil, "r1")
    gateway.mark(.markRead, cid, "alice", in: nil, "r2")
    gateway.mark(.markUnread, cid, "alice", in: nil, "r2")
    _ = try nextReplies(harness, gateway)
    gateway.list(cid, .delivered, "r1")
    gateway.list(cid, .readers, "r2")
    gateway.markUnread(cid, "alice", "r1")
    // The channel's own row has not moved.
    gateway.read(cid, "alice")
    // A user outside the thread: no effect, or refused.
    gateway.mark(.markDelivered, cid, "carol", in: nil, "r1")
    gateway.mark(.markUnread, cid, "carol", in: nil, "r1")
    for kind in [FrameKind.markRead, .markUnread, .markDelivered] {
      gateway.mark(kind, cid, "alice", in: nil, "r9")
      gateway.mark(kind, cid, "zoe", in: nil, "r1")
    }
    #expect(
      try nextReplies(harness, gateway) == [
        "nobody", "alice@1000", "row read 0 unread 2", "row read 1 unread 0",
        "row read 0 unread 0 uncounted 1", "not_in_thread",
        "message_not_found", "not_a_member", "message_not_found", "not_a_member", "message_not_found",
        "not_a_member",
      ]
    )
  }

  @Test("a channel member outside the thread is answered as not taking part")
  func memberOutsideThreadIsAnsweredAsNotTakingPart() throws {
    let (harness, gateway) = try harness()
    gateway.reply(cid, to: "m1", "r1", by: "bob")
    _ = try nextReplies(harness, gateway)
    for (user, code) in [("carol", "not_in_thread"), ("zoe", "not_a_member")] {
      gateway.mark(.markUnread, cid, user, in: "m1")
      #expect(try nextReplies(harness, gateway) == [code])
    }
  }

  @Test("marks in a thread without replies succeed and create nothing")
  func marksInThreadWithoutRepliesSucceedAndCreateNothing() throws {
    let (harness, gateway) = try harness()
    for kind in [FrameKind.markRead, .markUnread, .markDelivered] {
      gateway.mark(kind, cid, "bob", in: "m1")
    }
    harness.loop.endTurn()
    #expect(harness.commits.isEmpty)
    #expect(
      try nextReplies(harness, gateway) == Array(repeating: "row read 0 unread 0 uncounted 2", count: 3)
    )
  }

  @Test("the thread flag on a kind without it, and an empty thread, end the connection")
  func invalidThreadFlagEndsConnection() throws {
    for kind in FrameKind.allCases where kind.isRequest && !kind.traits.contains(.thread) {
      let (harness, gateway) = try harness()
      let isOfChannel = ![.listChannelTypes, .listUnsettled, .purge].contains(kind)
      gateway.send(kind, isOfChannel ? cid : nil, thread: "m1")
      #expect(gateway.ended == [.badFlags(4)], "\(kind)")
      #expect(harness.commits.isEmpty)
    }
    for kind in FrameKind.allCases where kind.traits.contains(.thread) {
      let (harness, gateway) = try harness()
      gateway.mark(kind, cid, "bob", in: "")
      #expect(gateway.ended.count == 1, "\(kind)")
      // The flag is set without the thread behind the fields.
      let (other, gateway2) = try self.harness()
      gateway2.mark(kind, cid, "bob", in: nil, hasFlag: true)
      #expect(gateway2.ended.count == 1, "\(kind)")
      #expect(harness.commits.isEmpty && other.commits.isEmpty)
    }
  }

  @Test("a revoked token marks in no thread: the thread precedes the token's time in the payload")
  func revokedTokenMarksInNoThread() throws {
    let (harness, gateway) = try harness()
    gateway.reply(cid, to: "m1", "r1", by: "bob")
    gateway.send(.patchUser, "alice") { payload in
      payload.writeVarint(4)
      payload.writeVarint(0)
      payload.writeTime(Timestamp(milliseconds: 50_000))
    }
    _ = try nextReplies(harness, gateway)
    for issued in [UInt32(49), 50] {
      gateway.mark(.markRead, cid, "alice", in: "m1", issued: issued)
    }
    #expect(try nextReplies(harness, gateway) == ["token_revoked", "row read 1 unread 0"])
  }

  // MARK: Queries

  @Test("statuses, lists, members and deletions find a reply by its id")
  func statusesListsMembersAndDeletionsFindReplyById() throws {
    let (harness, gateway) = try harness()
    gateway.reply(cid, to: "m1", "r1", by: "bob")
    harness.advance(1_000)
    gateway.mark(.markRead, cid, "alice", in: "m1")
    _ = try nextReplies(harness, gateway)
    gateway.statuses(cid, ["m1", "r1", "r9"])
    gateway.list(cid, .readers, "r1")
    gateway.list(cid, .readers, "r1", viewer: "carol")
    gateway.list(cid, .readers, "r1", viewer: "zoe")
    gateway.list(cid, .unread, "r1")
    gateway.members(cid, ["alice", "bob", "carol", "zoe"], "r1")
    gateway.acknowledge(cid, "alice", ["r1", "r9"])
    gateway.send(.deleteMessage, cid) { $0.writeField("r1") }
    gateway.list(cid, .readers, "r1")
    gateway.acknowledge(cid, "alice", ["r1"])
    #expect(
      try nextReplies(harness, gateway) == [
        "3 statuses", "alice@2000", "alice@2000", "not_a_member", "nobody",
        "alice read, bob read, carol not_expected, zoe not_a_member",
        "acknowledged receipt_not_requested message_not_found", "deleted 1", "message_deleted",
        "acknowledged message_deleted",
      ]
    )
  }

  @Test("a large thread's list is built in slices, and its channel stays in memory meanwhile")
  func largeThreadListIsBuiltInSlices() throws {
    let (harness, gateway) = try harness { configuration in
      configuration.sliceRows = 10
      configuration.shortRows = 10
    }
    gateway.change(cid, add: (0..<100).map { "u\($0)" })
    gateway.reply(cid, to: "m1", "r1", by: "bob")
    for number in 0..<100 { gateway.mark(.markRead, cid, "u\(number)", in: "m1") }
    gateway.reply(cid, to: "m1", "r2", by: "bob")
    _ = try nextReplies(harness, gateway)
    gateway.list(cid, .unread, "r2")
    harness.loop.endTurn()
    #expect(gateway.take() == [])
    let name = Array(cid.utf8)
    let found = harness.loop.shards[0].state.slot(of: name.span.bytes)
    let slot = try #require(found)
    #expect(harness.loop.shards[0].waiting.isSliced(slot))
    var slices = 0
    while harness.slices > 0 {
      harness.slice()
      slices += 1
    }
    #expect(slices >= 10)
    let reply = gateway.take()
    #expect(reply.count == 1 && reply[0].contains("alice u0 u1 "))
    // Statuses of replies, each of which scans the whole thread.
    gateway.statuses(cid, ["r1", "r2", "m1", "r1"])
    harness.loop.endTurn()
    while harness.slices > 0 { harness.slice() }
    #expect(try nextReplies(harness, gateway) == ["4 statuses"])
  }

  // MARK: Storage

  /// Two threads with replies, marks, a former member and a hidden member.
  private func fill(_ harness: EngineHarness, _ gateway: Gateway) throws {
    gateway.post(cid, "m2", by: "bob")
    gateway.reply(cid, to: "m2", "x1", by: "carol")
    gateway.reply(cid, to: "m1", "r1", by: "bob")
    gateway.reply(cid, to: "m1", "r2", by: "carol")
    gateway.mark(.markRead, cid, "alice", in: "m1")
    gateway.mark(.markUnread, cid, "alice", in: "m1", "r2")
    gateway.change(cid, remove: ["carol"])
    gateway.send(.deleteMessage, cid) { $0.writeField("r1") }
    _ = try nextReplies(harness, gateway)
  }

  /// Check the replies about the channel of ``fill(_:_:)``.
  private func check(
    _ harness: EngineHarness,
    session: UInt64,
    sourceLocation: SourceLocation = #_sourceLocation
  )
    throws
  {
    let gateway = harness.connect(session: session)
    gateway.mark(.markDelivered, cid, "alice", in: "m1", "r1")
    gateway.mark(.markDelivered, cid, "carol", in: "m1")
    gateway.reply(cid, to: "m1", "r2", by: "carol")
    gateway.reply(cid, to: "m2", "r1", by: "bob")
    gateway.mark(.markDelivered, cid, "bob", in: "m2", "x1")
    gateway.members(cid, ["alice", "bob"], "r2")
    #expect(
      try nextReplies(harness, gateway) == [
        "row read 1 unread 1", "not_a_member", "message 2", "message_deleted", "row read 0 unread 1",
        "alice read, bob sent",
      ],
      sourceLocation: sourceLocation
    )
  }

  @Test("threads survive recovery from the log, from pages, and from both")
  func threadsSurviveRecovery() throws {
    let (harness, gateway) = try harness()
    try fill(harness, gateway)
    let second = try EngineHarness(harness.storage)
    try check(second, session: 11)
    try second.writePages()
    #expect(harness.storage.log[ShardID(0)]!.isEmpty)
    let pages = harness.storage.pages.keys.map(\.page)
    for parent in [SequenceNumber(1), SequenceNumber(2)] {
      #expect(pages.contains(.threadRows(parent, 0)) && pages.contains(.threadSegment(parent, 0)))
    }
    let again = try EngineHarness(harness.storage)
    try check(again, session: 12)
    let other = again.connect(session: 13)
    other.reply(cid, to: "m2", "x2", by: "alice")
    other.mark(.markRead, cid, "bob", in: "m2", "x1")
    #expect(try nextReplies(again, other) == ["message 2 new", "row read 1 unread 1"])
    let third = try EngineHarness(again.storage)
    let last = third.connect(session: 14)
    last.mark(.markRead, cid, "bob", in: "m2", "x1")
    last.reply(cid, to: "m2", "x2", by: "alice")
    #expect(try nextReplies(third, last) == ["row read 1 unread 1", "message 2"])
    #expect(third.reports == [])
  }

  @Test("an evicted channel's threads are evicted and loaded with it")
  func evictedChannelThreadsAreEvictedAndLoadedWithIt() throws {
    let (harness, gateway) = try harness { $0.residentBytesMax = 12 << 10 }
    try fill(harness, gateway)
    for number in 0..<20 {
      gateway.put("team:other\(number)", ["alice", "bob"])
      _ = try nextReplies(harness, gateway)
      harness.loop.tick()
      try harness.persistAll()
    }
    let name = Array(cid.utf8)
    let isLoaded = harness.loop.isLoaded(ShardID(0), cid: name.span.bytes)
    #expect(!isLoaded)
    try check(harness, session: 11)
    #expect(harness.reports == [])
  }

  @Test("a thread effect without its page or log makes the channel damaged and unavailable")
  func missingThreadEffectMakesChannelDamaged() throws {
    let channel = ChannelNumber(1)
    let parent = SequenceNumber(1)
    let row = MemberOrdinal(0)
    let time = Timestamp(milliseconds: 9)
    func message(_ sequence: UInt32, _ id: String, _ flags: MessageRecord.Flags = []) -> ChannelEffect {
      .messageAssigned(
        SequenceNumber(sequence),
        MessageRecord(id: id, sender: "", flags: flags, registeredAt: time)
      )
    }
    func joined(_ number: UInt32, read: UInt32 = 0) -> ChannelEffect {
      let record = RowRecord(user: "alice", joined: .zero, joinedAt: time, read: SequenceNumber(read))
      return .rowAssigned(MemberOrdinal(number), record)
    }
    let cases: [(String, SequenceNumber, [ChannelEffect])] = [
      ("whole", parent, [joined(0, read: 1), message(1, "r1")]),
      ("no such parent", SequenceNumber(9), [message(1, "r1")]),
      ("a gap between replies", parent, [message(2, "r2")]),
      ("an id that is too long", parent, [message(1, String(repeating: "r", count: 256))]),
      ("an acknowledgement request", parent, [message(1, "r1", .requestsAcknowledgement)]),
      ("a gap between rows", parent, [joined(1), message(1, "r1")]),
      ("a row that names no reply", parent, [joined(0, read: 2), message(1, "r1")]),
      ("a move of no row", parent, [.readMoved(row, to: SequenceNumber(1), at: time)]),
      ("a marker of no row", parent, [.markerAssigned(row, marker: nil, epoch: 1)]),
      ("a leave of no row", parent, [.rowLeft(row, at: time)]),
      ("a deletion of no reply", parent, [.messageDeleted(SequenceNumber(1), at: time)]),
      ("steps of no row", parent, [.stepsTrimmed(rowPage: 0, first: 1)]),
      (
        "steps that are none", parent,
        [
          joined(0), .stepTailAssigned(rowPage: 0, StepTailRecord(tail: [0xFF])),
        ]
      ),
      (
        "segments of steps", parent,
        [
          joined(0), .stepTailAssigned(rowPage: 0, StepTailRecord(ends: [time])),
        ]
      ),
    ]
    for isInLog in [false, true] {
      for (name, parent, effects) in cases {
        let (harness, _) = try harness()
        try harness.writePages()
        let wrapped = effects.map { Effect.channel(channel, .inThread(parent, $0)) }
        if isInLog {
          var bytes = ByteBuffer()
          var encoded = ByteBuffer()
          for effect in wrapped { encoded.writeEffect(effect) }
          let index = harness.loop.shards[0].log.closed.next
          LogBatch.write(
            index: index,
            time: time,
            sessions: [],
            effectCount: wrapped.count,
            effects: encoded,
            into: &bytes
          )
          harness.storage.log[ShardID(0), default: [:]][index.rawValue] = bytes
        } else {
          for (page, effects) in Dictionary(grouping: wrapped, by: \.page) {
            var bytes = ByteBuffer()
            Page(index: LogIndex(1), effects: effects).write(into: &bytes)
            let key = PageKey(shard: ShardID(0), channel: channel, page: page)
            harness.storage.pages[key] = bytes
          }
        }
        let again = try EngineHarness(harness.storage)
        let gateway = again.connect(session: 11)
        gateway.getChannel(cid)
        let expected = name == "whole" ? "channel of 3" : "unavailable"
        #expect(try nextReplies(again, gateway) == [expected], "\(name), \(isInLog ? "log" : "page")")
      }
    }
  }

  // MARK: Sessions

  @Test("a mark resent after its member left the thread is answered with an empty row")
  func markResentAfterLeavingIsAnsweredWithEmptyRow() throws {
    let (harness, gateway) = try harness()
    gateway.reply(cid, to: "m1", "r1", by: "bob")
    gateway.mark(.markRead, cid, "carol", in: "m1")
    let counter = gateway.counter
    gateway.change(cid, remove: ["carol"])
    gateway.change(cid, add: ["carol"])
    _ = try nextReplies(harness, gateway)
    let again = harness.connect()
    again.mark(.markRead, cid, "carol", in: "m1", counter: counter)
    #expect(try nextReplies(harness, again) == ["row read 0 unread 0 uncounted 1"])
    #expect(harness.commits.isEmpty)
    again.reply(cid, to: "m1", "r1", by: "bob", counter: counter - 1)
    #expect(try nextReplies(harness, again) == ["message 1"])
  }

  @Test("a thread's answer leaves once the changes it shows are durable")
  func threadAnswerLeavesOnceChangesItShowsAreDurable() throws {
    let (harness, gateway) = try harness()
    gateway.reply(cid, to: "m1", "r1", by: "bob")
    harness.loop.endTurn()
    let other = harness.connect(session: 2)
    other.statuses(cid, ["r1"])
    other.mark(.markDelivered, cid, "carol", in: "m1")
    harness.loop.endTurn()
    #expect(gateway.take() == [] && other.take() == [])
    try harness.persistAll()
    #expect(gateway.take().count == 1 && other.take().count == 2)
  }
}

extension Gateway {
  fileprivate func reply(
    _ cid: String,
    to parent: String,
    _ id: String,
    by sender: String,
    flags: UInt64 = 0,
    counter: UInt64? = nil
  ) {
    send(.registerMessage, cid, counter: counter, thread: parent) { payload in
      payload.writeField(id)
      payload.writeField(sender)
      payload.writeTime(.none)
      payload.writeVarint(flags)
    }
  }

  /// Send a mark, or another request that begins with a user and a message.
  ///
  /// - Parameter hasFlag: sets the flag, with or without a thread behind the fields.
  fileprivate func mark(
    _ kind: FrameKind,
    _ cid: String,
    _ user: String,
    in parent: String?,
    _ message: String = "",
    counter: UInt64? = nil,
    issued: UInt32? = nil,
    hasFlag: Bool = false
  ) {
    send(kind, cid, counter: counter, issued: issued, thread: parent, hasThreadFlag: hasFlag) { payload in
      payload.writeField(user)
      payload.writeField(message)
      if kind == .registerMessage { payload.writeTime(.none) }
      if kind != .markDelivered { payload.writeVarint(0) }
    }
  }
}
