internal import Operations

/// A unary call to etcd, by its purpose.
enum EtcdCall: Int, CaseIterable {
  case append, claim, ends, read, report, trim, compact, status
  /// A node's announcement, and the reads of all announcements.
  case announce, nodes
  case grantLease, keepLeaseAlive, revokeLease
  /// Configuration and sets, of a node that starts and of `tidemark cluster`.
  case cluster

  /// The value of the label `call`.
  var name: String {
    switch self {
    case .append, .claim, .ends, .read, .report, .trim, .compact, .status, .announce, .nodes, .cluster: "\(self)"
    case .grantLease: "grant_lease"
    case .keepLeaseAlive: "keep_lease_alive"
    case .revokeLease: "revoke_lease"
    }
  }

  var method: EtcdMethod {
    switch self {
    case .append, .claim, .ends, .read, .report, .trim, .announce, .nodes, .cluster: .transaction
    case .compact: .compact
    case .status: .status
    case .grantLease: .grantLease
    case .keepLeaseAlive: .keepLeaseAlive
    case .revokeLease: .revokeLease
    }
  }
}

/// What a client of etcd counts, on its event loop.
struct EtcdCounters {
  private enum Kind: Int, CaseIterable {
    case unreachable, connectionLost, timedOut, reset, status, httpStatus, malformed, noServer

    /// The value of the label `kind`.
    var name: String {
      switch self {
      case .unreachable: "unreachable"
      case .connectionLost: "connection_lost"
      case .timedOut: "timed_out"
      case .reset: "reset"
      case .status: "status"
      case .httpStatus: "http_status"
      case .malformed: "malformed"
      case .noServer: "no_server"
      }
    }

    init(_ failure: EtcdFailure) {
      self =
        switch failure {
        case .unreachable: .unreachable
        case .connectionLost: .connectionLost
        case .timedOut: .timedOut
        case .reset: .reset
        case .status: .status
        case .httpStatus: .httpStatus
        case .malformed: .malformed
        case .noServer: .noServer
        }
    }
  }

  private var durations = [Histogram](repeating: .durations, count: EtcdCall.allCases.count)
  private var failures = [Int64](repeating: 0, count: Kind.allCases.count)
  var recordsAppended: Int64 = 0
  var bytesAppended: Int64 = 0
  /// Appends and claims whose outcome is unclear.
  var unclear: Int64 = 0
  var trims: Int64 = 0
  /// Changes of the current server to the leader.
  var leaderMoves: Int64 = 0
  /// Of connections that have ended.
  var bytesReceived: UInt64 = 0
  var bytesSent: UInt64 = 0

  mutating func answered(_ call: EtcdCall, seconds: Double) { durations[call.rawValue].record(seconds) }

  mutating func failed(_ failure: EtcdFailure) { failures[Kind(failure).rawValue] += 1 }

  func collect(into samples: inout MetricSamples) {
    for call in EtcdCall.allCases where durations[call.rawValue].count > 0 {
      samples.histogram(
        "tidemark_store_log_call_seconds",
        help: "In a cluster: time until etcd answered a call, by its purpose.",
        labels: ["call": call.name],
        durations[call.rawValue]
      )
    }
    for kind in Kind.allCases where failures[kind.rawValue] > 0 {
      samples.counter(
        "tidemark_store_log_errors_total",
        help: "In a cluster: calls to etcd that failed, and connections that ended, by reason.",
        labels: ["kind": kind.name],
        failures[kind.rawValue]
      )
    }
    samples.counter(
      "tidemark_store_log_records_appended_total",
      help: "In a cluster: records that this node has appended to the shared log, claims included.",
      recordsAppended
    )
    samples.counter(
      "tidemark_store_log_appended_bytes_total",
      help: "In a cluster: bytes of group commits in these records.",
      bytesAppended
    )
    samples.counter(
      "tidemark_store_log_unclear_total",
      help: "In a cluster: attempts to append a record whose outcome was unclear, so that it was sent again.",
      unclear
    )
    samples.counter(
      "tidemark_store_log_trims_total",
      help: "In a cluster: trims of the shared log by this node.",
      trims
    )
    samples.counter(
      "tidemark_store_log_leader_moves_total",
      help: "In a cluster: event loops that turned to etcd's leader.",
      leaderMoves
    )
    samples.counter(
      "tidemark_store_log_received_bytes_total",
      help: "In a cluster: bytes received from etcd's servers, before TLS.",
      Int64(clamping: bytesReceived)
    )
    samples.counter(
      "tidemark_store_log_sent_bytes_total",
      help: "In a cluster: bytes sent to etcd's servers, before TLS.",
      Int64(clamping: bytesSent)
    )
  }
}
