internal import HTTP2Session
internal import Operations
internal import StoreClient

/// Counters of one event loop: plain integers, summed over the loops at each scrape.
final class GatewayCounters {
  /// By route and status class; a request without a route counts in the last row.
  private var responses = [UInt64](repeating: 0, count: (Route.allCases.count + 1) * 6)
  private var connectionsOpened: UInt64 = 0
  /// Connections whose client spoke HTTP/1.
  private(set) var http1Refused: UInt64 = 0
  /// Totals of closed connections; those of open ones are added at each scrape.
  private var closed = HTTP2Counters()
  /// Round trips to the store, one sampled per flush.
  private var storeRoundTrips = Histogram.durations

  /// The row of requests without a route.
  private static let noRoute = Route.allCases.count

  /// Count a response.
  ///
  /// - Parameter route: nil: no route was found.
  func answered(_ route: Route?, status: Int) {
    let row = route.map { Int($0.rawValue) } ?? Self.noRoute
    responses[row * 6 + min(status / 100, 5)] &+= 1
  }

  func connectionOpened() { connectionsOpened &+= 1 }
  func refusedHTTP1() { http1Refused &+= 1 }

  /// Record the round trip of a store request, in seconds.
  func storeReplied(after seconds: Double) { storeRoundTrips.record(seconds) }

  /// Add a closed connection's counters.
  func connectionClosed(_ counters: HTTP2Counters) { closed = Self.sum(closed, counters) }

  private static func sum(_ a: HTTP2Counters, _ b: HTTP2Counters) -> HTTP2Counters {
    var sum = a
    sum.streamsOpened &+= b.streamsOpened
    sum.resetsReceived &+= b.resetsReceived
    sum.resetsSent &+= b.resetsSent
    sum.protocolErrors &+= b.protocolErrors
    sum.limitsHit &+= b.limitsHit
    sum.bodiesDelayed &+= b.bodiesDelayed
    sum.bytesIn &+= b.bytesIn
    sum.bytesOut &+= b.bytesOut
    return sum
  }

  // MARK: Metrics

  /// Add all counters to the samples, under their metric names.
  ///
  /// - Parameter open: the counters of the open connections.
  func add(to samples: inout MetricSamples, open: [HTTP2Counters]) {
    addHTTP2(open.reduce(closed) { Self.sum($0, $1) }, to: &samples)
    for route in 0...Self.noRoute {
      let name = Route(rawValue: UInt8(route)).map { "\($0.name)" } ?? "none"
      for statusClass in 1...5 where responses[route * 6 + statusClass] > 0 {
        samples.counter(
          "tidemark_gateway_requests_total",
          help: "Requests answered, by route and class of status.",
          labels: ["route": name, "status": "\(statusClass)xx"],
          Int64(responses[route * 6 + statusClass])
        )
      }
    }
    samples.counter("tidemark_gateway_connections_total", help: "Connections accepted.", Int64(connectionsOpened))
    samples.counter(
      "tidemark_gateway_http1_refused_total",
      help: "Connections answered with 505 because their client spoke HTTP/1.",
      Int64(clamping: http1Refused)
    )
    samples.histogram(
      "tidemark_gateway_store_round_trip_seconds",
      help: "Round-trip time of store requests, sampled once per flush.",
      storeRoundTrips
    )
  }

  private func addHTTP2(_ counters: HTTP2Counters, to samples: inout MetricSamples) {
    let values: [(String, String, UInt64)] = [
      ("streams", "Streams opened by clients.", counters.streamsOpened),
      ("resets_received", "RST_STREAM frames received.", counters.resetsReceived),
      ("resets_sent", "RST_STREAM frames sent.", counters.resetsSent),
      ("protocol_errors", "HTTP/2 protocol errors, and input that was not HTTP/2.", counters.protocolErrors),
      ("limits_hit", "Streams and connections closed because a limit was exceeded.", counters.limitsHit),
      ("bodies_delayed", "Request bodies that waited for others of their connection.", counters.bodiesDelayed),
      ("received_bytes", "Bytes of HTTP/2 received.", counters.bytesIn),
      ("sent_bytes", "Bytes of HTTP/2 sent.", counters.bytesOut),
    ]
    for (name, help, value) in values {
      samples.counter("tidemark_gateway_http2_\(name)_total", help: help, Int64(clamping: value))
    }
  }
}

extension GatewayLoop {
  /// Collect the metrics of this loop and its parts for a scrape.
  func collect(into samples: inout MetricSamples) {
    counters.add(to: &samples, open: connections.all.map(\.counters))
    for part in parts { part.collect(into: &samples) }
    samples.gauge("tidemark_gateway_connections", help: "HTTP/2 connections open.", Double(connections.count))
    samples.gauge(
      "tidemark_gateway_held_bytes",
      help: "Memory held by requests, unsent answers and open streams, in bytes (--gateway-memory).",
      Double(resources.heldBytes)
    )
    samples.gauge(
      "tidemark_gateway_streams",
      help: "Streams open.",
      connections.all.reduce(0) { $0 + Double($1.openStreams) }
    )
    samples.gauge(
      "tidemark_gateway_store_requests_in_flight",
      help: "Requests to the store in flight.",
      Double(pendingCount)
    )
    samples.gauge(
      "tidemark_gateway_store_connections_ready",
      help: "Event loops whose requests are sent at once.",
      store.isReady ? 1 : 0
    )
    samples.highest(
      "tidemark_gateway_store_shards",
      help: "Shards of the store; 0 before the first connection.",
      Double(store.shardCount)
    )
    samples.highest(
      "tidemark_gateway_store_shards_unserved",
      help: "Shards whose requests wait: the store or their owner is not connected.",
      Double(store.isReady ? 0 : store.unservedShards.isEmpty ? store.shardCount : store.unservedShards.count)
    )
    let stats = store.stats
    samples.counter(
      "tidemark_gateway_store_requests_total",
      help: "Requests sent to the store.",
      Int64(stats.requestsSent)
    )
    samples.counter(
      "tidemark_gateway_store_resends_total",
      help: "Requests sent again after a lost connection or a change of owner.",
      Int64(stats.resends)
    )
    samples.counter(
      "tidemark_gateway_store_timeouts_total",
      help: "Requests whose deadline passed.",
      Int64(stats.timeouts)
    )
    samples.counter(
      "tidemark_gateway_store_connections_lost_total",
      help: "Connections to the store that were lost.",
      Int64(stats.connectionsLost)
    )
  }
}
