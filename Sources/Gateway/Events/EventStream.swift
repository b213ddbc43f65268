internal import HTTP2Session
internal import NIOCore
internal import ReceiptModel

/// A client's stream of events: where it is written to, and what waits for it.
final class EventStream {
  let ref: EventHub.Ref
  /// The connection's place in the ``ConnectionTable``.
  let connection: UInt32
  let handle: HTTP2StreamHandle
  /// Whose token it ends with.
  let caller: Caller
  /// Whose `notification.totals` it asks for; nil: nobody's.
  let totalsOf: String?
  /// 200 was answered.
  var hasBegun = false
  /// What HTTP/2 has not taken.
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
}

/// The event streams of one loop, and what their rendering shares.
struct EventTable {
  var hub = EventHub()
  /// By their place in the hub.
  var streams: [EventStream?] = []
  /// Places by the handle of the HTTP/2 stream.
  var places: [UInt64: UInt32] = [:]
  var totals = TotalsQueue()
  /// Ticks so far.
  var ticks = 0
  /// No stream is begun any more.
  var isDraining = false
  /// The store that ids name.
  var store: SessionID?

  // What has been rendered of the event that is being told: by form, and with its id or without.
  var blocks: [ByteBuffer?] = Array(repeating: nil, count: EventForm.allCases.count)
  var ended: [[ByteBuffer?]] = Array(
    repeating: Array(repeating: nil, count: EventForm.allCases.count),
    count: 2
  )

  // Counted since the start.
  var eventsWritten: UInt64 = 0
  var eventsConflated: UInt64 = 0
  /// The most entries that have waited for one stream.
  var queueCountMax = 0
  var resets: UInt64 = 0
  var resumes: UInt64 = 0
  var opened: UInt64 = 0

  subscript(ref: EventHub.Ref) -> EventStream? {
    guard Int(ref.place) < streams.count, let stream = streams[Int(ref.place)], stream.ref == ref else {
      return nil
    }
    return stream
  }

  mutating func insert(_ stream: EventStream) {
    while streams.count <= Int(stream.ref.place) { streams.append(nil) }
    streams[Int(stream.ref.place)] = stream
    places[stream.handle.rawValue] = stream.ref.place
    if let user = stream.totalsOf { totals.add(stream.ref, of: user) }
  }

  mutating func remove(_ stream: EventStream) {
    streams[Int(stream.ref.place)] = nil
    places[stream.handle.rawValue] = nil
    if let user = stream.totalsOf { totals.remove(stream.ref, of: user) }
  }

  /// The next event is told.
  mutating func forgetBlocks() {
    for index in blocks.indices where blocks[index] != nil {
      blocks[index] = nil
      ended[0][index] = nil
      ended[1][index] = nil
    }
  }
}
