internal import ReceiptModel
internal import ReceiptWire

/// Following of another loop's log: recovery code that runs continuously (docs/contribute/architecture.md, "Log, pages
/// and recovery").
extension ShardEngine {
  /// Apply the next batch of the log. Effects on the shard are assigned. Effects on a channel are assigned if the
  /// channel is in memory; otherwise they wait in the log's tail until it is loaded.
  ///
  /// - Parameter pages: at recovery, the log index up to which each of the shard's own pages includes the log; nil for
  ///   a follower, whose pages are all older than the batch.
  func follow(_ batch: LogBatch, over pages: [PageID: LogIndex]?) throws(StorageError) {
    // Channels with this number and above are new with the batch: storage has nothing of them.
    let firstNew = pages == nil ? state.nextChannel : ChannelNumber(.max)
    assign(time: batch.time)
    if batch.index > pages?[.shardHead] ?? .zero {
      for session in batch.sessions { sessions.assign(session, elapsed: loop.elapsedMilliseconds) }
    }
    // A command's effects on its channel stand together.
    var known: (number: ChannelNumber, slot: ChannelSlot?)?
    for effect in batch.effects {
      switch effect {
      case .channel(let number, let effect):
        let slot = known?.number == number ? known?.slot : state.loadedSlot(numbered: number)
        known = (number, follow(effect, on: number, slot, at: batch.index, isNew: number >= firstNew))
      case .shard(let effect):
        if let pages {
          guard batch.index > pages[effect.page] ?? .zero else { continue }
        }
        try checkOrder(effect, "shard \(state.id.rawValue), log index \(batch.index.rawValue)")
        if pages == nil {
          assignAndTouch(effect, at: batch.index)
        } else {
          recover(effect)
          touchRecoveredShardPage(effect.page, batch.index)
        }
      }
    }
  }

  /// Apply an effect on a channel.
  ///
  /// - Parameters:
  ///   - slot: the channel's slot; nil if it is not in memory.
  ///   - isNew: the batch creates the channel.
  /// - Returns: the channel's slot afterwards.
  private func follow(
    _ effect: ChannelEffect,
    on number: ChannelNumber,
    _ slot: ChannelSlot?,
    at index: LogIndex,
    isNew: Bool
  ) -> ChannelSlot? {
    guard slot != nil || isNew && isCreation(effect, of: number) else {
      if case .channelDeleted(let cid) = effect {
        deletions.dropFromTail(number, cid, at: index)
      } else {
        if case .channelAssigned(let cid, _, _) = effect { deletions.nameReused(cid) }
        tail.append(effect, on: number, at: index)
      }
      return nil
    }
    if let slot {
      recordUse(of: slot)
      if case .channelDeleted = effect { deletions.followEnd(slot) }
    }
    var sealedPage: UInt32?
    let kept = assignAndTouch(effect, on: number, to: slot, at: index, &sealedPage)
    if let kept {
      if effect.traits.contains(.changesMessageCounts) { touch(.head, of: kept, index) }
      if case .deletionBegun = effect { deletions.resume(kept, at: index) }
    }
    return kept
  }

  private func isCreation(_ effect: ChannelEffect, of number: ChannelNumber) -> Bool {
    guard case .channelAssigned = effect else { return false }
    return !tail.hasEffects(on: number)
  }

  /// Mark the pages of a loaded channel dirty whose newest effects were in the tail, each from its oldest such effect
  /// on, because a follower trims its log while other channels are still in the tail.
  ///
  /// - Parameters:
  ///   - newer: pages with effects from the tail, and the log index of each effect.
  ///   - tail: the channel's effects in the tail.
  func touchFollowed(
    _ slot: ChannelSlot,
    _ number: ChannelNumber,
    newer: [(page: PageID, index: LogIndex)],
    tail: [(index: LogIndex, effect: ChannelEffect)]
  ) {
    for (page, index) in newer.sorted(by: { $0.index < $1.index }) {
      touchRecovered(page, of: slot, index, elapsed: loop.elapsedMilliseconds, loggedBytes: log.loggedBytes)
    }
    for (index, effect) in tail {
      guard case .stepsTrimmed(let rowPage, let first) = effect else { continue }
      steps.deleteSegments(of: number, rowPage, before: first, at: index)
    }
  }

  /// Oldest effect that is in the tail, or in a loaded channel whose pages are still to be written.
  var oldestFollowed: LogIndex? {
    guard let inTail = tail.oldest() else { return dirty.oldestRecovered }
    return min(inTail, dirty.oldestRecovered ?? inTail)
  }
}
