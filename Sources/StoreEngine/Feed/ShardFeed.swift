internal import DequeModule
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// The shard's part of the change feed (R21). Records are collected while effects are applied, and stored with their
/// batch. Everything is off without ``StoreLoopConfiguration/feedRetention``.
final class ShardFeed: ShardPart {
  /// Number of the next record, and of the next one that is not durable.
  private(set) var end: UInt64 = 1
  private(set) var durableEnd: UInt64 = 1
  /// Records have become durable since readers were answered last.
  private var hasNewRecords = false
  /// The first record that is kept, and its time.
  private(set) var first: UInt64 = 1
  private(set) var firstTime = Timestamp.none

  /// The last record of the open batch, which the next effect of the same command may add to.
  private var last: FeedRecord?
  private var block = OpenBlock()
  /// Of the push ack whose effects come next.
  private var source: (provider: String, device: String)?
  /// Changes of the open batch whose consequences are found when the batch is closed, by channel.
  private var pending: [(slot: ChannelSlot, changes: PendingChannelEvents)] = []
  private var pendingPositions: [ChannelSlot: Int] = [:]

  /// The newest blocks, for readers that keep up, and their size.
  private var recent: Deque<FeedBlock> = []
  private var recentBytes = 0
  private static let recentBytesMax = 1 << 20

  /// Blocks that were read from storage, newest last, one run for each of the last readers.
  private var runs: [FeedRun] = []
  private static let runsMax = 8
  /// Reads in flight, by their first record.
  private var reads: Set<UInt64> = []

  private var isTrimming = false
  private var trimmedAt: Int64 = 0
  private static let trimMilliseconds: Int64 = 10_000
  /// Readers that wait for records are answered at this interval, so that their streams show that they are alive.
  private var answeredAt: Int64 = 0
  private static let answerMilliseconds: Int64 = 5_000

  @inline(__always)
  var isOn: Bool { shard.configuration.feedRetention != nil }

  /// Number that the next record will have.
  var nextNumber: UInt64 { end + UInt64(block.count) + (last == nil ? 0 : 1) }

  /// Size of the open batch's block, and the size from which sliced work adds no more to it.
  var openBlockBytes: Int { block.byteCount }
  static let blockBytesMax = 1 << 20

  func recover(_ extent: FeedExtent) {
    end = extent.end
    durableEnd = extent.end
    first = extent.first
    firstTime = extent.firstTime
  }

  // MARK: Recording

  /// Forget the last record: the next effect is another command's.
  func beginCommand() { flush() }

  func endCommand() { source = nil }

  /// Keep the provider and the kind of device of the push ack that is being performed.
  func recordSource(provider: RawSpan, device: RawSpan) {
    guard isOn, !provider.isEmpty || !device.isEmpty else { return }
    source = (ShardEngine.text(provider), ShardEngine.text(device))
  }

  /// Record an effect, before it is assigned.
  ///
  /// - Parameter slot: slot of the effect's channel; nil for an effect on the shard itself, or one that creates a
  ///   channel.
  func record(_ effect: Effect, _ slot: ChannelSlot?) {
    switch effect {
    case .channel(let number, let effect):
      let record = shard.state.feedRecord(of: effect, on: number, in: slot, after: &last)
      if let slot, !shard.state[slot].isIndex { recordPending(effect, slot) }
      if var record {
        if record.kind == .delivered, let source { (record.text, record.detail) = source }
        append(record)
      }
    case .shard(let effect):
      if let record = shard.state.feedRecord(of: effect, shardCount: shard.shardCount) { append(record) }
    }
  }

  /// Append the records of a timer that is due. An effect that begins or joins a batch must follow.
  func append(due records: [FeedRecord]) {
    flush()
    for record in records { block.append(record) }
  }

  private func append(_ record: FeedRecord) {
    flush()
    last = record
  }

  private func flush() {
    guard let record = last else { return }
    block.append(record)
    last = nil
  }

  private func recordPending(_ effect: ChannelEffect, _ slot: ChannelSlot) {
    switch effect {
    // Nothing follows from the deletion of a channel.
    case .deletionBegun, .channelDeleted:
      if let position = pendingPositions.removeValue(forKey: slot) {
        pending[position].changes = PendingChannelEvents()
      }
    default:
      let position: Int
      if let known = pendingPositions[slot] {
        position = known
      } else {
        position = pending.count
        pending.append((slot, PendingChannelEvents()))
        pendingPositions[slot] = position
      }
      shard.state.record(effect, in: slot, at: shard.state.time, &pending[position].changes)
    }
  }

  /// Record that a user's privacy settings changed how others see the user's row in a channel.
  ///
  /// - Parameter changed: the channel and its threads, as far as they changed.
  func recordSettingsChange(of user: RawSpan, in slot: ChannelSlot, _ changed: [ChannelSlot]) {
    guard !changed.isEmpty else { return }
    var changes = PendingChannelEvents()
    shard.state.recordSettingsChange(of: user, in: changed, at: shard.state.time, &changes)
    flush()
    appendConsequences(of: changes, in: slot)
    // Records are stored with a batch.
    if !shard.log.hasOpenBatch { shard.logTimeNow() }
  }

  private func appendConsequences(of changes: PendingChannelEvents, in slot: ChannelSlot) {
    guard !changes.isEmpty else { return }
    for record in shard.feedRecords(changes, in: slot) { block.append(record) }
  }

  /// Close the open batch's block.
  ///
  /// - Returns: nil if the batch has no record.
  func closeBatch() -> LoopCommit.FeedBlock? {
    guard isOn else { return nil }
    flush()
    for (slot, changes) in pending { appendConsequences(of: changes, in: slot) }
    pending.removeAll(keepingCapacity: true)
    pendingPositions.removeAll(keepingCapacity: true)
    guard let closed = block.close(first: end) else { return nil }
    end += UInt64(closed.count)
    if firstTime == .none { firstTime = closed.time }
    recent.append(closed)
    recentBytes += closed.bytes.readableBytes
    while recentBytes > Self.recentBytesMax, let oldest = recent.first, oldest.end <= durableEnd {
      recentBytes -= oldest.bytes.readableBytes
      recent.removeFirst()
    }
    return LoopCommit.FeedBlock(
      shard: shard.state.id,
      block: StoredFeedBlock(first: closed.first, bytes: closed.bytes)
    )
  }

  /// Mark all closed blocks as durable: readers may have them.
  func committed() {
    hasNewRecords = hasNewRecords || durableEnd != end
    durableEnd = end
  }

  // MARK: Blocks for readers

  /// Return the blocks from the one that holds a record on, as far as they are in memory and durable; empty: they are
  /// not in memory.
  func blocks(from number: UInt64) -> ArraySlice<FeedBlock> {
    if let oldest = recent.first, oldest.first <= number {
      // The newest are wanted most: search from the end.
      var start = recent.count
      while start > 0, recent[start - 1].end > number { start -= 1 }
      return recent[start...].filter { $0.end <= durableEnd }[...]
    }
    guard let run = runs.last(where: { $0.contains(number) }) else { return [] }
    return run.blocks(from: number, durableEnd: durableEnd)
  }

  /// Read blocks from storage; a request waits for them as ``WaitReason/feedRead(_:)``.
  func read(from number: UInt64) {
    guard reads.insert(number).inserted else { return }
    shard.loop.driver.readFeed(
      FeedReadRequest(shard: shard.state.id, number: number, bytesMax: Self.runBytes)
    )
  }

  private static let runBytes = 256 << 10

  /// Keep blocks that were read, and perform the requests again that wait for them.
  func blocksRead(_ request: FeedReadRequest, _ result: Result<[StoredFeedBlock], StorageError>) {
    reads.remove(request.number)
    let waiting = shard.waiting.take(.feedRead(request.number))
    do throws(StorageError) {
      let blocks = try result.get().map { (stored) throws(StorageError) in
        try FeedBlock(stored, "shard \(shard.state.id.rawValue), feed record \(stored.first)")
      }
      runs.append(FeedRun(asked: request.number, blocks: blocks))
      if runs.count > Self.runsMax { runs.removeFirst() }
    } catch {
      shard.loop.driver.reportError(error)
      for request in waiting {
        shard.refuse(request, RefusedRequest(.unavailable, retryAfterMilliseconds: 1000, "the feed cannot be read"))
      }
      return
    }
    for request in waiting { shard.resume(request) }
  }

  // MARK: Timed work

  /// Answer readers that wait, from time to time, and trim the feed.
  func tick() {
    noteSwitch()
    guard isOn else { return }
    let now = shard.loop.elapsedMilliseconds
    if now - answeredAt >= Self.answerMilliseconds {
      answeredAt = now
      answerReaders(atOnce: true)
    }
    trimIfDue(now)
  }

  /// Keep in mind that the feed is off while there are consumers. Once it is on again, a record tells them from when on
  /// changes were not told.
  private func noteSwitch() {
    let since = shard.state.consumers.offSince
    guard isOn ? since != .none : since == .none && !shard.state.consumers.isEmpty else { return }
    let time = shard.advanceTime()
    if isOn {
      var gap = FeedRecord(.gap, at: time)
      gap.first = UInt64(max(0, since.milliseconds))
      append(gap)
      flush()
    }
    // What was logged last was told.
    let effect = FeedConsumerEffect.switched(offSince: isOn ? .none : shard.log.durableTime.or(time))
    shard.applyEffects([.shard(.consumer(effect))], to: nil)
  }

  /// Answer the readers that wait for records, after a commit.
  func answerReadersOfCommit() {
    guard hasNewRecords else { return }
    hasNewRecords = false
    answerReaders()
  }

  /// Perform the requests again that wait for records.
  func answerReaders(atOnce: Bool = false) {
    guard shard.waiting.hasWaiting(.feed) else { return }
    for request in shard.waiting.take(.feed) {
      shard.resume(request, atOnce ? .feedIsIdle : .again)
    }
  }

  private func trimIfDue(_ now: Int64) {
    guard let retention = shard.configuration.feedRetention, !isTrimming, now - trimmedAt >= Self.trimMilliseconds,
      first < durableEnd
    else { return }
    trimmedAt = now
    let limit = Timestamp(milliseconds: shard.state.time.milliseconds - retention.milliseconds)
    let isOld = retention.milliseconds > 0 && firstTime < limit
    guard isOld || retention.bytes > 0 else { return }
    isTrimming = true
    shard.loop.driver.trimFeed(
      FeedTrimRequest(
        shard: shard.state.id,
        before: retention.milliseconds > 0 ? limit : .none,
        bytesMax: retention.bytes > 0 ? retention.bytes / UInt64(shard.shardCount) : nil
      )
    )
  }

  func trimmed(_ result: Result<FeedExtent, StorageError>) {
    isTrimming = false
    switch result {
    case .success(let extent):
      guard extent.first > first else { return }
      first = extent.first
      firstTime = extent.firstTime
    case .failure(let error): shard.loop.driver.reportError(error)
    }
  }

  /// Add how far the consumers have come in this shard.
  func addProgress(to sum: inout StoreLoop.Gauges) {
    sum.feedRecords += durableEnd - 1
    for consumer in shard.state.consumers.all {
      var progress = sum.consumers[consumer.name] ?? StoreLoop.ConsumerProgress()
      progress.committed += min(consumer.position, durableEnd) - 1
      if consumer.position < durableEnd {
        progress.lag += durableEnd - consumer.position
        let since = shard.loop.clock.milliseconds - consumer.positionTime.milliseconds
        progress.lagMilliseconds = max(progress.lagMilliseconds, since)
      }
      sum.consumers[consumer.name] = progress
    }
  }

  override func stop() {
    last = nil
    block = OpenBlock()
    pending = []
    pendingPositions = [:]
    reads = []
  }
}

/// A closed block, in memory.
struct FeedBlock {
  let first: UInt64
  let count: Int
  /// Base time of its records.
  let time: Timestamp
  let bytes: ByteBuffer

  /// Number of the record after the last one.
  var end: UInt64 { first + UInt64(count) }

  init(first: UInt64, count: Int, time: Timestamp, bytes: ByteBuffer) {
    self.first = first
    self.count = count
    self.time = time
    self.bytes = bytes
  }

  init(_ stored: StoredFeedBlock, _ location: @autoclosure () -> String) throws(StorageError) {
    do throws(WireError) {
      var reader = FieldReader(stored.bytes.readableBytesSpan)
      let header = try FeedBlockHeader(&reader)
      first = stored.first
      count = header.count
      time = header.time
      bytes = stored.bytes
    } catch {
      throw .corrupt("\(location()): \(error)")
    }
  }
}

/// Blocks that follow each other, from storage.
struct FeedRun {
  /// Number of the record that was asked for. A run may begin later, if records are no longer kept.
  let asked: UInt64
  let blocks: [FeedBlock]

  func contains(_ number: UInt64) -> Bool {
    guard let last = blocks.last else { return false }
    return number >= asked && number < last.end
  }

  /// Return the blocks from the one that holds a record on, as far as they are durable.
  func blocks(from number: UInt64, durableEnd: UInt64) -> ArraySlice<FeedBlock> {
    let start = index { $0.end > number }
    return blocks[start..<max(start, index { $0.end > durableEnd })]
  }

  /// Return the index of the first block that meets a condition, as all later ones do.
  private func index(where isMet: (FeedBlock) -> Bool) -> Int {
    var (low, high) = (0, blocks.count)
    while low < high {
      let middle = (low + high) / 2
      if isMet(blocks[middle]) { high = middle } else { low = middle + 1 }
    }
    return low
  }
}

/// The block of the open batch.
private struct OpenBlock {
  private var records = ByteBuffer()
  private(set) var count = 0
  private var time = Timestamp.none

  var byteCount: Int { records.readableBytes }

  mutating func append(_ record: FeedRecord) {
    // Later records are not older, but for acknowledgements that a caller has dated back: those get the base time.
    if count == 0 { time = record.at }
    records.writeFeedRecord(record, base: time)
    count += 1
  }

  /// Return the block, and begin another one; nil if it is empty.
  mutating func close(first: UInt64) -> FeedBlock? {
    guard count > 0 else { return nil }
    var bytes = ByteBuffer()
    bytes.reserveCapacity(records.readableBytes + 16)
    FeedBlockHeader(time: time, count: count).write(into: &bytes)
    bytes.writeImmutableBuffer(records)
    defer {
      records.clear()
      count = 0
    }
    return FeedBlock(first: first, count: count, time: time, bytes: bytes)
  }
}
