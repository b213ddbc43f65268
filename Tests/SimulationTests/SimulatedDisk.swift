import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine
import StoreTestSupport
import TestSupport

/// The current content of storage. A commit is written in steps: its batches one by one, then its drops, then its pages
/// and log trims in any order. A ``StorageEngine`` need not promise more. A crash can happen between any two steps.
///
/// `@unchecked Sendable`: a simulation has one thread.
final class SimulatedDisk: StorageEngine, @unchecked Sendable {
  enum Step {
    case batch(LoopCommit.Batch)
    case page(LoopCommit.PageWrite)
    case logTrim(LoopCommit.LogTrim)
    case trim(LoopCommit.StepTrim)
    case drop(LoopCommit.Drop)
  }

  /// The defect of a broken disk, in one of ``interval`` steps of that kind.
  enum Defect: CaseIterable {
    /// A batch is reported as written and is not.
    case losesBatch
    /// A page is reported as written and is not: its older version stays.
    case losesPage
    /// A log trim removes later batches too.
    case trimsWholeLog

    /// Log trims are few.
    var interval: Int { self == .trimsWholeLog ? 2 : 20 }
  }

  /// The disk's defect; nil: it keeps everything that it reports as synced.
  var defect: Defect?
  private var defectiveSteps = 0
  private var data = StoredData()
  private var last: [ShardID: UInt64] = [:]
  /// Requests that the store must not make.
  private(set) var faults: [String] = []
  private(set) var pageWrites = 0
  private(set) var logTrims = 0
  /// Where the log of each shard was trimmed.
  private var trimmed: [ShardID: LogIndex] = [:]
  private(set) var logLengthMost = 0

  static func steps(_ commit: LoopCommit, _ random: inout SplitMix64) -> [Step] {
    var later = commit.pages.map(Step.page) + commit.logTrims.map(Step.logTrim) + commit.stepTrims.map(Step.trim)
    for place in stride(from: later.count - 1, to: 0, by: -1) { later.swapAt(place, random.below(place + 1)) }
    return commit.batches.map(Step.batch) + commit.drops.map(Step.drop) + later
  }

  func perform(_ step: Step) {
    switch step {
    case .batch(let batch):
      if batch.index.rawValue != last[batch.shard, default: 0] + 1 {
        faults.append(
          "shard \(batch.shard.rawValue): batch \(batch.index.rawValue) after \(last[batch.shard] ?? 0)"
        )
      }
      last[batch.shard] = batch.index.rawValue
      if fails(.losesBatch) { return }
      data.apply(batch)
      logLengthMost = max(logLengthMost, data.log[batch.shard]!.count)
    case .page(let write):
      pageWrites += 1
      let index = (try? Page(write.bytes.readableBytesSpan))?.index.rawValue ?? .max
      if index > last[write.key.shard, default: 0] {
        faults.append("page \(write.key) is of \(index), the log ends at \(last[write.key.shard] ?? 0)")
      }
      if fails(.losesPage) { return }
      data.apply(write)
    case .logTrim(let trim):
      logTrims += 1
      if trim.through.rawValue > last[trim.shard, default: 0] {
        faults.append("trim beyond the log: \(trim)")
      }
      if let first = data.log[trim.shard]?.keys.min(), first <= trim.after.rawValue {
        faults.append("batch \(first) is left behind: \(trim)")
      }
      // RocksDB keeps each pair of trims that overlap.
      if let last = trimmed.updateValue(trim.through, forKey: trim.shard), trim.after < last {
        faults.append("trims overlap at \(last.rawValue): \(trim)")
      }
      data.apply(fails(.trimsWholeLog) ? trim.ofAll : trim)
    case .drop(let drop): data.apply(drop)
    case .trim(let trim):
      let segments = trim.segments
      let left = data.readSteps(trim.shard, trim.channel, rowPage: trim.rowPage, segments: 0..<segments.lowerBound)
      if let first = left.first { faults.append("segment \(first.segment) is left behind: \(trim)") }
      data.apply(trim)
    }
  }

  /// Whether this step shows the disk's defect.
  private func fails(_ kind: Defect) -> Bool {
    guard kind == defect else { return false }
    defectiveSteps += 1
    return defectiveSteps.isMultiple(of: kind.interval)
  }

  func purge() throws(StorageError) {}

  func commit(_ commit: LoopCommit) throws(StorageError) {
    // All steps are done, so that their order does not matter.
    var random = SplitMix64(seed: 0)
    Self.steps(commit, &random).forEach(perform)
  }

  func read(_ shard: ShardID, _ channel: ChannelReference) throws(StorageError) -> StoredChannel? {
    data.read(shard, channel)
  }

  func readPages(
    _ shard: ShardID,
    _ channel: ChannelReference,
    _ selection: PageSelection
  ) throws(StorageError) -> StoredChannel? {
    data.readPages(shard, channel, selection)
  }

  func readSteps(
    _ shard: ShardID,
    _ channel: ChannelNumber,
    rowPage: UInt32,
    segments: Range<UInt32>
  ) throws(StorageError) -> [StoredSegment] {
    data.readSteps(shard, channel, rowPage: rowPage, segments: segments)
  }

  func recover(_ shard: ShardID) throws(StorageError) -> StoredShard { data.recover(shard) }

  func logLength(_ shard: ShardID) -> Int { data.log[shard]?.count ?? 0 }

  /// Channels with a deletion in the log that is begun and not finished.
  func unfinishedDeletions(_ shard: ShardID) -> Set<ChannelNumber> {
    var unfinished: Set<ChannelNumber> = []
    for (_, bytes) in data.log[shard, default: [:]].sorted(by: { $0.key < $1.key }) {
      for effect in (try? LogBatch(bytes.readableBytesSpan))?.effects ?? [] {
        if case .channel(let number, .deletionBegun) = effect { unfinished.insert(number) }
        if case .channel(let number, .channelDeleted(_)) = effect { unfinished.remove(number) }
      }
    }
    return unfinished
  }

  /// The session records and the start time of a shard, read without the engine's code.
  func recovered(_ shard: ShardID) -> (sessions: [SessionID: SessionRecord], time: Int64) {
    var sessions: [SessionID: SessionRecord] = [:]
    var time: Int64 = 0
    var included: UInt64 = 0
    let head = PageKey(shard: shard, channel: ChannelNumber(0), page: .shardHead)
    if let bytes = data.pages[head], let page = try? Page(bytes.readableBytesSpan) {
      included = page.index.rawValue
      for effect in page.effects {
        if case .shard(.sessionAssigned(let record)) = effect { sessions[record.session] = record }
        if case .shard(.countersAssigned(_, let at)) = effect { time = at.milliseconds }
      }
    }
    for (index, bytes) in data.log[shard, default: [:]].sorted(by: { $0.key < $1.key }) {
      guard let batch = try? LogBatch(bytes.readableBytesSpan) else {
        faults.append("batch \(index) does not parse")
        continue
      }
      time = max(time, batch.time.milliseconds)
      if index > included { for record in batch.sessions { sessions[record.session] = record } }
    }
    return (sessions, time)
  }
}
