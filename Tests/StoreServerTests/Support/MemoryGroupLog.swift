import NIOCore
import StoreEngine
import StoreTestSupport
import Synchronization

/// A shared log in this process, for nodes on real event loops. Every answer comes in a later turn.
final class MemoryGroupLog: Sendable {
  private struct Watch {
    var next: RecordPosition
    /// Deliver records on the watching loop.
    var deliver: @Sendable ([GroupRecord]) -> Void
  }

  private struct State: ~Copyable {
    var log: SimulatedLog
    /// By group and node: each node has one event loop for a group.
    var watches: [GroupID: [NodeID: Watch]] = [:]
  }

  private let state: Mutex<State>

  init(groupCount: Int) { state = Mutex(State(log: SimulatedLog(groupCount: groupCount, missing: []))) }

  /// Connect one event loop of a node.
  func connect(_ eventLoop: any EventLoop, node: NodeID) -> any GroupLog {
    Connection(self, eventLoop: eventLoop, node: node)
  }

  /// Claim a group for a node that does not run, and append this sealed payload as a commit of it.
  func takeOver(
    _ group: GroupID,
    node: NodeID,
    payload: [UInt8]? = nil,
    key: RecordKeyNumber? = nil,
    level: UInt8 = 2
  ) {
    change { log in
      let last = log[group].records[log[group].last].map { LogCursor(after: $0) } ?? .start
      let record = last.record(
        .claim(by: node),
        epoch: log[group].owner.epoch.next,
        level: ClusterLevel(level)
      )
      let claim = GroupClaim(group: group, record: record, seen: log[group].owner.fence)
      guard case .committed(let owner) = log.claim(claim, by: node), let payload else { return }
      let commit = LogCursor(after: record).record(.batches, epoch: owner.epoch, key: key, payload: payload)
      _ = log.append([GroupAppend(group: group, record: commit, fence: owner.fence)])
    }
  }

  /// Give the cluster a level.
  func setLevel(_ level: UInt8) { change { $0.level = ClusterLevel(level) } }

  /// Give a group other members.
  func setMembers(of group: GroupID, _ members: [UInt16]) {
    change { log in log.change(group, members: members.map { NodeID($0) }) }
  }

  /// Return the kind of a group's last record.
  func lastKind(of group: GroupID) -> GroupRecord.Kind? {
    change { log in log[group].records[log[group].last]?.kind }
  }

  /// Return a group's last record of a kind.
  func lastRecord(of group: GroupID, _ kind: GroupRecord.Kind) -> GroupRecord? {
    change { log in log[group].records.values.filter { $0.kind == kind }.max { $0.position < $1.position } }
  }

  /// Report for a node that does not run.
  func report(_ group: GroupID, by node: NodeID, synced position: UInt64, purged: RecordPosition = .zero) {
    var report = MemberReport(position: RecordPosition(position))
    report.purged = purged
    change { log in
      // It has the keys of all others.
      report.key = log[group].reports.values.map(\.key).max() ?? .none
      _ = log.report(group, by: node, report)
    }
  }

  /// Return whether a node follows a group.
  func isFollowed(_ group: GroupID, by node: NodeID) -> Bool {
    state.withLock { state in state.watches[group]?[node] != nil }
  }

  /// Return what the nodes have reported of a group.
  func reports(of group: GroupID) -> [NodeID: MemberReport] { change { log in log[group].reports } }

  /// Perform a call, and deliver the new records.
  private func change<Value>(_ body: (SimulatedLog) -> sending Value) -> sending Value {
    state.withLock { state in
      let value = body(state.log)
      for (group, watches) in state.watches {
        for (node, watch) in watches {
          guard case .records(let records, _) = state.log.read(group, from: watch.next, max: 256), !records.isEmpty
          else { continue }
          state.watches[group]?[node]?.next = records.last!.position.next
          watch.deliver(records)
        }
      }
      return value
    }
  }

  private final class Connection: GroupLog {
    private let log: MemoryGroupLog
    private let eventLoop: any EventLoop
    private let node: NodeID

    init(_ log: MemoryGroupLog, eventLoop: any EventLoop, node: NodeID) {
      self.log = log
      self.eventLoop = eventLoop
      self.node = node
    }

    private func answer<Value: Sendable>(_ value: Value, _ done: @escaping (Value) -> Void) {
      let done = NIOLoopBound(done, eventLoop: eventLoop)
      eventLoop.execute { done.value(value) }
    }

    func close() {}

    func append(_ appends: [GroupAppend], done: @escaping ([AppendOutcome]) -> Void) {
      answer(log.change { $0.append(appends) }, done)
    }

    func claim(_ claim: GroupClaim, done: @escaping (AppendOutcome) -> Void) {
      answer(log.change { [node] in $0.claim(claim, by: node) }, done)
    }

    func ends(of groups: [GroupID], done: @escaping ([GroupEnd]?) -> Void) {
      answer(log.change { $0.ends(of: groups) }, done)
    }

    func read(_ group: GroupID, from position: RecordPosition, max: Int, done: @escaping (ReadOutcome) -> Void) {
      answer(log.change { $0.read(group, from: position, max: max) }, done)
    }

    func follow(_ group: GroupID, from position: RecordPosition, receive: @escaping (FollowEvent) -> Void) {
      let (eventLoop, receive) = (eventLoop, NIOLoopBound(receive, eventLoop: eventLoop))
      log.state.withLock { state in
        state.watches[group, default: [:]][node] = Watch(next: position) { records in
          eventLoop.execute { receive.value(.records(records)) }
        }
      }
      log.change { _ in }
    }

    func unfollow(_ group: GroupID) {
      log.state.withLock { [node] state in _ = state.watches[group]?.removeValue(forKey: node) }
    }

    func report(
      _ group: GroupID,
      by node: NodeID,
      _ report: MemberReport,
      done: @escaping ([NodeID: MemberReport]?) -> Void
    ) {
      answer(log.change { $0.report(group, by: node, report) }, done)
    }

    func trim(_ trim: GroupTrim) { log.change { $0.trim(trim) } }
  }
}
