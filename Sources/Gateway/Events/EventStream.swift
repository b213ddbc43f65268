internal import HTTP2Session
internal import NIOCore
internal import ReceiptModel

/// A client's event stream: its HTTP/2 stream, and the events queued for it.
final class EventStream {
  let ref: EventHub.Ref
  /// The connection's index in the ``ConnectionTable``.
  let connection: UInt32
  let handle: HTTP2StreamHandle
  /// The caller; the stream ends when its token does.
  let caller: Caller
  /// The user whose `notification.totals` the stream gets; nil: none.
  let totalsOf: String?
  /// Whether 200 was answered.
  var hasBegun = false
  /// Ticks since the client last took anything while events waited for it.
  private var stalledTicks = 0
  /// Events that HTTP/2 has not accepted yet.
  var queue = StreamQueue()

  init(
    _ ref: EventHub.Ref,
    connection: UInt32,
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

  /// Records that the client has taken queued events.
  func progressed() { stalledTicks = 0 }

  /// Checks once a tick for progress. Returns true if events have waited for the client for that many ticks.
  func stalls(ticksMax: Int) -> Bool {
    stalledTicks = queue.isEmpty ? 0 : stalledTicks + 1
    return stalledTicks > ticksMax
  }
}

/// The open event streams of one loop, by their index in the ``EventHub``.
struct EventStreamTable {
  private var streams: [EventStream?] = []
  /// Indexes by the handle of the HTTP/2 stream.
  private var places: [UInt64: UInt32] = [:]

  /// Open streams.
  var count: Int { places.count }

  /// All streams, in the order of their indexes.
  var all: [EventStream] { streams.compactMap { $0 } }

  subscript(ref: EventHub.Ref) -> EventStream? {
    guard Int(ref.slot) < streams.count, let stream = streams[Int(ref.slot)], stream.ref == ref else {
      return nil
    }
    return stream
  }

  func stream(of handle: HTTP2StreamHandle) -> EventStream? {
    places.isEmpty ? nil : places[handle.rawValue].flatMap { streams[Int($0)] }
  }

  mutating func insert(_ stream: EventStream) {
    while streams.count <= Int(stream.ref.slot) { streams.append(nil) }
    streams[Int(stream.ref.slot)] = stream
    places[stream.handle.rawValue] = stream.ref.slot
  }

  mutating func remove(_ stream: EventStream) {
    streams[Int(stream.ref.slot)] = nil
    places[stream.handle.rawValue] = nil
  }
}
