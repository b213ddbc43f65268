internal import GatewayClient
internal import Operations

/// Requests of one form to a gateway, or marks to its store: set-up, plan of the run, and a check of every watermark,
/// every count and a sample of the responses.
struct GatewayBench: Sendable {
  /// Gateway; with frames, for the set-up only.
  private let endpoint: Endpoint
  /// With frames: the store, and the secrets that it shares with its gateways.
  private let store: (endpoint: Endpoint, secrets: [[UInt8]])?
  private let form: RequestForm
  private let connections: Int
  private let streams: Int
  private let requests: Int
  private let warmup: Int

  /// Number of channels.
  let channelCount: Int
  /// Messages of each channel before the run.
  let messageCount: Int
  let names = BenchNames.random()
  private let tokenIssuer: TokenIssuer

  /// Messages of a channel that is only queried.
  private static let queriedMessageCount = 16

  /// - Parameter channels: minimum; rounded up to a multiple of `streams`, so that all streams have equally many.
  init(
    endpoint: Endpoint,
    store: (endpoint: Endpoint, secrets: [[UInt8]])? = nil,
    tokenIssuer: TokenIssuer,
    form: RequestForm,
    connections: Int,
    streams: Int,
    requests: Int,
    warmup: Int,
    channels: Int = 200
  ) throws(LoadError) {
    precondition((form == .frame) == (store != nil), "a store is for frames only")
    precondition(form != .hashSet, "only for webdis")
    self.endpoint = endpoint
    self.store = store
    self.tokenIssuer = tokenIssuer
    self.form = form
    self.connections = connections
    self.streams = streams
    self.requests = requests
    self.warmup = warmup
    channelCount = RequestWalk.channelCount(atLeast: channels, streams: streams)
    guard channelCount <= BenchNames.channelsMax else {
      throw LoadError("at most \(BenchNames.channelsMax) channels; that would be \(channelCount)")
    }
    switch form {
    case .query, .body, .frame, .hashSet:
      // Each connection can make a third more marks than its share, because some are faster than others.
      let marks = (requests + warmup) / 3 * 4 + connections * channelCount
      messageCount = (marks + connections * channelCount - 1) / (connections * channelCount)
      guard messageCount <= BenchNames.messagesMax else {
        throw LoadError("that would need \(messageCount) messages in each channel; give more --channels")
      }
    case .register: messageCount = 0
    case .readState, .status: messageCount = Self.queriedMessageCount
    }
  }

  /// Members of each channel; each connection is one of them.
  var memberCount: Int {
    if case .readState(let count) = form { count } else { connections }
  }

  /// Summary of the set-up.
  var summary: String {
    "\(channelCount) channels, \(memberCount) members each, \(channelCount * messageCount) messages"
  }

  private var positions: BenchPositions? {
    form.isWrite ? nil : BenchPositions(messageCount: messageCount, memberCount: memberCount)
  }

  /// Return the user of a connection; connections share users if there are more connections than members.
  private func user(of connection: Int) -> String { names.user(connection % memberCount) }

  // MARK: Set-up

  /// Create channels, members and messages, and plan the run.
  ///
  /// - Parameter progress: called with the messages registered so far.
  func prepare(progress: @Sendable (_ registered: Int, _ total: Int) -> Void = { _, _ in }) async throws -> LoadPlan {
    let serverToken = try await BenchClient.with(endpoint, tokenIssuer: tokenIssuer) { client in
      let members = (0..<memberCount).map { names.user($0) }
      for channel in 0..<channelCount {
        try await client.putChannel(names.channel(channel), members: members)
      }
      if messageCount > 0 { try await registerMessages(client, progress) }
      if let positions { try await setPositions(client, positions) }
      return client.token
    }

    var plans: [LoadPlan.Connection] = []
    for connection in 0..<connections {
      // A backend registers messages; a user makes all other requests.
      let token =
        form == .register
        ? serverToken : try await tokenIssuer.user(user(of: connection), lifetime: BenchClient.tokenLifetime)
      let walk = RequestWalk(
        names: names,
        form: form,
        connection: connection,
        channelCount: channelCount,
        messageCount: form == .register ? BenchNames.messagesMax : messageCount,
        streams: streams
      )
      plans.append(LoadPlan.Connection(authorization: "Bearer \(token)", work: .walk(walk)))
    }
    var plan = LoadPlan(
      endpoint: store?.endpoint ?? endpoint,
      connections: plans,
      streams: streams,
      requests: requests,
      warmup: warmup
    )
    if let store { plan.wireProtocol = .frames(secrets: store.secrets) }
    return plan
  }

  private func registerMessages(_ client: BenchClient, _ progress: @Sendable (Int, Int) -> Void) async throws {
    let total = channelCount * messageCount
    // By message number, which is the order in each channel.
    try await client.register(0..<total, progress: { progress($0, total) }) { number in
      let (message, channel) = number.quotientAndRemainder(dividingBy: channelCount)
      return (names.channel(channel), names.message(message, of: channel))
    }
    for channel in 0..<channelCount {
      let newest = try await newestMessage(client, channel)
      guard newest?.seq == messageCount, newest?.id == names.message(messageCount - 1, of: channel) else {
        throw LoadError(
          "\(names.channel(channel)): expected \(messageCount) messages, the newest is \(newest?.seq ?? 0)"
        )
      }
    }
  }

  private func newestMessage(_ client: BenchClient, _ channel: Int) async throws -> ChannelResponse.Message? {
    let response: ChannelResponse = try await client.get("/v1/channels/\(names.channel(channel))")
    return response.channel.newest_message
  }

  /// Set the positions of the members for queries.
  private func setPositions(_ client: BenchClient, _ positions: BenchPositions) async throws {
    for member in 0..<memberCount where positions.lastRead(of: member) > 0 {
      let message = positions.lastRead(of: member) - 1
      for start in stride(from: 0, to: channelCount, by: BenchClient.batchSize) {
        let messages = (start..<min(start + BenchClient.batchSize, channelCount)).lazy.map {
          (cid: names.channel($0), id: names.message(message, of: $0))
        }
        guard try await client.markRead(names.user(member), messages) else {
          throw LoadError("the position of \(names.user(member)) could not be set")
        }
      }
    }
  }

  // MARK: Check

  /// Compare the state after the run with the acknowledged requests, and kept responses with the expected ones.
  ///
  /// - Returns: the problems.
  func verify(_ report: LoadReport) async throws -> [String] {
    var problems = report.problems
    for (status, count) in report.statuses.sorted(by: { $0.key < $1.key }) where status != form.successStatus {
      // The report itself names other statuses.
      if (200..<300).contains(status) { problems.append("\(count) answers with status \(status)") }
    }
    let check = ResponseCheck(names: names, form: form, positions: positions)
    if report.requests > 0 && report.samples.allSatisfy({ $0.isEmpty }) {
      problems.append("no answer was kept for the check")
    }
    problems += check.problems(report).prefix(Self.problemsMax)
    guard form.isWrite, problems.count < Self.problemsMax else { return problems }
    return try await BenchClient.with(endpoint, tokenIssuer: tokenIssuer) { client in
      for channel in 0..<channelCount where problems.count <= Self.problemsMax {
        let name = names.channel(channel)
        if form == .register {
          let newest = try await newestMessage(client, channel)?.seq ?? 0
          let expected = report.walks.reduce(0) { $0 + Int($1?.acknowledged[channel] ?? 0) }
          if newest != expected { problems.append("\(name): has \(newest) messages, expected \(expected)") }
        } else {
          problems += compare(try await client.readState(name), channel, report)
        }
      }
      return problems
    }
  }

  private static let problemsMax = 20

  private func compare(_ rows: [ReadStateResponse.Row], _ channel: Int, _ report: LoadReport) -> [String] {
    let lastRead = Dictionary(rows.map { ($0.user.id, $0.last_read_seq) }) { first, _ in first }
    return report.walks.enumerated().compactMap { connection, walk in
      guard let walk else { return nil }
      let expected = Int(walk.acknowledged[channel])
      guard let actual = lastRead[names.user(connection)] else {
        return "\(names.channel(channel)): \(names.user(connection)) is not in its read state"
      }
      guard actual != expected else { return nil }
      return """
        \(names.channel(channel)): last_read_seq of \(names.user(connection)) is \(actual), \
        expected \(expected)
        """
    }
  }
}
