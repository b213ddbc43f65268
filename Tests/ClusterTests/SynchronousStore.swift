import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine
import StoreTestSupport

/// A store on one machine whose commits and reads end at once. It makes the data that a cluster starts from, and shows
/// what a member's storage contains.
final class SynchronousStore: StoreLoopDriver {
  private(set) var data: StoredData
  private var loop: StoreLoop!
  private var lane: ReplyLane!
  private var lastReply = ByteBuffer()
  private var clock: Int64 = 1_000
  // Not answered yet
  private var commits: [CommitGroup] = []
  private var loads: [(request: LoadRequest, reference: ChannelReference)] = []
  private var deliveries: [MembershipDelivery] = []
  private var confirmations: [MembershipConfirmation] = []

  init(_ data: StoredData, shards: [ShardID], of shardCount: Int) {
    self.data = data
    var configuration = StoreLoopConfiguration()
    configuration.checkpointAgeMilliseconds = 0
    do throws(StorageError) {
      loop = try StoreLoop(
        configuration: configuration,
        shardCount: shardCount,
        stored: shards.map { ($0, data.recover($0)) },
        driver: self
      )
    } catch {
      preconditionFailure("\(error)")
    }
    lane = ReplyLane(
      session: SessionID(high: 2, low: 1),
      shards: shardCount,
      deliver: { [unowned self] bytes, _ in lastReply = bytes },
      end: { error in preconditionFailure("\(error)") }
    )
    loop.clock = Timestamp(milliseconds: clock)
    loop.open(lane)
  }

  /// The payload of the reply to a request.
  func reply(to kind: FrameKind, _ shard: ShardID, _ payload: ByteBuffer) -> ByteBuffer {
    lastReply = ByteBuffer()
    let header = FrameHeader(kind, shard: shard, correlation: 1)
    do throws(WireError) { try loop.receive(header, payload.readableBytesSpan, lane: lane) } catch {
      preconditionFailure("\(error)")
    }
    loop.endTurn()
    runUntilIdle()
    lastReply.moveReaderIndex(forwardBy: FrameHeader.byteCount)
    return lastReply
  }

  /// Let time pass until all pages are written.
  func finish() {
    for _ in 0..<100 {
      clock += 100
      loop.clock = Timestamp(milliseconds: clock)
      loop.tick()
      runUntilIdle()
    }
  }

  private func runUntilIdle() {
    while !commits.isEmpty || !loads.isEmpty || !deliveries.isEmpty || !confirmations.isEmpty {
      if let group = commits.popLast() {
        data.commit(group)
        loop.committed(.success(()))
      }
      if let load = loads.popLast() {
        let channel = data.read(load.request.shard, load.request.channel)
        loop.loaded(load.request, as: load.reference, .success(channel))
      }
      let delivered = deliveries
      deliveries = []
      if !delivered.isEmpty { loop.receive(delivered) }
      let confirmed = confirmations
      confirmations = []
      if !confirmed.isEmpty { loop.confirmed(confirmed) }
    }
  }

  // MARK: StoreLoopDriver

  func commit(_ group: CommitGroup) { commits.append(group) }
  func load(_ request: LoadRequest, as reference: ChannelReference) { loads.append((request, reference)) }
  func deliver(_ deliveries: [MembershipDelivery]) { self.deliveries += deliveries }
  func confirm(_ confirmations: [MembershipConfirmation]) {
    self.confirmations += confirmations
  }
  func readSteps(_ request: StepRequest) { preconditionFailure("a read of steps") }
  func purge() { preconditionFailure("a purge") }
  func peek(_ request: StorageReadRequest) { preconditionFailure("a peek") }
  func sliceLater() {}
  func report(_ error: StorageError) { preconditionFailure("\(error)") }
  func loopHalted(_ error: StorageError) { preconditionFailure("\(error)") }
}

extension StoredData {
  /// Apply a whole commit.
  mutating func commit(_ group: CommitGroup) {
    for batch in group.batches { apply(batch) }
    for drop in group.drops { apply(drop) }
    for page in group.pages { apply(page) }
    for trim in group.logTrims { trimLog(of: trim.shard, through: trim.through.rawValue) }
    for trim in group.stepTrims { apply(trim) }
  }
}
