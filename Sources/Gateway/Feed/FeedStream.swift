internal import HTTP2Session
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// A store request of a ``FeedStream``, about one of its shards.
struct FeedStoreRequest {
  enum Kind: UInt8 {
    case open
    case read
  }

  var kind: Kind
  /// Index of the shard in the stream's partition.
  var shard: UInt16
  /// The attempt at opening, or zero: the answer to an earlier attempt is ignored.
  var attempt: UInt8 = 0
}

/// A stream of one partition of the feed, to one consumer.
final class FeedStream: LineStream {
  /// What the stream does for its caller.
  enum Purpose {
    /// Hold the partition's lease, and read without end.
    case consumer
    /// Read a range without a lease, up to these positions.
    case range(to: FeedCursor)
  }

  let consumer: String
  let purpose: Purpose
  let shards: [ShardID]
  /// How far the stream has come.
  var cursor: FeedCursor
  /// The earliest time of what a shard had committed: where a gap of records that are no longer kept may begin.
  var committedSince = Timestamp.none
  /// The stream's epoch; 0: it has no lease.
  var epoch: UInt64 = 0
  /// Whether 200 was answered.
  var hasBegun = false
  /// What was stored with the partition.
  var state: [UInt8] = []

  // Opening
  var attempt: UInt8 = 0
  var unopened = 0
  /// The highest epoch of an earlier stream that a shard knows.
  var highestEpoch: UInt64 = 0
  var problem: Problem?

  // Reading
  /// Shards with a read in flight, and those whose last read has failed and waits for a tick.
  var isReading: [Bool]
  /// When lines were last written.
  private(set) var writtenAt: NIODeadline = .now()
  /// Everything up to this time is read, per shard.
  var through: [Timestamp]
  /// The shards that had no further record when they last answered.
  var hasReachedEnd: [Bool]

  init(_ context: RequestContext, consumer: String, _ purpose: Purpose, cursor: FeedCursor, shards: [ShardID]) {
    self.consumer = consumer
    self.purpose = purpose
    self.shards = shards
    self.cursor = cursor
    isReading = Array(repeating: false, count: shards.count)
    through = Array(repeating: .none, count: shards.count)
    hasReachedEnd = Array(repeating: false, count: shards.count)
    super.init(context)
  }

  override func write(_ lines: ByteBuffer, to connections: ConnectionTable) {
    writtenAt = .now()
    super.write(lines, to: connections)
  }

  /// The range's end; nil: the stream has none.
  var end: FeedCursor? { if case .range(let end) = purpose { end } else { nil } }

  /// Return whether a shard has more for the stream.
  func wantsMore(of shard: Int) -> Bool {
    guard let end else { return true }
    return cursor.positions[shard] < end.positions[shard]
  }

  /// Whether no record waits, as far as the shards have answered.
  var isAtEnd: Bool { !hasReachedEnd.contains(false) }

  /// Whether a range is read whole.
  var isComplete: Bool { end != nil && !shards.indices.contains { wantsMore(of: $0) } }
}
