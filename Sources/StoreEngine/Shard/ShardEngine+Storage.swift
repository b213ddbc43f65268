internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// Recovery of a shard from storage.
extension ShardEngine {
  /// Restore the shard's own pages and index the log's tail by channel. Channels' pages are read on demand.
  func recover(_ stored: StoredShard) throws(StorageError) {
    let id = state.id
    var included: [PageID: LogIndex] = [:]
    for (number, bytes) in stored.pages {
      let location = "shard \(id.rawValue), \(Self.name(number))"
      let page = try Self.page(bytes, location)
      included[number] = page.index
      try assign(page.effects, of: number, location)
    }
    let headIndex = included[.shardHead] ?? .zero
    let pagesIndex = included.values.max() ?? .zero
    if loop.isFollowing, let first = stored.log.first {
      // A follower trims its log before all of it is in pages. The head page keeps the sessions of every batch.
      touchRecoveredShardPage(.shardHead, first.index)
    }
    var last: LogIndex?
    for (index, bytes) in stored.log {
      let location = "shard \(id.rawValue), log index \(index.rawValue)"
      let batch = try Self.batch(bytes, location)
      guard batch.index == index else { throw .corrupt("\(location): holds batch \(batch.index.rawValue)") }
      if let last, index != last.next {
        throw .corrupt("\(location): follows \(last.rawValue), batches in between are missing")
      }
      if last == nil, index > max(headIndex, .zero).next {
        throw .corrupt("\(location): the batches after \(headIndex.rawValue), the head page's, are missing")
      }
      last = index
      try follow(batch, over: included)
    }
    if let last, pagesIndex > last {
      throw .corrupt("shard \(id.rawValue): its pages are ahead of its log, which ends at \(last.rawValue)")
    }
    feed.recover(stored.feed)
    let end = max(last ?? .zero, pagesIndex)
    resumeLog(through: end, first: stored.log.first?.index ?? end.next)
    if !stored.log.isEmpty {
      touchRecoveredShardPage(.shardHead, log.durable)
    }
  }

  private func assign(_ effects: [Effect], of page: PageID, _ location: String) throws(StorageError) {
    for effect in effects {
      guard case .shard(let effect) = effect, effect.page == page else {
        throw .corrupt("\(location): holds an effect of another page")
      }
      try checkOrder(effect, location)
      recover(effect)
    }
  }

  /// Assign an effect of one of the shard's own pages, or of the log behind it.
  func recover(_ effect: ShardEffect) {
    switch effect {
    case .sessionAssigned(let record): sessions.assign(record)
    case .membershipQueued(let number, let change): outgoing.recoverQueued(number, change)
    case .membershipsConfirmed(let target, let number): outgoing.recoverConfirmed(by: target, through: number)
    case .consumer(let change):
      assignRecovered(effect)
      if case .deletionHeld(let deletion) = change { deletions.recordHold(deletion.channel) }
    default:
      assert(!effect.traits.contains(.hasRecovery))
      assignRecovered(effect)
    }
  }

  /// Return the readable name of one of the shard's own pages.
  private static func name(_ page: PageID) -> String {
    switch page {
    case .shardHead: "head page"
    case .types: "types page"
    case .users(let number): "users page \(number)"
    case .outbox(let number): "outbox page \(number)"
    case .index: "index page"
    case .webhooks(let number): "webhooks page \(number)"
    case .tokens: "tokens page"
    case .consumers: "consumers page"
    case .timers(let number): "timers page \(number)"
    case .pushJob(let number): "push job page \(number)"
    default: "page \(page)"
    }
  }

  /// Throw where assigning the effect would trap: users must appear in the order of their numbers, revocations in that
  /// of their versions, and membership changes must be valid.
  func checkOrder(_ effect: ShardEffect, _ location: @autoclosure () -> String) throws(StorageError) {
    guard let fault = fault(of: effect) else { return }
    throw .corrupt("\(location()): \(fault)")
  }

  /// Return why assigning the effect would trap; nil if it would not.
  private func fault(of effect: ShardEffect) -> String? {
    let (userFault, changeFault) = ("users' settings are out of order", "an invalid membership change")
    switch effect {
    case .userAssigned(let number, let settings): return isNextOrSame(number, settings.user) ? nil : userFault
    case .userErased(let number, _, _, _): return number <= state.settings.count ? nil : userFault
    case .userSettled(let number, _): return Int(number) < state.settings.count ? nil : userFault
    case .tokenRevoked(let revocation):
      return revocation.version > state.revokedTokens.version ? nil : "token revocations are out of order"
    case .membershipQueued(let number, let change): return outgoing.isValid(number, change) ? nil : changeFault
    case .membershipsConfirmed(let other, let number), .membershipsReceived(let other, let number):
      return outgoing.isValid(number, of: other) ? nil : changeFault
    default:
      assert(!effect.traits.contains(.hasConditions))
      return nil
    }
  }

  /// Return whether a number is the named user's, or the next one of a new user.
  private func isNextOrSame(_ number: UInt32, _ user: String) -> Bool {
    guard !user.isEmpty else { return false }
    return number < state.settings.count && !state.settings.isNameless(number)
      ? state.settings[number].user.isExactly(user) : number <= state.settings.count && state.settings.find(user) == nil
  }

  static func batch(_ bytes: ByteBuffer, _ location: @autoclosure () -> String) throws(StorageError) -> LogBatch {
    do { return try LogBatch(bytes.readableBytesSpan) } catch { throw .corrupt("\(location()): \(error)") }
  }

  static func page(_ bytes: ByteBuffer, _ location: @autoclosure () -> String) throws(StorageError) -> Page {
    do { return try Page(bytes.readableBytesSpan) } catch { throw .corrupt("\(location()): \(error)") }
  }
}

/// Page writes and log trims.
extension ShardEngine {
  /// Encode the pages that are due, in their current state. Requires that no batch is open: a page carries the
  /// index of the last closed batch, which is durable before the page is.
  ///
  /// - Returns: how many bytes were added.
  func addDuePages(to commit: inout LoopCommit, budget: Int) -> Int {
    assert(!log.hasOpenBatch)
    var added = 0
    while added < budget {
      guard let entry = takeDuePage() else { break }
      guard let write = encode(entry) else { continue }
      added += write.bytes.readableBytes
      commit.pages.append(write)
    }
    return added
  }

  /// Return the possible trim of the log if it is worth a write.
  func takeLogTrim(batchesMin: UInt64) -> LoopCommit.LogTrim? {
    // A follower nearly always has effects in its tail; it keeps the log from the oldest of them on.
    guard loop.isFollowing || !dirty.hasRecovered && tail.isEmpty else { return nil }
    var oldest = min(dirty.oldest ?? log.durable.next, deletions.oldest ?? log.durable.next)
    if loop.isFollowing { oldest = min(oldest, oldestFollowed ?? oldest) }
    let batchesMin = purges.isUnderWay ? 1 : batchesMin
    return trimLog(before: oldest, batchesMin: batchesMin).map { after, through in
      LoopCommit.LogTrim(shard: state.id, after: after, through: through)
    }
  }

  /// Return nil for a segment of steps that was trimmed before it was written.
  private func encode(_ entry: DirtyPages.Entry) -> LoopCommit.PageWrite? {
    var cid: [UInt8]?
    var channel = ChannelNumber(0)
    var effects: [Effect]
    switch entry.owner {
    case .channel(let slot, _):
      channel = state[slot].number
      if entry.page == .head { cid = state[slot].cid }
      effects = state.effects(of: entry.page, in: slot)
      if entry.page.isOfSteps {
        guard !effects.isEmpty else { return nil }
        steps.recordWrite(slot, channel, entry.page)
      }
    case .shard:
      effects = state.effects(ofOwn: entry.page)
      if entry.page == .shardHead { effects += sessions.kept.map { .shard(.sessionAssigned($0)) } }
    }
    var bytes = ByteBuffer()
    Page(index: log.closed, effects: effects).write(into: &bytes)
    let key = PageKey(shard: state.id, channel: channel, page: entry.page)
    return LoopCommit.PageWrite(key: key, cid: cid, bytes: bytes)
  }
}
