/// When an append is durable.
package enum Durability: Hashable, Sendable {
  /// When it is synced: before it is acknowledged.
  case sync
  /// When the next sync has passed, at most this long after it was acknowledged. A crash of the process loses nothing,
  /// one of the machine loses what was acknowledged since the last sync.
  case interval(milliseconds: Int)

  /// Between two syncs; nil where each commit has its own.
  package var syncIntervalMilliseconds: Int? {
    if case .interval(let milliseconds) = self { return milliseconds }
    return nil
  }

  /// The longest interval that can be chosen: a minute.
  package static let intervalMillisecondsMax = 60_000

  /// `sync` or `interval:MS`; nil for anything else.
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

/// What a data directory is opened with, each time.
package struct RocksDBSettings: Hashable, Sendable {
  package var durability = Durability.sync
  /// Blocks of pages that RocksDB keeps in memory, in bytes.
  package var cacheBytes = 32 << 20
  /// What was written over or deleted in tables of pages is merged away this long after (R16), in seconds: a day.
  package var oldValuesSecondsMax = 86_400

  package init() {}
}
