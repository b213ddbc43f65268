internal import CRocksDB
internal import Foundation
internal import NIOConcurrencyHelpers
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire
package import StoreEngine

/// The bytes of a snapshot: entries of the log's family, then of the pages' (Proto/frames.md, "Snapshots and record
/// keys").
enum SnapshotEntry {
  static let log: UInt8 = 0
  static let page: UInt8 = 1
  /// Family and two lengths.
  static let headerBytesMax = 21
}

/// A snapshot of RocksDB, read by one iterator after the other.
///
/// It holds no files back but those that RocksDB would have compacted away, and needs no copies: a checkpoint would
/// need both, and there is one for all backups.
final class RocksDBSnapshot: GroupSnapshot {
  private struct Range {
    var family: OpaquePointer
    var kind: UInt8
    var first: StorageKey
    var end: StorageKey
  }

  /// An iterator and what it uses.
  private final class Cursor {
    let kind: UInt8
    private let options = RocksDBReadOptions(fillsCache: false)
    private let bound: UnsafeMutableBufferPointer<CChar>
    let iterator: OpaquePointer

    init(_ range: Range, _ database: OpaquePointer, _ snapshot: OpaquePointer) {
      kind = range.kind
      rocksdb_readoptions_set_snapshot(options.pointer, snapshot)
      // The iterator uses the bound, so the buffer must stay in place until the iterator is gone.
      bound = .allocate(capacity: range.end.count)
      let (bound, options) = (bound, options)
      range.end.withBytes { _ = bound.initialize(from: UnsafeBufferPointer(start: $0.base, count: $0.count)) }
      rocksdb_readoptions_set_iterate_upper_bound(options.pointer, bound.baseAddress, bound.count)
      iterator = rocksdb_create_iterator_cf(database, options.pointer, range.family)
      let iterator = iterator
      range.first.withBytes { rocksdb_iter_seek(iterator, $0.base, $0.count) }
    }

    deinit {
      rocksdb_iter_destroy(iterator)
      bound.deallocate()
    }
  }

  /// `@unchecked Sendable`: RocksDB's handles may be used from any thread, by one at a time.
  private struct State: @unchecked Sendable {
    let database: OpaquePointer
    /// Nil after ``close()``.
    var snapshot: OpaquePointer?
    var cursor: Cursor?
    /// The ranges that follow, the last one first.
    var rest: [Range]
  }

  let cursor: LogCursor
  private let directory: String
  private let state: NIOLockedValueBox<State>

  /// Make a snapshot of an open database. Its owner closes it before the database.
  init(of group: GroupShards, _ families: RocksDBFamilies, directory: String) throws(StorageError) {
    self.directory = directory
    let (first, end) = (ShardID(group.shards.lowerBound), ShardID(group.shards.upperBound))
    let database = families.database.pointer
    guard let snapshot = rocksdb_create_snapshot(database) else { throw .failed("\(directory): no snapshot") }
    do throws(StorageError) {
      cursor = try Self.position(of: group.group, families, snapshot, directory)
    } catch {
      rocksdb_release_snapshot(database, snapshot)
      throw error
    }
    let pages = families.pages.pointer
    let rest = [
      Range(family: pages, kind: SnapshotEntry.page, first: .pages(first), end: .pages(end)),
      Range(family: pages, kind: SnapshotEntry.page, first: .directories(first), end: .directories(end)),
      Range(family: families.log.pointer, kind: SnapshotEntry.log, first: .log(first, .zero), end: .log(end, .zero)),
    ]
    state = NIOLockedValueBox(State(database: database, snapshot: snapshot, rest: rest))
  }

  /// Whether it is not closed.
  var isOpen: Bool { state.withLockedValue { $0.snapshot != nil } }

  private static func position(
    of group: GroupID,
    _ families: RocksDBFamilies,
    _ snapshot: OpaquePointer,
    _ directory: String
  ) throws(StorageError) -> LogCursor {
    let options = RocksDBReadOptions()
    rocksdb_readoptions_set_snapshot(options.pointer, snapshot)
    var failure: UnsafeMutablePointer<CChar>?
    var count = 0
    let value = StorageKey.position(group).withBytes { key in
      rocksdb_get_cf(
        families.database.pointer,
        options.pointer,
        families.meta.pointer,
        key.base,
        key.count,
        &count,
        &failure
      )
    }
    if let text = RocksDBEngine.consumeError(&failure) { throw RocksDBEngine.error(text, directory) }
    guard let value else { return .start }
    defer { rocksdb_free(value) }
    let bytes = ByteBuffer(bytes: UnsafeRawBufferPointer(start: value, count: count))
    do throws(WireError) {
      return try LogCursor(stored: bytes.readableBytesSpan)
    } catch {
      throw .corrupt("\(directory): the position of group \(group.rawValue) in the shared log: \(error)")
    }
  }

  func next(_ count: Int) throws(StorageError) -> ByteBuffer {
    let directory = directory
    let result = state.withLockedValue { state in
      Result { () throws(StorageError) in try Self.next(count, &state, directory) }
    }
    return try result.get()
  }

  private static func next(_ count: Int, _ state: inout State, _ directory: String) throws(StorageError) -> ByteBuffer {
    guard let snapshot = state.snapshot else { throw .failed("\(directory): the snapshot is closed") }
    var buffer = ByteBuffer()
    while true {
      guard let cursor = state.cursor else {
        guard let range = state.rest.popLast() else { return buffer }
        state.cursor = Cursor(range, state.database, snapshot)
        continue
      }
      guard rocksdb_iter_valid(cursor.iterator) != 0 else {
        var failure: UnsafeMutablePointer<CChar>?
        rocksdb_iter_get_error(cursor.iterator, &failure)
        if let text = RocksDBEngine.consumeError(&failure) { throw RocksDBEngine.error(text, directory) }
        state.cursor = nil
        continue
      }
      var keyCount = 0
      var valueCount = 0
      guard let key = rocksdb_iter_key(cursor.iterator, &keyCount),
        let value = rocksdb_iter_value(cursor.iterator, &valueCount)
      else { throw .failed("\(directory): an iterator has no entry") }
      let entry = SnapshotEntry.headerBytesMax + keyCount + valueCount
      guard buffer.readableBytes == 0 || buffer.readableBytes + entry <= count else { return buffer }
      buffer.writeInteger(cursor.kind)
      buffer.writeVarint(keyCount)
      buffer.writeBytes(UnsafeRawBufferPointer(start: key, count: keyCount))
      buffer.writeVarint(valueCount)
      buffer.writeBytes(UnsafeRawBufferPointer(start: value, count: valueCount))
      rocksdb_iter_next(cursor.iterator)
    }
  }

  func close() {
    state.withLockedValue { state in
      guard let snapshot = state.snapshot else { return }
      state.cursor = nil
      state.rest = []
      state.snapshot = nil
      rocksdb_release_snapshot(state.database, snapshot)
    }
  }
}

/// The snapshots of an open database. They end with it.
struct OpenSnapshots {
  private struct Entry {
    weak var snapshot: RocksDBSnapshot?
  }

  private var entries: [Entry] = []
  private(set) var isClosed = false

  mutating func insert(_ snapshot: RocksDBSnapshot) {
    entries.removeAll { $0.snapshot == nil }
    entries.append(Entry(snapshot: snapshot))
  }

  /// Whether a snapshot is being read.
  var areOpen: Bool { entries.contains { $0.snapshot?.isOpen == true } }

  mutating func close() {
    isClosed = true
    for entry in entries { entry.snapshot?.close() }
    entries = []
  }
}

extension RocksDBEngine {
  package func makeSnapshot(of group: GroupShards) throws(StorageError) -> any GroupSnapshot {
    let result = snapshots.withLockedValue { open in
      Result { () throws(StorageError) in
        guard !open.isClosed else { throw .failed("\(directory): is closed") }
        // The log's memtable is a vector, which an iterator copies and sorts.
        try flush(log)
        let snapshot = try RocksDBSnapshot(of: group, families, directory: directory)
        open.insert(snapshot)
        return snapshot
      }
    }
    return try result.get()
  }

  func closeSnapshots() { snapshots.withLockedValue { $0.close() } }
}
