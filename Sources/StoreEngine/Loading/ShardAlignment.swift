internal import ReceiptModel

/// Makes shards fit together that were copied at different moments: a node of a cluster follows each group by itself
/// (docs/operate/cluster.md, "Backups").
///
/// A home shard takes a change of memberships for a duplicate if it has received the change's number. So a shard whose
/// copy is the older one must not give these numbers again. A home shard whose copy is the older one must not wait for
/// changes that the other shard has dropped. What one of them lacks is missing in the index of users' channels until
/// that is rebuilt. Channel types and users' settings are assigned to the shards that have an older version.
package struct ShardAlignment {
  /// What did not fit.
  package struct Report: Hashable, Sendable {
    /// Pairs of a shard and another one, the home of users, of which one had changes of memberships that the other
    /// lacked.
    package var changes = 0
    /// Channel types and users' settings, counted for each shard that had an older version.
    package var settings = 0

    package init(changes: Int = 0, settings: Int = 0) {
      self.changes = changes
      self.settings = settings
    }

    /// Whether users' lists of channels may lack some until the index is rebuilt.
    package var needsIndexRebuild: Bool { changes > 0 }
  }

  private var report = Report()

  private init() {}

  /// Return the log batches that align all shards of a store, to be stored in one step; none if they fit.
  ///
  /// - Parameter storage: nothing else uses it before that.
  package static func plan(
    for storage: any StorageEngine,
    shardCount: Int
  ) throws(StorageError) -> (batches: [LoopCommit.Batch], report: Report) {
    var stored: [(shard: ShardID, state: StoredShard)] = []
    for number in 0..<shardCount {
      let shard = ShardID(UInt16(number))
      stored.append((shard, try storage.recover(shard)))
    }
    var alignment = ShardAlignment()
    let batches = try ShardRecovery.batches(of: stored, shardCount: shardCount) { loop in
      loop.clock = loop.loggedTime
      alignment.alignChanges(loop.shards)
      alignment.alignTypes(loop.shards)
      alignment.alignUsers(loop.shards)
      loop.endTurn()
    }
    return (batches, alignment.report)
  }

  private mutating func alignChanges(_ shards: [ShardEngine]) {
    for source in shards {
      for home in shards where home !== source {
        let received = home.state.outbox.received(from: source.state.id)
        let confirmed = source.state.outbox.confirmed(by: home.state.id)
        if received > source.state.outbox.last {
          // The source is the older copy: skip the numbers that the home shard has received.
          apply(.membershipsConfirmed(by: home.state.id, through: received), to: source)
          report.changes += 1
        }
        if confirmed > received {
          // The home shard is the older copy: do not wait for changes that the source has dropped.
          apply(.membershipsReceived(from: source.state.id, through: confirmed), to: home)
          report.changes += 1
        }
      }
    }
  }

  private mutating func alignTypes(_ shards: [ShardEngine]) {
    var newest: [String: ChannelTypeRecord] = [:]
    for shard in shards {
      for record in shard.state.types.setRecords where record.version > newest[record.name]?.version ?? 0 {
        newest[record.name] = record
      }
    }
    for record in newest.values.sorted(by: { $0.name < $1.name }) {
      // Stored as not settled, so that gateways assign it to all shards again if the home shard had an older version.
      let assigned = ChannelTypeRecord(name: record.name, version: record.version, options: record.options)
      for shard in shards {
        assign(to: shard) { shard.state.types.decideAssign(assigned, at: shard.advanceTime(), into: &$0) }
      }
    }
  }

  private mutating func alignUsers(_ shards: [ShardEngine]) {
    var newest: [String: UserSettings] = [:]
    for shard in shards {
      for number in 0..<UInt32(shard.state.settings.count) where !shard.state.settings.isNameless(number) {
        let settings = shard.state.settings[number]
        if settings.version > newest[settings.user]?.version ?? 0 { newest[settings.user] = settings }
      }
    }
    for var settings in newest.values.sorted(by: { $0.user < $1.user }) {
      // A shard that is newer may have erased the user: the settings have to count there too.
      let last = shards.map { $0.state.settings[settings.user].version }.max() ?? 0
      if last > settings.version { settings.version = last + 1 }
      for shard in shards {
        assign(to: shard) { shard.state.settings.decideAssign(settings, at: shard.advanceTime(), into: &$0) }
      }
    }
  }

  private mutating func assign(to shard: ShardEngine, _ decide: (inout [Effect]) -> Void) {
    var effects: [Effect] = []
    decide(&effects)
    guard !effects.isEmpty else { return }
    shard.applyEffects(effects, to: nil)
    report.settings += 1
  }

  private func apply(_ effect: ShardEffect, to shard: ShardEngine) {
    shard.advanceTime()
    shard.applyEffects([.shard(effect)], to: nil)
  }
}
