internal import CRocksDB
internal import Foundation
package import ReceiptModel
package import StoreEngine

/// A single store's directory becomes a cluster's.
extension RocksDBEngine {
  /// Whether a directory has a store.
  package static func hasStore(_ directory: String) -> Bool {
    FileManager.default.fileExists(atPath: directory + "/CURRENT")
  }

  /// Whether the directory is that of a cluster's node.
  package var isOfCluster: Bool {
    get throws(StorageError) {
      var isFound = false
      try scan(meta, from: .positionFirst, to: .positionEnd, countMax: 1) { _, _ throws(StorageError) in
        isFound = true
      }
      return isFound
    }
  }

  /// Give the data another identity, and say how far it has the groups' logs. Durable when this returns. Event ids,
  /// tickets and sessions of before are not valid for it.
  ///
  /// - Parameters:
  ///   - positions: those of a cluster's groups; none: the data is a single store's.
  ///   - alignment: batches that are stored in the same step (``ShardAlignment``).
  package func adopt(
    store: SessionID,
    _ positions: [GroupPosition],
    with alignment: CommitGroup? = nil
  ) throws(StorageError) {
    let batches = alignment?.batches ?? []
    precondition(alignment.map { $0.pages.isEmpty && $0.drops.isEmpty && $0.logTrims.isEmpty } ?? true)
    try write(isSynced: true) { batch in
      for item in batches { put(batch, log, StorageKey.log(item.shard, item.index), item.bytes) }
      // Those of a cluster that the directory was copied from.
      deleteRange(batch, from: .positionFirst, to: .positionEnd, in: meta)
      deleteRange(batch, from: .recordKeyFirst, to: .recordKeyEnd, in: meta)
      for position in positions { put(batch, meta, .position(position.group), position.cursor.stored()) }
      let (key, value) = ("store", Self.text(of: store))
      rocksdb_writebatch_put_cf(batch, meta, key, key.utf8.count, value, value.utf8.count)
    }
  }
}
