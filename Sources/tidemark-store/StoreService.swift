import ErasureLedger
import LinkSecurity
import Logging
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import Operations
import ReceiptModel
import ServiceLifecycle
import StoreEngine
import StoreRocksDB
import StoreServer

/// The server as a service: up, kept watch over for `/ready` and `/metrics`, and down in order.
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
      ProcessRunner.printLine(
        "tidemark-store is listening on \(address.ipAddress ?? listen.host):\(address.port ?? listen.port) (\(tls == nil ? "plaintext" : "TLS"))"
      )
    } catch let error as StorageError {
      throw SettingsError(error.description)
    } catch {
      throw SettingsError(
        "listen",
        "\(listen): cannot listen there (\(ErrorText.of(error))); is another process using it?"
      )
    }
    let statistics = NIOLockedValueBox(StoreServer.Statistics())
    metrics.register(on: MultiThreadedEventLoopGroup.singleton.next()) { samples in
      Self.write(statistics.withLockedValue { $0 }, into: &samples)
      server.gate.collect(into: &samples, prefix: "tidemark_store")
      tls?.failures.collect(into: &samples, name: "tidemark_store_tls_handshakes_failed_total")
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
        help: "How far the clock is ahead of what the store expects, while it is held.",
        Double(clock.aheadMilliseconds) / 1_000
      )
      samples.gauge(
        "tidemark_store_sync_interval_milliseconds",
        help:
          "Acknowledged commands of this long a time may be lost with the machine (--durability); 0: none.",
        Double(durability.syncIntervalMilliseconds ?? 0)
      )
    }
    var ledgerNotedAt = ContinuousClock.now
    noteLedgerComplete()
    await withTaskCancellationOrGracefulShutdownHandler {
      // Readiness and figures are looked at four times a second: a scrape never waits for a shard.
      while !Task.isCancelled, !Task.isShuttingDownGracefully {
        readiness.set("process", server.notReadyReason)
        readiness.set("clock", server.clock.heldReason)
        try? await NIOThreadPool.singleton.runIfActive { [server] in server.directory.look() }
        readiness.set("data", server.directory.lostReason)
        let now = await server.statistics()
        statistics.withLockedValue { $0 = now }
        await noteLedger(&ledgerNotedAt)
        try? await Task.sleep(for: .milliseconds(250))
      }
    } onCancelOrGracefulShutdown: {
      readiness.set("process", "shutting down")
    }
    readiness.set("process", "shutting down")
    await server.stop()
    noteLedgerComplete()
    logger.info("stopped")
  }

  /// How often the ledger outside of the data directory says that it is complete.
  private static let ledgerInterval = Duration.seconds(30)

  private func noteLedger(_ notedAt: inout ContinuousClock.Instant) async {
    guard erasures.hasOutside, ContinuousClock.now - notedAt >= Self.ledgerInterval else { return }
    notedAt = .now
    try? await NIOThreadPool.singleton.runIfActive { noteLedgerComplete() }
  }

  private func noteLedgerComplete() {
    do {
      try erasures.setComplete(through: server.clock.now().milliseconds)
    } catch {
      logger.error("the erasure ledger cannot be written; no user is erased", metadata: ["error": "\(error)"])
    }
  }

  private static func write(_ now: StoreServer.Statistics, into samples: inout MetricSamples) {
    samples.counter("tidemark_store_requests_total", help: "Requests taken.", Int64(now.loops.requests))
    samples.counter(
      "tidemark_store_commits_total",
      help: "Groups committed to storage.",
      Int64(now.loops.commits)
    )
    samples.counter("tidemark_store_batches_total", help: "Log batches committed.", Int64(now.loops.batches))
    samples.counter(
      "tidemark_store_pages_written_total",
      help: "Pages written by checkpoints.",
      Int64(now.loops.pagesWritten)
    )
    samples.counter(
      "tidemark_store_channels_loaded_total",
      help: "Channels looked for on storage.",
      Int64(now.loops.channelsLoaded)
    )
    samples.counter(
      "tidemark_store_channels_evicted_total",
      help: "Channels let go from memory.",
      Int64(now.loops.channelsEvicted)
    )
    samples.counter(
      "tidemark_store_loads_delayed_total",
      help: "Channels that were read only when there was room for them in memory.",
      Int64(now.loops.loadsDelayed)
    )
    samples.counter(
      "tidemark_store_index_entries_total",
      help: "Entries of users' indexes of channels that were written or removed.",
      Int64(now.loops.indexEntries)
    )
    samples.gauge(
      "tidemark_store_subscriptions",
      help: "Channels and users that gateways watch for events, each as often as it is watched.",
      Double(now.now.subscriptions)
    )
    samples.counter(
      "tidemark_store_events_sent_total",
      help: "Events that left for gateways, each as often as there are connections that watch.",
      Int64(now.loops.eventsSent)
    )
    samples.counter(
      "tidemark_store_event_bytes_total",
      help: "Bytes of frames with events.",
      Int64(now.loops.eventBytes)
    )
    samples.counter(
      "tidemark_store_events_dropped_total",
      help: "Events that were dropped since a gateway did not take them; it asks for what has changed.",
      Int64(now.loops.eventsDropped)
    )
    samples.gauge(
      "tidemark_store_membership_changes_pending",
      help: "Changes of memberships that are on their way to their users' indexes.",
      Double(now.now.changesPending)
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
      help: "Commits that failed; each makes the shards start again.",
      Int64(now.failedCommits)
    )
    samples.counter(
      "tidemark_store_connections_opened_total",
      help: "Connections accepted.",
      Int64(now.connectionsOpened)
    )
    samples.gauge("tidemark_store_connections", help: "Connections now.", Double(now.connections))
    samples.gauge(
      "tidemark_store_loaded_channels",
      help: "Channels in memory.",
      Double(now.now.loadedChannels)
    )
    samples.gauge(
      "tidemark_store_dirty_pages",
      help: "Pages with effects that are only in the log.",
      Double(now.now.dirtyPages)
    )
    samples.gauge(
      "tidemark_store_tail_channels",
      help: "Channels of the log's tail that are not in memory yet.",
      Double(now.now.tailChannels)
    )
  }
}
