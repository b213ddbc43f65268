package import NIOCore
package import ReceiptModel
package import ReceiptWire
import Synchronization

/// What the lanes of one connection share, whichever loops they are on.
package final class ConnectionAccount: Sendable {
  private let bytes = Atomic<Int>(0)
  private let subscriptionCount = Atomic<Int>(0)

  package init() {}

  /// Bytes that were handed over and are not in the socket yet.
  package var unwrittenBytes: Int { bytes.load(ordering: .relaxed) }

  /// So many bytes more are handed over.
  func hands(_ count: Int) { bytes.add(count, ordering: .relaxed) }

  /// So many bytes of what was handed over are in the socket, or will never be.
  package func wrote(_ count: Int) { bytes.subtract(count, ordering: .relaxed) }

  /// Channels and users that it has subscribed to.
  package var subscriptions: Int { subscriptionCount.load(ordering: .relaxed) }

  /// It has subscribed to so many more, or less.
  func subscribes(_ difference: Int) { subscriptionCount.add(difference, ordering: .relaxed) }
}

/// Where the replies to one connection gather on one store loop. A reply leaves only when everything it tells of is
/// durable: at once, with the append in flight, or with the one that gathers behind it (DESIGN.md section 3, "Write
/// path").
package final class ReplyLane {
  /// When a reply may leave, the soonest first.
  enum Departure: Comparable {
    case now
    case withInFlight
    case withGathering
  }

  package let session: SessionID
  /// Rises with every connection that opens: of a session's lanes only the one with the highest is taken requests from.
  let serial: UInt64
  /// Set when the connection is gone, or its session has a newer one: no more requests are taken, and what is still
  /// answered is dropped.
  package var isClosed = false
  /// Where the session stands in each shard's table, by the shard's position in the loop; −1: not looked up yet.
  var sessionPositions: [Int32]
  /// Its number among those who have subscribed to something in each shard, likewise; −1: it has not.
  var watcherNumbers: [Int32]
  /// Whoever takes what is delivered says when it is written (``ConnectionAccount/wrote(_:)``).
  package let account: ConnectionAccount
  /// A request that had waited does not parse: the connection has to end.
  private let end: (WireError) -> Void
  /// Hands over encoded frames and how many of them are replies. Called on the loop, at most once per turn and commit.
  private let deliver: (ByteBuffer, Int) -> Void
  private let allocator = ByteBufferAllocator()

  private var now: ByteBuffer
  private var inFlight: ByteBuffer
  private var gathering: ByteBuffer
  private var nowCount = 0
  private var inFlightCount = 0
  private var gatheringCount = 0

  /// - Parameters:
  ///   - serial: see ``serial``.
  ///   - shards: how many shards the loop has.
  ///   - account: of the connection.
  package init(
    session: SessionID,
    serial: UInt64 = 0,
    shards: Int,
    account: ConnectionAccount = ConnectionAccount(),
    deliver: @escaping (ByteBuffer, Int) -> Void,
    end: @escaping (WireError) -> Void
  ) {
    self.session = session
    self.serial = serial
    self.end = end
    self.account = account
    self.sessionPositions = Array(repeating: -1, count: shards)
    self.watcherNumbers = Array(repeating: -1, count: shards)
    self.deliver = deliver
    now = ByteBuffer()
    inFlight = ByteBuffer()
    gathering = ByteBuffer()
  }

  /// Adds a reply; returns whether it is the first of its departure, so that the loop notes the lane.
  @inline(__always)
  func add(_ departure: Departure, _ write: (inout ByteBuffer) -> Void) -> Bool {
    switch departure {
    case .now:
      nowCount += 1
      return Self.add(write, to: &now)
    case .withInFlight:
      inFlightCount += 1
      return Self.add(write, to: &inFlight)
    case .withGathering:
      gatheringCount += 1
      return Self.add(write, to: &gathering)
    }
  }

  /// Adds a frame that answers nothing; returns as ``add(_:_:)`` does.
  func addUnasked(_ departure: Departure, _ write: (inout ByteBuffer) -> Void) -> Bool {
    switch departure {
    case .now: Self.add(write, to: &now)
    case .withInFlight: Self.add(write, to: &inFlight)
    case .withGathering: Self.add(write, to: &gathering)
    }
  }

  @inline(__always)
  private static func add(_ write: (inout ByteBuffer) -> Void, to buffer: inout ByteBuffer) -> Bool {
    let isFirst = buffer.readableBytes == 0
    write(&buffer)
    return isFirst
  }

  /// Bytes that wait to be handed over, or were and are not in the socket yet.
  var unwrittenBytes: Int {
    account.unwrittenBytes + now.readableBytes + inFlight.readableBytes
      + gathering.readableBytes
  }

  /// The batch that was gathering is in flight now.
  func gatheringLeaves() {
    swap(&inFlight, &gathering)
    swap(&inFlightCount, &gatheringCount)
  }

  /// Ends the connection with an error frame. Nothing that it sent later is taken: a command may not be passed over.
  package func fail(_ error: WireError) {
    guard !isClosed else { return }
    isClosed = true
    end(error)
  }

  func deliverInFlight() { hand(take(&inFlight, &inFlightCount)) }
  func deliverNow() { hand(take(&now, &nowCount)) }

  /// Empties a buffer before anybody is called: a write that fails comes back to this lane (``StoreLoop/endTurn()``).
  private func take(_ buffer: inout ByteBuffer, _ count: inout Int) -> (bytes: ByteBuffer, count: Int) {
    guard buffer.readableBytes > 0 else { return (ByteBuffer(), 0) }
    let full = (buffer, count)
    // The next batch is likely to be of the same size.
    buffer = allocator.buffer(capacity: min(buffer.readableBytes, 64 << 10))
    count = 0
    return full
  }

  private func hand(_ replies: (bytes: ByteBuffer, count: Int)) {
    guard replies.bytes.readableBytes > 0, !isClosed else { return }
    account.hands(replies.bytes.readableBytes)
    deliver(replies.bytes, replies.count)
  }
}
