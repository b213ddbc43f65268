import NIOCore
import ReceiptModel
import Testing

@testable import StoreEngine

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
