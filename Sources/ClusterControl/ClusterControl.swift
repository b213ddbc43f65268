package import CommandOutput
package import StoreEngine
package import StoreEtcd

/// Changes of a cluster: the implementation of `tidemark cluster move`, `drain`, `balance`, `add`, `remove` and
/// `raise`.
package struct ClusterControl: Sendable {
  package var configuration: EtcdConfiguration
  /// Whether `move`, `drain` and `remove` wait until the groups have moved.
  package var waitsForOwners = true
  /// How long they wait. A group moves when its preferred owner has followed steadily for 10 s.
  package var ownerTimeout: Duration = .seconds(60)
  package var pollInterval: Duration = .seconds(1)
  /// Maximum number of attempts, one after the other, without an answer or with a conflict.
  package var attemptsMax = 10

  package init(_ configuration: EtcdConfiguration) { self.configuration = configuration }

  /// Carry out a command: take its steps until none is left. It is safe to interrupt it and to run it again.
  ///
  /// - Throws: ``ClusterRefusal``, ``ClusterFailure``, or the error of the task's cancellation.
  package func run(_ command: ClusterCommand, note: @escaping ProgressHandler) async throws -> ClusterSummary {
    let connection = try await ClusterConnection.open(configuration)
    return try await withCleanup {
      var run = ClusterRun(self, command, connection, note)
      while try await run.takeStep() {}
      return run.summary
    } cleanUp: {
      await connection.close()
    }
  }

  /// Read the state of the cluster.
  package func status(note: @escaping ProgressHandler = { _ in }) async throws -> ClusterStatus {
    let connection = try await ClusterConnection.open(configuration)
    return try await withCleanup {
      var attempt = 1
      while true {
        do throws(ClusterFailure) {
          return ClusterStatus(cluster: configuration.cluster, ClusterState(try await connection.overview()))
        } catch {
          guard case .noAnswer = error, attempt < attemptsMax else { throw error }
          note("\(error); trying again")
        }
        attempt += 1
        try await Task.sleep(for: pollInterval)
      }
    } cleanUp: {
      await connection.close()
    }
  }
}

/// Result of a command.
package struct ClusterSummary: Hashable, Sendable {
  package var cluster: String
  package var command: String
  /// In the order in which they were made. A change whose answer was lost is missing.
  package var changes: [SetChange] = []
  /// After `raise`; nil: another command.
  package var level: ClusterLevel?

  /// The summary as one line of JSON.
  package var document: String {
    let head: [(String, OrderedJSON)] = [("cluster", .string(cluster)), ("command", .string(command))]
    if let level { return OrderedJSON.object(head + [("level", .integer(Int(level.rawValue)))]).text }
    return OrderedJSON.object(
      head + [
        (
          "changes",
          .array(
            changes.map {
              .object([
                ("group", .integer(Int($0.group.rawValue))),
                ("members", .array($0.members.map { .integer(Int($0.rawValue)) })),
              ])
            }
          )
        )
      ]
    ).text
  }
}

/// A command on its way.
private struct ClusterRun {
  private let control: ClusterControl
  private let command: ClusterCommand
  private let connection: ClusterConnection
  private let note: ProgressHandler
  private(set) var summary: ClusterSummary
  /// Attempts since the last success.
  private var failures = 0
  private var waitsSince: ContinuousClock.Instant?

  init(
    _ control: ClusterControl,
    _ command: ClusterCommand,
    _ connection: ClusterConnection,
    _ note: @escaping ProgressHandler
  ) {
    self.control = control
    self.command = command
    self.connection = connection
    self.note = note
    summary = ClusterSummary(cluster: control.configuration.cluster, command: command.name)
  }

  /// Read the cluster, plan, and take the next step.
  ///
  /// - Returns: false if the command is done.
  mutating func takeStep() async throws -> Bool {
    let cluster: ClusterState
    do throws(ClusterFailure) {
      cluster = ClusterState(try await connection.overview())
    } catch {
      guard case .noAnswer = error else { throw error }
      note("\(error); trying again")
      try await retry(error)
      return true
    }
    if command == .raise { summary.level = cluster.configuration.level }
    switch try command.nextStep(cluster) {
    case .change(let changes):
      waitsSince = nil
      try await apply(changes)
      return true
    case .raise(let level):
      try await raise(cluster, to: level)
      return true
    case .waitForMember(let node, let group):
      failures = 0
      note(cluster.progress(of: node, joining: group))
      try await Task.sleep(for: control.pollInterval)
      return true
    case .waitForOwners(let pending):
      failures = 0
      guard control.waitsForOwners else { return false }
      try await wait(for: pending, cluster)
      return true
    case .done: return false
    }
  }

  /// Make changes until one fails; a new plan follows in any case.
  private mutating func apply(_ changes: [SetChange]) async throws {
    for change in changes {
      let outcome = await connection.apply(change)
      guard outcome == .changed else { return try await retry(.notChanged(change, outcome)) }
      failures = 0
      summary.changes.append(change)
      note("group \(change.group.rawValue): members are now \(change.members.text)")
    }
  }

  private mutating func raise(_ cluster: ClusterState, to level: ClusterLevel) async throws {
    let outcome = await connection.raise(cluster, to: level)
    guard outcome == .changed else { return try await retry(.notRaised(level, outcome)) }
    failures = 0
    note("the cluster's level is now \(level.rawValue)")
  }

  /// Pause before the next attempt, or give up.
  private mutating func retry(_ failure: ClusterFailure) async throws {
    failures += 1
    guard failures < control.attemptsMax else { throw failure }
    try await Task.sleep(for: control.pollInterval)
  }

  private mutating func wait(for pending: [PendingOwner], _ cluster: ClusterState) async throws {
    let now = ContinuousClock.now
    let since = waitsSince ?? now
    waitsSince = since
    let reasons = pending.map { cluster.reason(for: $0) }
    guard now - since < control.ownerTimeout else {
      throw ClusterFailure.notMoved(pending, control.ownerTimeout, reasons: reasons)
    }
    note("waiting for \(pending.count) of \(cluster.groups.count) groups to move: \(reasons[0])")
    try await Task.sleep(for: control.pollInterval)
  }
}

extension ClusterState {
  /// How far a node is that becomes a member of a group.
  package func progress(of node: NodeID, joining id: GroupID) -> String {
    let name = "group \(id.rawValue): node \(node.rawValue)"
    guard isRunning(node) else { return "\(name) does not run; waiting for it" }
    guard let group = groups.first(where: { $0.id == id }), let report = group.reports[node] else {
      return "\(name) has not reported yet"
    }
    return switch report.phase {
    case .joining: "\(name) receives a snapshot, lag \(group.lag(of: node) ?? 0)"
    case .following, .ineligible: "\(name) needs a snapshot"
    }
  }

  /// What a group waits for before it moves.
  package func reason(for pending: PendingOwner) -> String {
    let name = "group \(pending.group.rawValue)"
    let (wanted, owner) = ("node \(pending.wanted.rawValue)", "node \(pending.owner.rawValue)")
    guard isRunning(pending.wanted) else { return "\(name): \(wanted) does not run" }
    guard pending.owner != .none else { return "\(name) has no owner" }
    guard isRunning(pending.owner) else { return "\(name): its owner, \(owner), does not run" }
    guard let group = groups.first(where: { $0.id == pending.group }), group.hasLog(pending.wanted) else {
      return "\(name): \(wanted) lacks records"
    }
    return "\(name): \(owner) owns it; \(wanted) lags by \(group.lag(of: pending.wanted) ?? 0) records"
  }
}
