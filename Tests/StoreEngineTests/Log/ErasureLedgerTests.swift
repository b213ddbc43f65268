import ReceiptModel
import ReceiptWire
import StoreEngine
import Testing

/// A user is recorded in the ledger before any part of their erasure is decided (R16).
@Suite("Erasure ledger")
struct ErasureLedgerTests {
  private func turn(_ world: EngineWorld) throws {
    world.loop.endTurn()
    try world.answerLoads()
    try world.persistAll()
  }

  private func worldWithLedger() throws -> (world: EngineWorld, gateway: Gateway) {
    let (world, gateway) = try settledWorld()
    world.erasures = []
    return (world, gateway)
  }

  @Test("an erasure is recorded in the ledger first; later commands of its session do not wait")
  func notedFirst() throws {
    let (world, gateway) = try worldWithLedger()
    gateway.patchErasing("bob")
    gateway.post("team:a", "m1", by: "alice")
    try turn(world)
    #expect(world.erasures?.map(\.user) == [Array("bob".utf8)])
    let early = gateway.take()
    #expect(early.count == 1 && !early[0].contains("bob"), "\(early)")
    #expect(world.loop.isBusy)
    world.answerErasure()
    try world.settle()
    let late = gateway.take()
    #expect(late.count == 1 && late[0].contains("bob") && late[0].contains("eras"), "\(late)")
    #expect(!world.loop.isBusy)
  }

  @Test("an erasure is refused when the ledger cannot be written, and is decided again when resent")
  func refused() throws {
    let (world, gateway) = try worldWithLedger()
    gateway.patchErasing("bob", counter: 50)
    try turn(world)
    world.answerErasure(fault: "no space")
    try turn(world)
    let refusal = gateway.take()
    #expect(refusal.count == 1 && refusal[0].contains("unavailable"), "\(refusal)")
    gateway.patchErasing("bob", counter: 50)
    try turn(world)
    #expect(world.erasures?.count == 1)
    world.answerErasure()
    try world.settle()
    let answer = gateway.take()
    #expect(answer.count == 1 && answer[0].contains("eras"), "\(answer)")
    // A resend of an applied erasure needs no ledger.
    gateway.patchErasing("bob", counter: 50)
    try world.settle()
    #expect(world.erasures?.isEmpty == true)
  }

  @Test("an erasure whose connection is lost meanwhile is decided once when it is resent")
  func resent() throws {
    let (world, gateway) = try worldWithLedger()
    gateway.patchErasing("bob", counter: 50)
    try turn(world)
    world.loop.close(gateway.lane)
    let next = world.connect(session: 1, serial: 1)
    world.answerErasure()
    try world.settle()
    #expect(gateway.take().isEmpty)
    next.patchErasing("bob", counter: 50)
    try turn(world)
    #expect(world.erasures?.count == 1)
    world.answerErasure()
    try world.settle()
    let answer = next.take()
    #expect(answer.count == 1 && answer[0].contains("eras"), "\(answer)")
  }
}
