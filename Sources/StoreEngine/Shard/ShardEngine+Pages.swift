internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// Page writes and log trims.
extension ShardEngine {
  /// Encode the pages that are due, in their current state. Requires that no batch is open: a page carries the
  /// index of the last closed batch, which is durable before the page is.
  ///
  /// - Returns: how many bytes were added.
  func addDuePages(to group: inout CommitGroup, budget: Int) -> Int {
    assert(!log.hasOpenBatch)
    var added = 0
    while added < budget {
      guard let entry = takeDuePage() else { break }
      guard let write = encode(entry) else { continue }
      added += write.bytes.readableBytes
      group.pages.append(write)
    }
    return added
  }

  /// Return the possible trim of the log if it is worth a write.
  func takeLogTrim(batchesMin: UInt64) -> CommitGroup.LogTrim? {
    // A follower nearly always has effects in its tail; it keeps the log from the oldest of them on.
    guard loop.isFollowing || !dirty.hasRecovered && tail.isEmpty else { return nil }
    var oldest = min(dirty.oldest ?? log.durable.next, deletions.oldest ?? log.durable.next)
    if loop.isFollowing { oldest = min(oldest, oldestFollowed ?? oldest) }
    let batchesMin = purges.isUnderWay ? 1 : batchesMin
    guard let possible = trimLog(before: oldest, batchesMin: batchesMin) else { return nil }
    return CommitGroup.LogTrim(shard: state.id, through: possible)
  }

  /// Return nil for a segment of steps that was trimmed before it was written.
  private func encode(_ entry: DirtyPages.Entry) -> CommitGroup.PageWrite? {
    var cid: [UInt8]?
    var channel = ChannelNumber(0)
    let effects: [Effect]
    if let slot = entry.slot {
      channel = state[slot].number
      if entry.page == .head { cid = state[slot].cid }
      effects = state.effects(of: entry.page, in: slot)
      if entry.page.isOfSteps {
        guard !effects.isEmpty else { return nil }
        steps.recordWrite(slot, channel, entry.page)
      }
    } else {
      effects = shardPageEffects(entry.page)
    }
    var bytes = ByteBuffer()
    Page(index: log.closed, effects: effects).write(into: &bytes)
    let key = PageKey(shard: state.id, channel: channel, page: entry.page)
    return CommitGroup.PageWrite(key: key, cid: cid, bytes: bytes)
  }

  /// Return the current effects of one of the shard's own pages.
  private func shardPageEffects(_ page: PageID) -> [Effect] {
    switch page {
    case .shardHead: headEffects
    case .types: state.typeEffects
    case .users(let number): state.userEffects(number)
    case .outbox(let number): state.outboxEffects(number)
    case .index: state.indexEffects
    case .webhooks(let number): state.webhookEffects(number)
    case .tokens: state.tokenEffects
    default: preconditionFailure("page \(page) belongs to a channel")
    }
  }

  /// The counters, the id format and the sessions.
  private var headEffects: [Effect] {
    return [.shard(.countersAssigned(nextChannel: state.nextChannel, time: state.time))]
      + (state.hasWideIDs ? [.shard(.idsWidened)] : []) + sessions.kept.map { .shard(.sessionAssigned($0)) }
  }
}
