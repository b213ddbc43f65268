import NIOCore
import ReceiptModel
import ReceiptWire
import Testing

@testable import StoreEngine

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
  func commandOfUnknownSessionIsRefused() throws {
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

/// Buffers of a connection's replies.
@Suite("Reply lane")
struct ReplyLaneTests {
  @Test("deliveries that are written at once use two buffers in turn")
  func deliveriesWrittenAtOnceUseTwoBuffersInTurn() {
    var addresses: [UnsafeRawPointer?] = []
    let lane = lane { bytes in bytes.withUnsafeReadableBytes { addresses.append($0.baseAddress) } }
    for number in 0..<6 { deliver(UInt64(number), lane) }
    #expect(Set(addresses).count == 2)
  }

  @Test("a delivery that waits for its socket keeps its bytes")
  func deliveryThatWaitsForSocketKeepsItsBytes() {
    var kept: [ByteBuffer] = []
    let lane = lane { kept.append($0) }
    for number in 0..<6 { deliver(UInt64(number), lane) }
    #expect(kept.map { $0.getInteger(at: $0.readerIndex, as: UInt64.self) } == [0, 1, 2, 3, 4, 5])
  }

  @Test("replies that may be refused are refused in their order, and the others keep waiting in theirs")
  func refusableRepliesAreRefused() {
    var kept: [ByteBuffer] = []
    let lane = lane { kept.append($0) }
    func add(_ timing: ReplyLane.Timing, _ number: UInt64, isRefusable: Bool = false) {
      let header = FrameHeader(.getChannel, shard: ShardID(3), correlation: UInt32(number))
      _ = lane.add(timing, refusable: isRefusable ? header : nil) { $0.writeInteger(number) }
    }
    add(.now, 1)
    add(.now, 2, isRefusable: true)
    _ = lane.addUnsolicited(.now) { $0.writeInteger(3 as UInt64) }
    add(.afterNextCommit, 4, isRefusable: true)
    add(.afterNextCommit, 5)
    lane.moveNextToInFlight()
    lane.moveInFlightToNow()
    let refusals = lane.takeRefusals()
    #expect(refusals.count == 2)
    let decoder = FrameDecoder()
    var offset = 0
    var refused: [FrameHeader] = []
    while case .frame(let header, let count)? = try? decoder.next(refusals.bytes.readableBytesSpan, at: offset) {
      refused.append(header)
      offset += FrameHeader.byteCount + count
    }
    #expect(refused == [2, 4].map { FrameHeader(.error, shard: ShardID(3), correlation: $0) })
    #expect(lane.takeRefusals().count == 0)
    lane.deliverNow()
    var waiting = kept.removeFirst()
    #expect((0..<3).map { _ in waiting.readInteger(as: UInt64.self) } == [1, 3, 5] && waiting.readableBytes == 0)
    // What was delivered is not refused any more.
    add(.now, 6, isRefusable: true)
    lane.deliverNow()
    #expect(lane.takeRefusals().count == 0 && kept.count == 1)
  }

  private func lane(_ deliver: @escaping (ByteBuffer) -> Void) -> ReplyLane {
    ReplyLane(
      session: SessionID(high: 1, low: 1),
      shards: 1,
      deliver: { bytes, _ in deliver(bytes) },
      end: { _ in }
    )
  }

  private func deliver(_ number: UInt64, _ lane: ReplyLane) {
    _ = lane.add(.now) { $0.writeInteger(number) }
    lane.deliverNow()
  }
}
