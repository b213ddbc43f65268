internal import HTTP2Session
internal import NIOCore
internal import ReceiptModel

/// A request that takes several to the store: its entries' results come in any order and are answered
/// together.
final class Gather {
  /// What came of one entry.
  struct Result {
    /// Nil: it was done.
    var code: ProblemCode?
    var sequence: UInt32 = 0
    var status = MessageStatus.sent
    var receiptRefusal = ReceiptRefusal.none
    /// A channel did not exist before.
    var isCreated = false
    /// A position that counts nowhere.
    var uncounted: ShardState.Uncounted?
    /// Where its part of ``places`` is.
    var placeStart = 0
    var placeCount = 0
  }

  /// How far the PUT of a ``SharedValue`` has come; whatever else is gathered stays in the first.
  enum Stage {
    /// Becomes `assigning` when the home shard has made the change.
    case gathering
    /// The other shards are told. When all of them have it, becomes `announcing`, or `settling` where nobody sees a
    /// difference.
    case assigning(SharedValue)
    /// Whoever watches the user's channels is told how their rows are seen now (R7). Becomes `settling`.
    case announcing(SharedValue)
    /// The home shard is told that all have it.
    case settling(SharedValue)
  }

  let connection: UInt32
  let stream: HTTP2StreamHandle
  let route: Route
  let isServer: Bool
  /// In the order of the request.
  var results: [Result] = []
  /// Entries without a result, and one for the sending itself: replies that come while it goes on do not end
  /// it.
  var waiting = 1
  /// Channel types found, the newest version of each.
  var records: [String: ChannelTypeRecord] = [:]
  var stage = Stage.gathering
  /// The request changes what a user hides, so others see them otherwise now.
  var changesPrivacy = false
  /// Of one user of many: the gather of all, and the entry's place in it.
  var parent: (gather: UInt32, entry: Int)?
  /// What tickets are made of, or channels' rows as JSON, one after the other as they came.
  var places = ByteBuffer()
  /// Why the whole request failed.
  var problem: Problem?

  init(connection: UInt32, stream: HTTP2StreamHandle, route: Route, isServer: Bool) {
    self.connection = connection
    self.stream = stream
    self.route = route
    self.isServer = isServer
  }

  /// Keeps the newer of a record and what was there.
  func note(_ record: ChannelTypeRecord) {
    if let known = records[record.name], known.version >= record.version { return }
    records[record.name] = record
  }
}
