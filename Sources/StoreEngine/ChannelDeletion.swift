import DequeModule
import ReceiptModel
import ReceiptWire

/// Channels that were deleted and whose pages are still on storage. Their pages are dropped once the deletion is
/// durable; until that is done the storage is not asked for their names, and the log is kept: a start from it deletes
/// them again.
struct Deletions {
  private struct Deletion {
    var index: LogIndex
    var drop: CommitGroup.Drop
  }

  /// In order of the log.
  private var waiting: [Deletion] = []
  /// In the commit that is under way.
  private var inFlight: [Deletion] = []
  /// By cid, where no other channel has the name by now: in which batch it was deleted.
  private var absent: [[UInt8]: (index: LogIndex, channel: ChannelNumber)] = [:]

  var isEmpty: Bool { waiting.isEmpty && inFlight.isEmpty }

  /// The oldest deletion that is not carried out on storage.
  var oldest: LogIndex? { inFlight.first?.index ?? waiting.first?.index }

  /// The last of all so far: where there is no channel, that it is gone may be said when this is durable.
  private(set) var last = LogIndex.zero

  mutating func append(_ drop: CommitGroup.Drop, at index: LogIndex) {
    waiting.append(Deletion(index: index, drop: drop))
    absent[drop.cid] = (index, drop.channel)
    last = index
  }

  /// A channel of that name was created again.
  mutating func isBack(_ cid: String) {
    if !absent.isEmpty { absent[Array(cid.utf8)] = nil }
  }

  /// Where a channel is known not to be there, whatever is on storage: the batch that says so.
  func index(absent cid: [UInt8]) -> LogIndex? { absent.isEmpty ? nil : absent[cid]?.index }

  /// Those whose deletion is durable.
  mutating func take(durable: LogIndex) -> [CommitGroup.Drop] {
    let count = waiting.prefix { $0.index <= durable }.count
    inFlight += waiting.prefix(count)
    waiting.removeFirst(count)
    return inFlight.map(\.drop)
  }

  /// Those in the commit are dropped: from here on storage says that they are not there.
  mutating func committed() {
    for deletion in inFlight where absent[deletion.drop.cid]?.channel == deletion.drop.channel {
      absent[deletion.drop.cid] = nil
    }
    inFlight.removeAll(keepingCapacity: true)
  }
}

extension ShardEngine {
  /// A channel in memory is deleted by the batch that gathers.
  func end(_ slot: ChannelSlot, _ number: ChannelNumber, _ cid: String, at index: LogIndex) {
    refuseSliced(slot)
    if !subscriptions.isEmpty { noteDeleted(slot) }
    state.assign(.channelDeleted(number, cid: cid), to: slot)
    dirty.forget(slot)
    drop(number, cid, at: index)
  }

  /// A deletion that is found in the log's tail: nothing of the channel is needed any more.
  func endInTail(_ number: ChannelNumber, _ cid: String, at index: LogIndex) {
    tail.remove(number, cid: Array(cid.utf8))
    drop(number, cid, at: index)
  }

  private func drop(_ number: ChannelNumber, _ cid: String, at index: LogIndex) {
    if deletions.isEmpty { loop.drops(self) }
    let drop = CommitGroup.Drop(shard: state.id, channel: number, cid: Array(cid.utf8))
    deletions.append(drop, at: index)
  }

  /// Queries that go on about a channel that is being deleted: what they have found so far is of no other. Who is being
  /// erased there is so with the channel.
  func refuseSliced(_ slot: ChannelSlot) {
    for query in slicedQueries where query.slot == slot && query.counter == nil && !query.lane.isClosed {
      refuse(query.header, .channelNotFound, "", query.lane, .withGathering)
    }
    slicedQueries.removeAll { $0.slot == slot && $0.counter == nil }
    for place in slicedQueries.indices where slicedQueries[place].slot == slot {
      slicedQueries[place].progress = nil
    }
  }

  /// Adds the drops whose deletion is durable.
  func takeDrops(into group: inout CommitGroup) { group.drops += deletions.take(durable: durable) }

  /// The commit that was under way is on storage, with all drops in it.
  func dropsCommitted() { deletions.committed() }

  // MARK: Absent channels

  /// Whether a channel that is not in memory was deleted, and may still be on storage.
  func isDeleted(_ cid: RawSpan) -> Bool { deletedIndex(cid) != nil }

  private func deletedIndex(_ cid: RawSpan) -> LogIndex? {
    deletions.isEmpty ? nil : deletions.index(absent: cid.withUnsafeBytes { Array($0) })
  }

  /// When an answer may leave that a channel is not there: when its deletion is durable.
  func departure(absent cid: RawSpan) -> ReplyLane.Departure { departure(deletedIndex(cid) ?? .zero) }
}
