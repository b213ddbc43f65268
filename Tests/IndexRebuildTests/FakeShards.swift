import ReceiptModel
import ReceiptWire

@testable import IndexRebuild

/// Shards as Proto/frames.md has them answer rebuild_index: each is through a phase after some questions. A restart
/// forgets what was under way, not the epoch.
struct FakeShards {
  struct Shard {
    var epoch: UInt64
    var channels: UInt64
    var phase = RebuildFields.Phase.none
    var done: UInt64 = 0
    /// The epochs that it has sent everything with, and swept to.
    var sent: UInt64 = 0
    var swept: UInt64 = 0
  }

  var shards: [Shard]
  /// Entries of each channel.
  static let members: UInt64 = 3

  init(epochs: [UInt64], channels: UInt64 = 2) {
    shards = epochs.map { Shard(epoch: $0, channels: channels) }
  }

  mutating func restart() { for index in shards.indices { shards[index].phase = .none } }

  mutating func answer(_ request: RebuildRequest) -> RebuildFields {
    let index = Int(request.shard.rawValue)
    var shard = shards[index]
    switch request.kind {
    case .ask: break
    case .sendAgain:
      shard.epoch = max(shard.epoch, request.epoch)
      if shard.phase != .sendingAgain { (shard.phase, shard.done) = (.sendingAgain, 0) }
    case .sweep:
      if shard.phase != .sweeping { (shard.phase, shard.done) = (.sweeping, 0) }
    }
    if shard.phase != .none, request.kind == .ask { shard.done += 1 }
    if shard.done >= shard.channels, shard.phase != .none {
      if shard.phase == .sendingAgain { shard.sent = shard.epoch } else { shard.swept = shard.epoch }
      shard.phase = .none
    }
    shards[index] = shard
    return RebuildFields(
      phase: shard.phase,
      epoch: shard.epoch,
      channelsDone: shard.done,
      channels: shard.channels,
      entries: shard.done * Self.members
    )
  }
}
