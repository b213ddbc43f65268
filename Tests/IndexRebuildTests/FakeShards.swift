import ReceiptModel
import ReceiptWire

@testable import IndexRebuild

/// Fake shards that answer rebuild_index as Proto/frames.md says: each finishes a phase after a few requests. A
/// restart loses the running phase, but not the epoch.
struct FakeShards {
  struct Shard {
    var epoch: UInt64
    var channels: UInt64
    var phase = RebuildIndexReply.Phase.none
    var done: UInt64 = 0
    /// The last epochs with which the shard has sent everything, and to which it has swept.
    var sent: UInt64 = 0
    var swept: UInt64 = 0
  }

  var shards: [Shard]
  /// The number of index entries of each channel.
  static let members: UInt64 = 3

  init(epochs: [UInt64], channels: UInt64 = 2) {
    shards = epochs.map { Shard(epoch: $0, channels: channels) }
  }

  mutating func restart() { for index in shards.indices { shards[index].phase = .none } }

  mutating func reply(_ request: RebuildRequest) -> RebuildIndexReply {
    let index = Int(request.shard.rawValue)
    var shard = shards[index]
    switch request.kind {
    case .ask: break
    case .resend:
      shard.epoch = max(shard.epoch, request.epoch)
      if shard.phase != .resending { (shard.phase, shard.done) = (.resending, 0) }
    case .sweep:
      if shard.phase != .sweeping { (shard.phase, shard.done) = (.sweeping, 0) }
    }
    if shard.phase != .none, request.kind == .ask { shard.done += 1 }
    if shard.done >= shard.channels, shard.phase != .none {
      if shard.phase == .resending { shard.sent = shard.epoch } else { shard.swept = shard.epoch }
      shard.phase = .none
    }
    shards[index] = shard
    return RebuildIndexReply(
      phase: shard.phase,
      epoch: shard.epoch,
      channelsDone: shard.done,
      channels: shard.channels,
      entries: shard.done * Self.members
    )
  }
}
