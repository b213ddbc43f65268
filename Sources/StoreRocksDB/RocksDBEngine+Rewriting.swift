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
    try rewrite(family: log, body) { shard, kind, count in
      kind == nil && count == 10 ? .batch(shard) : nil
    }
    try rewrite(family: pages, body) { shard, kind, _ in
      kind == UInt8(ascii: "P") ? .page(shard) : nil
    }
  }

  private func rewrite(
    family: OpaquePointer,
    _ body: (RewritableValue, ByteBuffer) throws(StorageError) -> ByteBuffer?,
    value: (ShardID, _ kind: UInt8?, _ keyBytes: Int) -> RewritableValue?
  ) throws(StorageError) {
    let isLog = family == log
    let batch = rocksdb_writebatch_create()
    let write = RocksDBWriteOptions(isSynced: true)
    let read = RocksDBReadOptions()
    // The iterator reads the state at its creation, whatever is written meanwhile.
    let iterator = rocksdb_create_iterator_cf(database, read.pointer, family)
    defer {
      rocksdb_iter_destroy(iterator)
      rocksdb_writebatch_destroy(batch)
      withExtendedLifetime((read, write)) {}
    }
    var failure: UnsafeMutablePointer<CChar>?
    var byteCount = 0
    func flush() throws(StorageError) {
      guard byteCount > 0 else { return }
      try Self.checkSpace(directory)
      rocksdb_write(database, write.pointer, batch, &failure)
      if let text = Self.consumeError(&failure) { throw Self.error(text, directory) }
      rocksdb_writebatch_clear(batch)
      byteCount = 0
    }
    rocksdb_iter_seek_to_first(iterator)
    while rocksdb_iter_valid(iterator) != 0 {
      var keyCount = 0
      var valueCount = 0
      guard let keyBytes = rocksdb_iter_key(iterator, &keyCount),
        let valueBytes = rocksdb_iter_value(iterator, &valueCount)
      else { break }
      let key = ByteBuffer(bytes: UnsafeRawBufferPointer(start: keyBytes, count: keyCount))
      let kind = isLog ? nil : key.getInteger(at: key.readerIndex, as: UInt8.self)
      let shard = key.getInteger(at: key.readerIndex + (isLog ? 0 : 1), as: UInt16.self)
      if let shard, let entry = value(ShardID(shard), kind, keyCount) {
        let bytes = ByteBuffer(bytes: UnsafeRawBufferPointer(start: valueBytes, count: valueCount))
        if let changed = try body(entry, bytes) {
          changed.withUnsafeReadableBytes { changed in
            rocksdb_writebatch_put_cf(
              batch,
              family,
              keyBytes,
              keyCount,
              changed.baseAddress?.assumingMemoryBound(to: CChar.self),
              changed.count
            )
          }
          byteCount += keyCount + changed.readableBytes
        }
      }
      if byteCount >= Self.rewriteBytes { try flush() }
      rocksdb_iter_next(iterator)
    }
    rocksdb_iter_get_error(iterator, &failure)
    if let text = Self.consumeError(&failure) { throw Self.error(text, directory) }
    try flush()
  }
}
