internal import HTTP2Session

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
