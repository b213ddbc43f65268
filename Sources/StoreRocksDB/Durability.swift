/// Time at which an append becomes durable.
package enum Durability: Hashable, Sendable {
  /// Synced before it is acknowledged.
  case sync
  /// Synced at the next interval, at most this long after it was acknowledged. A crash of the process loses nothing; a
  /// failure of the machine loses what was acknowledged since the last sync.
  case interval(milliseconds: Int)

  /// Interval between two syncs; nil if each commit syncs.
  package var syncIntervalMilliseconds: Int? {
    if case .interval(let milliseconds) = self { return milliseconds }
    return nil
  }

  /// Maximum interval: a minute.
  package static let intervalMillisecondsMax = 60_000

  /// Parse `sync` or `interval:MS`; nil for anything else.
  package init?(_ text: String) {
    if text == "sync" {
      self = .sync
      return
    }
    let parts = text.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
    guard parts.count == 2, parts[0] == "interval", parts[1].utf8.allSatisfy({ $0 >= 0x30 && $0 <= 0x39 }),
      let milliseconds = Int(parts[1]), (1...Self.intervalMillisecondsMax).contains(milliseconds)
    else { return nil }
    self = .interval(milliseconds: milliseconds)
  }
}
