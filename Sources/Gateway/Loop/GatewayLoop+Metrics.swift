internal import HTTP2Session
internal import Operations
internal import StoreClient

extension GatewayLoop {
  /// Collect the metrics of this loop and its parts for a scrape.
  func collect(into samples: inout MetricSamples) {
    counters.add(to: &samples, open: connections.all.map(\.counters))
    for part in parts { part.collect(into: &samples) }
    samples.gauge(
      "tidemark_gateway_connections",
      help: "HTTP/2 connections open.",
      Double(connections.count)
    )
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
