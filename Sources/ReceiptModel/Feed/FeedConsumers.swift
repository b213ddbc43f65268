/// How far a consumer has come in this shard's part of the feed (R21), and who may commit for it.
package struct FeedConsumer: Hashable, Sendable {
  package var name: String
  package var kinds: FeedRecordKinds
  /// Types of channels whose records are told; empty: all.
  package var channelTypes: [String]
  /// Records from before this time are not told; none: all are.
  package var since = Timestamp.none
  /// Number of the first record that is not committed.
  package var position: UInt64
  /// Time of the last committed record, or of the position where the consumer began.
  package var positionTime: Timestamp
  package var committedAt: Timestamp
  /// The partition of the last stream, and its number. A newer stream of the shard has a higher one.
  package var partition = FeedPartition(index: 0, count: 1)
  package var epoch: UInt64 = 0

  package init(
    name: String,
    kinds: FeedRecordKinds,
    channelTypes: [String],
    position: UInt64,
    positionTime: Timestamp,
    committedAt: Timestamp
  ) {
    self.name = name
    self.kinds = kinds
    self.channelTypes = channelTypes
    self.position = position
    self.positionTime = positionTime
    self.committedAt = committedAt
  }

  /// Return whether a channel of this cid passes the filter by channel type.
  package func wantsChannel(_ cid: [UInt8]) -> Bool {
    channelTypes.isEmpty
      || channelTypes.contains { type in
        let name = type.utf8
        return cid.count > name.count && cid[name.count] == UInt8(ascii: ":") && cid.starts(with: name)
      }
  }
}

/// An effect on the consumers of the feed.
package enum FeedConsumerEffect: Hashable, Sendable {
  indirect case assigned(FeedConsumer)
  case committed(name: String, position: UInt64, positionTime: Timestamp, at: Timestamp)
  case opened(name: String, FeedPartition, epoch: UInt64)
  /// What a worker keeps with a partition, in the partition's first shard.
  case stateAssigned(name: String, FeedPartition, [UInt8])
  /// In the consumer's home shard: the workers that share its partitions.
  indirect case workersAssigned(name: String, [FeedWorker])
  case removed(name: String)
  /// The feed is off since this time, while there are consumers; none: it is on.
  case switched(offSince: Timestamp)
  /// A deleted channel stays for consumers that are behind.
  indirect case deletionHeld(HeldDeletion)
  /// A held channel is gone.
  case deletionEnded(ChannelNumber)
  /// Records below this number may have lost their names before consumers have committed them.
  case namesLost(before: UInt64)
}

/// A deleted channel that still has the names of records that consumers have not committed (R21). Requests do not find
/// it.
package struct HeldDeletion: Hashable, Sendable {
  package var channel: ChannelNumber
  package var cid: String
  /// Records below this number need the channel's names.
  package var namesNeededBefore: UInt64

  package init(channel: ChannelNumber, cid: String, namesNeededBefore: UInt64) {
    self.channel = channel
    self.cid = cid
    self.namesNeededBefore = namesNeededBefore
  }
}

/// The consumers of the feed, in each shard, by name.
package struct FeedConsumerTable: Sendable {
  package static let countMax = 64
  package static let channelTypesMax = 64
  /// Maximum size of the state that a worker keeps with a partition, in bytes.
  package static let stateBytesMax = 16 << 10

  private var consumers: [String: FeedConsumer] = [:]
  private var states: [StateKey: [UInt8]] = [:]
  private var workers: [String: [FeedWorker]] = [:]
  /// The feed is off since this time, while there are consumers; none: it is on.
  package private(set) var offSince = Timestamp.none
  private var held: [ChannelNumber: HeldDeletion] = [:]
  /// Records below this number may have lost their names, because their channel could not be held.
  package private(set) var namesLostBefore: UInt64 = 0

  /// Maximum number of deleted channels that are held.
  package static let heldMax = 1_024

  private struct StateKey: Hashable {
    var name: String
    var partition: FeedPartition
  }

  package init() {}

  package var count: Int { consumers.count }
  package var isEmpty: Bool { consumers.isEmpty }

  /// All consumers, by name.
  package var all: [FeedConsumer] { consumers.values.sorted { $0.name < $1.name } }

  package subscript(name: String) -> FeedConsumer? { consumers[name] }

  /// The state that a worker has stored with a partition; empty: none.
  package func state(of name: String, _ partition: FeedPartition) -> [UInt8] {
    states[StateKey(name: name, partition: partition)] ?? []
  }

  /// All stored states of a consumer, by partition.
  package func states(of name: String) -> [(partition: FeedPartition, bytes: [UInt8])] {
    states.filter { $0.key.name == name }.map { ($0.key.partition, $0.value) }
      .sorted { ($0.partition.count, $0.partition.index) < ($1.partition.count, $1.partition.index) }
  }

  package func workers(of name: String) -> [FeedWorker] { workers[name] ?? [] }

  // MARK: Held deletions

  package var hasHeldDeletions: Bool { !held.isEmpty }

  package func heldDeletion(of channel: ChannelNumber) -> HeldDeletion? { held[channel] }

  /// The held deletions, oldest first.
  package var heldDeletions: [HeldDeletion] { Self.sorted(Array(held.values)) }

  private static func sorted(_ deletions: [HeldDeletion]) -> [HeldDeletion] {
    deletions.sorted { ($0.namesNeededBefore, $0.channel) < ($1.namesNeededBefore, $1.channel) }
  }

  /// The oldest held deletion, if more than ``heldMax`` are held.
  package var surplusDeletion: HeldDeletion? { held.count > Self.heldMax ? heldDeletions.first : nil }

  /// Whether a consumer has not committed all records below a number.
  package func isBehind(_ number: UInt64) -> Bool { consumers.values.contains { $0.position < number } }

  /// Record that records below a number have lost their names, if a consumer has not committed them all and this is not
  /// known yet.
  package func decideNamesLost(before number: UInt64, into effects: inout [Effect]) {
    guard number > namesLostBefore, isBehind(number) else { return }
    effects.append(.shard(.consumer(.namesLost(before: number))))
  }

  /// The held deletions whose names no consumer needs any more.
  ///
  /// - Parameter first: number of the first record that is kept.
  package func unneededDeletions(first: UInt64) -> [HeldDeletion] {
    let committed = consumers.values.map(\.position).min() ?? .max
    return Self.sorted(held.values.filter { $0.namesNeededBefore <= max(committed, first) })
  }

  /// End the hold of a deleted channel, and remove the channel.
  package func decideEnd(_ deletion: HeldDeletion, into effects: inout [Effect]) {
    effects.append(.channel(deletion.channel, .channelDeleted(cid: deletion.cid)))
    effects.append(.shard(.consumer(.deletionEnded(deletion.channel))))
    decideNamesLost(before: deletion.namesNeededBefore, into: &effects)
  }

  // MARK: Deciding

  /// Why a request about a consumer is refused.
  package enum Refusal: Error, Equatable {
    case notFound
    /// The consumer exists with other filters, or its workers share other partitions.
    case conflict
    case limitReached
    /// A newer stream reads the partition; its epoch.
    case leaseLost(epoch: UInt64)
  }

  /// Make a consumer unless it exists.
  ///
  /// - Returns: whether it was made.
  package func decidePut(_ consumer: FeedConsumer, into effects: inout [Effect]) throws(Refusal) -> Bool {
    if let known = consumers[consumer.name] {
      guard known.kinds == consumer.kinds, known.channelTypes == consumer.channelTypes else { throw .conflict }
      return false
    }
    guard consumers.count < Self.countMax else { throw .limitReached }
    effects.append(.shard(.consumer(.assigned(consumer))))
    return true
  }

  /// Remove a consumer; do nothing if there is none.
  package func decideRemove(_ name: String, into effects: inout [Effect]) {
    if consumers[name] != nil { effects.append(.shard(.consumer(.removed(name: name)))) }
  }

  /// Begin a stream of a partition: older ones of this shard may neither read nor commit from here on.
  ///
  /// - Parameter epoch: must be above all earlier ones of the consumer in this shard.
  package func decideOpen(
    _ name: String,
    _ partition: FeedPartition,
    epoch: UInt64,
    into effects: inout [Effect]
  ) throws(Refusal) -> FeedConsumer {
    guard var consumer = consumers[name] else { throw .notFound }
    guard epoch > consumer.epoch else { throw .leaseLost(epoch: consumer.epoch) }
    consumer.epoch = epoch
    consumer.partition = partition
    effects.append(.shard(.consumer(.opened(name: name, partition, epoch: epoch))))
    return consumer
  }

  /// Return a consumer, if this stream may still read for it.
  package func reader(_ name: String, _ partition: FeedPartition, epoch: UInt64) throws(Refusal) -> FeedConsumer {
    guard let consumer = consumers[name] else { throw .notFound }
    guard consumer.epoch == epoch, consumer.partition == partition else {
      throw .leaseLost(epoch: consumer.epoch)
    }
    return consumer
  }

  /// What a commit stores. Each part may be missing.
  package struct Commit {
    /// Number of the first record that is not committed, and time of the last one that is.
    package var position: (number: UInt64, time: Timestamp)?
    package var state: [UInt8]?
    /// nil: the caller does not name its stream.
    package var epoch: UInt64?

    package init(position: (number: UInt64, time: Timestamp)?, state: [UInt8]?, epoch: UInt64?) {
      self.position = position
      self.state = state
      self.epoch = epoch
    }
  }

  /// Commit how far a consumer has come. An older position changes nothing.
  package func decideCommit(
    _ name: String,
    _ partition: FeedPartition,
    _ commit: Commit,
    at time: Timestamp,
    into effects: inout [Effect]
  ) throws(Refusal) {
    guard let consumer = consumers[name] else { throw .notFound }
    if let epoch = commit.epoch { _ = try reader(name, partition, epoch: epoch) }
    // An older cursor changes nothing. Two cursors that differ in other shards alone are told apart by their times.
    let bringsState = commit.state != nil
    if let position = commit.position {
      let isBehind = bringsState && position.time != .none && position.time < consumer.positionTime
      if position.number < consumer.position || position.number == consumer.position && isBehind { return }
    }
    if let state = commit.state, state != self.state(of: name, partition) {
      effects.append(.shard(.consumer(.stateAssigned(name: name, partition, state))))
    }
    guard let position = commit.position else { return }
    let isNewer = bringsState && position.time > consumer.positionTime
    guard position.number > consumer.position || isNewer else { return }
    effects.append(
      .shard(
        .consumer(.committed(name: name, position: position.number, positionTime: position.time, at: time))
      )
    )
  }

  /// Share a consumer's partitions among its workers (``FeedLeases``).
  ///
  /// - Returns: the partitions that the worker may serve, and the number of workers.
  package func decideLease(
    _ name: String,
    _ request: FeedLeases.Request,
    at time: Timestamp,
    into effects: inout [Effect]
  ) throws(Refusal) -> (partitions: [UInt16], workerCount: Int) {
    guard consumers[name] != nil else { throw .notFound }
    var leases = FeedLeases(workers(of: name), at: time)
    guard let partitions = leases.renew(request) else { throw .conflict }
    guard leases.workers.count <= FeedLeases.workersMax else { throw .limitReached }
    effects.append(.shard(.consumer(.workersAssigned(name: name, leases.workers))))
    return (partitions, leases.workers.count)
  }

  // MARK: Assignment

  mutating func assign(_ effect: FeedConsumerEffect) {
    switch effect {
    case .assigned(let consumer): consumers[consumer.name] = consumer
    case .committed(let name, let position, let positionTime, let time):
      consumers[name]?.position = position
      consumers[name]?.positionTime = positionTime
      consumers[name]?.committedAt = time
    case .opened(let name, let partition, let epoch):
      consumers[name]?.partition = partition
      consumers[name]?.epoch = epoch
    case .stateAssigned(let name, let partition, let bytes):
      states[StateKey(name: name, partition: partition)] = bytes.isEmpty ? nil : bytes
    case .workersAssigned(let name, let list): workers[name] = list.isEmpty ? nil : list
    case .removed(let name):
      consumers[name] = nil
      workers[name] = nil
      states = states.filter { $0.key.name != name }
    case .switched(let time): offSince = time
    case .deletionHeld(let deletion): held[deletion.channel] = deletion
    case .deletionEnded(let channel): held[channel] = nil
    case .namesLost(let number): namesLostBefore = max(namesLostBefore, number)
    }
  }

  /// The effects that reproduce the page.
  var effects: [Effect] {
    var effects: [Effect] = []
    if offSince != .none { effects.append(.shard(.consumer(.switched(offSince: offSince)))) }
    if namesLostBefore > 0 { effects.append(.shard(.consumer(.namesLost(before: namesLostBefore)))) }
    for deletion in heldDeletions { effects.append(.shard(.consumer(.deletionHeld(deletion)))) }
    for consumer in all {
      effects.append(.shard(.consumer(.assigned(consumer))))
      for (partition, bytes) in states(of: consumer.name) {
        effects.append(.shard(.consumer(.stateAssigned(name: consumer.name, partition, bytes))))
      }
      if let list = workers[consumer.name] {
        effects.append(.shard(.consumer(.workersAssigned(name: consumer.name, list))))
      }
    }
    return effects
  }
}

extension FeedConsumerEffect {
  /// Return the effect with its times clamped.
  func clamped(by repair: TimeRepair) -> FeedConsumerEffect {
    switch self {
    case .assigned(var consumer):
      consumer.since = repair.clamped(consumer.since)
      consumer.positionTime = repair.clamped(consumer.positionTime)
      consumer.committedAt = repair.clamped(consumer.committedAt)
      return .assigned(consumer)
    case .committed(let name, let position, let positionTime, let at):
      return .committed(
        name: name,
        position: position,
        positionTime: repair.clamped(positionTime),
        at: repair.clamped(at)
      )
    case .workersAssigned(let name, let workers):
      let last = Timestamp(milliseconds: repair.limit.milliseconds + FeedLeases.millisecondsMax)
      let repaired = workers.map { worker in
        var worker = worker
        worker.until = min(worker.until, last)
        return worker
      }
      return .workersAssigned(name: name, repaired)
    case .switched(let time): return .switched(offSince: repair.clamped(time))
    case .opened, .stateAssigned, .removed, .deletionHeld, .deletionEnded, .namesLost: return self
    }
  }
}
