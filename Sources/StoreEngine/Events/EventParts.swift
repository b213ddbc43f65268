internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// Events of channels and users, encoded once for all watchers, in parts that fit into a frame.
struct EventParts {
  /// Size at which a part is closed; one more event still fits.
  private static let partBytes = 48 << 10

  private(set) var bytes = ByteBuffer()
  private var events = ByteBuffer()

  var isEmpty: Bool { bytes.readableBytes == 0 }

  /// Capacity that is kept between uses.
  private static let keptBytes = 1 << 20

  mutating func clear() {
    if bytes.capacity > Self.keptBytes { bytes = ByteBuffer() } else { bytes.clear() }
  }

  /// Add *channel events*, in as many parts as they need.
  ///
  /// - Parameter deletedAt: time at which an incarnation of the channel was deleted, before the events; none if none
  ///   was.
  mutating func add(
    _ cid: [UInt8],
    deletedAt: Timestamp,
    _ newEvents: [ChannelEvent],
    _ slot: ChannelSlot?,
    in state: borrowing ShardState
  ) -> [Subscriptions.Part] {
    var parts: [Subscriptions.Part] = []
    var count = 0
    events.clear()
    if deletedAt != .none {
      events.writeDeletedEvent(at: deletedAt)
      count += 1
    }
    if let slot {
      for event in newEvents {
        let written = events.writeLimitedEvent(event, slot, in: state)
        if written == 0 { continue }
        count += written
        if events.readableBytes >= Self.partBytes {
          parts.append(close(cid, count))
          count = 0
        }
      }
    }
    if count > 0 { parts.append(close(cid, count)) }
    return parts
  }

  /// Add *user events*, in as many parts as they need.
  mutating func add(user: [UInt8], _ newEvents: [UserEvent]) -> [Subscriptions.Part] {
    var parts: [Subscriptions.Part] = []
    var count = 0
    events.clear()
    for event in newEvents {
      events.writeUserEvent(event)
      count += 1
      if events.readableBytes >= Self.partBytes {
        parts.append(close(user, count))
        count = 0
      }
    }
    if count > 0 { parts.append(close(user, count)) }
    return parts
  }

  private mutating func close(_ name: [UInt8], _ count: Int) -> Subscriptions.Part {
    let start = bytes.writerIndex
    bytes.writeField(name.span.bytes)
    bytes.writeVarint(count)
    bytes.writeBuffer(&events)
    events.clear()
    return Subscriptions.Part(bytes: start..<bytes.writerIndex, events: count)
  }

  /// Write parts in order.
  func write(_ parts: ArraySlice<Subscriptions.Part>, into buffer: inout ByteBuffer) {
    for part in parts {
      bytes.withUnsafeReadableBytes { all in
        _ = buffer.writeBytes(UnsafeRawBufferPointer(rebasing: all[part.bytes]))
      }
    }
  }
}
