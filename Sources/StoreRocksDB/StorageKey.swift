internal import NIOCore
internal import ReceiptModel
internal import StoreEngine

/// Keys of the column families, big-endian so that RocksDB's order is ours.
///
/// | family | key | value |
/// | --- | --- | --- |
/// | log | shard (2 bytes), log index (8) | a batch |
/// | pages | `P`, shard (2), channel number (8), page (8) | a page |
/// | pages | `D`, shard (2), cid | channel number (8) |
/// | pages | `D`, shard (2), 0, two hashes of a user's id (16) | channel number of their index (8) |
/// | feed | shard (2), number of its first record (8) | the records of a batch |
/// | default | `group/`, group (1) | a cluster's group: position, epoch and hash of its last record (8 each) |
/// | default | `key/`, group (1), number (8) | a record key of the group (32 bytes) |
/// | default | `joining/`, group (1) | a group being replaced: its first shard, and the one behind it (2 each) |
///
/// RocksDB's manifest also contains keys, as the first and last of each table, even after their deletion. So no key
/// contains a user's id (R16); readers of a channel verify that it is the requested one.
struct StorageKey {
  /// The bytes of a key of fixed size, in place: every read and write builds one, and would allocate it.
  private var short = InlineArray<24, UInt8>(repeating: 0)
  private var shortCount = 0
  /// All bytes of a key with a channel's cid, or of one that was read; empty for others.
  private var long: [UInt8] = []

  private init() {}

  /// A key that was read.
  init(_ key: ByteBuffer) { long = Array(key.readableBytesView) }

  /// The first byte of a key of the pages' family.
  private enum Kind {
    static let page = UInt8(ascii: "P")
    static let directory = UInt8(ascii: "D")
  }

  /// Sizes of the fixed parts of a key.
  private static let prefixByteCount = 3
  private static let logByteCount = 10
  private static let pageByteCount = 19

  var count: Int { long.isEmpty ? shortCount : long.count }

  static func log(_ shard: ShardID, _ index: LogIndex) -> StorageKey {
    var key = StorageKey()
    key.append(shard.rawValue)
    key.append(index.rawValue)
    return key
  }

  /// Return the upper bound after the last key of a shard's log.
  static func logEnd(_ shard: ShardID) -> StorageKey {
    var key = log(shard, LogIndex(.max))
    key.appendByte(0)
    return key
  }

  /// Return the key of the block of the feed whose first record has this number.
  static func feed(_ shard: ShardID, _ number: UInt64) -> StorageKey { log(shard, LogIndex(number)) }

  static func page(_ key: PageKey) -> StorageKey { page(key.shard, key.channel, key.page) }

  static func page(_ shard: ShardID, _ channel: ChannelNumber, _ page: PageID) -> StorageKey {
    self.page(shard, channel, sortKey: page.sortKey)
  }

  /// Return the key of a page with this ``PageID/sortKey``, whether or not it exists.
  static func page(_ shard: ShardID, _ channel: ChannelNumber, sortKey: UInt64) -> StorageKey {
    var key = pages(shard, channel)
    key.append(sortKey)
    return key
  }

  /// Lower bound before the first page of a channel.
  static func pages(_ shard: ShardID, _ channel: ChannelNumber) -> StorageKey {
    var key = StorageKey()
    key.appendByte(Kind.page)
    key.append(shard.rawValue)
    key.append(channel.rawValue)
    return key
  }

  static func directory(_ shard: ShardID, _ cid: [UInt8]) -> StorageKey {
    var key = directories(shard)
    guard IndexName.isIndex(cid) else {
      key.lengthen(by: cid)
      return key
    }
    key.appendByte(0)
    for seed in [0, 1] as [UInt64] { key.append(StableHash.hash(cid.span.bytes, seed: seed)) }
    return key
  }

  /// Return the key of a group's position, in the default family.
  static func position(_ group: GroupID) -> StorageKey {
    var key = positionFirst
    key.append(group.rawValue)
    return key
  }

  /// The bounds of all groups' positions.
  static var positionFirst: StorageKey { text("group/") }
  static var positionEnd: StorageKey { text("group0") }

  /// Return the key of a group's record key, in the default family.
  static func recordKey(_ group: GroupID, _ number: RecordKeyNumber) -> StorageKey {
    var key = recordKeyFirst
    key.append(group.rawValue)
    key.append(number.rawValue)
    return key
  }

  /// The bounds of all groups' record keys.
  static var recordKeyFirst: StorageKey { text("key/") }
  static var recordKeyEnd: StorageKey { text("key0") }

  /// The bounds of a group's record keys. No key has the highest number.
  static func recordKeys(_ group: GroupID) -> (first: StorageKey, end: StorageKey) {
    (recordKey(group, .none), recordKey(group, RecordKeyNumber(.max)))
  }

  /// Return the key of the mark of a group whose data is being replaced, in the default family.
  static func joining(_ group: GroupID) -> StorageKey {
    var key = joiningFirst
    key.append(group.rawValue)
    return key
  }

  /// The bounds of these marks.
  static var joiningFirst: StorageKey { text("joining/") }
  static var joiningEnd: StorageKey { text("joining0") }

  private static func text(_ text: String) -> StorageKey {
    var key = StorageKey()
    for byte in text.utf8 { key.appendByte(byte) }
    return key
  }

  /// Lower bound before the first directory entry of a shard.
  static func directories(_ shard: ShardID) -> StorageKey {
    var key = StorageKey()
    key.appendByte(Kind.directory)
    key.append(shard.rawValue)
    return key
  }

  /// Lower bound before the first page of a shard.
  static func pages(_ shard: ShardID) -> StorageKey { pages(shard, ChannelNumber(0)) }

  // MARK: Parsing

  /// Return the shard and number of a key of the feed; nil if it is damaged.
  static func parseFeed(_ key: ByteBuffer) -> (shard: ShardID, number: UInt64)? {
    parseLog(key).map { ($0.shard, $0.index.rawValue) }
  }

  /// Return the shard and index of a key of the log; nil if it is damaged.
  static func parseLog(_ key: ByteBuffer) -> (shard: ShardID, index: LogIndex)? {
    var key = key
    guard key.readableBytes == logByteCount, let shard = key.readInteger(as: UInt16.self),
      let index = key.readInteger(as: UInt64.self)
    else { return nil }
    return (ShardID(shard), LogIndex(index))
  }

  /// Return the page of a key; nil if it is no page's, or damaged.
  static func parsePage(_ key: ByteBuffer) -> PageKey? {
    var key = key
    guard key.readableBytes == pageByteCount, key.readInteger() == Kind.page,
      let shard = key.readInteger(as: UInt16.self), let channel = key.readInteger(as: UInt64.self),
      let page = key.readInteger(as: UInt64.self).flatMap({ PageID(sortKey: $0) })
    else { return nil }
    return PageKey(shard: ShardID(shard), channel: ChannelNumber(channel), page: page)
  }

  /// Return the shard of a directory entry; nil if the key is none's.
  static func parseDirectory(_ key: ByteBuffer) -> ShardID? {
    var key = key
    guard key.readableBytes > prefixByteCount, key.readInteger() == Kind.directory else { return nil }
    return key.readInteger(as: UInt16.self).map { ShardID($0) }
  }

  func withBytes<Result>(_ body: ((base: UnsafePointer<CChar>, count: Int)) -> Result) -> Result {
    guard long.isEmpty else {
      return long.withUnsafeBufferPointer { bytes in
        bytes.withMemoryRebound(to: CChar.self) { body(($0.baseAddress!, $0.count)) }
      }
    }
    return withUnsafeBytes(of: short) { bytes in
      body((bytes.baseAddress!.assumingMemoryBound(to: CChar.self), shortCount))
    }
  }

  /// Append a byte to a key of fixed size. Traps where the key has no room.
  private mutating func appendByte(_ byte: UInt8) {
    short[shortCount] = byte
    shortCount += 1
  }

  private mutating func append(_ value: some FixedWidthInteger) {
    withUnsafeBytes(of: value.bigEndian) { bytes in
      for byte in bytes { appendByte(byte) }
    }
  }

  /// Append a cid to the fixed part of a key.
  private mutating func lengthen(by cid: [UInt8]) {
    long.reserveCapacity(shortCount + cid.count)
    for index in 0..<shortCount { long.append(short[index]) }
    long.append(contentsOf: cid)
  }
}
