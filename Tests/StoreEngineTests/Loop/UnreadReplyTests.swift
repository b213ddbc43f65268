import StoreEngine
import Testing

/// Replies to a gateway that does not read them must not fill the store's memory.
@Suite("Unread replies")
struct UnreadReplyTests {
  @Test("above the limit queries are busy, commands are applied, and queries continue once the gateway reads")
  func queriesAreBusyWhileRepliesAreUnread() throws {
    let harness = try EngineHarness { $0.unwrittenReplyBytesMax = 1_000 }
    let gateway = harness.connect()
    harness.loop.open(gateway.lane)
    gateway.put("team:a", ["alice", "bob"])
    try harness.completeLoads()
    gateway.post("team:a", "m1", by: "alice")
    harness.loop.endTurn()
    try harness.runUntilIdle()
    _ = gateway.take()

    gateway.isSlow = true
    var answers: [String] = []
    while answers.last != "busy" {
      try #require(answers.count < 100, "the limit is never reached")
      gateway.getChannel("team:a")
      harness.loop.endTurn()
      answers += texts(gateway.take())
    }
    #expect(answers.count > 2 && answers.dropLast().allSatisfy { $0 == "channel of 2" }, "\(answers)")
    #expect(gateway.lane.backlog.unwrittenBytes < 1_200)
    gateway.read("team:a", "bob", "m1")
    harness.loop.endTurn()
    try harness.runUntilIdle()
    #expect(texts(gateway.take()) == ["row read 1 unread 0"])

    gateway.isSlow = false
    gateway.lane.backlog.wrote(gateway.lane.backlog.unwrittenBytes)
    gateway.getChannel("team:a")
    harness.loop.endTurn()
    #expect(texts(gateway.take()) == ["channel of 2"])
  }

  /// The replies without the numbers of their requests.
  private func texts(_ replies: [String]) -> [String] {
    replies.map { String($0.drop { $0 != " " }.dropFirst()) }
  }
}
