internal import ReceiptModel

/// A part of a shard: one feature with its state, which no other part uses. It reaches the rest through ``shard``.
class ShardPart: OwnedPart {
  /// Unchecked for speed: the shard owns its parts and outlives them. Set once, when the shard has its stored
  /// properties.
  unowned(unsafe) private(set) final var shard: ShardEngine!

  final func attach(to shard: ShardEngine) { self.shard = shard }

  final var isAttached: Bool { shard != nil }

  /// Begin to serve from the shard's recovered or followed state.
  func beginToServe() {}

  /// Forget a connection that is gone.
  func close(_ lane: ReplyLane) {}

  /// Drop all work: the loop has halted.
  func stop() {}
}
