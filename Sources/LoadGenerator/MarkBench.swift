internal import Foundation
internal import HTTP2Session
package import LocalStack
package import Operations

/// Mark-reads against a gateway: sets the stage, plans the run, and checks afterwards that every mark moved its
/// watermark and that every watermark is where the answers said.
package struct MarkBench: Sendable {
  package var endpoint: Endpoint
  package var form: MarkForm
  package var connections: Int
  package var streams: Int
  package var requests: Int
  package var warmup: Int
  package var loops = 1
  package var duration: Double?
  package var processes: [(name: String, processID: Int32)] = []

  /// Channels that the marks go round in.
  package let channelCount: Int
  /// Messages in each.
  package let messageCount: Int
  private let names: MarkNames
  private let mint: TokenMint

  /// Messages that a request of the set-up registers.
  private static let batchCount = 1_000
  /// No run is longer than its tokens live.
  private static let tokenLifetime = Duration.seconds(6 * 3600)

  /// - Parameter channels: at least; it becomes a multiple of `streams`, so that each stream has as many as the others.
  package init(
    endpoint: Endpoint,
    mint: TokenMint,
    form: MarkForm,
    connections: Int,
    streams: Int,
    requests: Int,
    warmup: Int,
    channels: Int = 200
  ) throws(LoadError) {
    self.endpoint = endpoint
    self.mint = mint
    self.form = form
    self.connections = connections
    self.streams = streams
    self.requests = requests
    self.warmup = warmup
    channelCount = (max(channels, streams) + streams - 1) / streams * streams
    guard channelCount <= MarkNames.channelsMax else {
      throw LoadError("at most \(MarkNames.channelsMax) channels; that would be \(channelCount)")
    }
    // Some connections are faster than others: each has a third more marks to make than its share.
    let marks = (requests + warmup) / 3 * 4 + connections * channelCount
    messageCount = (marks + connections * channelCount - 1) / (connections * channelCount)
    guard messageCount <= MarkNames.messagesMax else {
      throw LoadError("that would need \(messageCount) messages in each channel; give more --channels")
    }
    names = MarkNames(prefix: "b" + String(UInt32.random(in: 0x1000_0000...UInt32.max), radix: 16))
  }

  /// What the person who waits is told first.
  package var summary: String {
    "\(channelCount) channels, \(connections) members each, \(channelCount * messageCount) messages"
  }

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
      try await registerMessages(caller, token, progress)
    } catch {
      await caller.close()
      throw error
    }
    await caller.close()

    var plans: [LoadPlan.Connection] = []
    for connection in 0..<connections {
      let token = try await mint.user(names.user(connection), lifetime: Self.tokenLifetime)
      let walk = MarkWalk(
        names: names,
        form: form,
        channelCount: channelCount,
        messageCount: messageCount,
        streams: streams
      )
      plans.append(LoadPlan.Connection(authorization: "Bearer \(token)", work: .marks(walk)))
    }
    var plan = LoadPlan(
      endpoint: endpoint,
      connections: plans,
      streams: streams,
      requests: requests,
      warmup: warmup
    )
    plan.loops = loops
    plan.duration = duration
    plan.processes = processes
    return plan
  }

  private func createChannels(_ caller: HTTP2Caller, _ token: String) async throws {
    let members = try JSONEncoder().encode(["members": (0..<connections).map { names.user($0) }])
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
      let path = "/v1/channels/\(names.channel(channel))"
      let answer = try await answer(caller, .get, path, token: token, expecting: [200])
      let newest = try decode(ChannelAnswer.self, answer, path).channel.newest_message
      guard newest?.seq == messageCount, newest?.id == names.message(messageCount - 1, of: channel) else {
        throw LoadError(
          "\(names.channel(channel)): expected \(messageCount) messages, the newest is \(newest?.seq ?? 0)"
        )
      }
    }
  }

  // MARK: After

  /// Asks for every watermark and compares it with what was acknowledged.
  ///
  /// - Returns: what is wrong; empty if every mark was answered 200 and moved its watermark.
  package func verify(_ report: LoadReport) async throws -> [String] {
    var problems = report.problems
    for (status, count) in report.statuses.sorted(by: { $0.key < $1.key }) where status != 200 {
      // The others are named by the report itself.
      if (200..<300).contains(status) { problems.append("\(count) answers with status \(status)") }
    }
    let token = try await mint.server(lifetime: Self.tokenLifetime)
    let caller = try await HTTP2Caller.connect(to: endpoint)
    do {
      for channel in 0..<channelCount {
        let rows = try await readState(caller, channel, token)
        problems += compare(rows, channel, report)
        // The first ones tell enough.
        if problems.count > 20 { break }
      }
    } catch {
      await caller.close()
      throw error
    }
    await caller.close()
    return problems
  }

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

// The names of these are the API's own.
// swift-format-ignore: AlwaysUseLowerCamelCase
private struct ChannelAnswer: Decodable {
  struct Message: Decodable {
    var id: String
    var seq: Int
  }
  struct Channel: Decodable {
    var newest_message: Message?
  }
  var channel: Channel
}

// swift-format-ignore: AlwaysUseLowerCamelCase
private struct ReadStateAnswer: Decodable {
  struct User: Decodable { var id: String }
  struct Row: Decodable {
    var user: User
    var last_read_seq: Int
  }
  var read: [Row]
  var next: String?
}
