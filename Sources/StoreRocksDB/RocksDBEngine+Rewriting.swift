internal import CRocksDB
package import NIOCore
package import ReceiptModel
package import StoreEngine

/// In-place rewriting of values in an open directory, for repairs of a store that is not serving.
extension RocksDBEngine {
  /// A value that can be rewritten.
  package enum RewritableValue: Sendable {
    /// A batch of the log.
    case batch(ShardID)
    case page(ShardID)
  }

  /// Bytes per write batch.
  private static let rewriteBytes = 1 << 20

  /// Call `body` with each batch of the log and each page, and replace the value by its result. Durable before this
  /// returns. If it throws, some values are rewritten and others are not.
  package func rewrite(
    _ body: (RewritableValue, ByteBuffer) throws(StorageError) -> ByteBuffer?
  ) throws(StorageError) {
    try rewrite(log, body) { StorageKey.parseLog($0).map { .batch($0.shard) } }
    try rewrite(pages, body) { StorageKey.parsePage($0).map { .page($0.shard) } }
  }

  private func rewrite(
    _ family: OpaquePointer,
    _ body: (RewritableValue, ByteBuffer) throws(StorageError) -> ByteBuffer?,
    entry: (_ key: ByteBuffer) -> RewritableValue?
  ) throws(StorageError) {
    let batch = rocksdb_writebatch_create()
    let write = RocksDBWriteOptions(isSynced: true)
    defer {
      rocksdb_writebatch_destroy(batch)
      withExtendedLifetime(write) {}
    }
    var byteCount = 0
    func flush() throws(StorageError) {
      guard byteCount > 0 else { return }
      try Self.checkSpace(directory)
      var failure: UnsafeMutablePointer<CChar>?
      rocksdb_write(database, write.pointer, batch, &failure)
      if let text = Self.consumeError(&failure) { throw Self.error(text, directory) }
      rocksdb_writebatch_clear(batch)
      byteCount = 0
    }
    // A scan reads the state at its start, whatever is written meanwhile.
    try scan(family) { key, value throws(StorageError) in
      guard let entry = entry(key), let changed = try body(entry, value) else { return }
      put(batch, family, StorageKey(key), changed)
      byteCount += key.readableBytes + changed.readableBytes
      if byteCount >= Self.rewriteBytes { try flush() }
    }
    try flush()
  }
}
