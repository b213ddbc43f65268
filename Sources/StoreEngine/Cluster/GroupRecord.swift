internal import NIOCore
internal import ReceiptModel

/// One append to a group's log.
///
/// Records form a chain: each carries the hash of the record before. So a member that stored another history notices it
/// at the first record that follows.
package struct GroupRecord: Hashable, Sendable {
  /// What a record tells.
  package enum Kind: Hashable, Sendable {
    /// Log batches of the group's shards: one group commit. The payload has them, or the rest of them.
    case batches
    /// A part of a large commit's payload: the commit ends with the next record of batches. Without that record it was
    /// never committed.
    case part
    /// This node becomes the owner. The record's epoch begins with it.
    case claim(by: NodeID)
    /// The owner gives the group up, so that this node need not wait before it claims.
    case release(to: NodeID)
    /// The owner is alive and has nothing else to append.
    case alive
    /// Each member removes what it has logged before this record from its storage, with the keys older than this
    /// record's (R16). `first`: the record that this one repeats, for members that have not purged since; zero: none.
    case purge(first: RecordPosition)
    /// What only programs of a higher level read. The payload has the encoded content, which begins with the kind.
    case unknown

    /// Whether the payload has a commit's batches, or a part of them, sealed with the record's key.
    package var isSealed: Bool {
      switch self {
      case .batches, .part: true
      case .claim, .release, .alive, .purge, .unknown: false
      }
    }
  }

  /// How the content is encoded. Never lower than that of the record before. All levels have the same other fields.
  package var level: ClusterLevel
  package var position: RecordPosition
  package var epoch: OwnerEpoch
  /// Hash of the record before; ``RecordHash/none`` for the first record.
  package var previous: RecordHash
  /// The key that is in use: the payload is sealed with it. Never lower than that of the record before.
  package var key: RecordKeyNumber
  package var kind: Kind
  package var payload: [UInt8]

  package init(
    level: ClusterLevel = .oldest,
    position: RecordPosition,
    epoch: OwnerEpoch,
    previous: RecordHash,
    key: RecordKeyNumber = .none,
    kind: Kind,
    payload: [UInt8] = []
  ) {
    self.level = level
    self.position = position
    self.epoch = epoch
    self.previous = previous
    self.key = key
    self.kind = kind
    self.payload = payload
  }

  /// Hash of the encoded record, for the record that follows.
  package var hash: RecordHash { RecordHash(StableHash.hash(encoded().readableBytesSpan)) }
}

/// XXH64 of a record.
package struct RecordHash: Hashable, Sendable, BitwiseCopyable {
  package var rawValue: UInt64
  package init(_ rawValue: UInt64) { self.rawValue = rawValue }
  /// The hash before the first record.
  package static let none = RecordHash(0)
}

/// How far a node has a group's log: the last record that it applied.
package struct LogCursor: Hashable, Sendable {
  package let position: RecordPosition
  package let epoch: OwnerEpoch
  package let hash: RecordHash
  /// The record's key.
  package let key: RecordKeyNumber

  /// Before the first record.
  package static let start = LogCursor(position: .zero, epoch: .zero, hash: .none)

  package init(position: RecordPosition, epoch: OwnerEpoch, hash: RecordHash, key: RecordKeyNumber = .none) {
    self.position = position
    self.epoch = epoch
    self.hash = hash
    self.key = key
  }

  package init(after record: GroupRecord) {
    self.init(position: record.position, epoch: record.epoch, hash: record.hash, key: record.key)
  }

  /// Return the record of this kind that would follow.
  ///
  /// - Parameter key: nil: the key in use.
  package func record(
    _ kind: GroupRecord.Kind,
    epoch: OwnerEpoch,
    level: ClusterLevel = .oldest,
    key: RecordKeyNumber? = nil,
    payload: [UInt8] = []
  ) -> GroupRecord {
    GroupRecord(
      level: level,
      position: position.next,
      epoch: epoch,
      previous: hash,
      key: key ?? self.key,
      kind: kind,
      payload: payload
    )
  }
}

/// How far a storage has a group's log.
package struct GroupCursor: Hashable, Sendable {
  package let group: GroupID
  package let cursor: LogCursor

  package init(group: GroupID, cursor: LogCursor) {
    self.group = group
    self.cursor = cursor
  }
}
