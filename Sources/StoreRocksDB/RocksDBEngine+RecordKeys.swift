internal import CRocksDB
internal import NIOCore
package import StoreEngine

/// The record keys of a cluster's groups, in the default column family.
extension RocksDBEngine {
  package func recordKeys(of group: GroupID) throws(StorageError) -> [RecordKey] {
    var keys: [RecordKey] = []
    let bounds = StorageKey.recordKeys(group)
    try scan(meta, from: bounds.first, to: bounds.end) { key, value throws(StorageError) in
      let size = MemoryLayout<UInt64>.size
      guard key.readableBytes > size, value.readableBytes == RecordKey.byteCount,
        let number = key.getInteger(at: key.writerIndex - size, as: UInt64.self)
      else { throw .corrupt("\(directory): a record key of group \(group.rawValue)") }
      keys.append(RecordKey(number: RecordKeyNumber(number), secret: Array(value.readableBytesView)))
    }
    return keys
  }

  package func replaceRecordKeys(_ keys: [RecordKey], of group: GroupID) throws(StorageError) {
    try Self.checkSpace(directory)
    try write(isSynced: true) { batch in
      deleteRecordKeys(of: group, in: batch)
      for key in keys { put(batch, meta, .recordKey(group, key.number), ByteBuffer(bytes: key.secret)) }
    }
  }

  func deleteRecordKeys(of group: GroupID, in batch: OpaquePointer?) {
    let bounds = StorageKey.recordKeys(group)
    deleteRange(batch, from: bounds.first, to: bounds.end, in: meta)
  }
}
