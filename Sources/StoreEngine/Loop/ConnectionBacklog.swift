internal import Synchronization

/// Counters that the lanes of one connection share across loops.
package final class ConnectionBacklog: Sendable {
  private let bytes = Atomic<Int>(0)
  private let subscriptionCount = Atomic<Int>(0)

  package init() {}

  /// Bytes that were delivered and are not written to the socket yet.
  package var unwrittenBytes: Int { bytes.load(ordering: .relaxed) }

  /// Add delivered bytes.
  func addUnwritten(_ count: Int) { bytes.add(count, ordering: .relaxed) }

  /// Subtract delivered bytes that were written to the socket, or never will be.
  package func wrote(_ count: Int) { bytes.subtract(count, ordering: .relaxed) }

  /// Channels and users that the connection has subscribed to.
  package var subscriptions: Int { subscriptionCount.load(ordering: .relaxed) }

  /// Change the number of subscriptions by `difference`.
  func changeSubscriptions(_ difference: Int) { subscriptionCount.add(difference, ordering: .relaxed) }
}
