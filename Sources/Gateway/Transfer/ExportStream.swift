internal import DequeModule
internal import ReceiptModel
internal import StoreClient

/// A store request of an ``ExportStream``.
enum ExportStoreRequest {
  case types
  case users
  case channels
  /// The next part of the channel in this place of ``ExportStream/places``.
  case part(place: UInt8)
}

/// One export: what it has still to ask of the store.
///
/// Channel types come first, then users, then the channels of each shard, several at a time. Without a user it tells
/// everything; with one, what belongs to that user.
final class ExportStream: LineStream {
  enum Stage {
    case types
    case users
    /// The channels of this shard, or of the user.
    case channels(shard: Int)
    case ended
  }

  /// A channel that is being read.
  struct Place {
    var cid: String
    var snapshot: UInt64 = 0
    var part: UInt64 = 0
    /// The part is to be asked for at the next tick, since the store has failed.
    var waits = false
    /// Attempts at the part that have failed.
    var failures = 0
  }

  /// Channels that are read at a time.
  static let placesMax = 8

  /// Empty: everything.
  let user: String
  /// Empty: every channel type.
  let channelType: String
  var stage = Stage.types
  /// Where the next page of users or channels begins; nil: there is none.
  var next: UInt64? = 0
  var isListing = false
  var cids: Deque<String> = []
  var places = [Place?](repeating: nil, count: ExportStream.placesMax)
  /// Attempts at lists that the store did not carry out, since the last request that it did.
  var failures = 0

  init(_ context: RequestContext, user: String, channelType: String) {
    self.user = user
    self.channelType = channelType
    super.init(context)
  }

  /// Whether a channel is of the wanted type.
  func wants(_ cid: String) -> Bool {
    channelType.isEmpty || Identifier.parts(cid: cid).type == Substring(channelType)
  }
}
