internal import HTTP2Session
internal import NIOCore
internal import ReceiptModel

/// A client's event stream: its HTTP/2 stream, and the events queued for it.
final class EventStream {
  let ref: EventHub.Ref
  /// The connection's index in the ``ConnectionTable``.
  let connection: ConnectionIndex
  let handle: HTTP2StreamHandle
  /// The caller; the stream ends when its token does.
  let caller: Caller
  /// The user whose `notification.totals` the stream gets; nil: none.
  let totalsOf: String?
  /// Whether 200 was answered.
  var hasBegun = false
  /// Bytes passed to HTTP/2.
  var bytesWritten: UInt64 = 0
  private var progress = ClientProgress()
  /// Events that HTTP/2 has not accepted yet.
  var queue = StreamQueue()

  init(
    _ ref: EventHub.Ref,
    connection: ConnectionIndex,
    handle: HTTP2StreamHandle,
    caller: Caller,
    totalsOf: String?
  ) {
    self.ref = ref
    self.connection = connection
    self.handle = handle
    self.caller = caller
    self.totalsOf = totalsOf
  }

  /// Check once a tick whether the client reads. Returns true if it has not for that many ticks, while something
  /// waited for it.
  ///
  /// - Parameter queued: bytes that HTTP/2 has queued.
  func stalls(queued: Int, ticksMax: Int) -> Bool {
    let isWaiting = queued > 0 || !queue.isEmpty
    return progress.ticksStalled(moved: bytesWritten &- UInt64(queued), clientMustAct: isWaiting) > ticksMax
  }
}

/// The open event streams of one loop, by their index in the ``EventHub``.
struct EventStreamTable {
  private var streams: [EventStream?] = []
  /// Indexes by the handle of the HTTP/2 stream.
  private var slots: [UInt64: UInt32] = [:]

  /// Open streams.
  var count: Int { slots.count }

  /// All streams, in the order of their indexes.
  var all: [EventStream] { streams.compactMap { $0 } }

  subscript(ref: EventHub.Ref) -> EventStream? {
    guard Int(ref.slot) < streams.count, let stream = streams[Int(ref.slot)], stream.ref == ref else {
      return nil
    }
    return stream
  }

  func stream(of handle: HTTP2StreamHandle) -> EventStream? {
    slots.isEmpty ? nil : slots[handle.rawValue].flatMap { streams[Int($0)] }
  }

  mutating func insert(_ stream: EventStream) {
    while streams.count <= Int(stream.ref.slot) { streams.append(nil) }
    streams[Int(stream.ref.slot)] = stream
    slots[stream.handle.rawValue] = stream.ref.slot
  }

  mutating func remove(_ stream: EventStream) {
    streams[Int(stream.ref.slot)] = nil
    slots[stream.handle.rawValue] = nil
  }
}
