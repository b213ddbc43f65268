import NIOCore
import StoreEngine
import StoreTestSupport
import Testing

/// The simulated log does what every engine must do, so that results of the simulation apply to them.
@Suite("Simulated log") struct SimulatedLogTests {
  @Test("the simulated log conforms", arguments: GroupLogConformance.allCases)
  func simulatedLogConforms(_ conformance: GroupLogConformance) async throws {
    try await AsyncGroupLog.with({ (DirectLog(eventLoop: $0), {}) }) { log in
      try await conformance.run(log)
    }
  }
}

/// The simulated log without a network.
private final class DirectLog: GroupLog {
  private struct Follower {
    var next: RecordPosition
    let receive: (FollowEvent) -> Void
  }

  private let log = SimulatedLog(groupCount: 256, missing: [])
  private let eventLoop: any EventLoop
  private var followers: [GroupID: Follower] = [:]

  init(eventLoop: any EventLoop) { self.eventLoop = eventLoop }

  func close() { followers = [:] }

  func append(_ appends: [GroupAppend], done: @escaping ([AppendOutcome]) -> Void) {
    answer(log.append(appends), done)
    for append in appends { deliver(append.group) }
  }

  func claim(_ claim: GroupClaim, done: @escaping (AppendOutcome) -> Void) {
    guard case .claim(by: let node) = claim.record.kind else { preconditionFailure("not a claim") }
    answer(log.claim(claim, by: node), done)
    deliver(claim.group)
  }

  func ends(of groups: [GroupID], done: @escaping ([GroupEnd]?) -> Void) {
    answer(log.ends(of: groups), done)
  }

  func read(
    _ group: GroupID,
    from position: RecordPosition,
    max: Int,
    done: @escaping (ReadOutcome) -> Void
  ) {
    answer(log.read(group, from: position, max: max), done)
  }

  func report(
    _ group: GroupID,
    by node: NodeID,
    _ report: MemberReport,
    done: @escaping ([NodeID: MemberReport]?) -> Void
  ) {
    answer(log.report(group, by: node, report), done)
  }

  func follow(
    _ group: GroupID,
    from position: RecordPosition,
    receive: @escaping (FollowEvent) -> Void
  ) {
    followers[group] = Follower(next: position, receive: receive)
    deliver(group)
  }

  func unfollow(_ group: GroupID) { followers[group] = nil }

  func trim(_ trim: GroupTrim) { log.trim(trim) }

  private func deliver(_ group: GroupID) {
    guard let follower = followers[group] else { return }
    switch log.read(group, from: follower.next, max: .max) {
    case .records(let records, reachesEnd: _):
      guard let last = records.last else { return }
      followers[group]?.next = last.position.next
      answer(.records(records), follower.receive)
    case .trimmed, .failed:
      followers[group] = nil
      answer(.ended, follower.receive)
    }
  }

  private func answer<Answer>(_ answer: Answer, _ done: @escaping (Answer) -> Void) {
    eventLoop.assumeIsolated().execute { done(answer) }
  }
}
