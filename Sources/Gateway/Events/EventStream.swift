internal import HTTP2Session
internal import ReceiptModel

/// A client's event stream: its HTTP/2 stream, and the events queued for it.
final class EventStream: OpenStream {
  let ref: EventHub.Ref
  /// The user whose `notification.totals` the stream gets; nil: none.
  let totalsOf: String?
  /// Whether 200 was answered.
  var hasBegun = false
  /// Events that HTTP/2 has not accepted yet.
  var queue = StreamQueue()

  init(_ ref: EventHub.Ref, _ context: RequestContext, totalsOf: String?) {
    self.ref = ref
    self.totalsOf = totalsOf
    super.init(context)
  }

  override var waitsForClient: Bool { !queue.isEmpty }
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

  /// Return the streams of every `parts`th index, from index `part` on.
  func streams(part: Int, of parts: Int) -> [EventStream] {
    stride(from: part, to: streams.count, by: parts).compactMap { streams[$0] }
  }

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
