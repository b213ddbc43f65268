internal import DequeModule
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// The log of a shard, as far as it is not storage's: which batches are durable, which one is in flight, the open
/// batch with its encoded effects, and where the log was trimmed.
///
/// Commands add effects to the *open* batch. Closing it hands it to the next commit.
struct ShardLog: ~Copyable {
  /// Batches up to here are durable.
  private(set) var durable = LogIndex.zero
  /// Batches up to here are closed: durable or in flight.
  private(set) var closed = LogIndex.zero
  /// Times of the last durable and the last closed batch. A restart from the durable log never has an earlier time
  /// (R20).
  private(set) var durableTime = Timestamp.none
  private(set) var closedTime = Timestamp.none
  /// Time at which the open batch began. Nothing in the batch is older.
  private(set) var openBatchTime = Timestamp.none
  /// Last time in the log when the shard started; none for a new shard.
  private(set) var startTime = Timestamp.none
  /// Bytes of the batches that were closed since the start.
  private(set) var loggedBytes: UInt64 = 0
  /// The log is trimmed up to here.
  private(set) var trimmed = LogIndex.zero
  /// Last batch of another loop's log that is applied here; an owner does not use it.
  private(set) var followed = LogIndex.zero
  private var effectBytes = ByteBuffer()
  private var effectCount = 0

  /// Index of the open batch.
  var openBatchIndex: LogIndex { closed.next }
  var hasOpenBatch: Bool { effectCount > 0 }
  /// The last batch that holds effects: the open one, or the last closed one.
  var last: LogIndex { hasOpenBatch ? openBatchIndex : closed }
  /// Number of effects in the open batch, and their bytes.
  var openBatchEffects: Int { effectCount }
  var openBatchBytes: Int { effectBytes.readableBytes }

  /// Return the earliest timing of a reply that reveals effects up to this batch.
  @inline(__always)
  func replyTiming(_ last: LogIndex) -> ReplyLane.Timing {
    if last <= durable { return .now }
    return last <= closed ? .afterCurrentCommit : .afterNextCommit
  }

  // MARK: Group commit

  /// Add an effect to the open batch.
  @inline(__always)
  mutating func append(_ effect: Effect) {
    effectBytes.writeEffect(effect)
    effectCount += 1
  }

  /// Record the time of the open batch's first effects, after they were appended.
  mutating func setOpenBatchTime(_ time: Timestamp) { openBatchTime = time }

  /// Close the open batch for the next commit.
  mutating func close(shard: ShardID, at time: Timestamp, sessions: [SessionRecord]) -> LoopCommit.Batch {
    let index = openBatchIndex
    // The size of what precedes the effects depends on the sessions. So the effects are copied behind it, into memory
    // of the right size, and the next batch reuses theirs.
    var bytes = ByteBuffer()
    bytes.reserveCapacity(effectBytes.readableBytes + 64)
    LogBatch.write(
      index: index,
      time: time,
      sessions: sessions,
      effectCount: effectCount,
      effects: effectBytes,
      into: &bytes
    )
    effectBytes.clear()
    effectCount = 0
    closed = index
    closedTime = time
    loggedBytes += UInt64(bytes.readableBytes)
    return LoopCommit.Batch(shard: shard, index: index, bytes: bytes)
  }

  /// Mark everything closed as durable.
  mutating func committed() {
    durable = closed
    durableTime = closedTime
  }

  /// Trim the log before a batch that must stay, if that removes at least `batchesMin` batches.
  ///
  /// - Returns: the last batches that were trimmed before and are now; nil if the log stays as it is.
  mutating func takeLogTrim(before oldest: LogIndex, batchesMin: UInt64) -> (after: LogIndex, through: LogIndex)? {
    let (before, possible) = (trimmed, LogIndex(min(oldest.rawValue - 1, durable.rawValue)))
    guard possible > before, possible.rawValue - before.rawValue >= batchesMin else { return nil }
    trimmed = possible
    return (before, possible)
  }

  // MARK: Following

  /// Record that the next batch of the owner's log is applied here.
  mutating func follow(_ index: LogIndex, byteCount: Int) {
    followed = index
    loggedBytes += UInt64(byteCount)
  }

  /// Close the followed batches for the next local commit.
  ///
  /// - Returns: whether there were any.
  mutating func closeFollowed() -> Bool {
    guard followed > closed else { return false }
    closed = followed
    return true
  }

  /// Become the owner's log. The shared log has committed every followed batch, so all are durable, whether or not
  /// local storage has them yet.
  ///
  /// - Parameter time: last logged time.
  mutating func promote(at time: Timestamp) { resume(through: followed, at: time) }

  // MARK: Recovery

  /// Resume the log of an earlier run.
  ///
  /// - Parameters:
  ///   - end: last durable batch.
  ///   - time: last logged time.
  ///   - first: first batch that is still in the log.
  mutating func recovered(through end: LogIndex, at time: Timestamp, first: LogIndex) {
    resume(through: end, at: time)
    followed = end
    trimmed = LogIndex(first.rawValue - 1)
  }

  private mutating func resume(through end: LogIndex, at time: Timestamp) {
    durable = end
    closed = end
    durableTime = time
    closedTime = time
    startTime = time
  }
}

/// Effects of the log's tail for channels that are not in memory. Recovery and followers index them, and loads apply
/// them.
final class LogTail {
  private var effects: [ChannelNumber: [(index: LogIndex, effect: ChannelEffect)]] = [:]
  /// Number of effects, and of those on channels that could not be read.
  private var effectCount = 0
  private var unreadableEffectCount = 0
  /// Each channel's first effect, oldest first. Entries of channels that were loaded since are removed late.
  private var firsts: Deque<(index: LogIndex, channel: ChannelNumber)> = []
  /// Channels created in the tail, which storage does not find by their cid yet.
  private var numbers: [[UInt8]: ChannelNumber] = [:]
  private var order: Deque<ChannelNumber> = []
  /// Channels that could not be read. They are retried later, because they hold the log.
  private var postponed: [ChannelNumber] = []
  /// Channels of which the last read has failed.
  private var unreadable: Set<ChannelNumber> = []

  var isEmpty: Bool { effects.isEmpty }
  var hasPostponed: Bool { !postponed.isEmpty }
  var count: Int { effects.count }
  /// Number of effects that the next loads apply. Those on channels that cannot be read must not stop a follower.
  var readableEffectCount: Int { effectCount - unreadableEffectCount }

  func append(_ effect: ChannelEffect, on channel: ChannelNumber, at index: LogIndex) {
    if effects[channel] == nil {
      order.append(channel)
      firsts.append((index, channel))
    }
    effects[channel, default: []].append((index, effect))
    effectCount += 1
    if unreadable.contains(channel) { unreadableEffectCount += 1 }
    if case .channelAssigned(let cid, _, _) = effect { numbers[Array(cid.utf8)] = channel }
  }

  func number(of cid: [UInt8]) -> ChannelNumber? { numbers[cid] }

  /// Return the log index of the oldest effect.
  func oldest() -> LogIndex? {
    while let first = firsts.first {
      if effects[first.channel]?.first?.index == first.index { return first.index }
      firsts.removeFirst()
    }
    return nil
  }

  /// Return the next channel to load, so that its pages can be written and the log can be trimmed.
  func next() -> ChannelNumber? {
    while let channel = order.popFirst() {
      if effects[channel] != nil { return channel }
    }
    return nil
  }

  func postpone(_ channel: ChannelNumber) {
    postponed.append(channel)
    if unreadable.insert(channel).inserted { unreadableEffectCount += effects[channel]?.count ?? 0 }
  }

  func retryPostponed() {
    order.append(contentsOf: postponed)
    postponed = []
  }

  func effects(of channel: ChannelNumber) -> [(index: LogIndex, effect: ChannelEffect)] {
    effects[channel] ?? []
  }

  func hasEffects(on channel: ChannelNumber) -> Bool { effects[channel] != nil }

  func remove(_ channel: ChannelNumber, cid: [UInt8]) {
    if numbers[cid] == channel { numbers[cid] = nil }
    let count = effects.removeValue(forKey: channel)?.count ?? 0
    effectCount -= count
    if unreadable.remove(channel) != nil { unreadableEffectCount -= count }
  }

  /// Return the cid, creation time and own options of a channel that was created in the tail.
  func head(of channel: ChannelNumber) -> (cid: String, created: Timestamp, own: OptionPatch)? {
    for (_, effect) in effects[channel] ?? [] {
      if case .channelAssigned(let cid, let created, let own) = effect { return (cid, created, own) }
    }
    return nil
  }
}
