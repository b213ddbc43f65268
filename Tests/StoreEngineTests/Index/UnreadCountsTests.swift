import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine
import Testing

/// One entry of a request for unread counts: channel, user, and the row that the caller assumes.
struct CountsEntry {
  var cid: String
  var user: String
  var row: UInt32

  init(_ cid: String, _ user: String, _ row: UInt32 = 0) {
    self.cid = cid
    self.user = user
    self.row = row
  }
}

extension Gateway {
  func unreadCounts(_ entries: [CountsEntry], shard: UInt16 = 0, issued: UInt32? = nil) {
    send(.unreadCounts, nil, shard: shard, issued: issued) { payload in
      payload.writeVarint(entries.count)
      for entry in entries {
        payload.writeField(entry.cid)
        payload.writeField(entry.user)
        payload.writeVarint(entry.row)
      }
    }
  }

  func markUnread(_ cid: String, _ user: String, _ message: String) {
    send(.markUnread, cid) { payload in
      payload.writeField(user)
      payload.writeField(message)
      payload.writeVarint(0)
    }
  }

  func hideHistory(_ cid: String) {
    send(.putChannel, cid) { payload in
      var patch = OptionPatch()
      patch.history = .hidden
      payload.writeOptionPatch(patch)
      payload.writeVarint(0)
    }
  }

  /// Register messages whose ids are a letter and a number.
  func post(_ cid: String, _ letter: String, _ numbers: ClosedRange<Int>, by sender: String = "") {
    for number in numbers { post(cid, "\(letter)\(number)", by: sender) }
  }

  /// The newest reply without its correlation.
  var last: String { String(replies.last?.drop { $0 != " " }.dropFirst() ?? "nothing") }
}

/// A store with channels `team:0` and so on of alice and bob, each with as many messages as its number, in storage
/// only.
func storedHarness(
  _ count: Int,
  configure: (inout StoreLoopConfiguration) -> Void = { _ in }
) throws -> (EngineHarness, Gateway) {
  let harness = try EngineHarness()
  let gateway = harness.connect(session: 98)
  for number in 0..<count {
    gateway.put("team:\(number)", ["alice", "bob"])
    try harness.completeLoads()
    if number > 0 { gateway.post("team:\(number)", "m", 1...number) }
  }
  harness.loop.endTurn()
  try harness.persistAll()
  try harness.writePages()
  let again = try EngineHarness(harness.storage, configure: configure)
  return (again, again.connect())
}

@Suite("Unread counts")
struct UnreadCountsTests {
  /// A history of `team:a`, and the expected unread counts.
  struct CountCase: CustomTestStringConvertible, Sendable {
    var name: String
    var members = ["alice", "bob"]
    var happens: @Sendable (Gateway) -> Void
    /// User, row in the request, and expected reply.
    var unread: [(user: String, row: UInt32, reply: String)]

    var testDescription: String { name }
  }

  static let countCases: [CountCase] = [
    CountCase(name: "no message", happens: { _ in }, unread: [("alice", 0, "0/0"), ("bob", 1, "0/0")]),
    CountCase(
      name: "own messages are read",
      happens: { $0.post("team:a", "m", 1...5, by: "alice") },
      unread: [("alice", 0, "0/0"), ("bob", 1, "5/0")]
    ),
    CountCase(
      name: "partly read",
      happens: { gateway in
        gateway.post("team:a", "m", 1...5)
        gateway.read("team:a", "bob", "m3")
      },
      unread: [("alice", 0, "5/0"), ("bob", 1, "2/0")]
    ),
    CountCase(
      name: "silent and deleted messages do not count",
      happens: { gateway in
        gateway.post("team:a", "m", 1...3)
        gateway.post("team:a", "s1", flags: 1)
        gateway.post("team:a", "m", 4...6)
        gateway.read("team:a", "bob", "m2")
        for message in ["m1", "m5"] { gateway.deleteMessage("team:a", message) }
      },
      unread: [("alice", 0, "4/0"), ("bob", 1, "3/0")]
    ),
    CountCase(
      name: "all messages deleted",
      happens: { gateway in
        gateway.post("team:a", "m", 1...3)
        for number in 1...3 { gateway.deleteMessage("team:a", "m\(number)") }
      },
      unread: [("alice", 0, "0/0"), ("bob", 1, "0/0")]
    ),
    CountCase(
      name: "history visible: read up to the join, and unread after a marker",
      happens: { gateway in
        gateway.post("team:a", "m", 1...4)
        gateway.change("team:a", add: ["carol", "dave"])
        gateway.post("team:a", "m", 5...6)
        gateway.markUnread("team:a", "dave", "m2")
      },
      unread: [("carol", 2, "2/0"), ("dave", 3, "5/0")]
    ),
    CountCase(
      name: "history hidden: nothing before the join, marker or not",
      happens: { gateway in
        gateway.hideHistory("team:a")
        gateway.post("team:a", "m", 1...4)
        gateway.change("team:a", add: ["carol", "dave"])
        gateway.post("team:a", "m", 5...6)
        gateway.read("team:a", "dave")
        gateway.markUnread("team:a", "dave", "m5")
      },
      unread: [("alice", 0, "6/0"), ("carol", 2, "2/0"), ("dave", 3, "2/0")]
    ),
    CountCase(
      name: "own messages after a marker do not count",
      happens: { gateway in
        gateway.post("team:a", "a", 1...3)
        gateway.post("team:a", "b", 1...2, by: "bob")
        gateway.post("team:a", "a", 4...6)
        gateway.post("team:a", "b3", by: "bob")
        gateway.deleteMessage("team:a", "b2")
        gateway.markUnread("team:a", "bob", "a2")
      },
      unread: [("alice", 0, "8/0"), ("bob", 1, "5/0")]
    ),
    CountCase(
      name: "messages from before their sender joined are unread for others",
      happens: { gateway in
        gateway.post("team:a", "z", 1...3, by: "zoe")
        gateway.change("team:a", add: ["zoe"])
        gateway.markUnread("team:a", "zoe", "z1")
        gateway.post("team:a", "m1")
      },
      unread: [("zoe", 2, "1/0"), ("bob", 1, "4/0")]
    ),
    CountCase(
      name: "over several segments, from the middle of one and from its end",
      happens: { gateway in
        gateway.post("team:a", "m", 1...600)
        gateway.read("team:a", "alice", "m100")
        gateway.read("team:a", "bob", "m256")
        for number in [5, 101, 256, 257, 600] { gateway.deleteMessage("team:a", "m\(number)") }
      },
      unread: [("alice", 0, "496/0"), ("bob", 1, "342/0")]
    ),
    CountCase(
      name: "exactly full segments",
      happens: { gateway in
        gateway.post("team:a", "m", 1...512)
        gateway.read("team:a", "alice", "m511")
        gateway.read("team:a", "bob", "m512")
      },
      unread: [("alice", 0, "1/0"), ("bob", 1, "0/0")]
    ),
    CountCase(
      name: "a marker over several segments, with own messages between",
      happens: { gateway in
        for number in 1...400 {
          gateway.post("team:a", "m\(number)", by: number % 10 == 0 ? "bob" : "alice")
        }
        gateway.markUnread("team:a", "bob", "m95")
      },
      unread: [("bob", 1, "275/0"), ("alice", 0, "1/0")]
    ),
    CountCase(
      name: "a marker beyond the limit of read segments",
      happens: { gateway in
        gateway.post("team:a", "m", 1...4_700)
        gateway.read("team:a", "bob")
        gateway.markUnread("team:a", "bob", "m20")
        gateway.read("team:a", "alice", "m20")
      },
      unread: [("bob", 1, "4681/0"), ("alice", 0, "4680/0")]
    ),
    CountCase(
      name: "a member who left and rejoined",
      happens: { gateway in
        gateway.post("team:a", "m", 1...2)
        gateway.change("team:a", remove: ["alice", "bob"])
        gateway.post("team:a", "m", 3...4)
        gateway.change("team:a", add: ["bob"])
        gateway.post("team:a", "m5")
      },
      unread: [("alice", 0, "not_a_member"), ("bob", 2, "1/0"), ("bob", 1, "1/0"), ("bob", 0, "1/0")]
    ),
    CountCase(
      name: "a row of another user, or of none",
      happens: { $0.post("team:a", "m", 1...2) },
      unread: [
        ("alice", 1, "2/0"), ("bob", 70, "2/0"), ("bob", 300, "2/0"), ("zoe", 0, "not_a_member"),
        ("bob", .max, "2/0"),
      ]
    ),
    CountCase(
      name: "rows of several pages",
      members: (0..<600).map { "u\($0)" },
      happens: { gateway in
        gateway.post("team:a", "m", 1...3)
        gateway.read("team:a", "u255", "m1")
        gateway.read("team:a", "u256", "m2")
        gateway.change("team:a", remove: ["u7", "u599"])
        gateway.change("team:a", add: ["u7"])
        gateway.post("team:a", "m4")
      },
      unread: [
        ("u255", 255, "3/0"), ("u256", 256, "2/0"), ("u598", 598, "4/0"), ("u599", 599, "not_a_member"),
        ("u7", 7, "1/0"), ("u7", 600, "1/0"),
      ]
    ),
  ]

  /// A store after a history, with no pages written.
  private func harness(_ countCase: CountCase) throws -> (EngineHarness, Gateway) {
    let harness = try EngineHarness()
    let gateway = harness.connect()
    gateway.put("team:a", countCase.members)
    harness.loop.endTurn()
    try harness.completeLoads()
    countCase.happens(gateway)
    harness.loop.endTurn()
    try harness.persistAll()
    let refused = gateway.take().filter { !$0.contains("channel of") && !$0.contains("message") }
      .filter { !$0.contains("row") && !$0.contains("deleted") }
    #expect(refused == [])
    return (harness, gateway)
  }

  private func ask(_ countCase: CountCase, _ gateway: Gateway) -> String {
    gateway.unreadCounts(countCase.unread.map { CountsEntry("team:a", $0.user, $0.row) })
    gateway.harness.loop.endTurn()
    return "unread " + countCase.unread.map(\.reply).joined(separator: " ")
  }

  @Test("unread counts from memory agree with own rows", arguments: countCases)
  func countsFromMemoryAgreeWithOwnRows(_ countCase: CountCase) throws {
    let (harness, gateway) = try harness(countCase)
    let expected = ask(countCase, gateway)
    #expect(gateway.last == expected)
    #expect(harness.peeks.isEmpty && harness.loads.isEmpty)
  }

  @Test("unread counts from pages agree with own rows", arguments: countCases)
  func unreadCountsFromPagesAgreeWithOwnRows(_ countCase: CountCase) throws {
    let (before, _) = try harness(countCase)
    try before.writePages()
    let harness = try EngineHarness(before.storage)
    let gateway = harness.connect()
    let expected = ask(countCase, gateway)
    #expect(gateway.take() == [])
    #expect(harness.peeks.count == 1)
    #expect(harness.peeks.first?.entries.count == countCase.unread.count)
    harness.completePeek()
    // Only channels that a peek cannot read are read whole.
    try harness.completeLoads()
    #expect(gateway.last == expected)
    #expect(harness.reports == [])
    #expect(!harness.loop.isBusy)
  }

  @Test("unread counts from the log's tail agree with own rows", arguments: countCases)
  func countsFromTailAgreeWithOwnRows(_ countCase: CountCase) throws {
    let (before, _) = try harness(countCase)
    let harness = try EngineHarness(before.storage)
    let gateway = harness.connect()
    let expected = ask(countCase, gateway)
    #expect(gateway.take() == [])
    #expect(harness.peeks.isEmpty)
    #expect(harness.loads.count == 1)
    try harness.completeLoads()
    #expect(gateway.last == expected)
    // Pages of the loaded channel are written as usual.
    try harness.writePages()
    let again = try EngineHarness(harness.storage)
    let later = again.connect()
    _ = ask(countCase, later)
    again.completePeek()
    try again.completeLoads()
    #expect(later.last == expected)
    #expect(again.reports == [])
  }
}
