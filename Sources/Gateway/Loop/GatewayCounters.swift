internal import HTTP2Session
internal import Operations

/// What one event loop counts: plain integers, summed over the loops when they are scraped.
struct GatewayCounters {
  /// By route and class of status; a request whose route was not found counts under the last row.
  private var answers = [UInt64](repeating: 0, count: (Route.allCases.count + 1) * 6)
  var tokenHits: UInt64 = 0
  var tokenMisses: UInt64 = 0
  /// Batches that had to wait (``BatchQueue``).
  var batchesDelayed: UInt64 = 0
  var tokenRefusals: UInt64 = 0
  var connectionsOpened: UInt64 = 0
  /// Those that have shown too many tokens of no key.
  var connectionsEndedForTokens: UInt64 = 0
  /// Requests answered 429: of users, servers and addresses.
  var rateLimited: [UInt64] = [0, 0, 0]
  /// Connections whose client spoke HTTP/1.
  var http1Refused: UInt64 = 0
  /// Users of whom nothing is left.
  var usersErased: UInt64 = 0
  /// Of connections that have closed; those of open ones are added when they are told.
  private var closed = HTTP2Counters()
  var pushes = PushCounters()
  /// Round trips to the store, one measured per flush.
  var storeRoundTrips = Histogram.durations

  static let noRoute = UInt8(Route.allCases.count)

  /// Counts an answer. `route` is a `Route.rawValue` or ``noRoute``.
  mutating func answered(_ route: UInt8, status: Int) {
    answers[Int(route) * 6 + min(status / 100, 5)] &+= 1
  }

  /// Keeps what a connection has counted.
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

  /// Adds all of it, by the names under which it is scraped.
  ///
  /// - Parameter open: what the open connections have counted.
  func add(to samples: inout MetricSamples, open: [HTTP2Counters]) {
    addHTTP2(open.reduce(closed) { Self.sum($0, $1) }, to: &samples)
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
    for (share, count) in zip(["user", "server", "address"], rateLimited) {
      samples.counter(
        "tidemark_gateway_rate_limited_total",
        help: "Requests answered 429, by whose rate was passed (--rate-user, --rate-server, --rate-address).",
        labels: ["rate": share],
        Int64(clamping: count)
      )
    }
    samples.counter(
      "tidemark_gateway_connections_ended_for_tokens_total",
      help: "Connections ended because they went on showing tokens that no key has signed.",
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
      help: "Users erased to the end.",
      Int64(usersErased)
    )
    pushes.add(to: &samples)
    samples.histogram(
      "tidemark_gateway_store_round_trip_seconds",
      help: "From a request to the store until its reply, one request of every flush.",
      storeRoundTrips
    )
  }

  private func addHTTP2(_ counters: HTTP2Counters, to samples: inout MetricSamples) {
    let values: [(String, String, UInt64)] = [
      ("streams", "Streams opened by clients.", counters.streamsOpened),
      ("resets_received", "RST_STREAM frames received.", counters.resetsReceived),
      ("resets_sent", "RST_STREAM frames sent.", counters.resetsSent),
      ("protocol_errors", "Frames that broke HTTP/2, and input that was none.", counters.protocolErrors),
      ("limits_hit", "Streams and connections ended because a limit was passed.", counters.limitsHit),
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
