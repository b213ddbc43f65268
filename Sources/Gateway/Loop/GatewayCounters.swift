internal import HTTP2Session
internal import Operations

/// Counters of one event loop: plain integers, summed over the loops at each scrape.
struct GatewayCounters {
  /// By route and status class; a request without a route counts in the last row.
  private var responses = [UInt64](repeating: 0, count: (Route.allCases.count + 1) * 6)
  var tokenHits: UInt64 = 0
  var tokenMisses: UInt64 = 0
  var tokenRefusals: UInt64 = 0
  var connectionsOpened: UInt64 = 0
  /// Connections closed after too many tokens that no key has signed.
  var connectionsEndedForTokens: UInt64 = 0
  /// Requests answered 429, by rate: of users, servers and addresses.
  var rateLimited: [UInt64] = [0, 0, 0]
  /// Connections whose client spoke HTTP/1.
  var http1Refused: UInt64 = 0
  /// Users completely erased.
  var usersErased: UInt64 = 0
  /// Totals of closed connections; those of open ones are added at each scrape.
  private var closed = HTTP2Counters()
  var pushes = PushCounters()
  /// Round trips to the store, one sampled per flush.
  var storeRoundTrips = Histogram.durations

  /// The row of requests without a route.
  private static let noRoute = Route.allCases.count

  /// Count a response.
  ///
  /// - Parameter route: nil: no route was found.
  mutating func answered(_ route: Route?, status: Int) {
    let row = route.map { Int($0.rawValue) } ?? Self.noRoute
    responses[row * 6 + min(status / 100, 5)] &+= 1
  }

  /// Add a closed connection's counters.
  mutating func connectionClosed(_ counters: HTTP2Counters) { closed = Self.sum(closed, counters) }

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
    let tokens = [("hit", tokenHits), ("miss", tokenMisses), ("refused", tokenRefusals)]
    for (result, count) in tokens {
      samples.counter(
        "tidemark_gateway_tokens_total",
        help: "Token look-ups: found in the cache, verified, or refused.",
        labels: ["result": result],
        Int64(count)
      )
    }
    for (share, count) in zip(["user", "server", "address"], rateLimited) {
      samples.counter(
        "tidemark_gateway_rate_limited_total",
        help:
          "Requests answered 429, by the rate limit exceeded (--rate-user, --rate-server, --rate-address).",
        labels: ["rate": share],
        Int64(clamping: count)
      )
    }
    samples.counter(
      "tidemark_gateway_connections_ended_for_tokens_total",
      help: "Connections closed after too many tokens with an invalid signature.",
      Int64(clamping: connectionsEndedForTokens)
    )
    samples.counter(
      "tidemark_gateway_connections_total",
      help: "Connections accepted.",
      Int64(connectionsOpened)
    )
    samples.counter(
      "tidemark_gateway_http1_refused_total",
      help: "Connections answered with 505 because their client spoke HTTP/1.",
      Int64(clamping: http1Refused)
    )
    samples.counter(
      "tidemark_gateway_users_erased_total",
      help: "Users completely erased.",
      Int64(usersErased)
    )
    pushes.add(to: &samples)
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
      (
        "bodies_delayed", "Request bodies that waited for others of their connection.", counters.bodiesDelayed
      ),
      ("received_bytes", "Bytes of HTTP/2 received.", counters.bytesIn),
      ("sent_bytes", "Bytes of HTTP/2 sent.", counters.bytesOut),
    ]
    for (name, help, value) in values {
      samples.counter("tidemark_gateway_http2_\(name)_total", help: help, Int64(clamping: value))
    }
  }
}
