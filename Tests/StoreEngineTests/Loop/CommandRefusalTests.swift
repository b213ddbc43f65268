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
  func refused() throws {
    let world = try EngineWorld()
    let gateway = world.connect()
    world.loop.open(gateway.lane)
    gateway.put("team:a", ["alice", "bob"])
    try world.answerLoads()
    gateway.post("team:a", "m1", by: "alice")
    gateway.post("team:a", "m2", by: "alice")
    gateway.read("team:a", "bob", "m1")
    world.loop.endTurn()
    try world.settle()
    _ = gateway.take()
    let applied = gateway.counter
    let logged = world.commitDescriptions.count

    world.loop.commandRefusal = .clockJump
    gateway.read("team:a", "bob", "m2")
    gateway.put("team:b", ["alice"])
    gateway.read("team:a", "bob", "m1", counter: applied)
    gateway.getChannel("team:a")
    world.loop.endTurn()
    try world.settle()
    let answers = gateway.take().map { String($0.drop { $0 != " " }.dropFirst()) }
    #expect(answers == ["clock_jump", "clock_jump", "row read 1 unread 1", "channel of 2"])
    #expect(world.commitDescriptions.count == logged, "nothing is logged")

    world.loop.commandRefusal = nil
    // This follows a command that is decided later, as after a lost connection.
    gateway.post("team:a", "m3", by: "alice", counter: applied + 3)
    gateway.read("team:a", "bob", "m2", counter: applied + 1)
    gateway.read("team:a", "bob", "m2", counter: applied + 1)
    world.loop.endTurn()
    try world.settle()
    let again = gateway.take().map { String($0.drop { $0 != " " }.dropFirst()) }
    #expect(again == ["message 3 new", "row read 2 unread 1", "row read 2 unread 1"])
  }

  @Test("a command of an unknown session is refused like any other")
  func newSession() throws {
    let world = try EngineWorld()
    world.loop.commandRefusal = .clockJump
    for _ in 0..<3 {
      let gateway = world.connect()
      world.loop.open(gateway.lane)
      gateway.put("team:a", ["alice"])
      world.loop.endTurn()
      try world.settle()
      #expect(gateway.take().map { String($0.drop { $0 != " " }.dropFirst()) } == ["clock_jump"])
    }
  }
}
