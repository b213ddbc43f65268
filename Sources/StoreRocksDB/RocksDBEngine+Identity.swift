internal import CRocksDB
import ReceiptModel
import StoreEngine

/// What a data directory remembers of itself, in the default column family: `format`, `shards`, `store`.
extension RocksDBEngine {
  private static let formatVersion = "1"
  /// Shards of a directory that is created without saying how many.
  package static let shardCountDefault = 16
  /// A shard is 16 bits on the wire.
  package static let shardCountMax = 4_096

  static func identity(
    directory: String,
    asked: Int?,
    newStore: SessionID,
    database: OpaquePointer,
    meta: OpaquePointer,
    read: OpaquePointer
  ) throws(StorageError) -> Identity {
    func get(_ key: String) throws(StorageError) -> String? {
      var failure: UnsafeMutablePointer<CChar>?
      var count = 0
      let value = rocksdb_get_cf(database, read, meta, key, key.utf8.count, &count, &failure)
      if let text = take(&failure) { throw .failed("\(directory): \(text)") }
      guard let value else { return nil }
      defer { rocksdb_free(value) }
      return String(
        decoding: UnsafeRawBufferPointer(start: value, count: count),
        as: UTF8.self
      )
    }
    guard let format = try get("format") else {
      let shards = asked ?? shardCountDefault
      guard (1...shardCountMax).contains(shards) else {
        throw .unusable("--shards \(shards): has to be 1 to \(shardCountMax)")
      }
      let values = [
        ("shards", String(shards)), ("store", "\(newStore.high) \(newStore.low)"), ("format", formatVersion),
      ]
      let batch = rocksdb_writebatch_create()
      defer { rocksdb_writebatch_destroy(batch) }
      for (key, value) in values {
        rocksdb_writebatch_put_cf(batch, meta, key, key.utf8.count, value, value.utf8.count)
      }
      let write = rocksdb_writeoptions_create()
      defer { rocksdb_writeoptions_destroy(write) }
      rocksdb_writeoptions_set_sync(write, 1)
      var failure: UnsafeMutablePointer<CChar>?
      rocksdb_write(database, write, batch, &failure)
      if let text = take(&failure) { throw .failed("\(directory): \(text)") }
      return Identity(shardCount: shards, store: newStore)
    }
    guard format == formatVersion else {
      throw .unusable(
        "--data \(directory): has format \(format); this tidemark-store reads format \(formatVersion)"
      )
    }
    let store = (try get("store") ?? "").split(separator: " ").compactMap { UInt64($0) }
    guard let shards = try get("shards").flatMap({ Int($0) }), (1...shardCountMax).contains(shards),
      store.count == 2
    else { throw .corrupt("\(directory): its identity cannot be read") }
    if let asked, asked != shards {
      throw .unusable(
        "--shards \(asked): \(directory) was created with \(shards) shards, which is fixed; leave the flag out or say \(shards)"
      )
    }
    return Identity(shardCount: shards, store: SessionID(high: store[0], low: store[1]))
  }
}
