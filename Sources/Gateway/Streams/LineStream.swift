internal import HTTP2Session
internal import NIOCore

/// A response of lines that the gateway writes as the store answers. Lines that HTTP/2 does not take are held.
class LineStream: OpenStream {
  /// Bytes queued in HTTP/2 for a stream; further lines are held, and nothing is read until they are taken.
  private static let queueBytesMax = 512 << 10

  /// Lines that HTTP/2 has not accepted yet.
  private final var held = ByteBuffer()

  /// Whether lines are held. The connection tells when it takes more (``writeHeld(to:)``).
  final override var waitsForClient: Bool { held.readableBytes > 0 }

  /// Write lines, or hold them.
  func write(_ lines: ByteBuffer, to connections: ConnectionTable) {
    var lines = lines
    guard let http2 = connections.connection(connection) else { return }
    if waitsForClient {
      held.writeBuffer(&lines)
      _ = http2.setRetainedBytes(handle, held.readableBytes)
      return
    }
    let byteCount = lines.readableBytes
    if http2.write(handle, lines, queueBytesMax: Self.queueBytesMax) == .full {
      held = lines
    } else {
      bytesWritten &+= UInt64(byteCount)
    }
    _ = http2.setRetainedBytes(handle, held.readableBytes)
    connections.markDirty(connection)
  }

  /// Write the held lines once the connection takes more.
  final func writeHeld(to connections: ConnectionTable) {
    guard waitsForClient else { return }
    let lines = held
    held = ByteBuffer()
    write(lines, to: connections)
  }

  /// End the response. The held lines go out before, however many there are.
  final func finish(on connections: ConnectionTable) {
    guard let http2 = connections.connection(connection) else { return }
    if waitsForClient { http2.write(handle, held, queueBytesMax: .max) }
    http2.finish(handle)
    connections.markDirty(connection)
  }
}

/// The open streams of one kind.
struct LineStreamTable<Stream: LineStream> {
  private var streams = SlotTable<Stream>()
  /// Indexes by the handle of the HTTP/2 stream.
  private var slots: [UInt64: SlotIndex] = [:]

  var count: Int { streams.count }
  var all: [OpenStream] { indexes.compactMap { streams[$0] } }
  var indexes: [SlotIndex] { Array(slots.values) }

  subscript(index: SlotIndex) -> Stream? { streams[index] }

  /// Return the stream of an HTTP/2 stream and its index; nil: it is of another kind, or has ended.
  func find(_ handle: HTTP2StreamHandle) -> (stream: Stream, index: SlotIndex)? {
    guard !slots.isEmpty, let index = slots[handle.rawValue], let stream = streams[index] else { return nil }
    return (stream, index)
  }

  mutating func insert(_ stream: Stream) -> SlotIndex {
    let index = streams.insert(stream)
    slots[stream.handle.rawValue] = index
    return index
  }

  mutating func remove(_ index: SlotIndex) {
    guard let stream = streams[index] else { return }
    streams.remove(index)
    slots[stream.handle.rawValue] = nil
  }
}
