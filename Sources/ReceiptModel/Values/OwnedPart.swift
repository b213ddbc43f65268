/// A part of a loop or of a shard: one feature with private state. Its owner attaches each part of a list written by
/// hand.
package protocol OwnedPart: AnyObject {
  /// Whether the owner has attached the part.
  var isAttached: Bool { get }
}

/// Require that an owner has attached every part among its stored properties: a part reaches its owner unchecked. Each
/// owner calls this once.
package func requirePartsAttached(of owner: some AnyObject) {
  precondition(
    Mirror(reflecting: owner).children.allSatisfy { ($0.value as? any OwnedPart)?.isAttached != false },
    "a part is missing in its owner's list of parts"
  )
}
