package import NIOCore
package import Operations
package import TLSSession

/// Servers, keys and times of a client of etcd.
package struct EtcdConfiguration: Sendable {
  /// Name of the cluster, part of every key.
  package let cluster: String
  /// Addresses of the servers' client ports, at least one. They are tried in turn.
  package let endpoints: [Endpoint]
  /// Certificates of this client, and the authority of the servers'. Nil: plaintext.
  package let tls: TLSContext?

  /// Time limit of a unary call. Its server counts as failed after that, and the outcome is unclear. Shorter than
  /// ``ClusterLimits/resendMilliseconds``, so that a record that is sent again goes to another server.
  package var callTimeout: TimeAmount = .milliseconds(350)
  /// Time limit from the attempt to connect to the server's SETTINGS.
  package var connectTimeout: TimeAmount = .milliseconds(350)
  /// First delay before a failed server is tried again. It doubles up to ``backoffMax``; jitter shortens each delay by
  /// up to one half.
  package var backoffMin: TimeAmount = .milliseconds(50)
  package var backoffMax: TimeAmount = .seconds(1)
  /// A server that has sent nothing for this long while a call is open is pinged. etcd takes one PING in 5 s.
  package var pingInterval: TimeAmount = .seconds(5)
  /// Time limit of the PING's acknowledgement.
  package var pingTimeout: TimeAmount = .seconds(2)
  /// Age of the history that is compacted after a trim. A follower that lags by more reads what it lacks.
  package var compactionDelay: TimeAmount = .seconds(1)
  /// Interval of the questions which server is the Raft leader. Jitter shortens each by up to one half.
  package var leaderCheckInterval: TimeAmount = .seconds(5)
  /// Shortest time between two moves to the leader.
  package var leaderMoveInterval: TimeAmount = .seconds(30)
  /// Bytes of one response, above which the call fails. Also the limit of one message of a watch.
  package var responseBytesMax = 32 << 20
  /// Bytes that a read of several records aims at.
  package var readBytes = 4 << 20

  /// The reason why a configuration is refused.
  package enum Refusal: Error, Hashable {
    case noEndpoint
    /// A cluster's name is 1 to 64 letters, digits, `-`, `_` and `.`: no key of one cluster is in another's ranges.
    case badClusterName
    /// Records and claims of another machine need a verified peer.
    case plaintextOffLoopback(Endpoint)
  }

  package init(cluster: String, endpoints: [Endpoint], tls: TLSContext? = nil) throws(Refusal) {
    guard !endpoints.isEmpty else { throw .noEndpoint }
    let isName = cluster.utf8.allSatisfy { byte in
      switch byte {
      case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
        UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"), UInt8(ascii: "."):
        true
      default: false
      }
    }
    guard isName, (1...64).contains(cluster.utf8.count) else { throw .badClusterName }
    if tls == nil, let remote = endpoints.first(where: { !$0.isLoopback }) {
      throw .plaintextOffLoopback(remote)
    }
    self.cluster = cluster
    self.endpoints = endpoints
    self.tls = tls
  }
}

/// The reason why a call failed. What a failed call wrote may have been applied.
package enum EtcdFailure: Error, Hashable, Sendable {
  /// The server cannot be connected to, with the cause.
  case unreachable(String)
  /// The connection was lost.
  case connectionLost
  /// No answer within ``EtcdConfiguration/callTimeout``.
  case timedOut
  /// The stream was reset, with an error code of HTTP/2.
  case reset(UInt32)
  /// The server refused the call, or does not know its outcome: `no leader`, `leader changed`, `too many requests`, a
  /// timeout, no space.
  case status(GRPCStatus)
  /// The response is no gRPC.
  case httpStatus(Int)
  case malformed(EtcdWireError)
  /// Every server has failed, and none is to be tried again yet.
  case noServer

  /// Whether another server may do better. A server that has compacted more than it was asked to is well.
  var isOfServer: Bool {
    if case .status(let status) = self { status.code != GRPCStatus.outOfRange } else { true }
  }
}
