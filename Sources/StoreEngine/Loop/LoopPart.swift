internal import ReceiptModel

/// A part of a loop: one subject with its state, which no other part uses. It reaches the rest through ``loop``.
class LoopPart: OwnedPart {
  /// Unchecked for speed: the loop owns its parts and outlives them. Set once, when the loop has its stored properties.
  unowned(unsafe) private(set) final var loop: StoreLoop!

  final func attach(to loop: StoreLoop) { self.loop = loop }

  final var isAttached: Bool { loop != nil }

  /// Drop all work: the loop has halted and calls its driver no more.
  func stop() {}
}
