package import ErasureLedger
package import LinkSecurity
package import Operations
internal import ReceiptModel
package import StoreEngine

/// Configuration of a store server.
package struct StoreServerConfiguration: Sendable {
  package var host: String
  package var port: Int
  /// Number of event loops; each owns a part of the shards.
  package var loops: Int
  /// The shared secret, then the previous one. Empty: gateways are not authenticated.
  package var secrets: [[UInt8]] = []
  /// Mutual TLS; nil for plaintext.
  package var tls: LinkTLS?
  /// TLS of this node's connections to other nodes of a cluster.
  package var nodeTLS: LinkTLS?
  /// Maximum number of unanswered requests per connection.
  package var window: UInt32 = 32_768
  /// Connection limits. Gateways have a connection for each of their loops; an authenticated peer has finished its
  /// handshake.
  package var connections = ConnectionLimits(total: 4_096, perAddress: 4_096, unauthenticated: 1_024)
  package var engine = StoreLoopConfiguration()
  /// How far the clock may be set forward.
  package var clock = ClockGuard.Limits()
  /// Ledger that records users before they are erased; nil for none.
  package var erasures: ErasureLedger?

  /// The node's part in a cluster; nil: the store owns all its shards.
  package var cluster: ClusterSettings?

  package init(host: String, port: Int, loops: Int) {
    self.host = host
    self.port = port
    self.loops = loops
  }
}
