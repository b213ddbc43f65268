@testable import ReceiptModel

extension ShardState {
  /// Assign an effect to the shard, or to the channel in the slot.
  mutating func assign(_ effect: Effect, to slot: ChannelSlot? = nil) {
    switch effect {
    case .channel(_, let effect): assign(effect, to: slot!)
    case .shard(let effect): assign(effect)
    }
  }
}
