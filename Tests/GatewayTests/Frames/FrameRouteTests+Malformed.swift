import Foundation
import HTTP2Session
import NIOCore
import NIOPosix
import Operations
import ReceiptModel
import ReceiptWire
import StoreTestSupport
import TestSupport
import Testing

@testable import Gateway

/// Fields out of range, and bytes that are no frames.
extension FrameRouteTests {
  /// Frames with a field out of range, and the error's detail.
  private static let refusals: [(FrameKind, FrameHeader.Flags, String, String, @Sendable (inout ByteBuffer) -> Void)] =
    {
      let cid = "messaging:c"
      let message = "message: 1 to 255 bytes of UTF-8 without control characters"
      let user = "user: 1 to 255 bytes of UTF-8 without control characters"
      let pushFlags = """
        flags: 1 (with names), 2 (a provider and a device follow, each empty or 1 to 32 of A-Za-z0-9_.-) or their sum
        """
      func mark(_ user: String, _ message: String, thread: String? = nil)
        -> @Sendable (inout ByteBuffer) -> Void
      {
        {
          $0.writeField(user)
          $0.writeField(message)
          $0.writeOptional(nil)
          if let thread { $0.writeField(thread) }
        }
      }
      @Sendable func register(_ id: String, _ sender: String, _ time: Int64, _ flags: Int)
        -> @Sendable (inout ByteBuffer) -> Void
      {
        {
          $0.writeField(id)
          $0.writeField(sender)
          $0.writeTime(Timestamp(milliseconds: time))
          $0.writeVarint(flags)
        }
      }
      func viewer(_ flags: Int, _ user: String, _ rest: @escaping @Sendable (inout ByteBuffer) -> Void)
        -> @Sendable (inout ByteBuffer) -> Void
      {
        {
          $0.writeVarint(flags)
          $0.writeField(user)
          rest(&$0)
        }
      }
      func list(_ list: UInt8, _ order: UInt8, _ limit: Int, _ cursor: String)
        -> @Sendable (inout ByteBuffer) -> Void
      {
        viewer(1, "") {
          $0.writeField("m1")
          $0.writeInteger(list)
          $0.writeInteger(order)
          $0.writeVarint(limit)
          $0.writeField(cursor)
        }
      }
      @Sendable func names(_ count: Int, _ name: String) -> @Sendable (inout ByteBuffer) -> Void {
        {
          $0.writeVarint(count)
          for _ in 0..<count { $0.writeField(name) }
        }
      }
      func acknowledge(_ user: String, _ note: String, _ rest: @escaping @Sendable (inout ByteBuffer) -> Void)
        -> @Sendable (inout ByteBuffer) -> Void
      {
        {
          $0.writeField(user)
          $0.writeField(note)
          rest(&$0)
        }
      }
      return [
        (
          .markRead, [], "nocolon",
          "cid: 1 to 64 of A-Z a-z 0-9 _ -, a colon, 1 to 255 bytes of UTF-8 without control characters",
          mark("bob", "")
        ),
        (.markRead, [], cid, user, mark("", "m1")), (.markRead, [], cid, user, mark("b\u{7F}b", "m1")),
        (.markRead, [], cid, message, mark("bob", "m\u{7}1")),
        (
          .markUnread, .thread, cid, "thread: 1 to 255 bytes of UTF-8 without control characters",
          mark("bob", "", thread: "m\u{7}1")
        ),
        (.registerMessage, [], cid, message, register("", "alice", 5, 0)),
        (.registerMessage, [], cid, user, register("m1", "al\u{7}ice", 5, 0)),
        (
          .registerMessage, [], cid, "time created: given, up to the year 9999", register("m1", "alice", 0, 0)
        ),
        (
          .registerMessage, [], cid, "time created: given, up to the year 9999",
          register("m1", "alice", .max, 0)
        ),
        (
          .registerMessage, [], cid,
          """
          flags: 1 (silent), 2 (receipt), 4 (moves no position), 8 (mentions all) or 16 (mentions follow), 32 \
          (reminders follow)
          """,
          register("m1", "", 5, 64)
        ),
        (
          .registerMessage, [], cid,
          "reminders: at most 4, each after 1 second to 366 days, when 0 to 2, of 1 to 100,000 members",
          {
            register("m1", "", 5, 32)(&$0)
            $0.writeReminderRules([ReminderRule(after: 0, .unread)])
          }
        ),
        (
          .setMember, [], cid, "flags: 1 (mute given), 2 (mute, with 1), 4 (joins) and their sums",
          {
            $0.writeField("bob")
            $0.writeField("")
            $0.writeVarint(UInt64(2))
          }
        ),
        (
          .markUnreadSince, [], cid, "time created: given, up to the year 9999",
          {
            $0.writeField("bob")
            $0.writeTime(.none)
            $0.writeOptional(nil)
          }
        ),
        (
          .acknowledgePush, [], cid, pushFlags,
          {
            $0.writeField("bob")
            $0.writeField("m1")
            $0.writeTime(.none)
            $0.writeVarint(UInt64(4))
          }
        ),
        (
          .acknowledgePush, [], cid, pushFlags,
          {
            $0.writeField("bob")
            $0.writeField("m1")
            $0.writeTime(.none)
            $0.writeVarint(UInt64(2))
            $0.writeField("apns")
            $0.writeField("no label")
          }
        ),
        (
          .acknowledgePush, [], cid, "time acked: up to the year 9999",
          {
            $0.writeField("bob")
            $0.writeField("m1")
            $0.writeTime(Timestamp(milliseconds: .max))
            $0.writeVarint(UInt64(0))
          }
        ),
        (.acknowledge, [], cid, "messages: 1 to 100", acknowledge("bob", "", names(0, ""))),
        (.acknowledge, [], cid, "messages: 1 to 100", acknowledge("bob", "", names(101, "m1"))),
        (.acknowledge, [], cid, message, acknowledge("bob", "", names(2, "m\u{7}1"))),
        (
          .acknowledge, [], cid, "note: at most 1,024 bytes of UTF-8",
          acknowledge("bob", String(repeating: "n", count: 1_025), names(1, "m1"))
        ),
        (
          .readState, [], cid, "viewer flags: 0 or 1",
          viewer(2, "") {
            $0.writeVarint(1)
            $0.writeOptional(nil)
          }
        ),
        (
          .readState, [], cid, "limit: 1 to 100",
          viewer(1, "") {
            $0.writeVarint(101)
            $0.writeOptional(nil)
          }
        ),
        (.statuses, [], cid, "messages: 1 to 100", viewer(1, "", names(0, ""))),
        (.statuses, [], cid, user, viewer(1, "b\u{7}b", names(1, "m1"))),
        (.listMembers, [], cid, "list: 0 to 4", list(5, 0, 1, "")),
        (.listMembers, [], cid, "order: 0 to 2", list(0, 3, 1, "")),
        (.listMembers, [], cid, "limit: 1 to 100", list(0, 0, 0, "")),
        (.listMembers, [], cid, "cursor: a cursor from an earlier page", list(0, 0, 1, "a b")),
        (
          .memberStatuses, [], cid, "users: 1 to 100",
          viewer(1, "") {
            $0.writeField("m1")
            $0.writeVarint(0)
          }
        ),
        (
          .putChannel, [], cid, "options: in rising order of their numbers, each with a value that it takes",
          {
            $0.writeVarint(1)
            $0.writeVarint(99)
            $0.writeField("x")
            $0.writeVarint(0)
          }
        ),
        (
          .putChannel, [], cid, "role: 1 to 64 of A-Z a-z 0-9 _ . -",
          {
            $0.writeVarint(0)
            $0.writeVarint(1)
            $0.writeField("bob")
            $0.writeField("a role")
          }
        ),
        (
          .changeMembers, [], cid, "members: at most 1,000 in a request",
          {
            $0.writeVarint(0)
            names(1_001, "u")(&$0)
          }
        ),
        (
          .changeMembers, [], cid, user,
          {
            $0.writeVarint(0)
            names(1, "")(&$0)
          }
        ),
        (.truncateChannel, [], cid, message, { $0.writeField("m\u{7}1") }),
        (.deleteMessage, [], cid, message, { $0.writeEmptyField() }),
      ]
    }()

  @Test func outOfRangeFieldFailsOnlyItsFrame() async throws {
    try await TestGateway.run { gateway in
      let stream = try await gateway.client.begin()
      var frames = TestFrames()
      for (index, (kind, flags, cid, _, fields)) in Self.refusals.enumerated() {
        frames.add(kind, UInt32(index), flags: flags, cid: cid, fields)
      }
      frames.add(.getChannel, 1_000)
      try await gateway.client.send(frames.bytes, stream)
      for (index, refusal) in Self.refusals.enumerated() {
        #expect(await stream.verdict() == "\(index) invalid_field \(refusal.3)", "\(refusal.0)")
      }
      #expect(await stream.verdict() == "1000 channel_not_found")
      #expect(try await gateway.store.takeLog() == [.getChannel])
    }
  }

  /// Malformed bytes after a valid request, and the error that ends the stream.
  private static let malformed: [(String, [UInt8], String)] = [
    ("length too small", [0, 0, 0, 7, 0x14, 0, 0, 0, 0, 0, 0, 9], "0 malformed_frame lengthTooSmall"),
    (
      "too large", [0, 1, 0, 1, 0x14, 0], "0 frame_too_large the frame's length is 65537, the limit is 65536"
    ),
    ("unknown kind", [0, 0, 0, 8, 0x7F, 0, 0, 0, 0, 0, 0, 9], "0 unknown_kind there is no kind 127"),
    ("unknown flag", [0, 0, 0, 8, 0x20, 8, 0, 0, 0, 0, 0, 9], "0 malformed_frame badFlags(8)"),
    ("flag thread", [0, 0, 0, 9, 0x20, 4, 0, 0, 0, 0, 0, 9, 0], "9 malformed_frame badFlags(4)"),
    ("no cid", [0, 0, 0, 8, 0x20, 0, 0, 0, 0, 0, 0, 9], "9 malformed_frame truncated"),
    ("cut issued", [0, 0, 0, 9, 0x20, 2, 0, 0, 0, 0, 0, 9, 0], "9 malformed_frame truncated"),
    ("trailing", [0, 0, 0, 12, 0x20, 0, 0, 0, 0, 0, 0, 9, 2, 97, 58, 0], "9 malformed_frame trailingBytes"),
    (
      "invalid count", [0, 0, 0, 12, 0x1D, 0, 0, 0, 0, 0, 0, 9, 0, 0x80, 0, 0],
      "9 malformed_frame badVarint"
    ),
    ("cut ping", [0, 0, 0, 9, 0x05, 0, 0, 0, 0, 0, 0, 9, 1], "9 malformed_frame truncated"),
  ]

  @Test func malformedFrameEndsStream() async throws {
    try await TestGateway.run { gateway in
      try await gateway.setUp("messaging:c", members: ["bob"], messages: ["m1"])
      for (name, bytes, expected) in Self.malformed {
        let stream = try await gateway.client.begin()
        var frames = TestFrames()
        frames.mark(5)
        frames.bytes.writeBytes(bytes)
        frames.mark(6)
        try await gateway.client.send(frames.bytes, stream)
        #expect(await stream.verdicts(3) == ["5 markRead", expected, "end"], "\(name)")
      }
      let cut = try await gateway.client.begin()
      var frames = TestFrames()
      frames.mark(5)
      frames.bytes.writeBytes([0, 0, 0, 40, 0x14])
      try await gateway.client.send(frames.bytes, cut)
      try await gateway.client.finish(cut)
      let end = ["5 markRead", "0 malformed_frame the body ends within a frame", "end"]
      #expect(await cut.verdicts(3) == end)
    }
  }
}

/// The rules of `POST /v1/frames` and the layouts of the frames.
@Suite struct FrameRuleTests {
  private static let accepted = FrameKind.allCases.filter { FrameRule.all[Int($0.rawValue)] != nil }

  @Test func onlyRequestsAboutChannelHaveRules() {
    #expect(!Self.accepted.isEmpty)
    for spec in RequestSpec.all where Self.accepted.contains(spec.kind) {
      #expect(spec.fields.hasPrefix(spec.kind.isCommand ? "cid counter" : "cid"), "\(spec.name)")
    }
    for kind in Self.accepted { #expect(kind.isRequest, "\(kind)") }
  }

  /// A rule that misses a field would forward what the store cannot parse.
  @Test(arguments: FrameRuleTests.accepted)
  func ruleHasFieldsOfItsLayout(_ kind: FrameKind) throws {
    let rule = try #require(FrameRule.all[Int(kind.rawValue)])
    let spec = try #require(RequestSpec.all.first { $0.kind == kind })
    let layout = Self.fields(spec.fields).dropFirst(kind.isCommand ? 2 : 1)
    let fields = rule.fields.flatMap(Self.fields)
    #expect(layout.count == fields.count)
    for (field, allowed) in zip(layout, fields) { #expect(allowed.contains(field)) }
  }

  /// The fields of a layout, each with its encoding if the layout gives one, and without its condition.
  private static func fields(_ layout: String) -> [String] {
    var fields: [String] = []
    var depth = 0
    for word in layout.split(separator: " ") {
      let field = word.prefix { $0 != "?" }
      if depth == 0 { fields.append(String(field)) } else { fields[fields.count - 1] += " " + field }
      for character in word { depth += "[(".contains(character) ? 1 : "])".contains(character) ? -1 : 0 }
    }
    return fields
  }

  /// What each field of a rule may be in a layout. Its parser reads that encoding.
  private static func fields(_ field: FrameRule.Field) -> [Set<String>] {
    switch field {
    case .user, .userOrNone: [["user"]]
    case .message, .messageOrNone: [["message"]]
    case .roleOrNone: [["role"]]
    case .memberFlags: [["flags"]]
    case .created: [["created", "since"]]
    case .acked: [["acked"]]
    case .pushFlags: [["flags"], ["(provider:string device:string)"]]
    case .optionalNumber: [["unread_epoch:optional", "cursor:optional"]]
    case .registrationFlags: [["flags"], ["mentions:[user]"], ["reminders:[after when:byte(when) limit]"]]
    case .viewer: [["@viewer"]]
    case .limit: [["limit"]]
    case .listCursor: [["cursor:string"]]
    case .memberList: [["list:byte(list)"]]
    case .listOrder: [["order:byte(order)"]]
    case .note: [["note"]]
    case .messages: [["messages:[message]"]]
    case .users: [["users:[user]"]]
    case .members: [["members:[user role]", "add:[user role]"]]
    case .removedMembers: [["remove:[user]"]]
    case .options: [["patch:[@option]"]]
    }
  }
}
