package import NIOCore
package import ReceiptModel
package import ReceiptWire

/// Where the replies to one connection gather on one store loop. A reply leaves only when everything it tells of is durable: at once, with the
/// append in flight, or with the one that gathers behind it (DESIGN.md section 3, "Write path").
package final class ReplyLane {
  /// When a reply may leave.
  enum Departure {
    case now
    case withInFlight
    case withGathering
  }

  package let session: SessionID
  /// Rises with every connection that opens: of a session's lanes only the one with the highest is taken requests from.
  let serial: UInt64
  /// Set when the connection is gone, or its session has a newer one: no more requests are taken, and what is still answered is dropped.
  package var isClosed = false
  /// Where the session stands in each shard's table, by the shard's position in the loop; −1: not looked up yet.
  var sessionPositions: [Int32]
  /// A request that had waited does not parse: the connection has to end.
  private let end: (WireError) -> Void
  /// Hands over encoded replies and how many they are. Called on the loop, at most once per turn and commit.
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
  package init(
    session: SessionID,
    serial: UInt64 = 0,
    shards: Int,
    deliver: @escaping (ByteBuffer, Int) -> Void,
    end: @escaping (WireError) -> Void
  ) {
    self.session = session
    self.serial = serial
    self.end = end
    self.sessionPositions = Array(repeating: -1, count: shards)
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
      write(&now)
      nowCount += 1
      return nowCount == 1
    case .withInFlight:
      write(&inFlight)
      inFlightCount += 1
      return inFlightCount == 1
    case .withGathering:
      write(&gathering)
      gatheringCount += 1
      return gatheringCount == 1
    }
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
    guard count > 0 else { return (ByteBuffer(), 0) }
    let full = (buffer, count)
    // The next batch is likely to be of the same size.
    buffer = allocator.buffer(capacity: min(buffer.readableBytes, 64 << 10))
    count = 0
    return full
  }

  private func hand(_ replies: (bytes: ByteBuffer, count: Int)) {
    if replies.count > 0, !isClosed { deliver(replies.bytes, replies.count) }
  }
}
