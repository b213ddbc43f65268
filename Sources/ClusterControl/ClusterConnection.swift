internal import NIOCore
internal import NIOPosix
internal import Operations
package import StoreEngine
package import StoreEtcd

/// Calls of ``EtcdGroupLog`` that a command makes, from any thread.
package final class ClusterConnection: Sendable {
  /// The log, and the last failure of a server, which explains why no call succeeds.
  private final class State {
    let log: EtcdGroupLog
    let lastFailure: LastFailure

    init(_ configuration: EtcdConfiguration, on eventLoop: any EventLoop) {
      let lastFailure = LastFailure()
      self.lastFailure = lastFailure
      log = EtcdGroupLog(configuration: configuration, eventLoop: eventLoop) { failure, server in
        lastFailure.text = "\(server): \(failure)"
      }
    }
  }

  private final class LastFailure {
    var text: String?
  }

  private let cluster: String
  private let eventLoop: any EventLoop
  private let state: NIOLoopBound<State>

  private init(cluster: String, eventLoop: any EventLoop, state: NIOLoopBound<State>) {
    self.cluster = cluster
    self.eventLoop = eventLoop
    self.state = state
  }

  /// Call ``close()`` before the last reference goes.
  package static func open(_ configuration: EtcdConfiguration) async throws -> ClusterConnection {
    let eventLoop = MultiThreadedEventLoopGroup.singleton.next()
    let state = try await eventLoop.submit {
      NIOLoopBound(State(configuration, on: eventLoop), eventLoop: eventLoop)
    }.get()
    return ClusterConnection(cluster: configuration.cluster, eventLoop: eventLoop, state: state)
  }

  package func close() async {
    let state = state
    try? await eventLoop.submit { state.value.log.close() }.get()
  }

  /// Read everything about the cluster.
  ///
  /// - Throws: ``ClusterFailure``.
  package func overview() async throws(ClusterFailure) -> ClusterOverview {
    let cluster = cluster
    let result: Result<ClusterOverview, ClusterFailure> = await call { state, done in
      state.log.overview { result in
        switch result {
        case .success(let overview?): done(.success(overview))
        case .success(nil): done(.failure(.noCluster(cluster)))
        case .failure: done(.failure(.noAnswer(state.lastFailure.text)))
        }
      }
    }
    return try result.get()
  }

  func apply(_ change: SetChange) async -> ChangeOutcome {
    await call { state, done in
      state.log.change(change.group, to: change.members, from: change.revision, first: change.first, done: done)
    }
  }

  func raise(_ cluster: ClusterState, to level: ClusterLevel) async -> ChangeOutcome {
    await call { state, done in
      state.log.raise(cluster.configuration, to: level, from: cluster.revisions, done: done)
    }
  }

  private func call<Value: Sendable>(
    _ body: @escaping @Sendable (State, @escaping (Value) -> Void) -> Void
  ) async -> Value {
    let (state, eventLoop) = (state, eventLoop)
    return await withCheckedContinuation { continuation in
      eventLoop.execute { body(state.value) { continuation.resume(returning: $0) } }
    }
  }
}

/// The reason why a command could not be finished, and the remedy.
package enum ClusterFailure: Error, Hashable, Sendable, CustomStringConvertible {
  /// No node of a cluster of this name has ever started.
  case noCluster(String)
  /// No server of etcd answers, with the last cause.
  case noAnswer(String?)
  /// Others change the same sets, or etcd does not confirm changes.
  case notChanged(SetChange, ChangeOutcome)
  /// Others change the level, or etcd does not confirm the change.
  case notRaised(ClusterLevel, ChangeOutcome)
  /// The groups have not moved in this time.
  case notMoved([PendingOwner], Duration, reasons: [String])

  package var description: String {
    switch self {
    case .noCluster(let name):
      """
      etcd has no cluster "\(name)": check --cluster and --log; a cluster begins when its first node starts
      """
    case .noAnswer(let cause):
      "etcd does not answer\(cause.map { " (\($0))" } ?? ""): check --log, --log-cert, --log-key and --log-ca"
    case .notChanged(let change, .conflict):
      "somebody else keeps changing the set of group \(change.group.rawValue): wait for them, and run this again"
    case .notChanged(let change, _):
      "etcd does not confirm the change of group \(change.group.rawValue): look at its servers, and run this again"
    case .notRaised(let level, .conflict):
      "somebody else changes the cluster while it is raised to level \(level.rawValue): run this again"
    case .notRaised(let level, _):
      "etcd does not confirm level \(level.rawValue): look at its servers, and run this again"
    case .notMoved(let pending, let time, let reasons):
      """
      the sets are changed, but \(pending.count == 1 ? "a group has" : "\(pending.count) groups have") not moved in \
      \(time.components.seconds) s: \(reasons.joined(separator: "; ")). They move when the cause is gone
      """
    }
  }
}
