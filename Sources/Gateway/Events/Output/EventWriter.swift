internal import HTTP2Session
internal import NIOCore
internal import Operations
internal import ReceiptModel
internal import ReceiptWire

/// Encoder of events, which writes them into streams. An event for many streams is encoded once.
final class EventWriter {
  /// The store that event ids name.
  private var store: SessionID?
  // Encoded forms of the event being delivered: `blocks` without their end, `finishedBlocks` complete, without or with
  // the id.
  private var blocks: [ByteBuffer?] = Array(repeating: nil, count: EventForm.allCases.count)
  private var finishedBlocks: [[ByteBuffer?]] = Array(
    repeating: Array(repeating: nil, count: EventForm.allCases.count),
    count: 2
  )
  // Counters since the start.
  private var written: UInt64 = 0
  private var conflated: UInt64 = 0
  private(set) var resets: UInt64 = 0
  /// The longest queue of any stream so far.
  private var queueCountMax = 0

  /// Set the store that ids name. False: it is another store than before.
  func connected(to store: SessionID?) -> Bool {
    defer { self.store = store }
    return self.store == nil || self.store == store
  }

  /// Drop the encoded forms before the next event is delivered.
  func clearForms() {
    for index in blocks.indices where blocks[index] != nil {
      blocks[index] = nil
      finishedBlocks[0][index] = nil
      finishedBlocks[1][index] = nil
    }
  }

  /// Write one form of the event being delivered.
  ///
  /// - Parameter id: the stream's id after the event; nil: it has none.
  func write(
    _ form: EventForm,
    of event: EventFields,
    cid: String,
    to stream: EventStream,
    id: Timestamp?,
    on loop: GatewayLoop
  ) {
    let index = Int(form.rawValue)
    if blocks[index] == nil { blocks[index] = EventJSON.block(form, of: event, cid: cid) }
    guard let block = blocks[index] else { return }
    if stream.queue.isEmpty {
      let which = id == nil ? 0 : 1
      if finishedBlocks[which][index] == nil { finishedBlocks[which][index] = finished(block, id: id) }
      if let bytes = finishedBlocks[which][index], tryWrite(bytes, stream, loop) { return }
    }
    enqueue(block, to: stream, key: StreamQueue.Key(form, of: event, cid: cid), id: id, on: loop)
  }

  /// Write an event for one stream only.
  func write(
    _ block: ByteBuffer,
    to stream: EventStream,
    id: Timestamp?,
    on loop: GatewayLoop,
    key: () -> StreamQueue.Key
  ) {
    if stream.queue.isEmpty, tryWrite(finished(block, id: id), stream, loop) { return }
    enqueue(block, to: stream, key: key(), id: id, on: loop)
  }

  /// Tell a client to query its state again.
  func writeReset(to stream: EventStream, id: Timestamp?, on loop: GatewayLoop) {
    resets &+= 1
    guard stream.hasBegun else { return }
    let block = EventJSON.reset(at: Timestamp(milliseconds: loop.now))
    write(block, to: stream, id: id, on: loop) { StreamQueue.Key(.reset) }
  }

  /// Write a heartbeat: a comment, and the id up to which the stream is complete. Queued events go out before any
  /// newer id.
  func writeHeartbeat(to stream: EventStream, id: Timestamp?, on loop: GatewayLoop) {
    guard stream.queue.isEmpty, let connection = loop.connections.connection(stream.connection) else {
      return
    }
    // A client that is not reading needs no more heartbeats.
    guard connection.queuedBytes(stream.handle) ?? 0 < loop.limits.eventStreamBytes / 2 else { return }
    let bytes = finished(ByteBuffer(staticString: ":\n"), id: id)
    if connection.write(stream.handle, bytes, queueBytesMax: loop.limits.eventStreamBytes) == .queued {
      stream.bytesWritten &+= UInt64(bytes.readableBytes)
    }
    loop.connections.markDirty(stream.connection)
    loop.endTurnSoon()
  }

  /// Write queued events after the stream has become writable again.
  func writeQueued(of stream: EventStream, on loop: GatewayLoop) {
    defer { _ = updateHeldBytes(stream, loop) }
    while let entry = stream.queue.pop() {
      guard tryWrite(finished(entry.bytes, id: entry.id), stream, loop) else {
        return stream.queue.requeueFront(entry)
      }
    }
  }

  /// Return a block with its id and the terminating empty line.
  private func finished(_ block: ByteBuffer, id: Timestamp?) -> ByteBuffer {
    var bytes = block
    if let id, let store {
      bytes.writeStaticString("id: ")
      EventCursor(store: store, time: id).write(into: &bytes)
      bytes.writeStaticString("\n")
    }
    bytes.writeStaticString("\n")
    return bytes
  }

  /// Write bytes to a stream. False: HTTP/2's queue for it is full.
  private func tryWrite(_ bytes: ByteBuffer, _ stream: EventStream, _ loop: GatewayLoop) -> Bool {
    guard let connection = loop.connections.connection(stream.connection) else { return true }
    switch connection.write(stream.handle, bytes, queueBytesMax: loop.limits.eventStreamBytes) {
    case .queued:
      loop.connections.markDirty(stream.connection)
      loop.endTurnSoon()
      written &+= 1
      stream.bytesWritten &+= UInt64(bytes.readableBytes)
      return true
    case .full: return false
    // The stream is closed; the notification is on its way.
    case .gone: return true
    }
  }

  private func enqueue(
    _ block: ByteBuffer,
    to stream: EventStream,
    key: StreamQueue.Key,
    id: Timestamp?,
    on loop: GatewayLoop
  ) {
    let wasReset = stream.queue.isReset
    let entry = StreamQueue.Entry(key: key, bytes: block, id: id)
    switch stream.queue.put(entry, reset: { EventJSON.reset(at: Timestamp(milliseconds: loop.now)) }) {
    case .kept: break
    case .conflated: conflated &+= 1
    case .overflowed: if !wasReset { resets &+= 1 }
    }
    if !updateHeldBytes(stream, loop) {
      // The queue exceeds the memory limit of its connection, user or gateway.
      stream.queue.overflow(EventJSON.reset(at: Timestamp(milliseconds: loop.now)), id: id)
      if !wasReset { resets &+= 1 }
      _ = updateHeldBytes(stream, loop)
    }
    queueCountMax = max(queueCountMax, stream.queue.count)
  }

  /// Count the bytes of a stream's queue against the memory of its connection and user.
  ///
  /// - Returns: whether the memory limits allow it.
  private func updateHeldBytes(_ stream: EventStream, _ loop: GatewayLoop) -> Bool {
    let connection = loop.connections.connection(stream.connection)
    return connection?.setRetainedBytes(stream.handle, stream.queue.byteCount) ?? true
  }

  func collect(into samples: inout MetricSamples) {
    samples.highest(
      "tidemark_gateway_event_queue_entries_max",
      help: "The longest queue of one event stream since the start, in events.",
      Double(queueCountMax)
    )
    let counters: [(String, String, UInt64)] = [
      ("events_written", "Events written into streams.", written),
      ("events_conflated", "Events that a later one replaced before they were written.", conflated),
      ("event_resets", "Event streams reset: their clients must query their state again.", resets),
    ]
    for (name, help, value) in counters {
      samples.counter("tidemark_gateway_\(name)_total", help: help, Int64(clamping: value))
    }
  }
}

extension StreamQueue.Key {
  init(_ form: EventForm, of event: EventFields, cid: String) {
    switch event {
    case .row(let row):
      let kind: Kind =
        switch form {
        case .read: .read
        case .delivered: .delivered
        case .markRead: .markRead
        case .markUnread: .markUnread
        default: .row
        }
      self.init(kind, cid: cid, thread: row.thread, subject: row.ownRow.user)
    case .messageNew(let message): self.init(.messageNew, cid: cid, thread: message.thread, subject: message.message)
    case .messageDeleted(let thread, _, let message, _):
      self.init(.messageDeleted, cid: cid, thread: thread, subject: message)
    case .truncated: self.init(.truncated, cid: cid)
    case .channelUpdated: self.init(.updated, cid: cid)
    case .channelDeleted: self.init(.channelDeleted, cid: cid)
    case .memberAdded(let member): self.init(.member, cid: cid, subject: member.user)
    case .memberRemoved(let user, _, _): self.init(.member, cid: cid, subject: user)
    case .status(let run):
      let messages = "\(run.sender) \(run.from.rawValue) \(run.to.rawValue)"
      self.init(.status, cid: cid, thread: run.thread, subject: messages)
    case .receipt(let receipt): self.init(.receipt, cid: cid, subject: "\(receipt.message)\0\(receipt.user)")
    }
  }
}
