internal import ReceiptModel

extension StoreLoop {
  /// Counters since start, for metrics.
  package struct Counters: Sendable {
    package var requests: UInt64 = 0
    package var commits: UInt64 = 0
    package var batches: UInt64 = 0
    package var pagesWritten: UInt64 = 0
    package var channelsLoaded: UInt64 = 0
    package var channelsEvicted: UInt64 = 0
    package var loadsDelayed: UInt64 = 0
    /// Entries of users' indexes that were assigned or removed.
    package var indexEntries: UInt64 = 0
    /// Events sent and dropped, counted once per watching connection; and the bytes of their frames.
    package var eventsSent: UInt64 = 0
    package var eventsDropped: UInt64 = 0
    package var eventBytes: UInt64 = 0

    package init() {}

    package static func += (sum: inout Counters, other: Counters) {
      sum.requests += other.requests
      sum.commits += other.commits
      sum.batches += other.batches
      sum.pagesWritten += other.pagesWritten
      sum.channelsLoaded += other.channelsLoaded
      sum.channelsEvicted += other.channelsEvicted
      sum.loadsDelayed += other.loadsDelayed
      sum.indexEntries += other.indexEntries
      sum.eventsSent += other.eventsSent
      sum.eventsDropped += other.eventsDropped
      sum.eventBytes += other.eventBytes
    }
  }

  /// Current values, for metrics.
  package struct Gauges: Sendable {
    /// Channels in memory, and the bytes that they occupy.
    package var loadedChannels = 0
    package var residentBytes = 0
    /// Bytes of users' settings.
    package var settingsBytes = 0
    package var dirtyPages = 0
    /// Channels of the log's tail that are not loaded yet.
    package var tailChannels = 0
    /// Membership changes that the index has not confirmed.
    package var changesPending = 0
    /// Watched channels and users, counted once per connection.
    package var subscriptions = 0

    package init() {}
  }

  /// Current values of this loop alone.
  package var gauges: Gauges {
    var sum = Gauges()
    addGauges(to: &sum)
    return sum
  }

  /// Add the current values of this loop's shards.
  package func addGauges(to sum: inout Gauges) {
    for shard in shards {
      sum.loadedChannels += shard.state.loadedCount
      sum.residentBytes += shard.state.residentBytes
      sum.settingsBytes += shard.state.settings.byteCount
      sum.dirtyPages += shard.dirty.count
      sum.tailChannels += shard.tail.count
      sum.changesPending += shard.state.outbox.count
      sum.subscriptions += shard.events.subscriptionCount
    }
  }
}
