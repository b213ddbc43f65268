internal import CommandOutput
internal import GatewayClient
internal import HTTP2Session
internal import LocalStack
internal import Operations
internal import Synchronization

/// The longest requests of a client while nodes of a cluster end and return, in milliseconds.
struct ClusterPauses: Sendable, Encodable {
  /// Owners that were killed: from the kill until all groups have owners again.
  var killed: [Double] = []
  /// Owners that were stopped with SIGTERM.
  var stopped: [Double] = []
  /// Groups that moved back to the node that has returned.
  var returned: [Double] = []
  /// Requests of the client.
  var requests = 0

  var text: String {
    let lines = [("killed", killed), ("stopped (SIGTERM)", stopped), ("returned, and its groups moved back", returned)]
      .filter { !$0.1.isEmpty }
      .map { what, times in
        "- owner \(what) \(times.count) times: longest request, median "
          + "\(Figures.decimal(times.median { $0 }, digits: 0)) ms, "
          + "maximum \(Figures.decimal(times.max() ?? 0, digits: 0)) ms"
      }
    guard requests > 0 else { return "" }
    return (lines + ["- \(Figures.count(requests)) requests of that client, none failed"]).joined(separator: "\n")
  }
}

/// Ends nodes of a cluster while a client makes one request after the other.
struct ClusterPauseBench: Sendable {
  private static let limit = Duration.seconds(60)
  private static let channels = 16

  let stack: LocalStack
  let note: ProgressHandler

  private var nodes: [ClusterPlan.Node] { stack.plan.cluster?.nodes ?? [] }

  /// The number of groups that each node owns; nil: it does not answer.
  private func ownedGroups() async -> [Int?] {
    var owned: [Int?] = []
    for node in nodes {
      owned.append(await LocalStack.metric("tidemark_store_owned_groups", at: node.admin).map { Int($0) })
    }
    return owned
  }

  private func wait(until what: String, _ holds: ([Int?]) -> Bool) async throws {
    let deadline = ContinuousClock.now + Self.limit
    while !holds(await ownedGroups()) {
      guard ContinuousClock.now < deadline else { throw LoadError("after 60 s still not: \(what)") }
      try await Task.sleep(for: .milliseconds(50))
    }
  }

  /// Whether all groups have owners.
  private func isComplete(_ owned: [Int?]) -> Bool {
    owned.reduce(0) { $0 + ($1 ?? 0) } == stack.plan.cluster?.groups ?? nodes.count
  }

  /// Wait until all groups have owners.
  func waitForOwners() async throws { try await wait(until: "all groups have owners", isComplete) }

  /// Kill and stop each node in turn, and start it again.
  func measure(ends: Int) async throws -> ClusterPauses {
    var pauses = ClusterPauses()
    guard ends > 0 else { return pauses }
    let tokenIssuer = try await TokenIssuer(secretFile: stack.files.jwtSecret)
    return try await BenchClient.with(stack.plan.gateways[0].listen, tokenIssuer: tokenIssuer) { client in
      for channel in 0..<Self.channels { try await client.putChannel(Self.cid(channel), members: ["alice", "bob"]) }
      let probe = RequestProbe()
      return try await withThrowingTaskGroup(of: Void.self) { tasks in
        tasks.addTask { try await Self.request(client, probe) }
        for end in 0..<2 * ends {
          // A failed request ends the run.
          if let error = probe.failure { throw error }
          let (victim, isKill) = (end % nodes.count, end % 2 == 0)
          note("end \(end + 1) of \(2 * ends)")
          try await wait(until: "node \(victim + 1) owns a group") { ($0[victim] ?? 0) > 0 && isComplete($0) }
          _ = probe.takeLongest()
          if isKill { await stack.killNode(victim) } else { await stack.stopNode(victim) }
          try await waitForOwners()
          try await Task.sleep(for: .milliseconds(300))
          if isKill { pauses.killed.append(probe.takeLongest()) } else { pauses.stopped.append(probe.takeLongest()) }
          try await stack.startNode(victim)
          try await wait(until: "the groups of node \(victim + 1) have moved back") {
            ($0[victim] ?? 0) > 0 && isComplete($0)
          }
          try await Task.sleep(for: .milliseconds(300))
          pauses.returned.append(probe.takeLongest())
        }
        if let error = probe.failure { throw error }
        pauses.requests = probe.count
        tasks.cancelAll()
        return pauses
      }
    }
  }

  private static func cid(_ channel: Int) -> String { "messaging:pause-\(channel)" }

  /// Register one message after the other, in all shards, until cancelled.
  private static func request(_ client: BenchClient, _ probe: RequestProbe) async throws {
    var number = 0
    while !Task.isCancelled {
      let path = "/v1/channels/\(cid(number % channels))/messages"
      let start = ContinuousClock.now
      do {
        let answer = try await client.call(.post, path, #"{"id":"m\#(number)","user_id":"alice"}"#)
        guard answer.status == 200 || answer.status == 201 else {
          throw LoadError("\(path): \(answer.status) \(answer.text)")
        }
      } catch {
        if !Task.isCancelled { probe.fail(error) }
        return
      }
      probe.add(ContinuousClock.now - start)
      number += 1
    }
  }
}

/// The times of a client's requests.
private final class RequestProbe: Sendable {
  private struct State {
    var longest = Duration.zero
    var count = 0
    var failure: (any Error)?
  }

  private let state = Mutex(State())

  var count: Int { state.withLock { $0.count } }
  var failure: (any Error)? { state.withLock { $0.failure } }

  func add(_ time: Duration) {
    state.withLock { state in
      state.longest = max(state.longest, time)
      state.count += 1
    }
  }

  func fail(_ error: any Error) { state.withLock { $0.failure = error } }

  /// Return the longest time since the last call, in milliseconds.
  func takeLongest() -> Double {
    let longest = state.withLock { state in
      defer { state.longest = .zero }
      return state.longest
    }
    return longest / .milliseconds(1)
  }
}
