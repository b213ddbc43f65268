import Crypto
import Logging
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import ReceiptModel
import ReceiptWire
import StoreEngine
import TestSupport
import Testing

@testable import StoreServer

/// Refusals of snapshots, and entries that are larger than a reply.
@Suite struct SnapshotServerTests {
  /// A snapshot with one entry after the other, each returned whole.
  private final class Entries: GroupSnapshot {
    let cursor = LogCursor(position: RecordPosition(5), epoch: OwnerEpoch(1), hash: RecordHash(9))
    private let sizes: NIOLockedValueBox<[Int]>

    init(_ sizes: [Int]) { self.sizes = NIOLockedValueBox(sizes) }

    func next(_ count: Int) throws(StorageError) -> ByteBuffer {
      sizes.withLockedValue { sizes in
        guard !sizes.isEmpty else { return ByteBuffer() }
        return ByteBuffer(repeating: UInt8(truncatingIfNeeded: sizes.count), count: sizes.removeFirst())
      }
    }

    func close() { sizes.withLockedValue { $0 = [] } }
  }

  @Test func largeEntriesAreSplit() throws {
    let sizes = [10, 3 << 20, SnapshotPart.byteCount, 7]
    var open = SnapshotServer.Open(owner: 1, snapshot: Entries(sizes), beganAt: .now())
    var hash = SHA256()
    var total = 0
    while case let part = try open.nextPart(), !part.isLast {
      #expect((1...SnapshotPart.byteCount).contains(part.bytes.readableBytes))
      hash.update(data: Array(part.bytes.readableBytesView))
      total += part.bytes.readableBytes
      #expect(part.total == UInt64(total) && part.digest.elementsEqual(hash.finalize()))
      var buffer = ByteBuffer()
      buffer.writeFrame(FrameHeader(.snapshotReadReply, correlation: 1)) { part.write(into: &$0) }
      #expect(buffer.readableBytes < Int(FrameHeader.lengthLimitDefault))
    }
    #expect(total == sizes.reduce(0, +))
  }

  /// A source has one snapshot at a time, so a slow receiver must not keep it.
  @Test func aTransferHasATimeLimit() {
    let now = NIODeadline.now()
    let open = SnapshotServer.Open(owner: 1, snapshot: Entries([]), beganAt: now)
    let limit = TimeAmount.milliseconds(ClusterLimits().joiningMilliseconds)
    #expect(!open.isTooOld(at: now + limit - .milliseconds(1)))
    #expect(open.isTooOld(at: now + limit))
  }

  @Test func aNodeThatLoadsGivesNone() async throws {
    let server = SnapshotServer(logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
    let request = SnapshotRequest(group: 0, shards: 0..<4, asksOwner: true)
    let owner = server.makeOwner()
    let refusal = await withCheckedContinuation { continuation in
      server.begin(owner, request, nil) { continuation.resume(returning: $0) }
    }
    #expect(throws: BackupRefusal.self) { try refusal.get() }
    let read = await withCheckedContinuation { continuation in
      server.read(owner) { result in continuation.resume(returning: result.map { $0.0 }) }
    }
    #expect(throws: BackupRefusal.self) { try read.get() }
    await server.stop()
  }
}
