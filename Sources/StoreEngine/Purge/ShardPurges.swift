internal import ReceiptModel
internal import ReceiptWire

/// The purge rounds of a shard, with the requests for them.
final class ShardPurges: ShardPart {
  private var rounds = PurgeRoundMachine()

  /// Answer which round the client must wait for, or that it has ended.
  func perform(_ request: inout Request) throws(WireError) -> Outcome {
    let round = try request.fields.varint()
    try request.fields.end()
    let awaited = rounds.awaitedRound(after: round)
    beginIfDue()
    resume()
    return shard.reply(request, .now) { $0.writeVarint(awaited) }
  }

  /// Begin another round if a request waits for it.
  private func beginIfDue() {
    guard rounds.isDue else { return }
    rounds.begin(through: shard.state.outbox.last)
  }

  /// Start writing pages and trimming the log, once the outbox keeps no change from before the round began.
  func resume() {
    guard case .sending(let through) = rounds.stage, shard.outgoing.areConfirmed(through: through) else {
      return
    }
    shard.outgoing.logSent()
    guard !shard.state.outbox.keepsChanges(through: through) else { return }
    rounds.beginTrimming(through: shard.log.last)
    shard.loop.purges.begin(shard)
  }

  var isUnderWay: Bool { rounds.isUnderWay }

  /// Return whether a page that has been dirty since `since` must be written for the current round.
  func isPageDue(_ since: LogIndex) -> Bool { rounds.isPageDue(since) }

  /// Whether the storage may be purged for this shard. Requires that no commit is in flight.
  var isLogTrimmed: Bool { rounds.isLogTrimmed(shard.log.trimmed) }

  /// Record that the storage is being purged for this shard.
  func storageBegan() { rounds.beginStoring() }

  /// Handle the end of the storage's purge, or its failure.
  func ended(isDone: Bool) {
    rounds.stored(isDone: isDone)
    beginIfDue()
    resume()
  }
}
