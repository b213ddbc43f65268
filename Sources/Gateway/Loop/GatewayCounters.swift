internal import Operations

/// What one event loop counts: plain integers, summed over the loops when they are scraped.
struct GatewayCounters {
  /// By route and class of status; a request whose route was not found counts under the last row.
  private var answers = [UInt64](repeating: 0, count: (Route.allCases.count + 1) * 6)
  var tokenHits: UInt64 = 0
  var tokenMisses: UInt64 = 0
  var tokenRefusals: UInt64 = 0
  var connectionsOpened: UInt64 = 0
  /// Round trips to the store, one measured per flush.
  var storeRoundTrips = Histogram.durations

  static let noRoute = UInt8(Route.allCases.count)

  /// Counts an answer. `route` is a `Route.rawValue` or ``noRoute``.
  mutating func answered(_ route: UInt8, status: Int) {
    answers[Int(route) * 6 + min(status / 100, 5)] &+= 1
  }

  /// Adds all of it, by the names under which it is scraped.
  func add(to samples: inout MetricSamples) {
    for route in 0...Int(Self.noRoute) {
      let name = Route(rawValue: UInt8(route)).map { "\($0.name)" } ?? "none"
      for statusClass in 1...5 where answers[route * 6 + statusClass] > 0 {
        samples.counter(
          "tidemark_gateway_requests_total",
          help: "Requests answered, by route and class of status.",
          labels: ["route": name, "status": "\(statusClass)xx"],
          Int64(answers[route * 6 + statusClass])
        )
      }
    }
    let tokens = [("hit", tokenHits), ("miss", tokenMisses), ("refused", tokenRefusals)]
    for (result, count) in tokens {
      samples.counter(
        "tidemark_gateway_tokens_total",
        help: "Tokens looked up: found verified, verified anew, or refused after verification.",
        labels: ["result": result],
        Int64(count)
      )
    }
    samples.counter(
      "tidemark_gateway_connections_total",
      help: "HTTP/2 connections accepted.",
      Int64(connectionsOpened)
    )
    samples.histogram(
      "tidemark_gateway_store_round_trip_seconds",
      help: "From a request to the store until its reply, one request of every flush.",
      storeRoundTrips
    )
  }
}
