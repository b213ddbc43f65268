internal import Foundation
internal import NIOConcurrencyHelpers
package import ReceiptModel
package import StoreEngine

/// A data directory with RocksDB, opened now and reopened after a failed append.
package final class RocksDBStorage: ReopenableStorage {
  /// Size of a reserve file, so that a store whose disk is full can still be opened and its data flushed.
  package static let reserveBytes = 16 << 20

  private let directory: String
  private let settings: RocksDBSettings
  private let identity: RocksDBEngine.Identity
  private let engine: NIOLockedValueBox<RocksDBEngine?>
  private let directoryIdentity: DirectoryIdentity
  /// Set once a compaction has met damage: compaction is off from then on.
  private let hasFoundDamage = NIOLockedValueBox(false)

  /// Open the directory; create it if it does not exist. See
  /// ``RocksDBEngine/init(directory:shardCount:newStore:settings:compactsTables:)``.
  package init(
    directory: String,
    shardCount: Int?,
    newStore: SessionID,
    settings: RocksDBSettings = RocksDBSettings()
  ) throws(StorageError) {
    self.directory = directory
    self.settings = settings
    let engine = try RocksDBEngine(directory: directory, shardCount: shardCount, newStore: newStore, settings: settings)
    identity = engine.identity
    directoryIdentity = DirectoryIdentity(directory)
    self.engine = NIOLockedValueBox(engine)
    try Self.reserve(directory)
  }

  package var shardCount: Int { identity.shardCount }
  package var store: SessionID { identity.store }
  /// Warning for the operator about how the directory was opened; nil if there is none.
  package var warning: String? { engine.withLockedValue { $0?.warning } }
  /// Whether the directory is that of a cluster's node. Requires that it is open.
  package var isOfCluster: Bool {
    get throws(StorageError) {
      guard let engine = engine.withLockedValue({ $0 }) else { return false }
      return try engine.isOfCluster
    }
  }
  /// Make the directory that of a node; one of another node of the same cluster is refused. Requires that it is open.
  package func adopt(asNode node: NodeID) throws(StorageError) {
    try engine.withLockedValue({ $0 })?.adopt(asNode: node)
  }

  package var locationFault: String? { directoryIdentity.fault }
  package var syncIntervalMilliseconds: Int? { settings.durability.syncIntervalMilliseconds }

  package func open() throws(StorageError) -> any StorageEngine {
    if let opened = engine.withLockedValue({ $0 }) { return opened }
    // If the directory is gone, opening would create a new, empty one.
    if let fault = directoryIdentity.fault { throw .unusable(fault) }
    // While commits would be refused for lack of space, do not reload the shards. What was staged needs some.
    RocksDBSnapshotReceiver.removeLeftovers(in: directory)
    try RocksDBEngine.checkSpace(directory)
    try? FileManager.default.removeItem(atPath: Self.reservePath(directory))
    let opened = try RocksDBEngine(
      directory: directory,
      shardCount: identity.shardCount,
      newStore: identity.store,
      settings: settings,
      compactsTables: !hasFoundDamage.withLockedValue { $0 }
    )
    do throws(StorageError) {
      // Without the reserve the next append would fail like the last one.
      try Self.reserve(directory)
    } catch {
      opened.close()
      throw error
    }
    engine.withLockedValue { $0 = opened }
    return opened
  }

  package func close(_ storage: any StorageEngine) {
    engine.withLockedValue { engine in
      if engine?.hasFoundDamage == true { hasFoundDamage.withLockedValue { $0 = true } }
      engine?.close()
      engine = nil
    }
  }

  private static func reservePath(_ directory: String) -> String { directory + "/reserve" }

  private static func reserve(_ directory: String) throws(StorageError) {
    let file = Foundation.open(reservePath(directory), O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
    guard file >= 0 else {
      throw .unusable("--data \(directory): cannot be written to (\(String(cString: strerror(errno))))")
    }
    defer { _ = Foundation.close(file) }
    let code = posix_fallocate(file, 0, reserveBytes)
    guard code == 0 else {
      throw .unusable(
        "--data \(directory): \(reserveBytes >> 20) MiB of free space are needed (\(String(cString: strerror(code))))"
      )
    }
  }
}

/// Settings for opening a data directory.
package struct RocksDBSettings: Hashable, Sendable {
  package var durability = Durability.sync
  /// Size of RocksDB's block cache for pages, in bytes.
  package var cacheBytes = 32 << 20
  /// Age at which overwritten and deleted values in page tables are compacted away (R16), in seconds: a day.
  package var oldValuesSecondsMax = 86_400

  /// Whether the store keeps a feed (R21). A directory that has had one keeps its column family.
  package var hasFeed = false

  package init() {}
}

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
