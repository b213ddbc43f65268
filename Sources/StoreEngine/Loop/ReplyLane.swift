package import NIOCore
package import ReceiptModel
package import ReceiptWire
internal import Synchronization

/// Reply buffers of one connection on one store loop. A reply leaves only when everything it reveals is durable: at
/// once, with the append in flight, or with the next one (docs/contribute/architecture.md, "One mark-read").
package final class ReplyLane {
  /// When a reply may leave, soonest first.
  enum Timing: Comparable {
    case now
    case afterCurrentCommit
    case afterNextCommit
  }

  package let session: SessionID
  /// Rises with every connection that opens. Of a session's lanes, only the one with the highest serial accepts
  /// requests.
  let serial: UInt64
  /// Set when the connection is gone or its session has a newer one. The lane then accepts no requests and drops its
  /// replies.
  package var isClosed = false
  /// Index of the session in each shard's session table, by the shard's index in the loop; −1: not looked up yet.
  var sessionIndexes: [Int32]
  /// Number of the connection among each shard's watchers, likewise; nil: it has no subscriptions there.
  var watcherNumbers: [WatcherNumber?]
  /// The receiver of delivered bytes reports when they are written (``ConnectionBacklog/wrote(_:)``).
  package let backlog: ConnectionBacklog
  /// Ends the connection because a request that waited does not parse.
  private let end: (WireError) -> Void
  /// Delivers encoded frames and the number of replies among them. Called on the loop, at most once per turn and
  /// commit.
  private let deliver: (ByteBuffer, Int) -> Void
  private let allocator = ByteBufferAllocator()
  /// Largest capacity of a delivered buffer that is used again.
  private static let reusedBytesMax = 16 << 10

  private var now = PendingReplies()
  private var inFlight = PendingReplies()
  private var next = PendingReplies()
  /// An empty buffer for later replies.
  private var spare = ByteBuffer()

  /// - Parameters:
  ///   - serial: see ``serial``.
  ///   - shards: number of shards of the loop.
  ///   - backlog: the connection's counters.
  package init(
    session: SessionID,
    serial: UInt64 = 0,
    shards: Int,
    backlog: ConnectionBacklog = ConnectionBacklog(),
    deliver: @escaping (ByteBuffer, Int) -> Void,
    end: @escaping (WireError) -> Void
  ) {
    self.session = session
    self.serial = serial
    self.end = end
    self.backlog = backlog
    self.sessionIndexes = Array(repeating: -1, count: shards)
    self.watcherNumbers = Array(repeating: nil, count: shards)
    self.deliver = deliver
  }

  /// Add a reply. Returns whether it is the first of its timing: the loop must then register the lane.
  ///
  /// - Parameter header: header of a request that may still be refused after it was performed (``takeRefusals()``): it
  ///   is no command, so that repeating it is harmless, or it is certainly not applied. nil for other requests.
  @inline(__always)
  func add(_ replyTiming: Timing, refusable header: FrameHeader? = nil, _ write: (inout ByteBuffer) -> Void) -> Bool {
    add(replyTiming, replyCount: 1, header, write)
  }

  /// Add a frame that is not a reply; return the same as ``add(_:_:)``.
  func addUnsolicited(_ replyTiming: Timing, _ write: (inout ByteBuffer) -> Void) -> Bool {
    add(replyTiming, replyCount: 0, nil, write)
  }

  @inline(__always)
  private func add(
    _ replyTiming: Timing,
    replyCount: Int,
    _ refusable: FrameHeader?,
    _ write: (inout ByteBuffer) -> Void
  ) -> Bool {
    switch replyTiming {
    case .now: now.add(replyCount, refusable, write)
    case .afterCurrentCommit: inFlight.add(replyCount, refusable, write)
    case .afterNextCommit: next.add(replyCount, refusable, write)
    }
  }

  /// Bytes that are buffered, or were delivered and are not written to the socket yet.
  var unwrittenBytes: Int {
    backlog.unwrittenBytes + now.bytes.readableBytes + inFlight.bytes.readableBytes + next.bytes.readableBytes
  }

  /// Move the replies of the next commit to those in flight.
  func moveNextToInFlight() { swap(&inFlight, &next) }

  /// End the connection with an error frame. The lane accepts no later request: no command may be skipped.
  package func fail(_ error: WireError) {
    guard !isClosed else { return }
    isClosed = true
    end(error)
  }

  func deliverInFlight() { deliverIfOpen(take(&inFlight)) }
  func deliverNow() { deliverIfOpen(take(&now)) }

  /// Let the replies of the commit that has ended leave with those that may leave now.
  func moveInFlightToNow() {
    let start = now.bytes.readableBytes
    for reply in inFlight.refusable {
      now.refusable.append(
        PendingReplies.Refusable(
          header: reply.header,
          bytes: start + reply.bytes.lowerBound..<start + reply.bytes.upperBound
        )
      )
    }
    inFlight.refusable.removeAll(keepingCapacity: true)
    now.bytes.writeBuffer(&inFlight.bytes)
    inFlight.bytes.clear()
    now.count += inFlight.count
    inFlight.count = 0
  }

  /// Whether replies wait that may leave now.
  var hasNow: Bool { now.bytes.readableBytes > 0 }

  /// Take the replies that may leave now and say what the shard's state is, each as a refusal instead. Other frames
  /// keep waiting: events, and replies of commands that were applied.
  func takeRefusals() -> PendingReplies {
    var refusals = PendingReplies()
    var waiting = ByteBuffer()
    let buffered = now.bytes
    let frames = buffered.readableBytesSpan
    var end = 0
    for reply in now.refusable {
      waiting.writeRaw(frames.extracting(end..<reply.bytes.lowerBound))
      end = reply.bytes.upperBound
      refusals.count += 1
      refusals.bytes.writeError(
        .unavailable,
        shard: reply.header.shard,
        correlation: reply.header.correlation,
        retryAfterMilliseconds: 1_000,
        detail: "this node does not know whether it is still the owner of the shard"
      )
    }
    waiting.writeRaw(frames.extracting(end..<frames.byteCount))
    now.bytes = waiting
    now.count -= refusals.count
    now.refusable.removeAll(keepingCapacity: true)
    return refusals
  }

  /// Take the frames before any callback: a failed write re-enters this lane (``StoreLoop/endTurn()``).
  private func take(_ pending: inout PendingReplies) -> PendingReplies {
    guard pending.bytes.readableBytes > 0 else { return PendingReplies() }
    var taken = PendingReplies(bytes: spare)
    spare = ByteBuffer()
    swap(&taken.bytes, &pending.bytes)
    swap(&taken.count, &pending.count)
    if !pending.refusable.isEmpty { pending.refusable.removeAll(keepingCapacity: true) }
    return taken
  }

  /// Deliver frames that were taken; drop them if the connection is gone.
  func deliverIfOpen(_ replies: consuming PendingReplies) {
    guard replies.bytes.readableBytes > 0, !isClosed else { return }
    let byteCount = replies.bytes.readableBytes
    backlog.addUnwritten(byteCount)
    deliver(replies.bytes, replies.count)
    if replies.bytes.capacity <= Self.reusedBytesMax {
      // The same memory, if the receiver has written the frames and keeps none of them.
      replies.bytes.clear()
      spare = replies.bytes
    } else {
      // The next batch is likely to have the same size.
      spare = allocator.buffer(capacity: min(byteCount, 64 << 10))
    }
  }
}

/// Encoded frames of a lane that leave together, and the number of replies among them.
struct PendingReplies {
  /// A reply whose request may be refused instead.
  struct Refusable {
    /// The request's header.
    var header: FrameHeader
    /// Place of the reply's frame in ``PendingReplies/bytes``.
    var bytes: Range<Int>
  }

  var bytes = ByteBuffer()
  var count = 0
  /// In the order of their frames.
  var refusable: [Refusable] = []

  /// Add a frame. Returns whether it is the first.
  @inline(__always)
  mutating func add(_ replyCount: Int, _ header: FrameHeader?, _ write: (inout ByteBuffer) -> Void) -> Bool {
    count += replyCount
    let start = bytes.readableBytes
    write(&bytes)
    if let header { refusable.append(Refusable(header: header, bytes: start..<bytes.readableBytes)) }
    return start == 0
  }
}

/// Counters that the lanes of one connection share across loops.
package final class ConnectionBacklog: Sendable {
  private let bytes = Atomic<Int>(0)
  private let subscriptionCount = Atomic<Int>(0)

  package init() {}

  /// Bytes that were delivered and are not written to the socket yet.
  package var unwrittenBytes: Int { bytes.load(ordering: .relaxed) }

  /// Add delivered bytes.
  func addUnwritten(_ count: Int) { bytes.add(count, ordering: .relaxed) }

  /// Subtract delivered bytes that were written to the socket, or never will be.
  package func wrote(_ count: Int) { bytes.subtract(count, ordering: .relaxed) }

  /// Channels and users that the connection has subscribed to.
  package var subscriptions: Int { subscriptionCount.load(ordering: .relaxed) }

  /// Change the number of subscriptions by `difference`.
  func changeSubscriptions(_ difference: Int) { subscriptionCount.add(difference, ordering: .relaxed) }
}
