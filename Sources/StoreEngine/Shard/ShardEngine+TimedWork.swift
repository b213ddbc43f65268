internal import ReceiptModel

/// Work that runs in slices or at a time, not for a request.
extension ShardEngine {
  /// Resume pending changes, a rebuild and channel deletions, as far as the budget until the next slice allows.
  ///
  /// - Parameter isAfterRead: something was just loaded. If memory is short, it is evicted again at the end of the
  ///   turn, so at least one step is made.
  func resumeIndexWork(isAfterRead: Bool = false) {
    guard !loop.isFollowing else { return }
    if !indexes.isEmpty {
      if isAfterRead { loop.budget.allowChange() }
      indexes.applyChanges()
    }
    if indexRebuild.isRunning {
      if isAfterRead { loop.budget.allowChange() }
      indexRebuild.resumeRebuild()
    }
    if deletions.hasSliced { deletions.resumeDeletions() }
  }

  /// Run the timed work of the outbox and the indexes.
  func tickIndexes() {
    outgoing.tickOutgoing()
    resumeIndexWork()
  }

  /// Begin a batch that holds nothing but the shard's time.
  ///
  /// - Parameter session: session of the request that needs it; nil if the shard does.
  func logTimeNow(session: Int32? = nil) {
    let time = Effect.shard(.countersAssigned(nextChannel: state.nextChannel, time: state.time))
    applyEffects([time], to: nil, session: session)
  }
}
