import NIOCore
import NIOPosix
import Operations
import StoreEngine
import StoreEtcd
import Synchronization
import TestSupport
import Testing

/// A log's calls from a test, on the log's event loop. Each has a time limit.
final class AsyncGroupLog: Sendable {
  let eventLoop: any EventLoop
  private let log: NIOLoopBound<any GroupLog>

  private init(eventLoop: any EventLoop, log: NIOLoopBound<any GroupLog>) {
    self.eventLoop = eventLoop
    self.log = log
  }

  /// Make a log on an event loop, use it, and close it.
  static func with<Value>(
    _ make: @escaping @Sendable (any EventLoop) -> any GroupLog,
    body: (AsyncGroupLog) async throws -> Value
  ) async throws -> Value {
    let eventLoop = MultiThreadedEventLoopGroup.singleton.next()
    let log = try await eventLoop.submit { NIOLoopBound(make(eventLoop), eventLoop: eventLoop) }.get()
    let asyncLog = AsyncGroupLog(eventLoop: eventLoop, log: log)
    do {
      let value = try await body(asyncLog)
      try await asyncLog.close()
      return value
    } catch {
      try await asyncLog.close()
      throw error
    }
  }

  /// The same with a client of etcd. `failures` gets what it reports.
  static func with<Value>(
    _ configuration: EtcdConfiguration,
    failures: FailureList = FailureList(),
    body: (AsyncGroupLog) async throws -> Value
  ) async throws -> Value {
    try await with(
      { eventLoop in
        EtcdGroupLog(configuration: configuration, eventLoop: eventLoop) { failure, _ in
          failures.append(failure)
        }
      },
      body: body
    )
  }

  private func close() async throws {
    let log = log
    try await eventLoop.submit { (log.value as? EtcdGroupLog)?.close() }.get()
  }

  // MARK: Calls

  func append(_ appends: [GroupAppend]) async throws -> [AppendOutcome] {
    try await call("an append's outcome") { log, done in log.append(appends, done: done) }
  }

  func claim(_ claim: GroupClaim) async throws -> AppendOutcome {
    try await call("a claim's outcome") { log, done in log.claim(claim, done: done) }
  }

  func ends(of groups: [GroupID]) async throws -> [GroupEnd]? {
    try await call("the ends of groups") { log, done in log.ends(of: groups, done: done) }
  }

  func read(_ group: GroupID, from position: UInt64, max: Int = 256) async throws -> ReadOutcome {
    try await call("records") { log, done in
      log.read(group, from: RecordPosition(position), max: max, done: done)
    }
  }

  func trim(_ trim: GroupTrim) {
    let log = log
    eventLoop.execute { log.value.trim(trim) }
  }

  func follow(_ group: GroupID, from position: UInt64) -> Followed {
    let log = log
    let followed = Followed()
    eventLoop.execute {
      log.value.follow(group, from: RecordPosition(position)) { followed.receive($0) }
    }
    return followed
  }

  private func call<Value: Sendable>(
    _ awaited: String,
    _ body: @escaping @Sendable (any GroupLog, @escaping (Value) -> Void) -> Void
  ) async throws -> Value {
    let (log, eventLoop) = (log, eventLoop)
    return try await within(awaited) {
      await withCheckedContinuation { continuation in
        eventLoop.execute { body(log.value) { continuation.resume(returning: $0) } }
      }
    }
  }

  // MARK: Calls that are repeated

  /// The ends, as soon as the log answers.
  func settledEnds(of groups: [GroupID]) async throws -> [GroupEnd] {
    var ends: [GroupEnd] = []
    try await eventually("the log answers") {
      guard let answer = try await self.ends(of: groups) else { return false }
      ends = answer
      return true
    }
    return ends
  }

  /// All records from a position on, in pages of at most `max`.
  func records(_ group: GroupID, from position: UInt64 = 1, max: Int = 256) async throws -> [GroupRecord] {
    var records: [GroupRecord] = []
    var next = position
    var isComplete = false
    try await eventually("the log's end is read") {
      while !isComplete {
        switch try await self.read(group, from: next, max: max) {
        case .failed: return false
        case .trimmed(let first): throw Unexpected("trimmed up to \(first)")
        case .records(let page, let reachesEnd):
          #expect(page.count <= max)
          records += page
          next += UInt64(page.count)
          isComplete = reachesEnd
        }
      }
      return true
    }
    return records
  }
}

/// What a call to follow a group has delivered.
final class Followed: Sendable {
  private struct State {
    var records: [GroupRecord] = []
    var isEnded = false
  }

  private let state = Mutex(State())

  var records: [GroupRecord] { state.withLock { $0.records } }
  var isEnded: Bool { state.withLock { $0.isEnded } }

  fileprivate func receive(_ event: FollowEvent) {
    state.withLock { state in
      #expect(!state.isEnded, "an event after the end")
      switch event {
      case .records(let records):
        #expect(!records.isEmpty)
        state.records += records
      case .ended: state.isEnded = true
      }
    }
  }

  func waitForRecords(_ count: Int) async throws {
    try await eventually("\(count) records have been followed") { self.records.count >= count }
  }

  func waitForEnd() async throws {
    try await eventually("following has ended") { self.isEnded }
  }
}

/// What a client of etcd has reported.
final class FailureList: Sendable {
  private let list = Mutex<[EtcdFailure]>([])
  var failures: [EtcdFailure] { list.withLock { $0 } }
  func append(_ failure: EtcdFailure) { list.withLock { $0.append(failure) } }

  func contains(status text: String) -> Bool {
    failures.contains { failure in
      if case .status(let status) = failure { status.message.contains(text) } else { false }
    }
  }
}

struct Unexpected: Error, CustomStringConvertible {
  let description: String
  init(_ description: String) { self.description = description }
}

/// An owner that appends as `Ownership` does: an unclear record is sent again, unchanged, until it is decided.
struct TestOwner {
  let log: AsyncGroupLog
  let group: GroupID
  let node: NodeID
  /// The last record.
  private(set) var cursor: LogCursor
  private(set) var owner = GroupOwner.none
  /// Attempts without a decision.
  private(set) var unclearCount = 0

  init(_ log: AsyncGroupLog, group: UInt8, node: UInt16, after cursor: LogCursor = .start) {
    self.log = log
    self.group = GroupID(group)
    self.node = NodeID(node)
    self.cursor = cursor
  }

  /// Claim the group from an owner.
  mutating func claim(from seen: GroupOwner = .none) async throws {
    let record = cursor.record(.claim(by: node), epoch: seen.epoch.next)
    let claim = GroupClaim(group: group, record: record, seen: seen.fence)
    owner = try await decide(record) { [log] in try await log.claim(claim) }
  }

  /// Append a record with this payload.
  @discardableResult
  mutating func append(_ payload: [UInt8]) async throws -> GroupRecord {
    let append = next(payload)
    _ = try await decide(append.record) { [log] in try await log.append([append])[0] }
    return append.record
  }

  /// The append that would follow, without making it.
  func next(_ payload: [UInt8]) -> GroupAppend {
    let record = cursor.record(.batches, epoch: owner.epoch, payload: payload)
    return GroupAppend(group: group, record: record, fence: owner.fence)
  }

  /// Take a record as appended.
  mutating func committed(_ record: GroupRecord) { cursor = LogCursor(after: record) }

  private mutating func decide(
    _ record: GroupRecord,
    _ attempt: () async throws -> AppendOutcome
  ) async throws -> GroupOwner {
    var owner: GroupOwner?
    try await eventually("record \(record.position.rawValue) is decided") {
      switch try await attempt() {
      case .committed(let committed): owner = committed
      case .fenced(let other): throw Unexpected("record \(record.position.rawValue) is fenced by \(other)")
      case .unclear: unclearCount += 1
      }
      return owner != nil
    }
    cursor = LogCursor(after: record)
    return try #require(owner)
  }
}
