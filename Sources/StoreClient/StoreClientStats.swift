/// Counters of a client since its creation, for metrics.
package struct StoreClientStats: Hashable, Sendable {
  /// Requests written for the first time.
  package var requestsSent: UInt64 = 0
  /// Requests written again after a lost connection.
  package var resends: UInt64 = 0
  /// Replies that matched a request, error frames included.
  package var replies: UInt64 = 0
  /// Replies to requests whose deadline had passed.
  package var repliesLate: UInt64 = 0
  /// Requests whose deadline passed.
  package var timeouts: UInt64 = 0
  /// Handshakes that completed with `ready`.
  package var connections: UInt64 = 0
  /// Attempts and connections that ended without a call of ``StoreClient/close()``.
  package var connectionsLost: UInt64 = 0
  package var bytesSent: UInt64 = 0
  package var bytesReceived: UInt64 = 0
  /// Unanswered requests, sent or not.
  package var inFlight = 0
  /// Bytes of requests retained for a resend.
  package var retainedBytes = 0
}
