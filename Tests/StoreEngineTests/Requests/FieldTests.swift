import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine
import Testing

/// Valid and invalid fields of requests, and their results.
@Suite("Fields")
struct FieldTests {
  struct Row: Sendable, CustomTestStringConvertible {
    var testDescription: String
    var kind: FrameKind
    var name: String?
    var shard: UInt16
    var counter: UInt64?
    var fields: @Sendable (inout ByteBuffer) -> Void
    /// The error's name, or that the connection ends.
    var outcome: Outcome

    enum Outcome: Equatable, Sendable {
      case answered(String)
      case ends(WireError)
    }

    init(
      _ text: String,
      _ kind: FrameKind,
      _ name: String?,
      shard: UInt16 = 0,
      counter: UInt64? = nil,
      _ outcome: Outcome,
      _ fields: @escaping @Sendable (inout ByteBuffer) -> Void
    ) {
      testDescription = text
      self.kind = kind
      self.name = name
      self.shard = shard
      self.counter = counter
      self.fields = fields
      self.outcome = outcome
    }

    /// The channel is `team:a`.
    init(
      _ text: String,
      _ kind: FrameKind,
      shard: UInt16 = 0,
      counter: UInt64? = nil,
      _ outcome: Outcome,
      _ fields: @escaping @Sendable (inout ByteBuffer) -> Void
    ) {
      self.init(text, kind, "team:a", shard: shard, counter: counter, outcome, fields)
    }
  }

  private static func strings(_ texts: String...) -> @Sendable (inout ByteBuffer) -> Void {
    { buffer in for text in texts { buffer.writeField(text) } }
  }

  private static func mark(_ epoch: UInt64 = 0) -> @Sendable (inout ByteBuffer) -> Void {
    { buffer in
      buffer.writeField("alice")
      buffer.writeField("")
      buffer.writeVarint(epoch)
    }
  }

  private static func query(
    flags: UInt64,
    viewer: String,
    rest: @escaping @Sendable (inout ByteBuffer) -> Void
  )
    -> @Sendable (inout ByteBuffer) -> Void
  {
    { buffer in
      buffer.writeVarint(flags)
      buffer.writeField(viewer)
      rest(&buffer)
    }
  }

  static let rows: [Row] = [
    Row("another shard's number", .getChannel, shard: 1, .answered("wrong_shard")) { _ in },
    Row("the largest shard number", .getChannel, shard: .max, .answered("wrong_shard")) { _ in },
    Row("no cid", .getChannel, "team", .answered("invalid_field")) { _ in },
    Row("an empty cid", .getChannel, "", .answered("invalid_field")) { _ in },
    Row(
      "a cid too long",
      .getChannel,
      "team:" + String(repeating: "x", count: 256),
      .answered("invalid_field")
    ) {
      _ in
    },
    Row("a missing channel", .getChannel, "team:none", .answered("channel_not_found")) { _ in },
    Row("a byte too many", .getChannel, .ends(.trailingBytes)) { $0.writeInteger(UInt8(0)) },
    Row("a mark without its fields", .markRead, .ends(.truncated)) { _ in },
    Row("a mark without a user", .markRead, .answered("not_a_member"), Self.strings("", "", "")),
    Row("an epoch above 32 bits", .markRead, .ends(.badVarint), Self.mark(1 << 33)),
    Row("the largest epoch", .markRead, .answered("row read 0 unread 0"), Self.mark(1 << 32)),
    Row("counter 0", .markRead, counter: 0, .ends(.badValue(.counter)), Self.mark()),
    Row("counter 0 for a type", .patchChannelType, "team", counter: 0, .ends(.badValue(.counter))) {
      $0.writeVarint(0)
    },
    Row("the largest counter", .markRead, counter: .max, .answered("row read 0 unread 0"), Self.mark()),
    Row("a message id with a control character", .registerMessage, .answered("invalid_field")) { buffer in
      buffer.writeField("m\u{7}1")
      buffer.writeField("")
      buffer.writeVarint(0)
      buffer.writeVarint(0)
    },
    Row("an empty message id", .registerMessage, .answered("invalid_field")) { buffer in
      buffer.writeField("")
      buffer.writeField("")
      buffer.writeVarint(0)
      buffer.writeVarint(0)
    },
    Row("a sender with a control character", .registerMessage, .answered("invalid_field")) { buffer in
      buffer.writeField("m1")
      buffer.writeField("a\u{7}b")
      buffer.writeVarint(0)
      buffer.writeVarint(0)
    },
    Row("a time above 63 bits", .registerMessage, .ends(.badVarint)) { buffer in
      buffer.writeField("m1")
      buffer.writeField("")
      buffer.writeVarint(UInt64.max)
      buffer.writeVarint(0)
    },
    Row("the largest time", .registerMessage, .answered("message 1 new")) { buffer in
      buffer.writeField("m1")
      buffer.writeField("")
      buffer.writeVarint(UInt64(Int64.max))
      buffer.writeVarint(0)
    },
    Row("flags that are not implemented", .registerMessage, .answered("not_implemented")) { buffer in
      buffer.writeField("m1")
      buffer.writeField("")
      buffer.writeVarint(0)
      buffer.writeVarint(UInt64.max)
    },
    Row("a member's id with a control character", .changeMembers, .answered("invalid_field")) { buffer in
      buffer.writeVarint(1)
      buffer.writeField("a\u{7}b")
      buffer.writeEmptyField()
      buffer.writeVarint(0)
    },
    Row("a role with a space", .putChannel, .answered("invalid_field")) { buffer in
      buffer.writeVarint(0)
      buffer.writeVarint(1)
      buffer.writeField("carol")
      buffer.writeField("an admin")
    },
    Row("a count above the remaining bytes", .changeMembers, .ends(.badValue(.count))) {
      $0.writeVarint(UInt64.max)
    },
    Row("an unknown option", .putChannel, .ends(.badValue(.option))) { buffer in
      buffer.writeVarint(1)
      buffer.writeVarint(14)
      buffer.writeField("\0")
      buffer.writeVarint(0)
    },
    Row("an invalid value of an option", .putChannel, .ends(.badValue(.optionValue))) { buffer in
      buffer.writeVarint(1)
      buffer.writeVarint(5)
      buffer.writeField("x")
      buffer.writeVarint(0)
    },
    Row("a truncated value of an option", .putChannel, .ends(.badValue(.optionValue))) { buffer in
      buffer.writeVarint(1)
      buffer.writeVarint(11)
      buffer.writeField("\u{2}")
      buffer.writeVarint(0)
    },
    Row("deletion of a missing message", .deleteMessage, .answered("message_not_found"), Self.strings("m9")),
    Row(
      "a limit of 0",
      .readState,
      .answered("invalid_field"),
      Self.query(flags: 1, viewer: "") { buffer in
        buffer.writeVarint(0)
        buffer.writeVarint(0)
      }
    ),
    Row(
      "the largest limit",
      .readState,
      .answered("invalid_field"),
      Self.query(flags: 1, viewer: "") { buffer in
        buffer.writeVarint(UInt64.max)
        buffer.writeVarint(0)
      }
    ),
    Row(
      "the largest cursor",
      .readState,
      .answered("2 rows"),
      Self.query(flags: 1, viewer: "") { buffer in
        buffer.writeVarint(100)
        buffer.writeVarint(1 << 32)
      }
    ),
    Row(
      "an unknown viewer flag",
      .readState,
      .answered("invalid_field"),
      Self.query(flags: 2, viewer: "") { buffer in
        buffer.writeVarint(1)
        buffer.writeVarint(0)
      }
    ),
    Row(
      "a viewer who is no member",
      .readState,
      .answered("not_a_member"),
      Self.query(flags: 0, viewer: "zoe") { buffer in
        buffer.writeVarint(1)
        buffer.writeVarint(0)
      }
    ),
    Row(
      "no message",
      .statuses,
      .answered("invalid_field"),
      Self.query(flags: 1, viewer: "") { $0.writeVarint(0) }
    ),
    Row(
      "101 messages",
      .statuses,
      .answered("invalid_field"),
      Self.query(flags: 1, viewer: "") { buffer in
        buffer.writeVarint(101)
        for _ in 0..<101 { buffer.writeField("m1") }
      }
    ),
    Row(
      "a status for a user who is no member",
      .statuses,
      .answered("not_a_member"),
      Self.query(flags: 0, viewer: "zoe") {
        $0.writeVarint(1)
        $0.writeField("m1")
      }
    ),
    Row(
      "a type's name too long",
      .getChannelType,
      String(repeating: "t", count: 65),
      .answered("invalid_field")
    ) {
      _ in
    },
    Row("the largest version", .assignChannelType, "team", .answered("invalid_field")) { buffer in
      buffer.writeVarint(UInt64.max)
      buffer.writeVarint(0)
    },
  ]

  @Test("invalid fields are refused by name or end the connection, and change nothing", arguments: rows)
  func invalidFieldsAreRefusedByName(_ row: Row) throws {
    let (harness, _) = try harnessWithChannel()
    let gateway = harness.connect(session: 5)
    gateway.send(row.kind, row.name, counter: row.counter, shard: row.shard, row.fields)
    harness.loop.endTurn()
    try harness.completeLoads()
    try harness.persistAll()
    switch row.outcome {
    case .answered(let words):
      #expect(gateway.take() == ["1 \(words)"] && gateway.ended == [])
    case .ends(let error):
      #expect(gateway.take() == [] && gateway.ended == [error])
    }
    // The other connections are served.
    let other = harness.connect(session: 6)
    other.getChannel("team:a")
    harness.loop.endTurn()
    #expect(other.take() == ["1 channel of 2"])
  }

  /// A kind without a handler ends the connection like an unknown one.
  @Test("every kind of request has a handler", arguments: FrameKind.allCases.filter(\.isRequest))
  func everyRequestKindHasHandler(_ kind: FrameKind) throws {
    let (harness, _) = try harnessWithChannel()
    let gateway = harness.connect(session: 5)
    let name = kind.traits.contains(.named) ? "team:a" : nil
    gateway.send(kind, name, counter: kind.isCommand ? 1 : nil) { _ in }
    harness.loop.endTurn()
    try harness.completeLoads()
    #expect(!gateway.ended.contains(.unknownKind(kind.rawValue)))
  }

  @Test(
    "every truncated payload of every request kind is an error or ends the connection, and never traps"
  )
  func everyTruncatedPayloadIsError() throws {
    let (harness, _) = try harnessWithChannel()
    let whole: [(FrameKind, (inout ByteBuffer) -> Void)] = [
      (
        .putChannel,
        {
          $0.writeVarint(1); $0.writeBytes([0, 1, 5]); $0.writeField("carol"); $0.writeEmptyField()
        }
      ),
      (
        .changeMembers,
        {
          $0.writeVarint(1); $0.writeBytes([1, 5]); $0.writeField("carol"); $0.writeVarint(0)
        }
      ),
      (
        .registerMessage,
        {
          $0.writeVarint(1); $0.writeField("m1"); $0.writeField("bob"); $0.writeBytes([0, 0])
        }
      ),
      (
        .deleteMessage,
        {
          $0.writeVarint(1); $0.writeField("m1")
        }
      ),
      (
        .markRead,
        {
          $0.writeVarint(1); $0.writeField("bob"); $0.writeField("m1"); $0.writeVarint(0)
        }
      ),
      (
        .markUnread,
        {
          $0.writeVarint(1); $0.writeField("bob"); $0.writeField("m1"); $0.writeVarint(0)
        }
      ),
      (
        .markDelivered,
        {
          $0.writeVarint(1); $0.writeField("bob"); $0.writeField("m1")
        }
      ),
      (
        .readState,
        {
          $0.writeVarint(0); $0.writeField("bob"); $0.writeVarint(5); $0.writeVarint(0)
        }
      ),
      (
        .statuses,
        {
          $0.writeVarint(0); $0.writeField("bob"); $0.writeVarint(1); $0.writeField("m1")
        }
      ),
      (.getChannel, { _ in }),
      (.patchUser, { $0.writeBytes([1, 1, 0, 0]) }),
      (.assignUser, { $0.writeBytes([1, 5, 3, 0, 0, 0]) }),
      (.getUser, { _ in }),
      (.settle, { $0.writeBytes([1, 1, 0]) }),
    ]
    for (kind, fields) in whole {
      for name in ["team:a", "team:cold"] {
        var payload = ByteBuffer()
        payload.writeField(name)
        fields(&payload)
        for length in 0..<payload.readableBytes {
          let part = payload.getSlice(at: 0, length: length)!
          let gateway = harness.connect(session: 1_000 + UInt64(length))
          do {
            try harness.loop.receive(
              FrameHeader(kind, correlation: 1),
              part.readableBytesSpan,
              lane: gateway.lane
            )
          } catch {
            gateway.lane.fail(error)
          }
          harness.loop.endTurn()
          try harness.completeLoads()
          try harness.persistAll()
          #expect(gateway.ended.count + gateway.take().count == 1, "\(kind), \(length) bytes")
        }
      }
    }
    #expect(!harness.loop.isHalted)
  }

  @Test("a repeated counter is answered and not applied")
  func repeatedCounterIsNotApplied() throws {
    let (harness, _) = try harnessWithChannel()
    let gateway = harness.connect(session: 5)
    gateway.post("team:a", "m1", counter: .max)
    gateway.post("team:a", "m2", counter: 7)
    gateway.change("team:a", remove: ["alice"], counter: 8)
    gateway.put("team:new", ["alice"], counter: 9)
    harness.loop.endTurn()
    try harness.completeLoads()
    try harness.persistAll()
    // Its counters count as applied. The request for the missing channel cannot be answered as applied.
    #expect(
      gateway.take().sorted() == [
        "1 message 1 new", "2 outcome_unknown", "3 channel of 2", "4 channel_not_found",
      ]
    )
    gateway.getChannel("team:a")
    harness.loop.endTurn()
    #expect(gateway.take() == ["5 channel of 2"])
  }

  @Test("the newer version of a channel type wins, in any order of arrival")
  func newerVersionOfTypeWins() throws {
    let (harness, gateway) = try harnessWithChannel()
    gateway.assign("team", version: 3, readEvents: false)
    gateway.assign("team", version: 2, readEvents: true)
    gateway.assign("team", version: 3, readEvents: true)
    gateway.assign("team", version: 0, readEvents: true)
    gateway.patch("team", readEvents: false)
    gateway.patch("team", readEvents: true)
    gateway.assign("team", version: 1 << 62, readEvents: false)
    gateway.patch("team", readEvents: true)
    harness.loop.endTurn()
    try harness.persistAll()
    #expect(
      gateway.take() == [
        "2 type team version 3 without read events", "3 type team version 3 without read events",
        "4 type team version 3 without read events", "5 type team version 3 without read events",
        "6 type team version 3 without read events", "7 type team version 4",
        "8 type team version 4611686018427387904 without read events",
        "9 type team version 4611686018427387905",
      ]
    )
    let again = try EngineHarness(harness.storage)
    let other = again.connect()
    other.send(.getChannelType, "team")
    other.send(.getChannelType, "dm")
    again.loop.endTurn()
    #expect(other.take() == ["1 type team version 4611686018427387905", "2 type dm version 0"])
  }
}
