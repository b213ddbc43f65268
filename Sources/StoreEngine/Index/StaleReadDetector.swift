internal import ReceiptModel

/// Channels with peeks in flight, to detect loads meanwhile: after one, the peek's result is stale or mixes two states.
struct StaleReadDetector {
  private struct Watch {
    var peeks = 0
    var entries: UInt32 = 0
  }

  private var watches: [[UInt8]: Watch] = [:]

  /// Begin a peek.
  ///
  /// - Returns: a count to pass to ``end(_:since:)``.
  mutating func begin(_ cid: [UInt8]) -> UInt32 {
    watches[cid, default: Watch()].peeks += 1
    return watches[cid]?.entries ?? 0
  }

  /// End a peek.
  ///
  /// - Returns: whether the channel was loaded since the peek began.
  mutating func end(_ cid: [UInt8], since entries: UInt32) -> Bool {
    guard var watch = watches[cid] else { return true }
    watch.peeks -= 1
    watches[cid] = watch.peeks == 0 ? nil : watch
    return watch.entries != entries
  }

  /// Record that a channel was loaded.
  mutating func channelLoaded(_ cid: [UInt8]) {
    guard !watches.isEmpty else { return }
    watches[cid]?.entries &+= 1
  }
}
