internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// The bytes: batches, what a flush writes, what is written again.
extension RequestTable {
  /// Bytes of the open batch.
  var queuedBytes: Int { openBatch == Self.none ? 0 : open.writerIndex }

  /// The next bytes to write, or nil. Called until it gives nil.
  ///
  /// On the usual way this is the open batch, whole and uncopied. After a lost connection, or beyond the
  /// window, frames are copied one by one: those that were written before get the resend flag.
  mutating func nextWrite() -> ByteBuffer? {
    if cursor == Self.none { return nil }
    if !unsentIsStale, openBatch != Self.none, slots[Int(cursor)].issue == openFirstIssue,
      onWire + batches[Int(openBatch)].outstanding <= limit
    {
      let outstanding = batches[Int(openBatch)].outstanding
      let buffer = closeBatch()
      onWire += outstanding
      stats.requestsSent &+= UInt64(outstanding)
      sentEnd = issueEnd
      wireEnd = issueEnd
      counterSent = counterNext &- 1
      cursor = Self.none
      return buffer
    }
    return copiedWrite()
  }

  private mutating func copiedWrite() -> ByteBuffer? {
    if unsentIsStale { rewriteUnsent() }
    closeBatch()
    var out = ByteBuffer()
    while cursor != Self.none, onWire < limit, out.writerIndex < StoreClientLimits.batchBytesMax {
      let slot = slots[Int(cursor)]
      let start = out.writerIndex
      let frame = batches[Int(slot.batch)].buffer.viewBytes(at: Int(slot.offset), length: Int(slot.length))
      out.writeBytes(frame!)
      if slot.issue < sentEnd {
        let flags = out.getInteger(at: start + 5, as: UInt8.self)! | FrameHeader.Flags.resend.rawValue
        out.setInteger(flags, at: start + 5)
        stats.resends &+= 1
      } else {
        sentEnd = slot.issue + 1
        if slot.counter > 0 { counterSent = slot.counter }
        stats.requestsSent &+= 1
      }
      wireEnd = slot.issue + 1
      onWire += 1
      cursor = slot.next
    }
    return out.readableBytes > 0 ? out : nil
  }

  /// Encodes again what was never sent: counters without a hole after the last one sent, shards by the count
  /// known now. Queries that were sent on a lost connection are encoded again too: the store may have another
  /// shard count.
  private mutating func rewriteUnsent() {
    unsentIsStale = false
    closeBatch()
    counterNext = counterSent + 1
    var index = cursor
    while index != Self.none {
      let slot = slots[Int(index)]
      if slot.issue < sentEnd, isCommand(index) {
        index = slot.next
        continue
      }
      let frame = batches[Int(slot.batch)].buffer.getSlice(at: Int(slot.offset), length: Int(slot.length))!
      if openBatch == Self.none { beginBatch(firstIssue: slot.issue) }
      let start = open.writerIndex
      let counter = isCommand(index) ? counterNext : 0
      if counter > 0 { counterNext += 1 }
      open.writeRequest(
        frame,
        hasName: slot.kind != FrameKind.redeemTicket.rawValue,
        counter: counter,
        shardCount: slot.isRouted ? shardCount : 0
      )
      batches[Int(openBatch)].outstanding += 1
      releaseBatch(slot.batch)
      slots[Int(index)].batch = openBatch
      slots[Int(index)].offset = UInt32(start)
      slots[Int(index)].length = UInt32(open.writerIndex - start)
      slots[Int(index)].counter = counter
      index = slot.next
      if open.writerIndex >= StoreClientLimits.batchBytesMax { closeBatch() }
    }
  }

  mutating func beginBatch() { beginBatch(firstIssue: issueEnd) }

  /// Gives the bytes that stand in `open`, and those that will, a batch.
  private mutating func beginBatch(firstIssue: UInt64) {
    if let batch = freeBatches.popLast() {
      openBatch = batch
    } else {
      openBatch = UInt32(batches.count)
      batches.append(Batch())
    }
    openFirstIssue = firstIssue
  }

  /// Closes the open batch, which stays for a resend, and gives its bytes.
  @discardableResult
  mutating func closeBatch() -> ByteBuffer? {
    guard openBatch != Self.none else { return nil }
    let batch = Int(openBatch)
    openBatch = Self.none
    let buffer = open
    batchBytesHint = min(
      max(StoreClientLimits.batchBytesMin, buffer.writerIndex),
      StoreClientLimits.spareBufferBytesMax
    )
    open = takeSpare()
    guard batches[batch].outstanding > 0 else {
      // All its requests were given up before it was written.
      freeBatches.append(UInt32(batch))
      return nil
    }
    batches[batch].buffer = buffer
    // The capacity counts, not what is written: that is what stays allocated.
    batches[batch].bytes = buffer.capacity
    retainedBytes += buffer.capacity
    return buffer
  }

  private mutating func takeSpare() -> ByteBuffer {
    guard var buffer = spares.popLast(), buffer.capacity <= 8 * batchBytesHint else {
      return ByteBufferAllocator().buffer(capacity: batchBytesHint)
    }
    // Still referenced by a write that has not left: this allocates another, and leaves that one alone.
    buffer.clear(minimumCapacity: batchBytesHint)
    return buffer
  }

  /// One request of this batch is done.
  mutating func releaseBatch(_ batch: UInt32) {
    let index = Int(batch)
    batches[index].outstanding -= 1
    guard batches[index].outstanding == 0, batch != openBatch else { return }
    retainedBytes -= batches[index].bytes
    batches[index].bytes = 0
    var buffer = ByteBuffer()
    swap(&buffer, &batches[index].buffer)
    if spares.count < StoreClientLimits.spareBuffersMax,
      buffer.capacity <= StoreClientLimits.spareBufferBytesMax
    {
      spares.append(buffer)
    }
    freeBatches.append(batch)
  }
}

extension ByteBuffer {
  /// Writes a header whose length is still to come, the first field where there is one, and the counter where
  /// it is not 0: all in one piece of memory, for this is most of what every request costs.
  mutating func beginRequest(_ header: FrameHeader, name: RawSpan?, counter: UInt64) {
    let nameCount = name?.byteCount ?? 0
    writeWithUnsafeMutableBytes(minimumWritableBytes: FrameHeader.byteCount + nameCount + 20) { target in
      target.storeBytes(of: 0, as: UInt32.self)
      target[4] = header.kind.rawValue
      target[5] = header.flags.rawValue
      target.storeBytes(of: header.shard.rawValue.bigEndian, toByteOffset: 6, as: UInt16.self)
      target.storeBytes(of: header.correlation.bigEndian, toByteOffset: 8, as: UInt32.self)
      var end = FrameHeader.byteCount
      if let name {
        end += target.storeVarint(UInt64(nameCount), at: end)
        name.withUnsafeBytes { bytes in
          if let base = bytes.baseAddress {
            target.baseAddress!.advanced(by: end).copyMemory(from: base, byteCount: nameCount)
          }
        }
        end += nameCount
      }
      if counter > 0 { end += target.storeVarint(counter, at: end) }
      return end
    }
  }

  /// Writes a request again, which stands in `frame`: with another counter where it is a command, and for the
  /// shard of its cid where `shardCount` is not 0.
  ///
  /// - Parameter hasName: whether a command has a name before its counter.
  fileprivate mutating func writeRequest(
    _ frame: ByteBuffer,
    hasName: Bool,
    counter: UInt64,
    shardCount: Int
  ) {
    let start = writerIndex
    let bytes = frame.readableBytesSpan
    writeRaw(bytes.extracting(0..<FrameHeader.byteCount))
    let payload = bytes.extracting(FrameHeader.byteCount..<bytes.byteCount)
    do throws(WireError) {
      var reader = FieldReader(payload)
      if hasName && (counter > 0 || shardCount > 0) {
        let name = try reader.string()
        writeField(name)
        if shardCount > 0 { setInteger(ShardID.owning(name, count: shardCount).rawValue, at: start + 6) }
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

extension UnsafeMutableRawBufferPointer {
  /// - Returns: how many bytes it took, 1 to 10.
  fileprivate func storeVarint(_ value: UInt64, at offset: Int) -> Int {
    var rest = value
    var end = offset
    while rest >= 0x80 {
      self[end] = UInt8(truncatingIfNeeded: rest) | 0x80
      rest >>= 7
      end += 1
    }
    self[end] = UInt8(truncatingIfNeeded: rest)
    return end + 1 - offset
  }
}
