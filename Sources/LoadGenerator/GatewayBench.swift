internal import Foundation
internal import HTTP2Session
package import LocalStack
package import Operations

/// Requests of one form against a gateway, or marks against its store: sets the stage, plans the run, and checks
/// afterwards that every watermark and every count is where the answers said, and that the answers were right.
package struct GatewayBench: Sendable {
  /// The gateway; for frames only the stage is set through it.
  package var endpoint: Endpoint
  /// For frames: where they go, and the secrets that the store shares with its gateways.
  package var store: (endpoint: Endpoint, secrets: [[UInt8]])?
  package var form: RequestForm
  package var connections: Int
  package var streams: Int
  package var requests: Int
  package var warmup: Int
  package var loops = 1
  package var duration: Double?
  package var processes: [(name: String, processID: Int32)] = []

  /// Channels that the requests go round in.
  package let channelCount: Int
  /// Messages in each, before the run.
  package let messageCount: Int
  let names = BenchNames.random()
  private let mint: TokenMint

  /// Messages that a request of the set-up registers, and channels that one of them marks.
  private static let batchCount = 1_000
  /// No run is longer than its tokens live.
  private static let tokenLifetime = Duration.seconds(6 * 3600)
  /// Messages of a channel that is only asked about.
  private static let queriedMessageCount = 16

  /// - Parameter channels: at least; it becomes a multiple of `streams`, so that each stream has as many as the others.
  package init(
    endpoint: Endpoint,
    store: (endpoint: Endpoint, secrets: [[UInt8]])? = nil,
    mint: TokenMint,
    form: RequestForm,
    connections: Int,
    streams: Int,
    requests: Int,
    warmup: Int,
    channels: Int = 200
  ) throws(LoadError) {
    precondition((form == .frame) == (store != nil), "frames, and nothing else, go to a store")
    precondition(form != .hashSet, "that is webdis' form")
    self.endpoint = endpoint
    self.store = store
    self.mint = mint
    self.form = form
    self.connections = connections
    self.streams = streams
    self.requests = requests
    self.warmup = warmup
    channelCount = (max(channels, streams) + streams - 1) / streams * streams
    guard channelCount <= BenchNames.channelsMax else {
      throw LoadError("at most \(BenchNames.channelsMax) channels; that would be \(channelCount)")
    }
    switch form {
    case .query, .body, .frame, .hashSet:
      // Some connections are faster than others: each has a third more marks to make than its share.
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
  package var memberCount: Int {
    if case .readState(let count) = form { count } else { connections }
  }

  /// What the person who waits is told first.
  package var summary: String {
    "\(channelCount) channels, \(memberCount) members each, \(channelCount * messageCount) messages"
  }

  private var positions: BenchPositions? {
    form.isWrite ? nil : BenchPositions(messageCount: messageCount, memberCount: memberCount)
  }

  /// Of a connection; where there are more connections than members, some are the same one.
  private func user(of connection: Int) -> String { names.user(connection % memberCount) }

  // MARK: Before

  /// Makes channels, members and messages, and the plan of the run over them.
  ///
  /// - Parameter progress: told of the messages registered so far.
  package func prepare(
    progress: @Sendable (_ registered: Int, _ total: Int) -> Void = { _, _ in }
  ) async throws -> LoadPlan {
    let token = try await mint.server(lifetime: Self.tokenLifetime)
    let caller = try await HTTP2Caller.connect(to: endpoint)
    do {
      try await createChannels(caller, token)
      if messageCount > 0 { try await registerMessages(caller, token, progress) }
      if let positions { try await takePositions(caller, token, positions) }
    } catch {
      await caller.close()
      throw error
    }
    await caller.close()

    var plans: [LoadPlan.Connection] = []
    for connection in 0..<connections {
      // A backend registers messages; whatever else is asked, a user asks.
      let token =
        form == .register ? token : try await mint.user(user(of: connection), lifetime: Self.tokenLifetime)
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
    if let store { plan.language = .frames(secrets: store.secrets) }
    plan.loops = loops
    plan.duration = duration
    plan.processes = processes
    return plan
  }

  private func createChannels(_ caller: HTTP2Caller, _ token: String) async throws {
    let members = try JSONEncoder().encode(["members": (0..<memberCount).map { names.user($0) }])
    for channel in 0..<channelCount {
      let path = "/v1/channels/\(names.channel(channel))"
      _ = try await answer(caller, .put, path, body: [UInt8](members), token: token, expecting: [200, 201])
    }
  }

  private func registerMessages(
    _ caller: HTTP2Caller,
    _ token: String,
    _ progress: @Sendable (Int, Int) -> Void
  ) async throws {
    let total = channelCount * messageCount
    var registered = 0
    var body: [UInt8] = []
    // In order of the messages' numbers: that is their order in each channel.
    var next = (channel: 0, message: 0)
    while registered < total {
      let count = min(Self.batchCount, total - registered)
      body.removeAll(keepingCapacity: true)
      body += Array(#"{"messages":["#.utf8)
      for index in 0..<count {
        if index > 0 { body.append(UInt8(ascii: ",")) }
        let (cid, id) = (names.channel(next.channel), names.message(next.message, of: next.channel))
        body += Array(#"{"cid":"\#(cid)","id":"\#(id)"}"#.utf8)
        next.channel += 1
        if next.channel == channelCount { next = (0, next.message + 1) }
      }
      body += Array("]}".utf8)
      _ = try await answer(caller, .post, "/v1/messages", body: body, token: token, expecting: [200, 201])
      registered += count
      progress(registered, total)
      try Task.checkCancellation()
    }
    for channel in 0..<channelCount {
      let newest = try await newestMessage(caller, channel, token)
      guard newest?.seq == messageCount, newest?.id == names.message(messageCount - 1, of: channel) else {
        throw LoadError(
          "\(names.channel(channel)): expected \(messageCount) messages, the newest is \(newest?.seq ?? 0)"
        )
      }
    }
  }

  private func newestMessage(
    _ caller: HTTP2Caller,
    _ channel: Int,
    _ token: String
  ) async throws -> ChannelAnswer.Message? {
    let path = "/v1/channels/\(names.channel(channel))"
    let answer = try await answer(caller, .get, path, token: token, expecting: [200])
    return try decode(ChannelAnswer.self, answer, path).channel.newest_message
  }

  /// Each member reads up to where queries will find them.
  private func takePositions(
    _ caller: HTTP2Caller,
    _ token: String,
    _ positions: BenchPositions
  ) async throws {
    for member in 0..<memberCount {
      let lastRead = positions.lastRead(of: member)
      if lastRead == 0 { continue }
      for start in stride(from: 0, to: channelCount, by: Self.batchCount) {
        let channels = start..<min(start + Self.batchCount, channelCount)
        let entries = channels.map {
          #""\#(names.channel($0))":"\#(names.message(lastRead - 1, of: $0))""#
        }
        let body =
          #"{"user_id":"\#(names.user(member))","read_by_channel":{\#(entries.joined(separator: ","))}}"#
        let answer = try await answer(
          caller,
          .post,
          "/v1/channels/read",
          body: Array(body.utf8),
          token: token,
          expecting: [200]
        )
        guard !answer.text.contains(#""ok":false"#) else {
          throw LoadError("a member's position could not be taken: \(answer.text.prefix(300))")
        }
      }
    }
  }

  // MARK: After

  /// Asks for what the run has changed and compares it with what was acknowledged; compares the answers that were kept
  /// with what they have to be.
  ///
  /// - Returns: what is wrong; empty if every request was a success and did what it says.
  package func verify(_ report: LoadReport) async throws -> [String] {
    var problems = report.problems
    for (status, count) in report.statuses.sorted(by: { $0.key < $1.key }) where status != form.successStatus
    {
      // The others are named by the report itself.
      if (200..<300).contains(status) { problems.append("\(count) answers with status \(status)") }
    }
    let check = AnswerCheck(names: names, form: form, positions: positions)
    if report.answers > 0 && report.samples.allSatisfy({ $0.isEmpty }) {
      problems.append("no answer was kept to be looked at")
    }
    for (connection, samples) in report.samples.enumerated() {
      problems += samples.compactMap { check.problem($0, of: connection) }
      // The first ones tell enough.
      if problems.count > Self.problemsMax { return problems }
    }
    guard form.isWrite else { return problems }
    let token = try await mint.server(lifetime: Self.tokenLifetime)
    let caller = try await HTTP2Caller.connect(to: endpoint)
    do {
      for channel in 0..<channelCount {
        if form == .register {
          let newest = try await newestMessage(caller, channel, token)?.seq ?? 0
          let expected = report.walks.reduce(0) { $0 + Int($1?.acknowledged[channel] ?? 0) }
          if newest != expected {
            problems.append("\(names.channel(channel)): has \(newest) messages, expected \(expected)")
          }
        } else {
          problems += compare(try await readState(caller, channel, token), channel, report)
        }
        if problems.count > Self.problemsMax { break }
      }
    } catch {
      await caller.close()
      throw error
    }
    await caller.close()
    return problems
  }

  private static let problemsMax = 20

  private func compare(_ rows: [String: Int], _ channel: Int, _ report: LoadReport) -> [String] {
    report.walks.enumerated().compactMap { connection, walk in
      guard let walk else { return nil }
      let expected = Int(walk.acknowledged[channel])
      guard let actual = rows[names.user(connection)] else {
        return "\(names.channel(channel)): \(names.user(connection)) is not in its read state"
      }
      guard actual != expected else { return nil }
      return """
        \(names.channel(channel)): last_read_seq of \(names.user(connection)) is \(actual), \
        expected \(expected)
        """
    }
  }

  /// All pages of a channel's read state: last_read_seq by user.
  private func readState(
    _ caller: HTTP2Caller,
    _ channel: Int,
    _ token: String
  ) async throws -> [String: Int] {
    var rows: [String: Int] = [:]
    var cursor: String?
    repeat {
      var path = "/v1/channels/\(names.channel(channel))/read-state?limit=100"
      if let cursor { path += "&cursor=\(cursor)" }
      let page = try decode(
        ReadStateAnswer.self,
        try await answer(caller, .get, path, token: token, expecting: [200]),
        path
      )
      for row in page.read { rows[row.user.id] = row.last_read_seq }
      cursor = page.next
    } while cursor != nil
    return rows
  }

  // MARK: Calls

  private func answer(
    _ caller: HTTP2Caller,
    _ method: HTTP2Method,
    _ path: String,
    body: [UInt8]? = nil,
    token: String,
    expecting statuses: Set<Int>
  ) async throws -> HTTPAnswer {
    let answer = try await caller.call(method, path, body: body, token: token)
    guard statuses.contains(answer.status) else {
      throw LoadError("\(method.name) \(path) was answered \(answer.status): \(answer.text.prefix(300))")
    }
    return answer
  }

  private func decode<Value: Decodable>(
    _ type: Value.Type,
    _ answer: HTTPAnswer,
    _ path: String
  ) throws -> Value {
    do {
      return try JSONDecoder().decode(type, from: Data(answer.body))
    } catch {
      throw LoadError("\(path): an answer of another shape than expected: \(answer.text.prefix(300))")
    }
  }
}
