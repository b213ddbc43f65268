package import NIOCore
internal import NIOPosix
package import StoreEngine
internal import Synchronization
internal import TestSupport
internal import Testing

/// A log's calls from a test, on the log's event loop. Each has a time limit.
package final class AsyncGroupLog: Sendable {
  private let eventLoop: any EventLoop
  private let log: NIOLoopBound<any GroupLog>

  private init(eventLoop: any EventLoop, log: NIOLoopBound<any GroupLog>) {
    self.eventLoop = eventLoop
    self.log = log
  }

  /// Make a log on an event loop, use it, and close it, also if `body` fails.
  ///
  /// - Parameter make: returns a log and how to close it.
  package static func with<Value>(
    _ make: @escaping @Sendable (any EventLoop) -> (log: any GroupLog, close: () -> Void),
    body: (AsyncGroupLog) async throws -> Value
  ) async throws -> Value {
    let eventLoop = MultiThreadedEventLoopGroup.singleton.next()
    let (log, close) = try await eventLoop.submit {
      let made = make(eventLoop)
      return (NIOLoopBound(made.log, eventLoop: eventLoop), NIOLoopBound(made.close, eventLoop: eventLoop))
    }.get()
    let result: Result<Value, any Error>
    do {
      result = .success(try await body(AsyncGroupLog(eventLoop: eventLoop, log: log)))
    } catch {
      result = .failure(error)
    }
    try await eventLoop.submit { close.value() }.get()
    return try result.get()
  }

  // MARK: Calls

  package func append(_ appends: [GroupAppend]) async throws -> [AppendOutcome] {
    try await call("an append's outcome") { log, done in log.append(appends, done: done) }
  }

  package func claim(_ claim: GroupClaim) async throws -> AppendOutcome {
    try await call("a claim's outcome") { log, done in log.claim(claim, done: done) }
  }

  package func ends(of groups: [GroupID]) async throws -> [GroupEnd]? {
    try await call("the ends of groups") { log, done in log.ends(of: groups, done: done) }
  }

  package func read(_ group: GroupID, from position: UInt64, max: Int = 256) async throws -> ReadOutcome {
    try await call("records") { log, done in
      log.read(group, from: RecordPosition(position), max: max, done: done)
    }
  }

  package func report(
    _ group: GroupID,
    by node: NodeID,
    synced position: UInt64,
    _ phase: MemberReport.Phase = .following
  ) async throws -> [NodeID: MemberReport]? {
    let report = MemberReport(position: RecordPosition(position), phase)
    return try await call("the members' reports") { log, done in
      log.report(group, by: node, report, done: done)
    }
  }

  package func trim(_ trim: GroupTrim) {
    let log = log
    eventLoop.execute { log.value.trim(trim) }
  }

  package func follow(_ group: GroupID, from position: UInt64) -> Followed {
    let log = log
    let followed = Followed()
    eventLoop.execute {
      log.value.follow(group, from: RecordPosition(position)) { followed.receive($0) }
    }
    return followed
  }

  /// Look at the log itself.
  package func inspect<Value: Sendable>(_ body: @escaping @Sendable (any GroupLog) -> Value) async throws -> Value {
    let log = log
    return try await eventLoop.submit { body(log.value) }.get()
  }

  /// Make a call with a time limit.
  package func call<Value: Sendable>(
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
  package func availableEnds(of groups: [GroupID]) async throws -> [GroupEnd] {
    var ends: [GroupEnd] = []
    try await eventually("the log answers") {
      guard let answer = try await self.ends(of: groups) else { return false }
      ends = answer
      return true
    }
    return ends
  }

  /// All records from a position on, in pages of at most `max`.
  package func records(_ group: GroupID, from position: UInt64 = 1, max: Int = 256) async throws
    -> [GroupRecord]
  {
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

/// Records that a call to follow a group has delivered.
package final class Followed: Sendable {
  private struct State {
    var records: [GroupRecord] = []
    var isEnded = false
  }

  private let state = Mutex(State())

  package var records: [GroupRecord] { state.withLock { $0.records } }
  package var isEnded: Bool { state.withLock { $0.isEnded } }

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

  package func waitForRecords(_ count: Int) async throws {
    try await eventually("\(count) records have been followed") { self.records.count >= count }
  }

  package func waitForEnd() async throws {
    try await eventually("following has ended") { self.isEnded }
  }
}
