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
  enum Response {
    /// Each on its own.
    case results(status: Int, _ write: (FanOut, inout ByteBuffer) -> Void)
    /// The channel types found; or the problem of any part.
    case channelTypes
  }

  let connection: ConnectionIndex
  let stream: HTTP2StreamHandle
  let route: Route
  let response: Response
  /// The names that the response repeats from the request, in its order.
  var names = BatchEntryNames()
  /// In the order of the request.
  var results: [Result]
  /// Entries without a result, plus one for the sending itself: early replies must not complete the fan-out while
  /// requests are still being sent.
  var waiting: Int
  /// The newest version of each channel type found.
  private(set) var records: [String: ChannelTypeRecord] = [:]
  /// Reply bytes of tickets' places, or channels' rows as JSON, in order of arrival.
  var parts = ByteBuffer()
  /// The problem of the whole request; nil: none.
  var problem: Problem?

  init(_ context: RequestContext, _ route: Route, count: Int, _ response: Response) {
    connection = context.connection
    stream = context.stream
    self.route = route
    self.response = response
    results = Array(repeating: Result(), count: count)
    waiting = count + 1
  }

  /// Write `{"name": [entry…]}`, in the order of the request.
  func writeResults(
    _ name: StaticString,
    into buffer: inout ByteBuffer,
    _ writeEntry: (_ index: Int, Result, inout ByteBuffer) -> Void
  ) {
    buffer.writeStaticString("{\"")
    buffer.writeStaticString(name)
    buffer.writeStaticString("\":[")
    for (index, result) in results.enumerated() {
      if index > 0 { buffer.writeStaticString(",") }
      writeEntry(index, result, &buffer)
    }
    buffer.writeStaticString("]}")
  }

  /// Store a record unless a newer version is known.
  func add(_ record: ChannelTypeRecord) {
    if let known = records[record.name], known.version >= record.version { return }
    records[record.name] = record
  }
}
