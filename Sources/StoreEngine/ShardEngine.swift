import NIOCore
import ReceiptModel
import ReceiptWire

/// One shard at work: its state, the batch that gathers, which pages are dirty, and the channels that are being loaded. It lives on one
/// event loop and does no I/O; what has to be read or written is asked of its ``StoreLoop``.
final class ShardEngine {
  var state: ShardState
  let shardCount: Int
  /// The shard's place among those of its loop.
  let position: Int
  let configuration: StoreLoopConfiguration
  /// Unchecked: the loop owns its shards, and every request looks at it several times.
  unowned(unsafe) let loop: StoreLoop

  // The log
  /// Batches up to here are durable.
  private(set) var durable: LogIndex
  /// Batches up to here are closed: durable, or in flight.
  private(set) var closed: LogIndex
  private(set) var loggedBytes: UInt64 = 0
  private var effectBytes = ByteBuffer()
  private var effectCount = 0
  private(set) var cut: LogIndex
  var sessions = SessionTable()
  var dirty = DirtyPages()
  var clock = EvictionClock()
  /// Channels that were let go, since start.
  var evictedCount: UInt64 = 0

  // Channels on storage
  var loads: [ChannelReference: ChannelLoad] = [:]
  /// Of the last read that was asked for.
  var loadTicket: UInt32 = 0
  /// Effects found in the log at recovery whose channel is not in memory yet.
  var tail = LogTail()
  /// Channels of the tail that are being read to get the log cut.
  var tailLoads = 0
  /// When those that could not be read are tried again, in the loop's elapsed time.
  var tailRetryAt: Int64 = 0

  /// Effects of the command at hand; kept for its capacity.
  var effects: [Effect] = []

  init(
    id: ShardID,
    shardCount: Int,
    position: Int,
    configuration: StoreLoopConfiguration,
    loop: StoreLoop,
    stored: StoredShard
  ) throws(StorageError) {
    self.state = ShardState(id: id)
    self.shardCount = shardCount
    self.position = position
    self.configuration = configuration
    self.loop = loop
    self.durable = .zero
    self.closed = .zero
    self.cut = .zero
    try recover(stored)
  }

  /// The index of the batch that gathers.
  var gatheringIndex: LogIndex { closed.next }
  var isGathering: Bool { effectCount > 0 }
  /// Whether requests wait for channels.
  var hasWaiting: Bool { loads.values.contains { !$0.waiting.isEmpty } }

  // MARK: Carrying out

  /// Assigns the decided effects, adds them to the batch that gathers and notes their pages.
  ///
  /// - Returns: the slot of the channel they are about; a new one where they created it.
  @discardableResult
  func carryOut(_ slot: ChannelSlot?, session: Int32) -> ChannelSlot? {
    var slot = slot
    let index = gatheringIndex
    for effect in effects {
      if effect.channel == nil {
        state.assign(effect)
        touch(nil, effect.page, index)
      } else {
        if slot == nil, case .channelAssigned(let number, let cid, let created, let own) = effect {
          slot = state.insert(number, cid: cid, created: created, own: own)
          dirty.insert(slot!)
          clock.insert(slot!)
        } else {
          state.assign(effect, to: slot!)
          #if DEBUG
            state[slot!].assertInvariants(touchedBy: effect)
          #endif
        }
        touch(slot, effect.page, index)
      }
      effectBytes.writeEffect(effect)
    }
    if effectCount == 0 { loop.gathers(self) }
    effectCount += effects.count
    sessions.touch(session)
    return slot
  }

  private func touch(_ slot: ChannelSlot?, _ page: PageID, _ index: LogIndex) {
    dirty.touch(slot, page, at: index, elapsed: loop.elapsedMilliseconds, loggedBytes: loggedBytes)
  }

  /// When an answer about this channel may leave: when the last effect on it, or on its type, is durable.
  func departure(_ slot: ChannelSlot) -> ReplyLane.Departure {
    departure(max(dirty.last(slot), dirty.typesLast))
  }

  func departure(_ last: LogIndex) -> ReplyLane.Departure {
    if last <= durable { return .now }
    return last <= closed ? .withInFlight : .withGathering
  }

  // MARK: Group commit

  /// Closes the batch that gathers.
  func closeBatch() -> CommitGroup.Batch {
    let index = gatheringIndex
    var bytes = ByteBuffer()
    bytes.reserveCapacity(effectBytes.readableBytes + 64)
    LogBatch.write(
      index: index,
      time: state.time,
      sessions: sessions.takeTouched(at: state.time, elapsed: loop.elapsedMilliseconds),
      effectCount: effectCount,
      effects: effectBytes,
      into: &bytes
    )
    effectBytes.clear()
    effectCount = 0
    closed = index
    loggedBytes += UInt64(bytes.readableBytes)
    // The head page keeps the sessions and the last index: it has to be written before the log can be cut behind this batch.
    touch(nil, .shardHead, index)
    return CommitGroup.Batch(shard: state.id, index: index, bytes: bytes)
  }

  /// Everything closed is durable.
  func committed() { durable = closed }

  /// Encodes pages that are due, as they are now. Nothing may be gathering: a page's index is that of the last closed batch, which is durable
  /// before the page is.
  ///
  /// - Returns: how many bytes were added.
  func addDuePages(to group: inout CommitGroup, budget: Int) -> Int {
    assert(!isGathering)
    var added = 0
    while added < budget {
      let entry = dirty.popDue { entry in
        loop.elapsedMilliseconds - entry.elapsed >= configuration.checkpointAgeMilliseconds
          || loggedBytes - entry.loggedBytes >= configuration.checkpointLogBytes
          || loop.memory.isPressed
      }
      guard let entry else { break }
      let write = encode(entry)
      added += write.bytes.readableBytes
      group.pages.append(write)
    }
    return added
  }

  /// The cut that has become possible, if it is worth its write.
  func takeCut(batchesMin: UInt64) -> CommitGroup.Cut? {
    guard !dirty.hasRecovered, tail.isEmpty else { return nil }
    let oldest = dirty.oldest ?? durable.next
    let possible = LogIndex(min(oldest.rawValue - 1, durable.rawValue))
    guard possible > cut, possible.rawValue - cut.rawValue >= batchesMin else { return nil }
    cut = possible
    return CommitGroup.Cut(shard: state.id, through: possible)
  }

  private func encode(_ entry: DirtyPages.Entry) -> CommitGroup.PageWrite {
    var cid: [UInt8]?
    var channel = ChannelNumber(0)
    let effects: [Effect]
    if let slot = entry.slot {
      channel = state[slot].number
      if entry.page == .head { cid = state[slot].cid }
      effects = state.effects(of: entry.page, in: slot)
    } else if entry.page == .types {
      effects = state.typeEffects
    } else {
      let kept = sessions.records(
        elapsed: loop.elapsedMilliseconds,
        lifetimeMilliseconds: 2 * configuration.sessionLifetimeMilliseconds
      )
      effects =
        [.countersAssigned(nextChannel: state.nextChannel, time: state.time)]
        + kept.map(Effect.sessionAssigned)
    }
    var bytes = ByteBuffer()
    Page(index: closed, effects: effects).write(into: &bytes)
    let key = PageKey(shard: state.id, channel: channel, page: entry.page)
    return CommitGroup.PageWrite(key: key, cid: cid, bytes: bytes)
  }

  // MARK: Recovery

  /// Takes over the shard's own pages and indexes the log's tail by channel; channels' pages are read when they are asked for.
  private func recover(_ stored: StoredShard) throws(StorageError) {
    let id = state.id
    var headIndex = LogIndex.zero
    var typesIndex = LogIndex.zero
    if let bytes = stored.head {
      let page = try Self.page(bytes, "shard \(id.rawValue), head page")
      headIndex = page.index
      try assign(page.effects, of: .shardHead, "shard \(id.rawValue), head page")
    }
    if let bytes = stored.types {
      let page = try Self.page(bytes, "shard \(id.rawValue), types page")
      typesIndex = page.index
      try assign(page.effects, of: .types, "shard \(id.rawValue), types page")
    }
    var last: LogIndex?
    for (index, bytes) in stored.log {
      let place = "shard \(id.rawValue), log index \(index.rawValue)"
      let batch: LogBatch
      do { batch = try LogBatch(bytes.readableBytesSpan) } catch { throw .corrupt("\(place): \(error)") }
      guard batch.index == index else { throw .corrupt("\(place): holds batch \(batch.index.rawValue)") }
      if let last, index != last.next {
        throw .corrupt("\(place): follows \(last.rawValue), batches between them are missing")
      }
      if last == nil, index > max(headIndex, .zero).next {
        throw .corrupt("\(place): the batches after \(headIndex.rawValue), the head page's, are missing")
      }
      last = index
      state.assign(time: batch.time)
      if index > headIndex { for session in batch.sessions { sessions.assign(session) } }
      for effect in batch.effects {
        if effect.channel != nil {
          tail.append(effect, at: index)
        } else if index > (effect.page == .types ? typesIndex : headIndex) {
          assignToShard(effect)
          dirty.touch(nil, effect.page, at: index, elapsed: 0, loggedBytes: 0, isRecovered: true)
        }
      }
    }
    if let last, max(headIndex, typesIndex) > last {
      throw .corrupt("shard \(id.rawValue): its pages are ahead of its log, which ends at \(last.rawValue)")
    }
    durable = max(last ?? .zero, headIndex, typesIndex)
    closed = durable
    cut = LogIndex((stored.log.first?.index.rawValue ?? durable.next.rawValue) - 1)
    if !stored.log.isEmpty {
      dirty.touch(nil, .shardHead, at: durable, elapsed: 0, loggedBytes: 0, isRecovered: true)
    }
  }

  private func assign(_ effects: [Effect], of page: PageID, _ place: String) throws(StorageError) {
    for effect in effects {
      guard effect.channel == nil, effect.page == page else {
        throw .corrupt("\(place): holds an effect of another page")
      }
      assignToShard(effect)
    }
  }

  private func assignToShard(_ effect: Effect) {
    if case .sessionAssigned(let record) = effect { sessions.assign(record) } else { state.assign(effect) }
  }

  static func page(_ bytes: ByteBuffer, _ place: @autoclosure () -> String) throws(StorageError) -> Page {
    do { return try Page(bytes.readableBytesSpan) } catch { throw .corrupt("\(place()): \(error)") }
  }
}
