import NIOCore
import ReceiptModel
import ReceiptWire
import Testing

@testable import Probe

/// Frames as lines and lines as frames, compared with Proto/vectors/frames.json and with bytes written by hand.
struct FrameTextTests {
  @Test func tableHasEveryKind() {
    let replies = FrameKind.allCases.filter(\.hasReply).map { $0.rawValue | FrameHeader.replyBit }
    #expect(Set(FrameTable.all.map(\.number)) == Set(FrameKind.allCases.map(\.rawValue) + replies))
    #expect(Set(FrameTable.all.map(\.name)).count == FrameTable.all.count)
    for code in ErrorCode.allCases {
      let error = StoreFrames().text(frame("error code=\(code.rawValue)"))
      #expect(error.contains("code=\(code.name) "))
    }
  }

  @Test(arguments: FrameVectors.all)
  func vectorsRoundTrip(_ vector: FrameVectors.Frame) throws {
    let wireProtocol = StoreFrames(fillsIn: false)
    let bytes = try #require(Hex.bytes(vector.hex))
    #expect(StoreFrames.boundary(in: bytes) == .unit(bytes.count))
    // The line of the bytes encodes to the same bytes.
    let line = wireProtocol.text(bytes)
    #expect(line.hasPrefix(vector.kind))
    var writer = wireProtocol
    #expect(Hex.text(try writer.encode(line)) == vector.hex, "\(vector.name): \(line)")
    #expect(try wireProtocol.differences(line, from: bytes) == [], "\(vector.name)")
    // The line has the vector's fields.
    for name in vector.fieldNames { #expect(line.contains("\(name)="), "\(vector.name): \(name)") }
  }

  /// The writers of ReceiptWire write the fields of its table, in its order.
  @Test(arguments: [FrameKind.markRead, .markUnread, .markDelivered, .markUnreadSince])
  func writersFollowTheTable(_ kind: FrameKind) throws {
    let spec = try #require(RequestSpec.all.first { $0.kind == kind })
    var buffer = ByteBuffer()
    buffer.writeFrame(FrameHeader(kind)) { buffer in
      buffer.writeField("a:b")
      buffer.writeVarint(UInt64(9))
      let user = Array("bob".utf8)
      let message = Array("m1".utf8)
      switch kind {
      case .markDelivered: buffer.writeMarkDelivered(user: user.span.bytes, message: message.span.bytes)
      case .markUnreadSince:
        buffer.writeMarkUnreadSince(user: user.span.bytes, since: Timestamp(milliseconds: 5), epoch: 300)
      default: buffer.writeMark(user: user.span.bytes, message: message.span.bytes, epoch: 300)
      }
    }
    let values = ["cid": "a:b", "counter": "9", "user": "bob", "message": "m1", "since": "5", "unread_epoch": "300"]
    let names = FrameTable.spec(named: spec.name)?.fields.map(\.name) ?? []
    let line = try names.reduce(spec.name) { try $0 + " \($1)=" + #require(values[$1]) }
    var wireProtocol = StoreFrames(fillsIn: false)
    #expect(Hex.text(try wireProtocol.encode(line)) == Hex.text(Array(buffer.readableBytesView)))
  }

  struct Row: CustomTestStringConvertible {
    var line: String
    var hex: String
    var testDescription: String { line }

    init(_ line: String, _ hex: String) {
      self.line = line
      self.hex = hex
    }
  }

  static let rows = [
    Row("drain", "00000008 07000000 00000000"),
    Row("drain @flags=1 @shard=258 @correlation=16909060", "00000008 07010102 01020304"),
    Row("drain @length=7", "00000007 07000000 00000000"), Row("0x07", "00000008 07000000 00000000"),
    Row("0x7f payload=0102", "0000000a 7f000000 00000000 0102"),
    Row("get_channel cid=a:b", "0000000c 20000000 00000000 03613a62"),
    Row("get_channel cid=\"a b\"", "0000000c 20000000 00000000 03612062"),
    Row("get_channel cid=\"\\x00\\\"\\\\\"", "0000000c 20000000 00000000 0300225c"),
    Row("get_channel cid=", "00000009 20000000 00000000 00"), Row("get_channel", "00000009 20000000 00000000 00"),
    Row("mark_delivered cid=a:b counter=0x80 user=u", "00000011 16000000 00000000 03613a62 8001 0175 00"),
    Row("mark_read unread_epoch=0", "0000000d 14000000 00000000 0000000001"),
    Row("mark_read unread_epoch=none", "0000000d 14000000 00000000 0000000000"),
    Row("error busy", "0000000b 0f000000 00000000 150000"),
    Row("error busy retry_after=5", "0000000b 0f000000 00000000 150500"),
    Row("error code=21", "0000000b 0f000000 00000000 150000"),
    Row("statuses messages=[m-1 m-2]", "00000014 22000000 00000000 000000 02 036d2d31 036d2d32"),
    Row("put_channel patch=[{option=history value=01}]", "0000000f 10000000 00000000 0000 01 04 01 01 00"),
    Row(
      "change_members add=[{user=a} {user=b role=r}] remove=[c]",
      "00000015 11000000 00000000 0000 02 016100 01620172 01 0163"
    ), Row("statuses_reply statuses=[{found=message_deleted}]", "0000000a a2000000 00000000 0122"),
    Row("get_user @issued=1700000000 user=u", "0000000e 25020000 00000000 0175 6553f100"),
    Row("get_user @flags=1 @issued=0 user=u", "0000000e 25030000 00000000 0175 00000000"),
    Row("get_user @flags=2 user=u", "0000000a 25020000 00000000 0175"),
    Row("list_unsettled @issued=0xffffffff", "0000000c 26020000 00000000 ffffffff"),
    Row("0x7f @issued=1 payload=09", "0000000d 7f020000 00000000 09 00000001"),
    Row("acknowledge cid=a:b user=u note=ok messages=[m]", "00000015 19000000 00000000 03613a6200 0175 026f6b 01016d"),
    Row("patch_user user=u given=1", "0000000e 1a000000 00000000 0175 00010000"),
    Row("settle name=u what=user version=128", "0000000e 1c000000 00000000 0175 00 01 8001"),
    Row(
      "list_members cid=a:b message=m list=unread order=time cursor=j1",
      "00000016 27000000 00000000 03613a62 0000 016d 02 01 64 026a31"
    ),
    Row(
      "member_statuses cid=a:b message=m users=[u]",
      "00000013 28000000 00000000 03613a62 0000 016d 01 0175"
    ),
    Row(
      "member_statuses_reply statuses=[{user=u found=not_expected}]",
      "0000000c a8000000 00000000 01 0175 2b"
    ),
    Row(
      "member_statuses_reply statuses=[{user=u status=read read=1 flags=3}]",
      "00000010 a8000000 00000000 01 0175 00 02 01 00 03"
    ),
    Row("acknowledge_reply codes=[0 own_message]", "0000000b 99000000 00000000 02 00 29"),
    Row(
      "patch_channel_type patch=[{option=status_rule value=034b}]",
      "0000000f 17000000 00000000 0000 01 0b 02034b"
    ),
    Row("mark_read @thread=m cid=a:b", "00000012 14040000 00000000 03613a62 00000000 016d"),
    Row("mark_read @flags=1 @issued=1 @thread=m cid=a:b", "00000016 14070000 00000000 03613a62 00000000 016d 00000001"),
    Row("mark_read @thread= cid=a:b", "00000011 14040000 00000000 03613a62 00000000 00"),
    Row("mark_read @flags=4 cid=a:b", "00000010 14040000 00000000 03613a62 00000000"),
    Row("0x7f @thread=m payload=09", "0000000b 7f040000 00000000 09 016d"),
    Row("delete_channel cid=a:b counter=1", "0000000d 1d000000 00000000 03613a62 01"),
    Row("truncate_channel cid=a:b", "0000000e 1e000000 00000000 03613a62 00 00"),
    Row("erase_member cid=a:b user=u", "0000000f 1f000000 00000000 03613a62 00 0175"),
    Row("list_channels user=u", "0000000d 29000000 00000000 0175 00 64 00"),
    Row("list_channels user=u flags=1 limit=1000 cursor=0", "0000000e 29000000 00000000 0175 01 e807 01"),
    Row("list_channels user=u flags=2 since=300", "0000000f 29000000 00000000 0175 02 64 00 ac02"),
    Row(
      """
      list_channels_reply entries=[{cid=a:b row=0 member=3 joined=1 deleted=2} {cid=a:b row=none member=2 \
      deleted=3}] next_cursor=none
      """,
      "0000001a a9000000 00000000 02 03613a62 01030102 03613a62 00020003 00"
    ),
    Row(
      "list_channels_reply entries=[{cid=a:b row=none} {cid=a:b row=0 member=1 joined=1}] next_cursor=256",
      "00000019 a9000000 00000000 02 03613a62 000000 03613a62 010101 8102"
    ), Row("unread_counts channels=[{cid=a:b user=u row=300}]", "00000011 2a000000 00000000 01 03613a62 0175 ac02"),
    Row(
      "unread_counts_reply counts=[{unread_messages=3} {found=channel_not_found}]",
      "0000000f aa000000 00000000 02 0003000000 1f"
    ), Row("purge round=300", "0000000a 2b000000 00000000 ac02"),
    Row("purge_reply round=1", "00000009 ab000000 00000000 01"),
    Row("rebuild_index phase=send_again epoch=2", "0000000a 2c000000 00000000 01 02"),
    Row(
      "rebuild_index_reply phase=sweep epoch=2 channels_done=1 channels=2 entries=3",
      "0000000d ac000000 00000000 02 02 01 02 03"
    ), Row("events through=1", "0000000c 08000000 00000000 01 00 00 00"),
    Row(
      "events lost=1 channels=[{cid=a:b events=[{event=truncated sequence=3 time=4}]}] users=[]",
      "00000014 08000000 00000000 00 01 01 03613a62 01 04 03 04 00"
    ),
    // The row as others see it is present only if `shown` is set.
    Row(
      "events channels=[{cid=a:b events=[{event=row own=2 time=5 user=u flags=1 unread_epoch=1}]}]",
      "00000023 08000000 00000000 00 00 01 03613a62 01 01 00 02 00 05 00 0175 000000 000000 01 00 00 01 00"
    ),
    Row(
      "events channels=[{cid=a:b events=[{event=row shown=1 user=u shown_user=u shown_last_read=9}]}]",
      "00000029 08000000 00000000 00 00 01 03613a62 01 01 00 00 01 00 00 0175 000000 000000 00 0175 090000 000000 00 00"
    ),
    Row(
      """
      events channels=[{cid=a:b events=[{event=member_added user=u role=r time=1 member_count=2 sequence=9 \
      message=m} {event=channel_deleted time=3}]}]
      """,
      "0000001e 08000000 00000000 00 00 01 03613a62 02 07 0175 0172 01 02 09 016d 00 06 03 00"
    ),
    Row(
      "events users=[{user=u events=[{event=membership cid=a:b member=1 gone=1} {event=tokens_revoked time=7}]}]",
      "0000001b 08000000 00000000 00 00 00 01 0175 02 01 03613a62 00 01 00 00 01 02 07"
    ), Row("subscribe flags=1 since=2 channels=[a:b]", "0000000f 30000000 00000000 01 02 01 03613a62"),
    Row("unsubscribe channels=[a:b c:d]", "00000011 31000000 00000000 02 03613a62 03633a64"),
    Row("subscribe_user user=u", "0000000b 32000000 00000000 0175 01"),
    Row("subscribe_user user=u on=0", "0000000b 32000000 00000000 0175 00"),
    Row("announce_row user=u channels=[a:b]", "0000000f 33000000 00000000 0175 01 03613a62"),
    Row("subscribe_reply through=1 complete=1", "0000000b b0000000 00000000 01 01 00"),
    Row(
      "acknowledge_push cid=a:b user=u message=m flags=1",
      "00000013 40000000 00000000 03613a62 00 0175 016d 00 01"
    ),
    // The provider and the device are present only with flag 2.
    Row(
      "acknowledge_push cid=a:b counter=1 user=u message=m flags=3 provider=fcm device=web",
      "0000001b 40000000 00000000 03613a62 01 0175 016d 00 03 0366636d 03776562"
    ),
    Row(
      "redeem_ticket channel=1 row=2 sequence=3 flags=2 device=web",
      "0000001c 41000000 00000000 00 01020003 0000000000000000 00 02 00 03776562"
    ), Row("list_consumers", "00000009 3c000000 00000000 00"),
    Row("read_feed consumer=a partitions=1", "00000010 3d000000 00000000 0161 00 01 00 00 00 64"),
    Row(
      "read_feed_reply number=2 records=[{kind=message.deleted number=1 cid=a:b}]",
      "0000001c bd000000 00000000 02 000000 01 01 01 00 03613a62 000000 00 0000 0000"
    ),
    Row(
      "read_feed_reply number=2 records=[{kind=gap number=1 at=300 first=200}]",
      "0000001b bd000000 00000000 02 000000 01 12 01 ac02 00000000 00 c80100 0000"
    ),
    Row(
      "put_consumer consumer=a counter=1 kinds=4 channel_types=[team] start=time since=300",
      "00000015 47000000 00000000 0161 01 04 01 047465616d 02 ac02"
    ),
    Row(
      "commit_consumer consumer=a partitions=4 flags=2 state=x",
      "00000013 4a000000 00000000 0161 00 00 04 02 000000 0178"
    ),
    Row(
      "lease_partitions consumer=a worker=w partitions=4 milliseconds=8000 held=[0 3]",
      "00000013 4b000000 00000000 0161 00 0177 04 c03e 02 00 03"
    ), Row("error lease_lost", "0000000b 0f000000 00000000 350000"),
    Row("error user_erased", "0000000b 0f000000 00000000 2d0000"), Row("hex:00 07ff", "0007ff"),
  ]

  @Test(arguments: rows)
  func linesAreEncoded(_ row: Row) throws {
    var wireProtocol = StoreFrames(fillsIn: false)
    #expect(Hex.text(try wireProtocol.encode(row.line)) == row.hex.filter { $0 != " " }, "\(row.line)")
  }

  static let wrong: [(line: String, error: String)] = [
    ("", "begins with its kind"),
    ("mark_red", "there is no kind 'mark_red'"),
    ("mark_read foo=1", "has no field 'foo'"),
    ("mark_read user=a user=b", "given twice"),
    ("mark_read counter=x", "a number is expected"),
    ("mark_read counter=18446744073709551616", "a number is expected"),
    ("mark_read user", "name=value expected"),
    ("mark_read user=\"a", "is missing"),
    ("mark_read user=\"\\q\"", "an escape is"),
    ("mark_read user=[a]", "a single value is expected"),
    ("mark_read unread_epoch=18446744073709551615", "a number or 'none'"),
    ("put_channel members=alice", "a list in [ ] is expected"),
    ("put_channel members=[alice]", "entries are written {user=… role=…}"),
    ("put_channel members=[{user=a}", "']' is missing"),
    ("put_channel members=[{user=a]", "name=value expected"),
    ("put_channel members=[}]", "'}' without '{'"),
    ("ping bytes=01", "8 bytes in hexadecimal"),
    ("ping bytes=zz", "8 bytes in hexadecimal"),
    ("proof proof=1", "hexadecimal is expected"),
    ("register_message_reply status=256", "at most 255"),
    ("drain @shard=65536", "@shard is at most 65535"),
    ("drain @kind=1", "is not of the header"),
    ("get_user @issued=4294967296", "@issued is at most 4294967295"),
    ("list_members list=all", "a number is expected"),
    ("rebuild_index phase=none", "a number is expected"),
    ("mark_read @thread=[m]", "a single value is expected"),
    ("events users=[{user=u events=[{event=row}]}]", "a number is expected"),
    (
      "events channels=[{cid=a:b events=[{foo=1}]}]",
      "its fields are: event, thread, own, shown, time, unread_in_channel,"
    ), ("unread_counts channels=[a:b]", "entries are written {cid=… user=… row=…}"),
    ("hex:0", "hexadecimal is expected"),
    ("0x07 payload=00", "has no field 'payload'"),
  ]

  @Test(arguments: wrong)
  func invalidLinesNameTheirError(_ row: (line: String, error: String)) {
    var wireProtocol = StoreFrames(fillsIn: false)
    do {
      _ = try wireProtocol.encode(row.line)
      Issue.record("encoded: \(row.line)")
    } catch {
      #expect("\(error)".contains(row.error), "\(row.line): \(error)")
    }
  }

  @Test func omittedFieldsAreFilledIn() throws {
    var wireProtocol = StoreFrames()
    wireProtocol.shardCount = 16
    func parts(_ line: String) throws -> String { StoreFrames().text(try wireProtocol.encode(line)) }
    let shard = ShardID.owning(Array("messaging:general".utf8).span.bytes, count: 16).rawValue
    #expect(
      try parts("mark_delivered cid=messaging:general user=a")
        == "mark_delivered @shard=\(shard) @correlation=1 cid=messaging:general counter=1 user=a message="
    )
    #expect(
      try parts("get_channel cid=messaging:general @shard=0") == "get_channel @correlation=2 cid=messaging:general"
    )
    #expect(try parts("delete_message cid=\"\" counter=9 message=m @shard=1").contains("counter=9"))
    #expect(
      try parts("delete_message cid=a:b message=m @correlation=77").contains("@correlation=77 cid=a:b counter=10")
    )
    #expect(try parts("ping") == "ping bytes=0000000000000000")
    // A frame about a user or a type goes to its home shard.
    let home = ShardID.owning(Array("carol".utf8).span.bytes, count: 16).rawValue
    #expect(home > 0)
    #expect(try parts("get_user user=carol @issued=7").hasPrefix("get_user @issued=7 @shard=\(home) @correlation="))
    #expect(try parts("get_user user=carol @issued=7").hasSuffix(" user=carol"))
    #expect(try parts("settle name=carol what=user").contains("settle @shard=\(home) "))
    #expect(try parts("assign_user user=carol @shard=0").hasPrefix("assign_user @correlation="))
    #expect(!(try parts("mark_read_reply user=carol").contains("@shard")))
    #expect(try parts("list_channels user=carol").hasPrefix("list_channels @shard=\(home) @correlation="))
    #expect(
      try parts("unread_counts channels=[{cid=messaging:general user=a} {cid=a:b user=a}]").hasPrefix(
        "unread_counts @shard=\(shard) @correlation="
      )
    )
    #expect(try parts("subscribe channels=[messaging:general]").hasPrefix("subscribe @shard=\(shard) @corr"))
    #expect(try parts("subscribe_user user=carol").hasPrefix("subscribe_user @shard=\(home) @correlation="))
    // The shard is the channels', not the user's.
    #expect(
      try parts("announce_row user=carol channels=[messaging:general]").hasPrefix(
        "announce_row @shard=\(shard) @correlation="
      )
    )
    #expect(try parts("events channels=[{cid=messaging:general}]").hasPrefix("events through=0"))
    #expect(try parts("unread_counts").hasPrefix("unread_counts @correlation="))
    #expect(try parts("purge @shard=3").hasPrefix("purge @shard=3 @correlation="))
    #expect(try parts("delete_channel cid=messaging:general").contains("@shard=\(shard) "))
  }

  static let comparisons: [(expected: String, received: String, lines: [String])] = [
    ("drain", "drain", []),
    ("drain", "ping", ["expected drain, received ping"]),
    ("error busy", "error code=busy detail=window", []),
    ("error busy", "error code=unavailable", ["code: expected busy, received unavailable"]),
    ("error code=* detail=x", "error busy detail=x", []),
    ("ping @correlation=4", "ping @correlation=5", ["@correlation: expected 4, received 5"]),
    ("ping @correlation=*", "ping @correlation=5", []),
    ("get_user @issued=5", "get_user @flags=1 @issued=5", []),
    ("get_user @flags=1 @issued=5", "get_user @flags=3 @issued=5", []),
    ("get_user @issued=*", "get_user @issued=5", []),
    ("get_user @issued=5", "get_user @issued=6", ["@issued: expected 5, received 6"]),
    ("get_user @issued=5", "get_user", ["@issued: expected 5, received none"]),
    ("get_user @flags=0", "get_user @issued=5", ["@flags: expected 0, received 2"]),
    ("mark_read @thread=m", "mark_read @thread=m @issued=5", []),
    ("mark_read @thread=*", "mark_read @thread=m", []),
    ("mark_read @thread=m", "mark_read @thread=n", ["@thread: expected m, received n"]),
    ("mark_read @thread=m", "mark_read", ["@thread: expected m, received none"]),
    ("mark_read @flags=0", "mark_read @thread=m", ["@flags: expected 0, received 4"]),
    ("mark_read @flags=1 @thread=m @issued=5", "mark_read @flags=7 @thread=m @issued=5", []),
    ("mark_read_reply user=alice last_read=*", "mark_read_reply user=alice last_read=9", []),
    ("mark_read_reply user=alice", "mark_read_reply user=bob", ["user: expected alice, received bob"]),
    (
      "mark_read_reply unread_epoch=1", "mark_read_reply",
      ["unread_epoch: expected, but it is not there"]
    ),
    (
      "read_state_reply next_cursor=none", "read_state_reply next_cursor=3",
      ["next_cursor: expected none, received 3"]
    ),
    ("read_state_reply rows=[* {user=b}]", "read_state_reply rows=[{user=a} {user=b}]", []),
    (
      "read_state_reply rows=[{user=a} {user=x}]", "read_state_reply rows=[{user=a} {user=b}]",
      ["rows[1].user: expected x, received b"]
    ), ("read_state_reply rows=[]", "read_state_reply rows=[{user=a}]", ["rows: expected 0 entries, received 1"]),
    ("statuses messages=[a *]", "statuses messages=[a b]", []),
    // Some of the entries, in any order, each matched once.
    ("statuses messages=[... b]", "statuses messages=[a b c]", []),
    ("statuses messages=[c ... a]", "statuses messages=[a b c]", []),
    ("statuses messages=[...]", "statuses", []),
    (
      "statuses messages=[... b b]", "statuses messages=[a b c]",
      ["messages: expected entry 1 is not among the 3 received"]
    ),
    ("read_state_reply rows=[... {user=b last_read=2}]", "read_state_reply rows=[{user=b} {user=b last_read=2}]", []),
    (
      "events channels=[{cid=a:b events=[... {event=truncated sequence=4}]}]",
      "events channels=[{cid=a:b events=[{event=truncated sequence=3} {event=channel_deleted}]}]",
      ["channels[0].events: expected entry 0 is not among the 2 received"]
    ),
    (
      "events channels=[{events=[{event=truncated user=u}]}]", "events channels=[{cid=a:b events=[{event=truncated}]}]",
      ["channels[0].events[0].user: expected, but it is not there"]
    ),
  ]

  @Test(arguments: comparisons)
  func differencesAreListed(_ row: (expected: String, received: String, lines: [String])) throws {
    #expect(try StoreFrames().differences(row.expected, from: frame(row.received)) == row.lines, "\(row.expected)")
  }

  /// Events arrive at any time, so expectations of other frames skip them.
  @Test func eventsMatchOnlyExpectationsOfEvents() throws {
    let rows: [(events: String, line: String?, matches: Bool)] = [
      ("events", "subscribe_reply", false), ("events", "pong", false), ("events", nil, false),
      ("events", "events", true), ("events", "events through=*", true),
      ("events @shard=2", "events @shard=2", true), ("events @shard=2", "events @shard=3", false),
      // A progress report without events.
      ("events", "events channels=[]", true), ("events", "events channels=[] users=[]", true),
      ("events", "events channels=[{cid=a:b}]", false), ("events", "events users=[...]", false),
      ("events channels=[{cid=a:b}]", "events channels=[]", false),
      ("events channels=[{cid=a:b}]", "events channels=[{cid=c:d}]", true),
      ("events channels=[{cid=a:b}]", "events channels=*", true),
      ("events channels=[{cid=a:b}]", "events users=[{user=u}]", false),
      ("events users=[{user=u}]", "events users=[{user=u}] channels=[]", true),
    ]
    for row in rows {
      #expect(
        try StoreFrames().matches(frame(row.events), by: row.line) == row.matches,
        "\(row.events), \(row.line ?? "close")"
      )
    }
    #expect(!StoreFrames().isAnswer(frame("events")))
    #expect(StoreFrames().answersAwaited(frame("events")) == 0)
    #expect(StoreFrames().answersAwaited(frame("announce_row")) == 1)
  }

  @Test func expectingUnknownFieldIsScriptError() {
    #expect(throws: ProbeError.self) { try StoreFrames().differences("drain foo=1", from: frame("drain")) }
  }

  @Test func unparsableFramesAreShownRaw() throws {
    let bytes = try #require(Hex.bytes("00000009 0500000000000000 01"))
    #expect(StoreFrames().text(bytes) == "ping payload=01 (truncated)")
    #expect(try StoreFrames().differences("ping", from: bytes) == ["the payload does not parse: truncated"])
    // The flag `issued` without enough bytes for it.
    let short = try #require(Hex.bytes("0000000a 2502000000000000 0175"))
    #expect(StoreFrames().text(short) == "get_user @flags=2 payload=0175 (truncated)")
    // The flag `thread` with no, too few and too many bytes.
    for (rest, expected) in [
      ("", "payload=03613a6200000000 (truncated)"), ("026d", "payload=03613a6200000000026d (truncated)"),
      ("016d00", "payload=03613a6200000000016d00 (trailingBytes)"),
    ] {
      let bytes = try #require(Hex.bytes("00000000 1404000000000000 03613a6200000000" + rest))
      #expect(StoreFrames().text(bytes) == "mark_read @flags=4 \(expected)")
    }
    // The fields of an unknown kind have no known end.
    let thread = try #require(Hex.bytes("0000000b 7f04000000000000 09016d"))
    #expect(StoreFrames().text(thread) == "0x7f @flags=4 payload=09016d")
    let unknown = try #require(Hex.bytes("00000009 7f00000000000000 01"))
    #expect(StoreFrames().text(unknown) == "0x7f payload=01")
  }

  @Test func streamIsSplitIntoFrames() {
    #expect(StoreFrames.boundary(in: []) == .incomplete)
    #expect(StoreFrames.boundary(in: [0, 0, 0]) == .incomplete)
    #expect(StoreFrames.boundary(in: [0, 0, 0, 8, 7, 0, 0, 0, 0, 0, 0]) == .incomplete)
    #expect(StoreFrames.boundary(in: [0, 0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 1]) == .unit(12))
    #expect(StoreFrames.boundary(in: [0, 0, 0, 7]) == .broken("a length of 7 is below 8"))
    #expect(StoreFrames.boundary(in: Array("HTTP".utf8)) == .broken("a length of 1213486160 is no frame's"))
  }

  @Test func decodingReportsLeftoverBytes() throws {
    let whole = try ProbeDecoding.lines("000000080700000000000000\n00000008 0700000000000000")
    #expect(whole.text == ["drain", "drain"] && whole.isWhole)
    let part = try ProbeDecoding.lines("000000080700000000000000 0000")
    #expect(part.text == ["drain", "2 bytes of an incomplete frame: 0000"] && !part.isWhole)
    let broken = try ProbeDecoding.lines("00000000")
    #expect(broken.text == ["a length of 0 is below 8: 00000000"] && !broken.isWhole)
    #expect(throws: ProbeError.self) { try ProbeDecoding.lines("xyz") }
  }

  @Test func secretIsFirstLineOfFile() {
    #expect(ProbeDecoding.secret(Array("new\nold\n".utf8)) == Array("new".utf8))
    #expect(ProbeDecoding.secret(Array("new".utf8)) == Array("new".utf8))
    #expect(ProbeDecoding.secret(Array("new\r\n".utf8)) == Array("new".utf8))
  }

  private func frame(_ line: String) -> [UInt8] {
    var wireProtocol = StoreFrames(fillsIn: false)
    do { return try wireProtocol.encode(line) } catch { fatalError("\(line): \(error)") }
  }
}
