import ReceiptModel
import ReceiptWire
import StoreEngine
import Testing

/// A store that refuses every command, because of its clock or its directory. It applies none, and their counters stay
/// open.
@Suite("Store-wide command refusals")
struct CommandRefusalTests {
  @Test(
    "queries continue, a duplicate is answered as applied, and a refused command is decided when it is resent"
  )
  func refusedCommandIsDecidedWhenResent() throws {
    let harness = try EngineHarness()
    let gateway = harness.connect()
    harness.loop.open(gateway.lane)
    gateway.put("team:a", ["alice", "bob"])
    try harness.completeLoads()
    gateway.post("team:a", "m1", by: "alice")
    gateway.post("team:a", "m2", by: "alice")
    gateway.read("team:a", "bob", "m1")
    harness.loop.endTurn()
    try harness.runUntilIdle()
    _ = gateway.take()
    let applied = gateway.counter
    let logged = harness.commitDescriptions.count

    harness.loop.commandRefusal = .clockJump
    gateway.read("team:a", "bob", "m2")
    gateway.put("team:b", ["alice"])
    gateway.read("team:a", "bob", "m1", counter: applied)
    gateway.getChannel("team:a")
    harness.loop.endTurn()
    try harness.runUntilIdle()
    let replies = gateway.take().map { String($0.drop { $0 != " " }.dropFirst()) }
    #expect(replies == ["clock_jump", "clock_jump", "row read 1 unread 1", "channel of 2"])
    #expect(harness.commitDescriptions.count == logged, "nothing is logged")

    harness.loop.commandRefusal = nil
    // This follows a command that is decided later, as after a lost connection.
    gateway.post("team:a", "m3", by: "alice", counter: applied + 3)
    gateway.read("team:a", "bob", "m2", counter: applied + 1)
    gateway.read("team:a", "bob", "m2", counter: applied + 1)
    harness.loop.endTurn()
    try harness.runUntilIdle()
    let again = gateway.take().map { String($0.drop { $0 != " " }.dropFirst()) }
    #expect(again == ["message 3 new", "row read 2 unread 1", "row read 2 unread 1"])
  }

  @Test("a command of an unknown session is refused like any other")
  func newSession() throws {
    let harness = try EngineHarness()
    harness.loop.commandRefusal = .clockJump
    for _ in 0..<3 {
      let gateway = harness.connect()
      harness.loop.open(gateway.lane)
      gateway.put("team:a", ["alice"])
      harness.loop.endTurn()
      try harness.runUntilIdle()
      #expect(gateway.take().map { String($0.drop { $0 != " " }.dropFirst()) } == ["clock_jump"])
    }
  }
}
