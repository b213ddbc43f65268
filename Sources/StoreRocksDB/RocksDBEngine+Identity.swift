internal import CRocksDB
internal import Foundation
internal import ReceiptModel
package import StoreEngine

/// Identity of a data directory, in the default column family: keys `format`, `shards`, `store`; in a cluster also
/// `node`, the node's number followed by the store's identity: it counts for that store only.
extension RocksDBEngine {
  private static let formatVersion = "1"
  /// Number of shards of a new directory if none is given.
  package static let shardCountDefault = 16
  /// A shard is 16 bits on the wire.
  package static let shardCountMax = 4_096

  static func identity(
    directory: String,
    asked: Int?,
    newStore: SessionID,
    in families: RocksDBFamilies,
    _ read: RocksDBReadOptions
  ) throws(StorageError) -> Identity {
    guard let stored = try storedIdentity(directory, in: families, read) else {
      let shards = asked ?? shardCountDefault
      guard (1...shardCountMax).contains(shards) else {
        throw .unusable("--shards \(shards): has to be 1 to \(shardCountMax)")
      }
      let values = [
        ("shards", String(shards)), ("store", text(of: newStore)), ("format", formatVersion),
      ]
      try put(values, directory, database: families.database.pointer, meta: families.meta.pointer)
      return Identity(shardCount: shards, store: newStore)
    }
    if let asked, asked != stored.shardCount {
      throw .unusable(
        """
        --shards \(asked): \(directory) was created with \(stored.shardCount) shards, which is fixed; leave \
        the flag out or say \(stored.shardCount)
        """
      )
    }
    return stored
  }

  /// Read the directory's identity; nil if it was just created.
  static func storedIdentity(
    _ directory: String,
    in families: RocksDBFamilies,
    _ read: RocksDBReadOptions
  ) throws(StorageError) -> Identity? {
    func get(_ key: String) throws(StorageError) -> String? { try text(of: key, directory, in: families, read) }
    guard let format = try get("format") else { return nil }
    guard format == formatVersion else {
      throw .unusable("--data \(directory): has format \(format); this tidemark-store reads format \(formatVersion)")
    }
    let store = (try get("store") ?? "").split(separator: " ").compactMap { UInt64($0) }
    guard let shards = try get("shards").flatMap({ Int($0) }), (1...shardCountMax).contains(shards), store.count == 2
    else { throw .corrupt("\(directory): its identity cannot be read") }
    return Identity(shardCount: shards, store: SessionID(high: store[0], low: store[1]))
  }

  /// Return the value of a key of the identity; nil: there is none.
  private static func text(
    of key: String,
    _ directory: String,
    in families: RocksDBFamilies,
    _ read: RocksDBReadOptions
  ) throws(StorageError) -> String? {
    var failure: UnsafeMutablePointer<CChar>?
    var count = 0
    let value = rocksdb_get_cf(
      families.database.pointer,
      read.pointer,
      families.meta.pointer,
      key,
      key.utf8.count,
      &count,
      &failure
    )
    if let text = consumeError(&failure) { throw .failed("\(directory): \(text)") }
    guard let value else { return nil }
    defer { rocksdb_free(value) }
    return String(decoding: UnsafeRawBufferPointer(start: value, count: count), as: UTF8.self)
  }

  /// Make the directory that of a node; one of another node of the same cluster is refused.
  package func adopt(asNode node: NodeID) throws(StorageError) {
    let store = Self.text(of: identity.store)
    let text = try Self.text(of: "node", directory, in: families, RocksDBReadOptions())
    let stored = text?.split(separator: " ", maxSplits: 1)
    guard let stored, stored.count == 2, stored[1] == store else {
      let value = [("node", "\(node.rawValue) \(store)")]
      return try Self.put(value, directory, database: families.database.pointer, meta: families.meta.pointer)
    }
    guard stored[0] == "\(node.rawValue)" else {
      throw .unusable(
        "--data \(directory): is that of node \(stored[0]): give --node \(stored[0]), or an empty directory"
      )
    }
  }

  static func text(of store: SessionID) -> String { "\(store.high) \(store.low)" }

  private static func put(
    _ values: [(String, String)],
    _ directory: String,
    database: OpaquePointer,
    meta: OpaquePointer
  ) throws(StorageError) {
    let batch = rocksdb_writebatch_create()
    defer { rocksdb_writebatch_destroy(batch) }
    for (key, value) in values {
      rocksdb_writebatch_put_cf(batch, meta, key, key.utf8.count, value, value.utf8.count)
    }
    let write = RocksDBWriteOptions(isSynced: true)
    var failure: UnsafeMutablePointer<CChar>?
    withExtendedLifetime(write) { rocksdb_write(database, write.pointer, batch, &failure) }
    if let text = consumeError(&failure) { throw .failed("\(directory): \(text)") }
  }
}

/// Identity of the directory behind a path when the store opened it. If the directory is replaced, RocksDB keeps
/// writing to its unlinked files, and creates new ones at the path: everything acknowledged then is lost.
struct DirectoryIdentity: Hashable, Sendable {
  private struct File: Hashable, Sendable {
    var device: dev_t
    var number: ino_t

    /// nil if there is no such file.
    init?(_ path: String) {
      var state = stat()
      guard stat(path, &state) == 0 else { return nil }
      device = state.st_dev
      number = state.st_ino
    }
  }

  private let path: String
  private let directory: File?
  /// RocksDB's lock file, which it creates once and never removes.
  private let lock: File?

  /// Record the identity of an open directory.
  init(_ path: String) {
    self.path = path
    directory = File(path)
    lock = File(path + "/LOCK")
  }

  /// Why the path no longer leads to the directory; nil if it still does.
  var fault: String? {
    guard let found = File(path) else {
      return "\(path): the data directory was removed while the store was running"
    }
    guard found == directory else {
      return "\(path): is not the directory that was opened: it was replaced while the store was running"
    }
    guard let found = File(path + "/LOCK"), found == lock, File(path + "/CURRENT") != nil else {
      return "\(path): its files were removed or replaced while the store was running"
    }
    return nil
  }
}
