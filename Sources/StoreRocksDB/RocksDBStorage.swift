import Foundation
import NIOConcurrencyHelpers
package import ReceiptModel
package import StoreEngine

/// A data directory with RocksDB in it, opened now and again after a failed append.
package final class RocksDBStorage: ReopenableStorage {
  /// Kept free on the disk, so that a store whose disk has filled up can still be opened, and what it holds be written
  /// out.
  package static let reserveBytes = 16 << 20

  private let directory: String
  private let settings: RocksDBSettings
  private let identity: RocksDBEngine.Identity
  private let engine: NIOLockedValueBox<RocksDBEngine?>
  private let place: DirectoryPlace
  /// A merge of tables has met damage: from then on they are left as they are.
  private let hasMetDamage = NIOLockedValueBox(false)

  /// Opens the directory, and creates it where there is none; see
  /// ``RocksDBEngine/init(directory:shardCount:newStore:settings:mergesTables:)``.
  package init(
    directory: String,
    shardCount: Int?,
    newStore: SessionID,
    settings: RocksDBSettings = RocksDBSettings()
  ) throws(StorageError) {
    self.directory = directory
    self.settings = settings
    let engine = try RocksDBEngine(
      directory: directory,
      shardCount: shardCount,
      newStore: newStore,
      settings: settings
    )
    identity = engine.identity
    place = DirectoryPlace(directory)
    self.engine = NIOLockedValueBox(engine)
    try Self.reserve(directory)
  }

  package var shardCount: Int { identity.shardCount }
  package var store: SessionID { identity.store }
  /// What an operator has to know of how the directory was opened; nil: nothing.
  package var warning: String? { engine.withLockedValue { $0?.warning } }
  package var placeFault: String? { place.fault }
  package var syncIntervalMilliseconds: Int? { settings.durability.syncIntervalMilliseconds }

  package func open() throws(StorageError) -> any StorageEngine {
    if let opened = engine.withLockedValue({ $0 }) { return opened }
    // Where the directory is gone a new one would be made, with nothing in it.
    if let fault = place.fault { throw .unusable(fault) }
    // As long as commits would be refused, the shards need not be read again.
    try RocksDBEngine.checkSpace(directory)
    try? FileManager.default.removeItem(atPath: Self.reservePath(directory))
    let opened = try RocksDBEngine(
      directory: directory,
      shardCount: identity.shardCount,
      newStore: identity.store,
      settings: settings,
      mergesTables: !hasMetDamage.withLockedValue { $0 }
    )
    do throws(StorageError) {
      // Without the reserve the next append would fail as the last one did.
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
      if engine?.hasMetDamage == true { hasMetDamage.withLockedValue { $0 = true } }
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
