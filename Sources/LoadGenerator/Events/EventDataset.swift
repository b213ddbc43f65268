internal import HTTP2Session
internal import LocalStack

/// Channels, members and messages of an ``EventBench``, set up through the first gateway.
struct EventDataset: Sendable {
  static let sender = "alice"
  static let reader = "bob"
  /// Channel of all viewers.
  static let everybody = "messaging:everybody"
  private static let inFlight = 128
  /// Viewers of each small channel.
  private static let groupSize = 10

  let tokenIssuer: TokenIssuer
  let client: BenchClient

  init(stack: LocalStack, files: StackFiles) async throws {
    tokenIssuer = try await TokenIssuer(secretFile: files.jwtSecret)
    client = try await BenchClient(stack.plan.gateways[0].listen, tokenIssuer: tokenIssuer)
  }

  func token(_ user: String) async throws -> String {
    try await tokenIssuer.user(user, lifetime: BenchClient.tokenLifetime)
  }

  private static func viewer(_ number: Int) -> String { "viewer-\(number)" }

  /// Create viewers, ten to each small channel and all in one large channel.
  ///
  /// - Parameter channelsEach: small channels of each viewer.
  func makeViewers(_ count: Int, channelsEach: Int, _ note: @escaping ProgressHandler) async throws {
    let groups = (count + Self.groupSize - 1) / Self.groupSize
    let channels = groups * channelsEach
    try await inParallel(channels, atOnce: Self.inFlight, progress: (note, "channels made")) { channel in
      let first = channel / channelsEach * Self.groupSize
      let members = (first..<min(first + Self.groupSize, count)).map(Self.viewer)
      try await client.putChannel("messaging:group-\(channel)", members: members)
    }
    try await client.putChannel(Self.everybody, members: (0..<count).map(Self.viewer))
  }

  /// Return requests for one stream per viewer.
  func viewerRequests(_ count: Int) async throws -> [EventStreamRequest] {
    var requests: [EventStreamRequest] = []
    for viewer in 0..<count {
      requests.append(EventStreamRequest(token: try await token(Self.viewer(viewer))))
    }
    return requests
  }

  /// Create the channel of sender and reader for a latency measurement, with messages of the sender.
  func makePair(_ cid: String, messagePrefix: String, count: Int) async throws {
    try await client.putChannel(cid, members: [Self.sender, Self.reader])
    try await client.register(1..<count + 1, sender: Self.sender) { (cid, "\(messagePrefix)\($0)") }
  }

  /// Register one message without a sender.
  func register(_ message: String, in cid: String) async throws {
    try await client.expect(.post, "/v1/channels/\(cid)/messages", #"{"id":"\#(message)"}"#)
  }
}
