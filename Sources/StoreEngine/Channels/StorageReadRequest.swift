package import ReceiptModel
internal import ReceiptWire

/// A peek: reads some users' unread counts from channels on storage, without loading the channels (R14). It runs on a
/// thread that may block and reads only the pages it needs.
package struct StorageReadRequest: Hashable, Sendable {
  package struct Entry: Hashable, Sendable {
    package var cid: [UInt8]
    package var user: [UInt8]
    /// The user's row, as far as the caller knows.
    package var row: UInt32

    package init(cid: [UInt8], user: [UInt8], row: UInt32) {
      self.cid = cid
      self.user = user
      self.row = row
    }
  }

  package var shard: ShardID
  package var entries: [Entry]
  /// Returned with the results.
  package var requestID: UInt32

  /// Peek at all entries; call on a thread that may block.
  ///
  /// - Returns: one result per entry, in order.
  package func perform(on storage: any StorageEngine) -> [StorageUnreadCounts] {
    entries.map { entry in
      var peek = StoredChannelReader(storage: storage, shard: shard, entry: entry)
      let outcome: StorageUnreadCounts.Outcome
      do throws(StorageError) { outcome = try peek.outcome() } catch { outcome = .failed(error) }
      return StorageUnreadCounts(channel: peek.number, index: peek.index, outcome: outcome)
    }
  }
}

/// Result of a peek for one channel and one user.
package struct StorageUnreadCounts: Hashable, Sendable {
  package enum Outcome: Hashable, Sendable {
    case counts(UnreadCounts)
    /// Storage has no channel of that name.
    case absent
    case notAMember
    /// The channel must be loaded to find out.
    case unknown
    case failed(StorageError)
  }

  /// 0 if the channel was not found.
  package var channel: ChannelNumber
  /// Highest log index that any page which was read includes.
  package var index: LogIndex
  package var outcome: Outcome
}
