internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// Position of a request's bytes in its batch.
struct BatchedFrame {
  /// The bytes are released.
  static let none = BatchedFrame(batch: RequestBatches.none, offset: 0, length: 0)

  fileprivate(set) var batch: UInt32
  fileprivate var offset: UInt32
  fileprivate(set) var length: UInt32
}

/// Bytes of the unanswered requests. New requests are encoded at the end of the open batch. Closed batches are retained
/// for a resend until the last of their requests is done.
struct RequestBatches: ~Copyable {
  fileprivate static let none = UInt32.max

  private struct Batch {
    /// Empty while the batch is open.
    var buffer = ByteBuffer()
    /// Unanswered requests of the batch.
    var outstanding = 0
    /// Its share of `retainedBytes`; 0: the entry is free.
    var bytes = 0
  }

  private var batches: [Batch] = []
  private var free: [UInt32] = []
  private var open = ByteBuffer()
  /// Index of the open batch; `none` while it is empty.
  private var openBatch = RequestBatches.none
  /// Issue number of the open batch's first request.
  private(set) var openFirstIssue: UInt64 = 0
  /// Bytes of the closed batches.
  private(set) var retainedBytes = 0
  /// Expected size of the next batch.
  private var bytesHint = StoreClientLimits.batchBytesMin
  private var spares: [ByteBuffer] = []

  /// Whether the open batch has a request.
  var isOpen: Bool { openBatch != Self.none }

  /// Unanswered requests of the open batch, which has one.
  var openCount: Int { batches[Int(openBatch)].outstanding }

  /// Size of the open batch in bytes.
  var queuedBytes: Int { isOpen ? open.writerIndex : 0 }

  /// Whether the retained bytes have room for one more request.
  @inline(__always)
  var hasRoom: Bool { retainedBytes + open.writerIndex < StoreClientLimits.retainedBytesMax }

  // MARK: - Encoding

  /// Encode a request at the end of the open batch. ``retain(_:issue:)`` or ``discard(_:)`` must follow.
  ///
  /// - Returns: its length in bytes.
  @inline(__always)
  mutating func encode(
    _ header: FrameHeader,
    name: RawSpan?,
    counter: UInt64,
    thread: RawSpan?,
    issued: UInt32?,
    _ fields: (inout ByteBuffer) -> Void
  ) -> Int {
    let start = open.writerIndex
    open.beginRequest(header, name: name, counter: counter)
    fields(&open)
    if let thread { open.writeField(thread) }
    if let issued { open.writeInteger(issued) }
    open.endFrame(start)
    return open.writerIndex - start
  }

  /// Remove the last `length` bytes, a request that is not sent.
  mutating func discard(_ length: Int) { open.moveWriterIndex(to: open.writerIndex - length) }

  /// Count the last `length` bytes as a request of the open batch.
  @inline(__always)
  mutating func retain(_ length: Int, issue: UInt64) -> BatchedFrame {
    if openBatch == Self.none { begin(firstIssue: issue) }
    batches[Int(openBatch)].outstanding += 1
    return BatchedFrame(
      batch: openBatch,
      offset: UInt32(truncatingIfNeeded: open.writerIndex - length),
      length: UInt32(truncatingIfNeeded: length)
    )
  }

  /// Encode a request again, at the end of the open batch, and release its earlier bytes.
  ///
  /// - Parameters:
  ///   - hasName: whether a command has a name before its counter.
  ///   - counter: 0 for a query.
  ///   - shardCount: shard count to derive the shard from the cid with; 0: the shard stays.
  mutating func rewrite(
    _ frame: BatchedFrame,
    issue: UInt64,
    hasName: Bool,
    counter: UInt64,
    shardCount: Int
  ) -> BatchedFrame {
    let bytes = batches[Int(frame.batch)].buffer.getSlice(at: Int(frame.offset), length: Int(frame.length))!
    if openBatch == Self.none { begin(firstIssue: issue) }
    let start = open.writerIndex
    open.writeRequest(bytes, hasName: hasName, counter: counter, shardCount: shardCount)
    let rewritten = retain(open.writerIndex - start, issue: issue)
    release(frame)
    return rewritten
  }

  /// Append the bytes of a request in a closed batch to `out`.
  func copy(_ frame: BatchedFrame, to out: inout ByteBuffer) {
    let buffer = batches[Int(frame.batch)].buffer
    out.writeBytes(buffer.viewBytes(at: Int(frame.offset), length: Int(frame.length))!)
  }

  /// Write a whole frame of another table at the end of the open batch.
  mutating func append(_ frame: ByteBuffer, correlation: UInt32, isResend: Bool, issue: UInt64) -> BatchedFrame {
    let start = open.writerIndex
    open.writeImmutableBuffer(frame)
    open.setInteger(correlation, at: start + FrameHeader.correlationOffset)
    if isResend { open.setResendFlag(ofFrameAt: start) }
    return retain(frame.readableBytes, issue: issue)
  }

  /// Return the shard in a request's header.
  func shard(of frame: BatchedFrame) -> ShardID {
    let offset = Int(frame.offset) + FrameHeader.shardOffset
    let rawValue =
      frame.batch == openBatch
      ? open.getInteger(at: offset, as: UInt16.self)
      : batches[Int(frame.batch)].buffer.getInteger(at: offset, as: UInt16.self)
    return ShardID(rawValue!)
  }

  // MARK: - Batches

  /// Assign a batch to the bytes in `open` and those to follow.
  private mutating func begin(firstIssue: UInt64) {
    if let batch = free.popLast() {
      openBatch = batch
    } else {
      openBatch = UInt32(batches.count)
      batches.append(Batch())
    }
    openFirstIssue = firstIssue
  }

  @inline(__always)
  mutating func closeIfFull() {
    if open.writerIndex >= StoreClientLimits.batchBytesMax { close() }
  }

  /// Close the open batch, which is retained for a resend, and return its bytes.
  @discardableResult
  mutating func close() -> ByteBuffer? {
    guard openBatch != Self.none else { return nil }
    let batch = Int(openBatch)
    openBatch = Self.none
    let buffer = open
    bytesHint = min(max(StoreClientLimits.batchBytesMin, buffer.writerIndex), StoreClientLimits.spareBufferBytesMax)
    open = takeSpare()
    guard batches[batch].outstanding > 0 else {
      // All its requests were dropped before it was written.
      free.append(UInt32(batch))
      return nil
    }
    batches[batch].buffer = buffer
    // The capacity counts rather than the written size: it is what stays allocated.
    batches[batch].bytes = buffer.capacity
    retainedBytes += buffer.capacity
    return buffer
  }

  private mutating func takeSpare() -> ByteBuffer {
    guard var buffer = spares.popLast(), buffer.capacity <= 8 * bytesHint else {
      return ByteBufferAllocator().buffer(capacity: bytesHint)
    }
    // If a pending write still references the buffer, this allocates a new one and leaves that one intact.
    buffer.clear(minimumCapacity: bytesHint)
    return buffer
  }

  /// Record that a request of this batch is done.
  @inline(__always)
  mutating func release(_ frame: BatchedFrame) {
    let index = Int(frame.batch)
    batches[index].outstanding -= 1
    guard batches[index].outstanding == 0, frame.batch != openBatch else { return }
    free(index)
  }

  private mutating func free(_ index: Int) {
    retainedBytes -= batches[index].bytes
    batches[index].bytes = 0
    var buffer = ByteBuffer()
    swap(&buffer, &batches[index].buffer)
    if spares.count < StoreClientLimits.spareBuffersMax, buffer.capacity <= StoreClientLimits.spareBufferBytesMax {
      spares.append(buffer)
    }
    free.append(UInt32(index))
  }

  // MARK: - Invariants

  /// Check the counts and bytes of all batches against the frames of all requests.
  func checkInvariants(_ frames: [BatchedFrame]) {
    var perBatch = [Int](repeating: 0, count: batches.count)
    for frame in frames { perBatch[Int(frame.batch)] += 1 }
    var bytes = 0
    for (number, batch) in batches.enumerated() {
      precondition(batch.outstanding == perBatch[number], "the batch's count of unanswered requests is wrong")
      precondition(UInt32(number) == openBatch || (batch.bytes > 0) == (batch.outstanding > 0))
      bytes += batch.bytes
    }
    precondition(bytes == retainedBytes)
  }
}

extension ByteBuffer {
  /// Set the flag `resend` of the frame that starts there.
  mutating func setResendFlag(ofFrameAt start: Int) {
    let offset = start + FrameHeader.flagsOffset
    setInteger(getInteger(at: offset, as: UInt8.self)! | FrameHeader.Flags.resend.rawValue, at: offset)
  }

  /// Write a header without its length yet, the first field if there is one, and the counter unless it is 0. A single
  /// write does it all, because this is most of a request's cost.
  fileprivate mutating func beginRequest(_ header: FrameHeader, name: RawSpan?, counter: UInt64) {
    let nameCount = name?.byteCount ?? 0
    writeWithUnsafeMutableBytes(
      minimumWritableBytes: FrameHeader.byteCount + nameCount + 2 * Varint.byteCountMax
    ) { target in
      header.store(in: target)
      var end = FrameHeader.byteCount
      if let name {
        Varint.store(UInt64(nameCount), in: target, at: &end)
        name.withUnsafeBytes { bytes in
          if let base = bytes.baseAddress {
            target.baseAddress!.advanced(by: end).copyMemory(from: base, byteCount: nameCount)
          }
        }
        end += nameCount
      }
      if counter > 0 { Varint.store(counter, in: target, at: &end) }
      return end
    }
  }

  /// Write the request in `frame` again. Commands get a new counter. If `shardCount` is not 0, the shard is derived
  /// from the cid.
  ///
  /// - Parameter hasName: whether a command has a name before its counter.
  fileprivate mutating func writeRequest(_ frame: ByteBuffer, hasName: Bool, counter: UInt64, shardCount: Int) {
    let start = writerIndex
    let bytes = frame.readableBytesSpan
    writeRaw(bytes.extracting(0..<FrameHeader.byteCount))
    let payload = bytes.extracting(FrameHeader.byteCount..<bytes.byteCount)
    do throws(WireError) {
      var reader = FieldReader(payload)
      if hasName && (counter > 0 || shardCount > 0) {
        let name = try reader.string()
        writeField(name)
        if shardCount > 0 {
          let shard = ShardID.owning(name, count: shardCount)
          setInteger(shard.rawValue, at: start + FrameHeader.shardOffset)
        }
      }
      if counter > 0 {
        _ = try reader.varint()
        writeVarint(counter)
      }
      writeRaw(payload.extracting(reader.offset..<payload.byteCount))
    } catch {
      preconditionFailure("a request of our own does not parse: \(error)")
    }
    endFrame(start)
  }
}
