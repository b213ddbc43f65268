internal import HTTP2Session
internal import LocalStack

/// Channels, members and messages for an ``EventBench``, made through the first gateway.
struct EventWorld: Sendable {
  static let sender = "alice"
  static let reader = "bob"
  private static let inFlight = 128
  private static let tokenLifetime = Duration.seconds(6 * 3600)
  /// Members that one request names, and messages that one registers.
  private static let perRequest = 1_000
  /// Viewers in each small channel.
  private static let groupSize = 10

  let mint: TokenMint
  private let caller: HTTP2Caller
  let server: String

  init(stack: LocalStack, files: StackFiles) async throws {
    mint = try await TokenMint(secretFile: files.jwtSecret)
    caller = try await HTTP2Caller.connect(to: stack.plan.gateways[0].listen)
    server = try await mint.server(lifetime: Self.tokenLifetime)
  }

  func close() async { await caller.close() }

  func token(_ user: String) async throws -> String {
    try await mint.user(user, lifetime: Self.tokenLifetime)
  }

  // MARK: Viewers

  /// The channel that all viewers are in.
  static let everybody = "messaging:everybody"

  static func viewer(_ number: Int) -> String { "viewer-\(number)" }

  /// Makes so many viewers, ten to each small channel and all in one large one.
  ///
  /// - Parameter channelsEach: how many small channels each is in.
  func makeViewers(_ count: Int, channelsEach: Int, _ note: @escaping @Sendable (String) -> Void) async throws
  {
    let groups = (count + Self.groupSize - 1) / Self.groupSize
    let channels = groups * channelsEach
    try await BenchStack.inParallel(channels, atOnce: Self.inFlight) { [self] channel in
      if channel % 500 == 0 { note("\(Figures.count(channel)) of \(Figures.count(channels)) channels made") }
      let first = channel / channelsEach * Self.groupSize
      let members = (first..<min(first + Self.groupSize, count)).map(Self.viewer)
      try await put("messaging:group-\(channel)", members)
    }
    for first in stride(from: 0, to: count, by: Self.perRequest) {
      try await put(Self.everybody, (first..<min(first + Self.perRequest, count)).map(Self.viewer))
    }
  }

  /// A stream each for the viewers.
  func viewerRequests(_ count: Int) async throws -> [EventStreamRequest] {
    var requests: [EventStreamRequest] = []
    for viewer in 0..<count {
      requests.append(EventStreamRequest(token: try await token(Self.viewer(viewer))))
    }
    return requests
  }

  // MARK: Channels and messages

  func put(_ cid: String, _ members: [String]) async throws {
    let names = members.map { "\"\($0)\"" }.joined(separator: ",")
    try await expect(.put, "/v1/channels/\(cid)", #"{"members":[\#(names)]}"#)
  }

  /// Registers one message of the server's.
  func register(_ message: String, in cid: String) async throws {
    try await expect(.post, "/v1/channels/\(cid)/messages", #"{"id":"\#(message)"}"#)
  }

  /// Makes the channel of two for a measurement of latency, with messages of the sender's.
  func makePair(_ cid: String, messagePrefix: String, count: Int) async throws {
    try await put(cid, [Self.sender, Self.reader])
    for first in stride(from: 1, through: count, by: Self.perRequest) {
      let entries = (first..<min(first + Self.perRequest, count + 1)).map {
        #"{"cid":"\#(cid)","id":"\#(messagePrefix)\#($0)","user_id":"\#(Self.sender)"}"#
      }
      let text = try await expect(
        .post,
        "/v1/messages",
        #"{"messages":[\#(entries.joined(separator: ","))]}"#
      )
      guard !text.contains(#""code""#) else { throw LoadError("messages were refused: \(text.prefix(300))") }
    }
  }

  @discardableResult
  private func expect(_ method: HTTP2Method, _ path: String, _ body: String) async throws -> String {
    let answer = try await caller.call(method, path, body: Array(body.utf8), token: server)
    guard (200...201).contains(answer.status) else {
      throw LoadError("\(method.name) \(path) was answered \(answer.status): \(answer.text.prefix(300))")
    }
    return answer.text
  }
}
