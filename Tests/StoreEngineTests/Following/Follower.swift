import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine
import StoreTestSupport
import TestSupport

/// The batches that an owner has committed to the shared log, by commit.
typealias SharedLog = [[LoopCommit.Batch]]

/// A follower of a shared log, with a storage of its own, which a test crashes and recovers.
final class Follower {
  /// The defect of a broken follower.
  enum Defect: CaseIterable {
    /// It skips one effect in three of those that change a member's role or mute.
    case skipsEffect
    /// It reports one page in ten as written, and its older version stays.
    case losesPage
    /// It trims all of its log at each log trim.
    case trimsWholeLog
  }

  let storage = MemoryStorage()
  private let shards: [UInt16]
  private let configure: (inout StoreLoopConfiguration) -> Void
  private(set) var harness: EngineHarness
  /// Commits of the shared log that are applied, and those that are certainly on storage.
  private(set) var position = 0
  private var durablePosition = 0
  /// Commits of the shared log that the one in flight completes on storage.
  private var committingPosition: Int?
  var defect: Defect?
  private var defectiveSteps = 0
  private(set) var crashes = 0
  private(set) var crashesWithinCommit = 0
  /// Channels evicted and loaded by loops that have crashed since.
  private var earlier = StoreLoop.Counters()

  init(shards: [UInt16], configure: @escaping (inout StoreLoopConfiguration) -> Void) throws {
    self.shards = shards
    self.configure = configure
    harness = try Self.start(storage, shards, configure)
  }

  private static func start(
    _ storage: MemoryStorage,
    _ shards: [UInt16],
    _ configure: (inout StoreLoopConfiguration) -> Void
  ) throws -> EngineHarness {
    try EngineHarness(storage, shards: shards, of: shards.count, follows: true, configure: configure)
  }

  var counters: StoreLoop.Counters {
    var sum = earlier
    sum += harness.loop.counters
    return sum
  }

  // MARK: Following

  /// Follows the next commit of the log, if there is one.
  func follow(_ log: SharedLog) throws {
    guard position < log.count else { return }
    let batches = log[position].map(changed)
    position += 1
    try harness.loop.follow(batches)
    noteCommit()
  }

  func followAll(_ log: SharedLog) throws { while position < log.count { try follow(log) } }

  private func noteCommit() {
    if committingPosition == nil, !harness.commits.isEmpty { committingPosition = position }
  }

  /// The batch as a broken follower understands it.
  private func changed(_ batch: LoopCommit.Batch) -> LoopCommit.Batch {
    guard defect == .skipsEffect, let content = try? LogBatch(batch.bytes.readableBytesSpan) else {
      return batch
    }
    var batch = batch
    batch.bytes = ByteBuffer()
    let effects = content.effects.filter { effect in
      switch effect {
      case .channel(_, .muteAssigned), .channel(_, .roleAssigned):
        defectiveSteps += 1
        return !defectiveSteps.isMultiple(of: 3)
      default: return true
      }
    }
    var encoded = ByteBuffer()
    for effect in effects { encoded.writeEffect(effect) }
    LogBatch.write(
      index: content.index,
      time: content.time,
      sessions: content.sessions,
      effectCount: effects.count,
      effects: encoded,
      into: &batch.bytes
    )
    return batch
  }

  // MARK: Storage

  private enum Step {
    case batch(LoopCommit.Batch)
    case drop(LoopCommit.Drop)
    case page(LoopCommit.PageWrite)
    case logTrim(LoopCommit.LogTrim)
    case trim(LoopCommit.StepTrim)
  }

  /// The steps in which storage writes a commit: batches one by one, then drops, then the rest in any order.
  private static func steps(_ commit: LoopCommit, _ random: inout SplitMix64) -> [Step] {
    commit.batches.map(Step.batch) + commit.drops.map(Step.drop)
      + random.shuffled(
        commit.pages.map(Step.page) + commit.logTrims.map(Step.logTrim) + commit.stepTrims.map(Step.trim)
      )
  }

  private func perform(_ step: Step) {
    switch step {
    case .batch(let batch): storage.data.apply(batch)
    case .drop(let drop): storage.data.apply(drop)
    case .page(let page):
      defectiveSteps += 1
      if defect == .losesPage, defectiveSteps.isMultiple(of: 10) { return }
      storage.data.apply(page)
    case .logTrim(let trim):
      storage.data.apply(defect == .trimsWholeLog ? trim.ofAll : trim)
    case .trim(let trim): storage.data.apply(trim)
    }
  }

  /// Completes the commit in flight, if there is one.
  func persist() {
    guard !harness.commits.isEmpty else { return }
    // All steps are done, so that their order does not matter.
    var random = SplitMix64(seed: 0)
    for step in Self.steps(harness.commits.removeFirst(), &random) { perform(step) }
    if let committed = committingPosition { durablePosition = committed }
    committingPosition = nil
    harness.loop.committed(.success(()))
    noteCommit()
  }

  /// Crash between any two steps of the commit in flight, and recover from storage.
  func crash(_ random: inout SplitMix64) throws {
    crashes += 1
    if let commit = harness.commits.first {
      let steps = Self.steps(commit, &random)
      let done = random.below(steps.count + 1)
      for step in steps.prefix(done) { perform(step) }
      if done > 0, done < steps.count { crashesWithinCommit += 1 }
    }
    earlier += harness.loop.counters
    harness.loop.stop()
    let clock = harness.clock
    harness = try Self.start(storage, shards, configure)
    harness.clock = clock
    harness.advance(0)
    position = durablePosition
    committingPosition = nil
  }

  // MARK: Steps

  /// Takes one random step.
  func step(_ log: SharedLog, _ random: inout SplitMix64, crashes: Bool = true) throws {
    switch random.below(14) {
    case 0..<5:
      for _ in 0...random.below(4) where harness.loop.hasRoomToFollow { try follow(log) }
    case 5..<8: persist()
    case 8..<11:
      guard !harness.loads.isEmpty else { return }
      let load = harness.loads[random.below(harness.loads.count)].reference
      try harness.completeLoad(load, failing: random.oneIn(12))
    case 11:
      // Its clock has nothing to do with the owner's.
      harness.advance(Int64(random.below(400)))
      harness.loop.tick()
    case 12: if harness.slices > 0 { harness.slice() }
    default: if crashes, random.oneIn(6) { try crash(&random) }
    }
    noteCommit()
  }

  /// Complete all pending work.
  func runUntilIdle() throws {
    while !harness.commits.isEmpty || !harness.loads.isEmpty || harness.slices > 0 {
      persist()
      try harness.completeLoads()
      if harness.slices > 0 { harness.slice() }
      noteCommit()
    }
  }

  /// Follows the whole log and writes all pages, until the log is trimmed.
  func finish(_ log: SharedLog) throws {
    try followAll(log)
    for _ in 0..<400 {
      try runUntilIdle()
      let gauges = harness.loop.gauges
      if gauges.dirtyPages == 0, gauges.tailChannels == 0, storage.log.values.allSatisfy(\.isEmpty) { return }
      harness.advance(20_000)
      harness.loop.tick()
      noteCommit()
    }
  }
}

/// The content of a storage after all pages are written, in a form in which an owner and its followers are equal.
///
/// Left out is what an owner knows and does not log: the log index and time of each page, counters of commands without
/// effects, hints for peeks, and expired webhooks and tokens. The types page has the order in which channels were
/// loaded.
/// A truncation changes the head page only: whether a segment was written before or after it depends on the member, so
/// truncated messages are left out.
struct StoredState {
  private(set) var pages: [PageKey: [Effect]] = [:]
  private(set) var sessions: [ShardID: [SessionID: SessionRecord]] = [:]
  private(set) var directory: [[UInt8]: ChannelNumber] = [:]
  private(set) var logLength = 0

  /// - Parameter time: webhooks and tokens that expire before this are left out.
  init(_ storage: MemoryStorage, at time: Int64) throws {
    directory = storage.directory
    logLength = storage.log.values.reduce(0) { $0 + $1.count }
    for (key, bytes) in storage.pages {
      var effects: [Effect] = []
      for effect in try Page(bytes.readableBytesSpan).effects {
        switch effect {
        case .shard(.sessionAssigned(let record)):
          sessions[key.shard, default: [:]][record.session] = record
        case .shard(.countersAssigned(let next, _)):
          effects.append(.shard(.countersAssigned(nextChannel: next, time: .none)))
        // A hint that memory keeps for a mention or a sender that is gone, until the channel is loaded again.
        case .channel(_, .segmentFlagsAssigned): break
        case .shard(.webhookNoted(_, let until)) where until.milliseconds < time: break
        case .shard(.tokenRevoked(let revocation))
        where revocation.until != .none && revocation.until.milliseconds < time:
          break
        default: effects.append(effect)
        }
      }
      if key.page == .types { effects.sort { "\($0)" < "\($1)" } }
      if !effects.isEmpty { pages[key] = effects }
    }
    removeTruncatedMessages()
  }

  private mutating func removeTruncatedMessages() {
    for (head, effects) in pages where head.page == .head {
      for case .channel(_, .truncated(let through, _)) in effects {
        for (key, effects) in pages where key.shard == head.shard && key.channel == head.channel {
          guard case .segment = key.page else { continue }
          let kept = effects.filter { effect in
            if case .channel(_, .messageAssigned(let sequence, _)) = effect { return sequence > through }
            return true
          }
          pages[key] = kept.isEmpty ? nil : kept
        }
      }
    }
  }

  /// The differences to an owner's state; empty if there are none.
  func differences(from owner: StoredState) -> [String] {
    var found: [String] = []
    for key in Set(pages.keys).union(owner.pages.keys) where pages[key] != owner.pages[key] {
      let place = "shard \(key.shard.rawValue), channel \(key.channel.rawValue), page \(key.page)"
      let (own, other) = (pages[key] ?? [], owner.pages[key] ?? [])
      let first = zip(own, other).first { $0 != $1 }
      found.append(
        "\(place): \(own.count) effects, the owner has \(other.count); first difference \(first as Any)"
      )
    }
    if directory != owner.directory { found.append("the names differ") }
    if logLength != 0 || owner.logLength != 0 {
      found.append("the log has \(logLength) batches, the owner's \(owner.logLength)")
    }
    return found.sorted() + appliedOnlyHere(unlike: owner)
  }

  /// Commands that a resend would not apply here, while the owner would apply them.
  private func appliedOnlyHere(unlike owner: StoredState) -> [String] {
    sessions.flatMap { shard, records in
      records.values.flatMap { record in
        (1...record.highest).filter { counter in
          record.hasApplied(counter) && owner.sessions[shard]?[record.session]?.hasApplied(counter) != true
        }
        .map { "shard \(shard.rawValue): counter \($0) counts as applied here and not at the owner" }
      }
    }
  }
}
