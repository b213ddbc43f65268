import Crypto
import Logging
import NIOConcurrencyHelpers
import NIOCore
import NIOEmbedded
import NIOPosix
import ReceiptModel
import ReceiptWire
import StoreEngine
import TestSupport
import Testing

@testable import StoreServer

/// Refusals of snapshots, and entries that are larger than a reply. One server serves one snapshot at a time, so the
/// tests run one after the other.
@Suite(.serialized) struct SnapshotServerTests {
  /// A snapshot with one entry after the other, each returned whole.
  private final class Entries: GroupSnapshot {
    let cursor: LogCursor
    private let sizes: NIOLockedValueBox<[Int]>

    init(_ sizes: [Int], position: UInt64 = 5) {
      cursor = LogCursor(position: RecordPosition(position), epoch: OwnerEpoch(1), hash: RecordHash(9))
      self.sizes = NIOLockedValueBox(sizes)
    }

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
    var open = SnapshotServer.Open(connection: 1, snapshot: Entries(sizes), beganAt: .now())
    var hash = SHA256()
    var total = 0
    while case let part = try open.nextPart(), !part.isLast {
      #expect((1...SnapshotPart.byteCount).contains(part.bytes.readableBytes))
      hash.update(data: Array(part.bytes.readableBytesView))
      total += part.bytes.readableBytes
      #expect(part.total == UInt64(total) && part.digest.elementsEqual(hash.finalize()))
      var buffer = ByteBuffer()
      buffer.writeFrame(FrameHeader(replyTo: .snapshotRead, correlation: 1)) { part.write(into: &$0) }
      #expect(buffer.readableBytes < Int(FrameHeader.lengthLimitDefault))
    }
    #expect(total == sizes.reduce(0, +))
  }

  private enum Serving { case nothing, groups }

  private enum Request: Sendable {
    case begin(SnapshotRequest)
    case read
  }

  /// A source has one snapshot at a time, so a slow receiver must not keep it.
  @Test func transferHasTimeLimit() {
    let now = NIODeadline.now()
    let open = SnapshotServer.Open(connection: 1, snapshot: Entries([]), beganAt: now)
    let limit = TimeAmount.milliseconds(ClusterLimits().joiningMilliseconds)
    #expect(!open.isTooOld(at: now + limit - .milliseconds(1)))
    #expect(open.isTooOld(at: now + limit))
  }

  /// What the request comes after.
  private enum Before { case nothing, anotherConnectionsBegin, theEndOfItsOwnSnapshot }

  private struct Refusal {
    var name: String
    var before = Before.nothing
    var position: UInt64? = 5
    var serving = Serving.groups
    var request: Request
    var code: ErrorCode
    var detail: String
  }

  private static func begin(_ group: UInt8, _ shards: Range<UInt16>, asksOwner: Bool = false) -> Request {
    .begin(SnapshotRequest(group: group, shards: shards, asksOwner: asksOwner))
  }

  /// The node follows group 0, which has shard 0, and owns group 1, which has shard 1.
  private static let refusals = [
    Refusal(
      name: "the node loads its data",
      serving: .nothing,
      request: begin(0, 0..<1),
      code: .unavailable,
      detail: "the node is loading its data"
    ),
    Refusal(
      name: "another connection has a snapshot",
      before: .anotherConnectionsBegin,
      request: begin(0, 0..<1),
      code: .busy,
      detail: "this node is giving a snapshot to another node"
    ),
    Refusal(
      name: "more shards than the group has",
      request: begin(0, 0..<2),
      code: .invalidField,
      detail: "group 0 has other shards here"
    ),
    Refusal(
      name: "another group's shards",
      request: begin(0, 1..<2),
      code: .invalidField,
      detail: "group 0 has other shards here"
    ),
    Refusal(
      name: "a group that does not exist",
      request: begin(2, 0..<1),
      code: .invalidField,
      detail: "group 2 has other shards here"
    ),
    Refusal(
      name: "the node owns the group",
      request: begin(1, 1..<2),
      code: .unavailable,
      detail: "the node owns the group: ask a follower first"
    ),
    Refusal(
      name: "the node has no data",
      position: 0,
      request: begin(0, 0..<1),
      code: .unavailable,
      detail: "the node has no data of the group"
    ),
    Refusal(
      name: "the storage makes no snapshot",
      position: nil,
      request: begin(0, 0..<1),
      code: .unavailable,
      detail: "no snapshot can be made"
    ),
    Refusal(
      name: "a read without a snapshot",
      request: .read,
      code: .backupNotFound,
      detail: "this connection has begun no snapshot, or it was silent for too long"
    ),
    Refusal(
      name: "a read of another connection's snapshot",
      before: .anotherConnectionsBegin,
      request: .read,
      code: .backupNotFound,
      detail: "this connection has begun no snapshot, or it was silent for too long"
    ),
    Refusal(
      name: "a read after silence",
      before: .theEndOfItsOwnSnapshot,
      request: .read,
      code: .backupNotFound,
      detail: "this connection has begun no snapshot, or it was silent for too long"
    ),
  ]

  @Test func refusalsNameTheirCodeAndDetail() throws {
    let harness = try ServerHarness(loops: 2, owned: [1])
    for row in Self.refusals {
      harness.storage.snapshot = row.position.map { Entries([1], position: $0) }
      let connection = Self.server.makeConnectionID()
      let first = row.before == .anotherConnectionsBegin ? Self.server.makeConnectionID() : connection
      if row.before != .nothing {
        let begun = try Self.result(of: Self.begin(0, 0..<1), by: first, harness.serving.current())
        #expect(throws: Never.self, "\(row.name)") { try begun.get() }
      }
      if row.before == .theEndOfItsOwnSnapshot { Self.server.end(connection, reason: "silence") }
      let serving = row.serving == .groups ? harness.serving.current() : nil
      let result = try Self.result(of: row.request, by: connection, serving)
      let refusal = #expect(throws: PartRefusal.self, "\(row.name)") { try result.get() }
      #expect(refusal?.code == row.code, "\(row.name)")
      #expect(refusal?.detail == row.detail, "\(row.name)")
      Self.server.end(first, reason: "the test has ended")
    }
  }

  @Test func ownerGivesASnapshotToANodeThatAsksTheOwner() throws {
    let harness = try ServerHarness(loops: 2, owned: [1])
    harness.storage.snapshot = Entries([1])
    let connection = Self.server.makeConnectionID()
    let begun = try Self.result(of: Self.begin(1, 1..<2, asksOwner: true), by: connection, harness.serving.current())
    #expect(throws: Never.self) { try begun.get() }
    Self.server.end(connection, reason: "the test has ended")
  }

  /// Shared by the tests, because it starts a thread.
  private static let server = SnapshotServer(logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })

  /// Waits for an answer of the server's thread. It blocks, because embedded event loops belong to the test's thread.
  private static func result(
    of request: Request,
    by connection: SnapshotServer.ConnectionID,
    _ serving: ServingState.Serving?
  ) throws -> Result<Void, PartRefusal> {
    let answer = NIOLockedValueBox<Result<Void, PartRefusal>?>(nil)
    let isAnswered = ConditionLock(value: false)
    let complete = { @Sendable (result: Result<Void, PartRefusal>) in
      answer.withLockedValue { $0 = result }
      isAnswered.lock()
      isAnswered.unlock(withValue: true)
    }
    switch request {
    case .begin(let request):
      server.begin(connection, request, serving) { complete($0.map { _ in }) }
      for host in serving?.hosts ?? [] { (host.eventLoop as? EmbeddedEventLoop)?.run() }
    case .read: server.read(connection) { complete($0.map { _ in }) }
    }
    try #require(isAnswered.lock(whenValue: true, timeoutSeconds: 60), "the server answers")
    isAnswered.unlock()
    return try #require(answer.withLockedValue { $0 })
  }
}
