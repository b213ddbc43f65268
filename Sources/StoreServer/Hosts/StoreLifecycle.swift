/// Whether the loops of a store serve, and what the halt of one of them means. A pure state machine.
///
/// starting → serving → halted → starting; a start may halt before it serves.
struct StoreLifecycle {
  private enum State {
    /// Loops are being made from storage. Becomes `serving` or `halted`.
    case starting
    /// Becomes `halted`.
    case serving
    /// A loop's commit has failed. Becomes `starting`.
    case halted
  }

  enum OnHalt {
    /// Another loop of these has halted before.
    case ignore
    /// The start in progress notices it, or the store is stopping.
    case report
    case reportAndReload
  }

  private var state = State.starting
  /// Number of times that loops were made from storage.
  private var generation: UInt64 = 0
  private(set) var isStopping = false

  /// - Returns: the generation of the loops that are made now.
  mutating func begin() -> UInt64 {
    state = .starting
    generation += 1
    return generation
  }

  /// - Returns: whether the loops serve; false if one of them has halted already.
  mutating func started() -> Bool {
    guard case .starting = state else { return false }
    state = .serving
    return true
  }

  /// Return whether the loops of this generation serve, and the store does not stop.
  func serves(_ generation: UInt64) -> Bool {
    if case .serving = state { generation == self.generation && !isStopping } else { false }
  }

  /// Return whether the loops of this generation are still being made.
  func isStarting(_ generation: UInt64) -> Bool {
    if case .starting = state { generation == self.generation } else { false }
  }

  /// Handle the halt of a loop of this generation.
  mutating func halted(generation: UInt64) -> OnHalt {
    guard generation == self.generation else { return .ignore }
    switch state {
    case .halted: return .ignore
    case .starting:
      state = .halted
      return .report
    case .serving:
      state = .halted
      return isStopping ? .report : .reportAndReload
    }
  }

  mutating func stop() { isStopping = true }
}
