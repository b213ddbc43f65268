import ReceiptModel
import ReceiptWire
import StoreEngine
import Testing

/// A user is recorded in the ledger before any part of their erasure is decided (R16).
@Suite("Erasure ledger")
struct ErasureLedgerTests {
  private func turn(_ harness: EngineHarness) throws {
    harness.loop.endTurn()
    try harness.completeLoads()
    try harness.persistAll()
  }

  private func harnessWithLedger(
    configure: (inout StoreLoopConfiguration) -> Void = { _ in }
  ) throws -> (harness: EngineHarness, gateway: Gateway) {
    let (harness, gateway) = try harnessWithChannel(configure: configure)
    harness.erasures = []
    return (harness, gateway)
  }

  @Test("an erasure is recorded in the ledger first; later commands of its session do not wait")
  func erasureIsRecordedFirst() throws {
    let (harness, gateway) = try harnessWithLedger()
    gateway.patchErasing("bob")
    gateway.post("team:a", "m1", by: "alice")
    try turn(harness)
    #expect(harness.erasures?.map(\.user) == [Array("bob".utf8)])
    let early = gateway.take()
    #expect(early.count == 1 && !early[0].contains("bob"), "\(early)")
    #expect(harness.loop.isBusy)
    harness.completeErasure()
    try harness.runUntilIdle()
    let late = gateway.take()
    #expect(late.count == 1 && late[0].contains("bob") && late[0].contains("eras"), "\(late)")
    #expect(!harness.loop.isBusy)
  }

  @Test("an erasure is refused when the ledger cannot be written, and is decided again when resent")
  func erasureIsRefusedWhenLedgerCannotBeWritten() throws {
    let (harness, gateway) = try harnessWithLedger()
    gateway.patchErasing("bob", counter: 50)
    try turn(harness)
    harness.completeErasure(fault: "no space")
    try turn(harness)
    let refusal = gateway.take()
    #expect(refusal.count == 1 && refusal[0].contains("unavailable"), "\(refusal)")
    gateway.patchErasing("bob", counter: 50)
    try turn(harness)
    #expect(harness.erasures?.count == 1)
    harness.completeErasure()
    try harness.runUntilIdle()
    let reply = gateway.take()
    #expect(reply.count == 1 && reply[0].contains("eras"), "\(reply)")
    // A resend of an applied erasure needs no ledger.
    gateway.patchErasing("bob", counter: 50)
    try harness.runUntilIdle()
    #expect(harness.erasures?.isEmpty == true)
  }

  @Test("an erasure whose connection is lost meanwhile is decided once when it is resent")
  func erasureOfLostConnectionIsDecidedOnce() throws {
    let (harness, gateway) = try harnessWithLedger()
    gateway.patchErasing("bob", counter: 50)
    try turn(harness)
    harness.loop.close(gateway.lane)
    let next = harness.connect(session: 1, serial: 1)
    harness.completeErasure()
    try harness.runUntilIdle()
    #expect(gateway.take().isEmpty)
    next.patchErasing("bob", counter: 50)
    try turn(harness)
    #expect(harness.erasures?.count == 1)
    harness.completeErasure()
    try harness.runUntilIdle()
    let reply = next.take()
    #expect(reply.count == 1 && reply[0].contains("eras"), "\(reply)")
  }

  @Test("erasures that wait for the ledger are limited; a refused one is applied when it is resent")
  func waitingErasuresAreLimited() throws {
    let (harness, gateway) = try harnessWithLedger { $0.erasuresMax = 1 }
    gateway.patchErasing("bob", counter: 50)
    gateway.patchErasing("alice", counter: 51)
    try turn(harness)
    #expect(harness.erasures?.map(\.user) == [Array("bob".utf8)])
    let refusal = gateway.take()
    #expect(refusal.count == 1 && refusal[0].contains("busy"), "\(refusal)")
    harness.completeErasure()
    try harness.runUntilIdle()
    _ = gateway.take()
    gateway.patchErasing("alice", counter: 52)
    try turn(harness)
    #expect(harness.erasures?.map(\.user) == [Array("alice".utf8)])
    harness.completeErasure()
    try harness.runUntilIdle()
    let reply = gateway.take()
    #expect(reply.count == 1 && reply[0].contains("eras"), "\(reply)")
  }
}
