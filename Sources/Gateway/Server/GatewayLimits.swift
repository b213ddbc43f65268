package import NIOCore

/// What callers may cost the gateway beyond HTTP/2 itself (for that see `HTTP2Limits`), named in one place.
package struct GatewayLimits: Sendable {
  /// Verified tokens that each event loop remembers; one takes some 300 bytes.
  package var cachedTokens = 16_384
  /// Requests that wait for the verification of a token, on each event loop; one more is answered 503.
  package var parkedRequests = 4_096
  /// Of one connection, or of one client behind a trusted proxy.
  package var parkedRequestsPerOrigin = 512
  /// Tokens that are none of ours, one after the other, after which a connection gets no more of them looked at and
  /// ends, so much later.
  package var badTokensPerConnection = 64
  package var badTokenDelay = TimeAmount.seconds(1)
  /// JSON bodies, beside the size that HTTP/2 bounds.
  package var json = JSONLimits()
  /// Members in one request (API.md, "Set-up").
  package var membersPerRequest = 1_000
  /// Messages in one registration (API.md, "Set-up").
  package var messagesPerRequest = 1_000
  /// How long a batch may wait for room among the requests to the store: as long as each of its entries may wait for
  /// its answer.
  package var batchWait = TimeAmount.seconds(5)
  /// Tickets, or acknowledgements of pushes, in one body (API.md, "Push"); as lines there is no limit.
  package var pushesPerRequest = 1_000
  /// What a stream of acknowledgements may have under way.
  var acks = AckOrder.Limits()
  /// How long a ticket is good where nothing else is asked for, in seconds: a week.
  package static let ticketSeconds: Int64 = 604_800
  /// How long it is good at most: 28 days, as long as FCM keeps a message for a device that is away.
  package static let ticketSecondsMax: Int64 = 2_419_200
  /// Positions in one delivered request, message ids in one acknowledgement or query, members in one question (API.md,
  /// "Positions", "Queries").
  package var entriesPerRequest = 100
  /// Channels in one `POST /v1/channels/read`.
  package var channelsPerRequest = 1_000
  /// Rows of a page at most, and where no limit is given (API.md, "Queries").
  package var rowsPerPage = 100
  /// Requests of each event loop that go over all channels of a user (``UserWalk``); one more is answered 503. One
  /// takes some 30 bytes for each of the channels that it knows of and has no answer for yet, of which there are at
  /// most 21,000.
  package var userJobs = 256
  /// Those of them that count what `notification.totals` say; other users wait their turn. The rest is for requests.
  package var totalsJobs = 64
  /// Channels that one such request counts; whoever has more is told so. Marking goes over all there are.
  package var countedChannels = 100_000
  /// Channels that the answer to marking all names as failed.
  package var failedChannels = 1_000
  /// Users whom each event loop erases at once for its callers; one more is answered 503.
  package var erasures = 16
  /// How long the erasing of a user may take before its caller is told that it goes on.
  package var erasureTimeout = TimeAmount.seconds(45)
  /// How often a loop looks for changes that have not reached every shard (``Settling``); nil: it leaves that to
  /// others.
  package var settlingInterval: TimeAmount? = .seconds(2)
  /// How often a loop asks the store for tokens that were revoked (``TokenListing``); nil: it leaves that to others.
  package var tokenListInterval: TimeAmount? = .seconds(1)
  /// Streams of events, their openings and channels, on each event loop; what is beyond is answered 503.
  var events = EventHub.Limits()
  /// How often a stream that has nothing to tell says so (API.md, "Events").
  package var heartbeat = TimeAmount.seconds(15)
  /// Bytes that may wait in HTTP/2 for a client of events; what is beyond waits in the stream's own queue, where later
  /// events replace older ones.
  package var eventStreamBytes = 8 * 1_024
  /// Tickets of devices under way on each event loop, a quarter of what its connection to the store takes at most:
  /// whoever has one ticket can send it without end, and others are to find room. What is beyond is answered 503.
  var deviceAcks = 8_192
  /// Streamed requests (`POST /v1/frames`, acknowledgements as NDJSON) on each event loop; one more is answered 503.
  package var requestStreams = 256
  /// Requests that the streamed ones of a loop may have at the store together: half of what its connection takes at
  /// most, so that others find room.
  package var streamedInFlight = 16_384
  /// Bytes of the answers of a stream of frames that are under way or that its client has not taken, beside those that
  /// HTTP/2 holds; its body is not read on while there are as many.
  package var streamAnswerBytes = 512 << 10
  /// Requests of a stream of frames that are under way, likewise.
  package var framesInFlight = 8_192
  /// The largest frame there, in the length field's count.
  package var frameLength: UInt32 = 64 << 10
  /// How long a streamed request may stand still because its client takes no answers, or does not go on with a frame or
  /// line that it has begun; then it is reset. One that has nothing to say may stay.
  package var streamIdleTimeout = TimeAmount.seconds(60)
  /// How often that, and the end of its token, are looked at.
  static let streamTick = TimeAmount.milliseconds(500)
  /// Bytes of an acknowledgement's note (R9).
  package var noteBytes = 1_024
  /// How long a client may take to show which protocol it speaks, and an HTTP/1 client for the head of its request,
  /// from its first byte on.
  package var firstBytesTimeout = TimeAmount.seconds(5)
  /// Between the GOAWAY that warns and the one that binds.
  package var shutdownGrace = TimeAmount.milliseconds(500)
  /// How long streams may take to end after that.
  package var drainTimeout = TimeAmount.seconds(10)

  package init() {}
}
