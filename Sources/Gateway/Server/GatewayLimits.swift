package import NIOCore
internal import ReceiptWire

/// Limits on what callers may cost the gateway. `HTTP2Limits` has those of HTTP/2 itself.
package struct GatewayLimits: Sendable {
  /// Verified tokens cached on each event loop, about 300 bytes each.
  package var cachedTokens = 16_384
  /// How much may wait, by what it waits for.
  package var waiting = WaitingLimits()
  /// Consecutive tokens that no key has signed, after which a connection's tokens are no longer verified. The
  /// connection is closed after ``badTokenDelay``.
  package var badTokensPerConnection = 64
  package var badTokenDelay = TimeAmount.seconds(1)
  /// Limits on JSON bodies, beside the size that HTTP/2 bounds.
  package var json = JSONLimits()
  /// Members in one request (Proto/openapi.yaml).
  package var membersPerRequest = 1_000
  /// Messages in one registration (Proto/openapi.yaml).
  package var messagesPerRequest = 1_000
  /// How long a batch may wait for room in the store's request window: as long as each of its entries may wait for its
  /// answer.
  package var batchWait = TimeAmount.seconds(5)
  /// Page queries on each event loop that the store has not answered; others wait.
  var pageQueriesInFlight = 256
  /// How long a page query may wait; then it is answered 503.
  var pageQueryWait = TimeAmount.seconds(5)
  /// Tickets, or push acks, in one JSON body (Proto/openapi.yaml). A streamed NDJSON body has no limit.
  package var pushesPerRequest = 1_000
  /// In-flight limits of a stream of push acks.
  var acks = AckOrder.Limits()
  /// Default lifetime of a ticket in seconds: a week.
  package static let ticketSeconds: Int64 = 604_800
  /// Maximum lifetime of a ticket in seconds: 28 days, as long as FCM keeps a message for an offline device.
  package static let ticketSecondsMax: Int64 = 2_419_200
  /// Positions in one delivered request, message ids in one acknowledgement or query, members in one query
  /// (Proto/openapi.yaml).
  package var entriesPerRequest = WireLimits.entriesMax
  /// Channels in one `POST /v1/channels/read`.
  package var channelsPerRequest = 1_000
  /// Rows of a page: the maximum and the default (Proto/openapi.yaml).
  package var rowsPerPage = WireLimits.pageMax
  /// Requests on each event loop that visit all channels of a user (``UserChannelScan``); one more is answered 503.
  /// Each takes some 30 bytes for every channel that it has listed and not finished, at most 21,000 of them.
  package var userJobs = 256
  /// ``userJobs`` that one user may have: an eighth, so that one user cannot refuse the totals of all others.
  var userJobsPerUser: Int { max(8, userJobs / 8) }
  /// Those of them that count unread totals for `notification.totals`; other users wait. The rest is for requests.
  package var totalsJobs = 64
  /// Channels that one counting request covers; a user with more gets `limit_reached`. Marking covers all channels.
  package var countedChannels = 100_000
  /// Failed channels that the response to mark-all-read names.
  package var failedChannels = 1_000
  /// Users that each event loop erases at once for its callers; one more is answered 503.
  package var erasures = 16
  /// Requests that may wait for the erasure of one user; one more is answered 503.
  package var erasureRequests = 64
  /// How long an erasure may take before its caller is answered that it continues in the background.
  package var erasureTimeout = TimeAmount.seconds(45)
  /// How often a loop looks for settings that have not reached every shard (``SettlementRounds``); nil: another loop
  /// does that.
  package var settlementInterval: TimeAmount? = .seconds(2)
  /// How often a loop asks the store for revoked tokens (``TokenListing``); nil: another loop does that.
  package var tokenListInterval: TimeAmount? = .seconds(1)
  /// Event streams and subscribed channels on each event loop; above these limits the response is 503.
  var events = EventHub.Limits()
  /// How often an idle event stream sends a heartbeat (Proto/openapi.yaml).
  package var heartbeat = TimeAmount.seconds(15)
  /// Bytes queued in HTTP/2 for one event stream. Above that, events wait in the stream's own queue, where a later
  /// event replaces an older one of the same key.
  package var eventStreamBytes = 8 * 1_024
  /// How long events may wait for a client that takes none before its stream is reset.
  package var eventStallTimeout = TimeAmount.seconds(30)
  /// Push acks by ticket in flight on each event loop; one more is answered 503. The limit is a quarter of the
  /// store connection's window: the holder of one ticket can send it endlessly, and other requests must find room.
  var deviceAcks = 8_192
  /// Streamed requests (`POST /v1/frames`, push acks as NDJSON) on each event loop; one more is answered 503.
  package var requestStreams = 256
  /// The part of ``requestStreams`` that one token may have open.
  var requestStreamsPerToken: Int { max(1, requestStreams / 2) }
  /// Store requests in flight from all streamed requests of a loop: half of the store connection's window, so that
  /// other requests find room.
  package var streamedInFlight = 16_384
  /// Bytes of a frame stream's answers that are pending or not yet taken by its client, beside those that HTTP/2 holds.
  /// At this limit the gateway stops reading the request's body.
  package var streamReplyBytes = 512 << 10
  /// Requests of one frame stream in flight; at this limit, too, its body is not read.
  package var framesInFlight = 8_192
  /// Maximum size of a frame in such a stream, as its length field counts.
  package var frameLength: UInt32 = 64 << 10
  /// How long a streamed request may stall before it is reset: the client takes no responses, or does not finish a
  /// frame or line. A stream without pending input may stay idle.
  package var streamIdleTimeout = TimeAmount.seconds(60)
  /// How often stalls and expired tokens of streamed requests are checked.
  static let streamTick = TimeAmount.milliseconds(500)
  /// Maximum size of an acknowledgement's note in bytes (R9).
  package var noteBytes = 1_024
  /// How long a client may take to show which protocol it speaks, from its first byte on. It also bounds the head of an
  /// HTTP/1 request.
  package var firstBytesTimeout = TimeAmount.seconds(5)
  /// Time between the first GOAWAY, which warns, and the last, which is binding.
  package var shutdownGrace = TimeAmount.milliseconds(500)
  /// How long streams may then take to end.
  package var drainTimeout = TimeAmount.seconds(10)

  package init() {}
}

extension GatewayLimits {
  /// Parse the `limit` of a page.
  ///
  /// - Throws: `invalid_query`.
  func pageLimit(_ text: RawSpan) throws(Problem) -> Int {
    guard let value = text.decimal, (1...UInt64(rowsPerPage)).contains(value) else {
      throw Problem(.invalidQuery, "limit has to be a whole number from 1 to \(rowsPerPage)")
    }
    return Int(value)
  }
}
