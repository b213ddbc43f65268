import ReceiptModel
import StoreEngine
import StoreTestSupport

/// Contents of a record of batches.
struct RecordContent {
  /// In order.
  var writes: [Write]
  /// The time of each shard's batch.
  var times: [(shard: ShardID, time: Int64)] = []
}

/// The independent record of a simulation: what the log has accepted, what clients were told, and every contradiction
/// between the two. It shares no code with ``Ownership``.
final class ClusterOracle {
  /// One group's history as seen from outside, never trimmed.
  private struct History {
    var records: [GroupRecord] = []
    var epoch: UInt64 = 0
    /// Where each write is in the log, counted in writes from 1.
    var places: [Write: Int] = [:]
    var writeCount = 0
    /// The latest acknowledged place in each register.
    var acknowledged = [Int](repeating: 0, count: Write.registerCount)
    /// The newest time of each shard.
    var times: [ShardID: Int64] = [:]
    /// The commit of several records that the log is within.
    var assembly = CommitAssembly()
    /// A release was accepted: only a claim may follow.
    var isReleased = false
  }

  private var histories: [History]
  private(set) var faults: [String] = []
  private(set) var acknowledgements = 0
  private(set) var reads = 0
  /// Records that are a part of a commit.
  private(set) var partCount = 0

  /// Contents of a commit's payload.
  private let content: ([UInt8], RecordKeyNumber, GroupID) -> RecordContent

  init(groupCount: Int, content: @escaping ([UInt8], RecordKeyNumber, GroupID) -> RecordContent) {
    self.content = content
    histories = Array(repeating: History(), count: groupCount)
  }

  private func fault(_ group: GroupID, _ text: String) {
    if faults.count < 20 { faults.append("group \(group.rawValue): \(text)") }
  }

  func length(_ group: GroupID) -> RecordPosition {
    RecordPosition(UInt64(histories[Int(group.rawValue)].records.count))
  }

  // MARK: Log

  /// The log has accepted a record (C1, C2, C10).
  func accepted(_ group: GroupID, _ record: GroupRecord) {
    var history = histories[Int(group.rawValue)]
    defer { histories[Int(group.rawValue)] = history }
    let expected = history.records.count + 1
    guard record.position.rawValue == expected else {
      fault(group, "C1: position \(record.position.rawValue) was appended where \(expected) is next")
      return
    }
    if let last = history.records.last, record.previous != last.hash {
      fault(group, "C1: record \(expected) does not follow the record before it")
    }
    if let last = history.records.last, record.level < last.level { fault(group, "C13: the level falls") }
    switch record.kind {
    case .claim:
      if record.epoch.rawValue != history.epoch + 1 {
        fault(group, "C1: claim of epoch \(record.epoch.rawValue) after \(history.epoch)")
      }
      history.epoch = record.epoch.rawValue
      history.isReleased = false
    case .batches, .part, .alive, .release, .purge, .unknown:
      if record.epoch.rawValue != history.epoch {
        fault(group, "C1: record of epoch \(record.epoch.rawValue) under \(history.epoch)")
      }
      if history.isReleased { fault(group, "C1: record \(expected) by an owner that had released the group") }
      if case .release = record.kind { history.isReleased = true }
    }
    history.records.append(record)
    if record.kind == .part { partCount += 1 }
    if let last = history.records.dropLast().last, record.key < last.key {
      fault(group, "C12: record \(expected) has key \(record.key.rawValue) after \(last.key.rawValue)")
    }
    guard let payload = try? history.assembly.add(record) else { return }
    let content = content(payload, record.key, group)
    for (shard, time) in content.times {
      if time < history.times[shard] ?? 0 { fault(group, "C11: the time of shard \(shard.rawValue) falls") }
      history.times[shard] = time
    }
    for write in content.writes {
      history.writeCount += 1
      if history.places.updateValue(history.writeCount, forKey: write) != nil {
        fault(group, "C2: \(write) is in the log twice")
      }
    }
  }

  // MARK: Clients

  /// A node has acknowledged a write (C3).
  func acknowledged(_ group: GroupID, _ write: Write) {
    acknowledgements += 1
    guard let place = histories[Int(group.rawValue)].places[write] else {
      fault(group, "C3: \(write) was acknowledged and is not in the log")
      return
    }
    let register = Int(write.register)
    let known = histories[Int(group.rawValue)].acknowledged[register]
    histories[Int(group.rawValue)].acknowledged[register] = max(known, place)
  }

  /// The oldest state that a read beginning now may show.
  func readBegins(_ group: GroupID, _ register: Int) -> Int {
    histories[Int(group.rawValue)].acknowledged[register]
  }

  /// A read was answered (C4).
  func readEnds(_ group: GroupID, by reader: String, _ answer: Write?, atLeast: Int) {
    reads += 1
    var place = 0
    if let answer {
      guard let known = histories[Int(group.rawValue)].places[answer] else {
        fault(group, "C3: a read shows \(answer), which is not in the log")
        return
      }
      place = known
    }
    if place < atLeast { fault(group, "C4: \(reader) showed write \(place) after \(atLeast)") }
  }

  // MARK: Members

  /// The level of the record at a position; the oldest one before the first record.
  func level(_ group: GroupID, _ position: RecordPosition) -> ClusterLevel {
    let records = histories[Int(group.rawValue)].records
    return position == .zero ? .oldest : records[Int(position.rawValue) - 1].level
  }

  /// A node has applied the records up to a position (C13).
  func applied(_ group: GroupID, by node: SimulatedNode, _ position: RecordPosition) {
    let level = level(group, position)
    if level > node.levels.upperBound {
      fault(group, "C13: node \(node.id.rawValue) has applied record \(position.rawValue) of level \(level.rawValue)")
    }
  }

  /// A member cannot follow any more (C6, C7).
  func stranded(_ node: NodeID, _ group: GroupID, _ reason: Ownership.SnapshotReason) {
    switch reason {
    case .trimmed(let first):
      fault(group, "C7: node \(node.rawValue) needs a record before \(first.rawValue)")
    case .keyDestroyed(let key):
      fault(group, "C12: node \(node.rawValue) needs the destroyed key \(key.rawValue)")
    case .diverged(let position):
      fault(group, "C6: node \(node.rawValue) has another history before \(position.rawValue)")
    }
  }

  /// A member's storage reaches `end`.
  func check(_ node: NodeID, _ group: GroupID, _ stored: RecordPosition, reaches end: RecordPosition) {
    if stored < end {
      fault(group, "liveness: node \(node.rawValue) has \(stored.rawValue) of \(end.rawValue) records")
    }
  }

  /// A member's storage is a prefix of the history.
  func check(_ node: NodeID, _ group: GroupID, stored: [GroupRecord]) {
    let records = histories[Int(group.rawValue)].records
    if stored.count > records.count || stored != Array(records.prefix(stored.count)) {
      fault(group, "C6: the storage of node \(node.rawValue) is not a prefix of the history")
    }
  }

  /// A member's storage shows the last write of each register.
  func check(_ node: NodeID, _ group: GroupID, registers: [Write?]) {
    var expected = [Write?](repeating: nil, count: Write.registerCount)
    var last = [Int](repeating: 0, count: Write.registerCount)
    for (write, place) in histories[Int(group.rawValue)].places where place > last[Int(write.register)] {
      last[Int(write.register)] = place
      expected[Int(write.register)] = write
    }
    if registers != expected {
      fault(group, "C8: the storage of node \(node.rawValue) shows \(registers) instead of \(expected)")
    }
  }

  /// Check that the records left in the log are the end of the history.
  func check(_ group: GroupID, _ log: SimulatedLog.Group) {
    let records = histories[Int(group.rawValue)].records
    guard log.last.rawValue == records.count else {
      fault(group, "C1: the log ends at \(log.last.rawValue), its history at \(records.count)")
      return
    }
    var position = log.first
    while position <= log.last {
      if log.records[position] != records[Int(position.rawValue) - 1] {
        fault(group, "C1: record \(position.rawValue) was replaced")
      }
      position = position.next
    }
  }

  /// Something happened that must not.
  func failed(_ group: GroupID, _ text: String) { fault(group, text) }

  /// Something did not happen in time.
  func missed(_ group: GroupID, _ text: String) { fault(group, "liveness: \(text)") }
}
