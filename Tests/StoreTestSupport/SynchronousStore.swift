package import NIOCore
package import ReceiptModel
package import ReceiptWire
package import StoreEngine

/// A store loop over storage in memory. Requests of the loop to its driver wait until ``runUntilIdle()``, which does it
/// at once.
package final class SynchronousStore: StoreLoopDriver {
  /// `@unchecked Sendable`: the store uses it on its own thread.
  private final class Storage: MemoryBackedStorage, @unchecked Sendable {
    var data: StoredData

    init(_ data: StoredData) { self.data = data }
  }

  private let storage: Storage
  package private(set) var loop: StoreLoop!
  // Not answered yet
  private var commits: [LoopCommit] = []
  private var loads: [(request: LoadRequest, reference: ChannelReference)] = []
  private var stepReads: [StepRequest] = []
  private var peeks: [StorageReadRequest] = []
  private var deliveries: [MembershipDelivery] = []
  private var confirmations: [MembershipConfirmation] = []
  private var feedReads: [FeedReadRequest] = []
  private var feedTrims: [FeedTrimRequest] = []
  private var wantsPurge = false
  private var wantsSlice = false
  // Of ``reply(to:_:_:)``
  private lazy var lane = openLane()
  private var lastReply = ByteBuffer()

  /// The loop's time. It moves only when a test sets it.
  package var clock: Timestamp {
    didSet { loop.clock = clock }
  }

  package init(
    _ data: StoredData = StoredData(),
    shards: [ShardID],
    of shardCount: Int,
    clock: Timestamp = Timestamp(milliseconds: 1_000),
    configuration: StoreLoopConfiguration = StoreLoopConfiguration()
  ) {
    storage = Storage(data)
    self.clock = clock
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
    loop.clock = clock
  }

  /// The storage's content.
  package var data: StoredData { storage.data }

  // MARK: Requests

  /// The payload of the reply to a request.
  package func reply(to kind: FrameKind, _ shard: ShardID, _ payload: ByteBuffer) -> ByteBuffer {
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

  private func openLane() -> ReplyLane {
    let lane = ReplyLane(
      session: SessionID(high: 2, low: 1),
      shards: loop.shardCount,
      deliver: { [unowned self] bytes, _ in lastReply = bytes },
      end: { error in preconditionFailure("\(error)") }
    )
    loop.open(lane)
    return lane
  }

  // MARK: Time and work

  /// Let time pass, then run timed work and what follows from it.
  package func advance(milliseconds: Int64) {
    clock = Timestamp(milliseconds: clock.milliseconds + milliseconds)
    tick()
  }

  /// Run timed work, and what follows from it.
  package func tick() {
    loop.tick()
    runUntilIdle()
  }

  /// Let time pass until all pages are written.
  package func finish() {
    for _ in 0..<100 { advance(milliseconds: 100) }
  }

  /// Perform the loop's requests until it makes no further ones.
  package func runUntilIdle() {
    while runNext() {}
  }

  private func runNext() -> Bool {
    if !commits.isEmpty {
      storage.data.apply(commits.removeFirst())
      loop.committed(.success(()))
    } else if let load = loads.popLast() {
      loop.loaded(load.request, as: load.reference, .success(data.read(load.request.shard, load.request.channel)))
    } else if let request = stepReads.popLast() {
      let segments = request.ranges.flatMap {
        data.readSteps(request.shard, request.channel, rowPage: $0.rowPage, segments: $0.segments)
      }
      loop.stepsRead(request, .success(segments))
    } else if let request = feedReads.popLast() {
      loop.feedRead(request, .success(data.readFeed(request)))
    } else if let request = feedTrims.popLast() {
      loop.feedTrimmed(request, .success(storage.data.trimFeed(request)))
    } else if let request = peeks.popLast() {
      loop.peeked(request, request.perform(on: storage))
    } else if !deliveries.isEmpty {
      let delivered = deliveries
      deliveries = []
      loop.receive(delivered)
    } else if !confirmations.isEmpty {
      let confirmed = confirmations
      confirmations = []
      loop.confirmed(confirmed)
    } else if wantsPurge {
      wantsPurge = false
      loop.purged(.success(()))
    } else if wantsSlice {
      wantsSlice = false
      loop.slice()
    } else {
      return false
    }
    return true
  }

  // MARK: StoreLoopDriver

  package func commit(_ commit: LoopCommit) { commits.append(commit) }
  package func load(_ request: LoadRequest, as reference: ChannelReference) { loads.append((request, reference)) }
  package func readSteps(_ request: StepRequest) { stepReads.append(request) }
  package func readFeed(_ request: FeedReadRequest) { feedReads.append(request) }
  package func trimFeed(_ request: FeedTrimRequest) { feedTrims.append(request) }
  package func peek(_ request: StorageReadRequest) { peeks.append(request) }
  package func deliver(_ deliveries: [MembershipDelivery]) { self.deliveries += deliveries }
  package func confirm(_ confirmations: [MembershipConfirmation]) { self.confirmations += confirmations }
  package func purge() { wantsPurge = true }
  package func sliceLater() { wantsSlice = true }
  package func reportError(_ error: StorageError) { preconditionFailure("\(error)") }
  package func loopHalted(_ error: StorageError) { preconditionFailure("\(error)") }
}
