package import NIOCore
package import ReceiptModel

/// The shards of a cluster's group.
package struct GroupShards: Hashable, Sendable {
  package let group: GroupID
  package let shards: Range<UInt16>

  package init(group: GroupID, shards: Range<UInt16>) {
    self.group = group
    self.shards = shards
  }
}

/// A group's stored data as it was at one position of its log: a stream of bytes for another node's storage. It does
/// not change while the storage continues. Every call blocks.
package protocol GroupSnapshot: Sendable {
  /// The last record that the data has.
  var cursor: LogCursor { get }

  /// Return the next bytes, some `count`, or one entry if that is larger; empty at the end. Throws after ``close()``,
  /// or when the storage is closed.
  func next(_ count: Int) throws(StorageError) -> ByteBuffer

  /// Release what the snapshot holds; call nothing else afterwards.
  func close()
}

/// Check of the shards that a snapshot has brought, before they count. It throws if they cannot be used.
package typealias SnapshotCheck = ([(shard: ShardID, state: StoredShard)]) throws(StorageError) -> Void

/// Receives a snapshot of another node. It stages the bytes first, so that the group's old data remains until all of
/// them are verified. Every call blocks.
package protocol GroupSnapshotReceiver: Sendable {
  /// Stage the next bytes.
  func append(_ bytes: ByteBuffer) throws(StorageError)

  /// Replace the group's data by what is staged, whose last record is this one. Durable when this returns. After a
  /// failure or a crash in between the group has no data, and the storage begins with the start of the log.
  ///
  /// Requires that nothing else reads or writes the group.
  func install(_ cursor: LogCursor, checking check: SnapshotCheck) throws(StorageError)

  /// Remove what is staged; call nothing else afterwards.
  func remove()
}

extension StorageEngine {
  package func makeSnapshot(of group: GroupShards) throws(StorageError) -> any GroupSnapshot {
    throw .unusable("this storage makes no snapshots")
  }

  package func recordKeys(of group: GroupID) throws(StorageError) -> [RecordKey] { [] }

  package func replaceRecordKeys(_ keys: [RecordKey], of group: GroupID) throws(StorageError) {
    throw .unusable("this storage is no node's")
  }

  package func remove(_ group: GroupShards) throws(StorageError) {
    throw .unusable("this storage is no node's")
  }

  package func receiveSnapshot(of group: GroupShards) throws(StorageError) -> any GroupSnapshotReceiver {
    throw .unusable("this storage takes no snapshots")
  }
}
