internal import ReceiptModel

/// Deleted channels whose pages are still on storage. The pages are dropped once the deletion is durable. Until then
/// the channels' names are not looked up on storage, and the log is kept, so that a restart deletes the channels again.
struct PendingDrops {
  private struct Deletion {
    var index: LogIndex
    var drop: CommitGroup.Drop
  }

  /// Channels to drop, in log order.
  private var waiting: [Deletion] = []
  /// Channels that the commit in flight drops.
  private var inFlight: [Deletion] = []
  /// By cid, unless another channel has the name by now: the batch of the deletion, and the channel's number.
  private var absent: [[UInt8]: (index: LogIndex, channel: ChannelNumber)] = [:]

  var isEmpty: Bool { waiting.isEmpty && inFlight.isEmpty }

  /// Oldest deletion that is still to be dropped on storage.
  var oldest: LogIndex? { inFlight.first?.index ?? waiting.first?.index }

  /// Last deletion so far. A reply that a channel does not exist may leave when it is durable.
  private(set) var last = LogIndex.zero

  mutating func append(_ drop: CommitGroup.Drop, at index: LogIndex) {
    waiting.append(Deletion(index: index, drop: drop))
    absent[drop.cid] = (index, drop.channel)
    last = index
  }

  /// Record that a channel of this name was created again.
  mutating func nameReused(_ cid: String) {
    if !absent.isEmpty { absent[Array(cid.utf8)] = nil }
  }

  /// Return the batch that deleted a channel of this name, if the channel is known to be gone whatever storage holds.
  func index(absent cid: [UInt8]) -> LogIndex? { absent.isEmpty ? nil : absent[cid]?.index }

  /// Take the drops whose deletion is durable.
  mutating func take(durable: LogIndex) -> [CommitGroup.Drop] {
    let count = waiting.prefix { $0.index <= durable }.count
    inFlight += waiting.prefix(count)
    waiting.removeFirst(count)
    return inFlight.map(\.drop)
  }

  /// Complete the drops of a commit: from here on storage no longer finds these channels.
  mutating func committed() {
    for deletion in inFlight where absent[deletion.drop.cid]?.channel == deletion.drop.channel {
      absent[deletion.drop.cid] = nil
    }
    inFlight.removeAll(keepingCapacity: true)
  }
}
