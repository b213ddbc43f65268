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

  /// Give the data another identity, and say how far it has the groups' logs. Durable when this returns.
  ///
  /// - Parameters:
  ///   - positions: those of a cluster's groups; none: the data is a single store's.
  ///   - batches: stored in the same step.
  package func adopt(
    store: SessionID,
    _ positions: [GroupCursor],
    with batches: [LoopCommit.Batch] = []
  ) throws(StorageError) {
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
  /// Make the data a single store's, with another identity. If it was a node's of a cluster, its groups are aligned in
  /// the same step: batches that are not in the shared log must not be a node's.
  package func makeSingleStore(_ store: SessionID) throws(StorageError) -> ShardAlignment.Report {
    guard try isOfCluster else {
      try adopt(store: store, [])
      return ShardAlignment.Report()
    }
    let (batches, report) = try ShardAlignment.plan(for: self, shardCount: identity.shardCount)
    try adopt(store: store, [], with: batches)
    return report
  }
}
