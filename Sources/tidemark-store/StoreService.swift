internal import ErasureLedger
internal import LinkSecurity
internal import Logging
internal import NIOConcurrencyHelpers
internal import NIOCore
internal import NIOPosix
internal import Operations
internal import ReceiptModel
internal import ServiceLifecycle
internal import StoreEngine
internal import StoreRocksDB
internal import StoreServer

/// The server as a service: starts it, monitors it for `/ready` and `/metrics`, and shuts it down in order.
struct StoreService: Service {
  let server: StoreServer
  let listen: Endpoint
  let tls: LinkTLS?
  let readiness: Readiness
  let metrics: MetricsRegistry
  let logger: Logger
  /// Bytes that channels may occupy in memory.
  let memoryBytes: Int
  let durability: Durability
  let erasures: ErasureLedger

  func run() async throws {
    do {
      let address = try await server.start()
      let location = "\(address.ipAddress ?? listen.host):\(address.port ?? listen.port)"
      ProcessRunner.printLine("tidemark-store is listening on \(location) (\(tls == nil ? "plaintext" : "TLS"))")
    } catch let error as StorageError {
      throw SettingsError(error.description)
    } catch {
      throw SettingsError("listen", "\(listen): cannot listen (\(ErrorText.of(error))); is another process using it?")
    }
    let statistics = NIOLockedValueBox(StoreServer.Statistics())
    metrics.register(on: MultiThreadedEventLoopGroup.singleton.next()) { samples in
      Self.write(statistics.withLockedValue { $0 }, into: &samples)
      server.gate.collect(into: &samples, prefix: "tidemark_store")
      tls?.collect(into: &samples, prefix: "tidemark_store_tls")
      samples.gauge(
        "tidemark_store_memory_bytes",
        help: "Bytes that channels may occupy in memory (--memory).",
        Double(memoryBytes)
      )
      let clock = server.clock.status
      samples.gauge(
        "tidemark_store_clock_held",
        help: "1 while the clock is too far ahead and commands are refused (--clock-jump-max), else 0.",
        clock.isHeld ? 1 : 0
      )
      samples.gauge(
        "tidemark_store_clock_ahead_seconds",
        help: "How far the clock is ahead of the expected time, while commands are refused.",
        Double(clock.aheadMilliseconds) / 1_000
      )
      samples.gauge(
        "tidemark_store_sync_interval_milliseconds",
        help: "Time span of acknowledged commands that a machine failure may lose (--durability); 0: none.",
        Double(durability.syncIntervalMilliseconds ?? 0)
      )
    }
    var ledgerWrittenAt = ContinuousClock.now
    writeLedgerCompletion()
    await withTaskCancellationOrGracefulShutdownHandler {
      // Readiness and metrics are updated four times a second, so that a scrape never waits for a shard.
      while !Task.isCancelled, !Task.isShuttingDownGracefully {
        readiness.set("process", server.notReadyReason)
        readiness.set("clock", server.clock.heldReason)
        try? await NIOThreadPool.singleton.runIfActive { [server] in server.directory.check() }
        readiness.set("data", server.directory.lostReason)
        let now = await server.statistics()
        statistics.withLockedValue { $0 = now }
        await markLedgerComplete(&ledgerWrittenAt)
        try? await Task.sleep(for: .milliseconds(250))
      }
    } onCancelOrGracefulShutdown: {
      readiness.set("process", "shutting down")
    }
    readiness.set("process", "shutting down")
    await server.stop()
    writeLedgerCompletion()
    logger.info("Stopped")
  }

  /// Interval at which the ledger outside of the data directory is marked complete.
  private static let ledgerInterval = Duration.seconds(30)

  private func markLedgerComplete(_ notedAt: inout ContinuousClock.Instant) async {
    guard erasures.hasExternalFile, ContinuousClock.now - notedAt >= Self.ledgerInterval else { return }
    notedAt = .now
    try? await NIOThreadPool.singleton.runIfActive { writeLedgerCompletion() }
  }

  private func writeLedgerCompletion() {
    do {
      try erasures.setComplete(through: server.clock.now().milliseconds)
    } catch {
      logger.error("The erasure ledger cannot be written: erasures are refused", metadata: ["error": "\(error)"])
    }
  }

  private static func write(_ now: StoreServer.Statistics, into samples: inout MetricSamples) {
    samples.counter("tidemark_store_requests_total", help: "Requests received.", Int64(now.loops.requests))
    samples.counter("tidemark_store_commits_total", help: "Groups committed to storage.", Int64(now.loops.commits))
    samples.counter("tidemark_store_batches_total", help: "Log batches committed.", Int64(now.loops.batches))
    samples.counter(
      "tidemark_store_pages_written_total",
      help: "Pages written in the background.",
      Int64(now.loops.pagesWritten)
    )
    samples.counter(
      "tidemark_store_channels_loaded_total",
      help: "Channel loads from storage, including channels that do not exist.",
      Int64(now.loops.channelsLoaded)
    )
    samples.counter(
      "tidemark_store_channels_evicted_total",
      help: "Channels evicted from memory.",
      Int64(now.loops.channelsEvicted)
    )
    samples.counter(
      "tidemark_store_loads_delayed_total",
      help: "Channel loads that waited for room in memory.",
      Int64(now.loops.loadsDelayed)
    )
    samples.counter(
      "tidemark_store_index_entries_total",
      help: "Entries of users' indexes of channels that were written or removed.",
      Int64(now.loops.indexEntries)
    )
    samples.gauge(
      "tidemark_store_subscriptions",
      help: "Channels and users that gateways watch, counted once per connection.",
      Double(now.now.subscriptions)
    )
    samples.counter(
      "tidemark_store_events_sent_total",
      help: "Events sent to gateways, counted once per connection.",
      Int64(now.loops.eventsSent)
    )
    samples.counter(
      "tidemark_store_event_bytes_total",
      help: "Bytes of frames with events.",
      Int64(now.loops.eventBytes)
    )
    samples.counter(
      "tidemark_store_events_dropped_total",
      help: "Events dropped because a gateway was too slow; it then resynchronises.",
      Int64(now.loops.eventsDropped)
    )
    samples.gauge(
      "tidemark_store_membership_changes_pending",
      help: "Membership changes that are not yet in their users' indexes.",
      Double(now.now.changesPending)
    )
    samples.gauge(
      "tidemark_store_timers",
      help: "Pending reminders and expiries of acknowledgement requests.",
      Double(now.now.timers)
    )
    samples.gauge(
      "tidemark_store_push_jobs",
      help: "Push jobs that no worker has finished.",
      Double(now.now.pushJobs)
    )
    samples.gauge(
      "tidemark_store_resident_bytes",
      help: "Bytes that channels occupy in memory.",
      Double(now.now.residentBytes)
    )
    samples.gauge(
      "tidemark_store_settings_bytes",
      help: "Bytes that users' settings occupy in memory, in all shards together.",
      Double(now.now.settingsBytes)
    )
    samples.counter(
      "tidemark_store_failed_commits_total",
      help: "Failed commits; each makes the shards reload from storage.",
      Int64(now.failedCommits)
    )
    samples.counter(
      "tidemark_store_feed_records_total",
      help: "Records of the change feed.",
      Int64(now.now.feedRecords)
    )
    for (name, progress) in now.now.consumers { write(progress, consumer: name, into: &samples) }
    if let cluster = now.cluster { write(cluster, into: &samples) }
    samples.counter(
      "tidemark_store_connections_opened_total",
      help: "Connections accepted.",
      Int64(now.connectionsOpened)
    )
    samples.gauge("tidemark_store_connections", help: "Connections now.", Double(now.connections))
    samples.gauge("tidemark_store_loaded_channels", help: "Channels in memory.", Double(now.now.loadedChannels))
    samples.gauge(
      "tidemark_store_dirty_pages",
      help: "Pages with effects that are only in the log.",
      Double(now.now.dirtyPages)
    )
    samples.gauge(
      "tidemark_store_tail_channels",
      help: "Channels in the log's tail that are not yet in memory.",
      Double(now.now.tailChannels)
    )
  }

  private static func write(
    _ progress: StoreLoop.ConsumerProgress,
    consumer name: String,
    into samples: inout MetricSamples
  ) {
    samples.counter(
      "tidemark_store_feed_committed_records_total",
      help: "Records of the change feed before the consumer's committed position, skipped ones included.",
      labels: ["consumer": name],
      Int64(progress.committed)
    )
    samples.gauge(
      "tidemark_store_feed_lag_records",
      help: "Records of the change feed that the consumer has not committed.",
      labels: ["consumer": name],
      Double(progress.lag)
    )
    samples.gauge(
      "tidemark_store_feed_lag_seconds",
      help: "Time since the consumer's last committed record, of the shard that lags most; 0 without lag.",
      labels: ["consumer": name],
      Double(progress.lagMilliseconds) / 1_000
    )
  }

  private static func write(_ cluster: ClusterStatistics, into samples: inout MetricSamples) {
    samples.gauge(
      "tidemark_store_groups",
      help: "In a cluster: groups of shards that the cluster has.",
      Double(cluster.groups)
    )
    samples.gauge(
      "tidemark_store_owned_groups",
      help: "In a cluster: groups of shards that this node owns.",
      Double(cluster.ownedGroups)
    )
    samples.gauge(
      "tidemark_store_member_groups",
      help: "In a cluster: groups of shards of which this node is a member and has data.",
      Double(cluster.memberGroups)
    )
    samples.gauge(
      "tidemark_store_joining_groups",
      help: "In a cluster: groups for which this node receives a snapshot.",
      Double(cluster.joiningGroups)
    )
    samples.gauge(
      "tidemark_store_key_waits",
      help: "In a cluster: groups whose commands, or whose followers, wait for a record key.",
      Double(cluster.keyWaits)
    )
    samples.counter(
      "tidemark_store_groups_gained_total",
      help: "In a cluster: times that this node became the owner of a group.",
      Int64(cluster.groupsGained)
    )
    samples.counter(
      "tidemark_store_groups_lost_total",
      help: "In a cluster: times that this node lost a group, by a claim or by a planned move.",
      Int64(cluster.groupsLost)
    )
    samples.counter(
      "tidemark_store_snapshots_installed_total",
      help: "In a cluster: snapshots of groups that this node has installed.",
      Int64(cluster.snapshotsInstalled)
    )
    samples.histogram(
      "tidemark_store_follow_age_seconds",
      help: """
        In a cluster: age of a commit when this node has applied it as a follower, by the clocks of both nodes, in \
        whole milliseconds.
        """,
      cluster.followAges
    )
  }
}
