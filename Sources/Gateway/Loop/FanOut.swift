internal import HTTP2Session
internal import NIOCore
internal import ReceiptModel

/// A request that fans out to several store requests. Its results arrive in any order and are answered together.
final class FanOut {
  /// Result of one entry.
  struct Result {
    /// Nil: it succeeded.
    var code: ProblemCode?
    var sequence: UInt32 = 0
    var status = MessageStatus.sent
    var receiptRefusal = ReceiptRefusal.none
    /// Whether the channel was created.
    var isCreated = false
    /// Why a position does not count; nil: it does.
    var uncounted: ShardState.Uncounted?
    /// The range of its part of ``parts``.
    var partStart = 0
    var partCount = 0
  }

  /// How the results are answered.
  enum Answer {
    /// Each on its own.
    case results(status: Int, _ write: (FanOut, inout ByteBuffer) -> Void)
    /// The value that a PUT has made; or the problem of any part.
    case value
    /// The channel types found; or the problem of any part.
    case channelTypes
    /// One user of a batch: the entry of the batch's fan-out.
    case entry(of: SlotIndex, at: Int)
  }

  /// Progress of the PUT of a ``SharedValue``; other fan-outs stay in `collecting`.
  enum Stage {
    /// The home shard is making the change. Becomes `assigning`.
    case collecting
    /// The value is being assigned to the other shards. Becomes `announcing`, or `confirming` where no other user sees
    /// a difference.
    case assigning(SharedValue)
    /// Watchers of the user's channels are being told how others see the user's rows now (R7). Becomes `confirming`.
    case announcing(SharedValue)
    /// The home shard is being told that all shards have the value.
    case confirming(SharedValue)
  }

  let connection: UInt32
  let stream: HTTP2StreamHandle
  let route: Route
  let isServer: Bool
  let answer: Answer
  /// The names that the answer repeats from the request, in its order.
  var names = BatchEntryNames()
  /// In the order of the request.
  var results: [Result]
  /// Entries without a result, plus one for the sending itself: early replies must not complete the fan-out while
  /// requests are still being sent.
  var waiting: Int
  /// The newest version of each channel type found.
  private(set) var records: [String: ChannelTypeRecord] = [:]
  var stage = Stage.collecting
  /// Whether the request changes what a user hides, so that others see the user's rows differently.
  var changesPrivacy = false
  /// Reply bytes of tickets' places, or channels' rows as JSON, in order of arrival.
  var parts = ByteBuffer()
  /// The problem of the whole request; nil: none.
  var problem: Problem?

  init(_ context: RequestContext, _ route: Route, count: Int, _ answer: Answer) {
    connection = context.connection
    stream = context.stream
    isServer = context.caller.isServer
    self.route = route
    self.answer = answer
    results = Array(repeating: Result(), count: count)
    waiting = count + 1
  }

  /// Store a record unless a newer version is known.
  func keep(_ record: ChannelTypeRecord) {
    if let known = records[record.name], known.version >= record.version { return }
    records[record.name] = record
  }
}
