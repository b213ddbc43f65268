internal import Foundation
internal import HTTP2Session
internal import LocalStack
internal import Operations
internal import Synchronization

/// The channels of a ``RecoveryBench``, and this side's own record of what was acknowledged about them.
///
/// A thousand channels share their members, so that one request marks a thousand channels for one user: a group.
final class RecoveryWorld: Sendable {
  private static let groupCount = 1_000
  /// Messages of each channel: how often each member can move its watermark.
  private static let messages = 3
  /// Requests under way at once while channels are made, and while they are marked.
  private static let creating = 128
  private static let marking = 8

  private struct State {
    /// By channel and member: the last acknowledged message.
    var watermarks: [UInt8]
    /// Marks in order: every group for the first member, then for the second; then again with the next message.
    var next = 0
    /// Marks acknowledged since they were last asked for.
    var marks = 0
    var isStopped = false
    var caller: HTTP2Caller
  }

  private let endpoint: Endpoint
  private let channels: Int
  private let members: Int
  private let token: String
  private let state: Mutex<State>

  init(endpoint: Endpoint, secretFile: String, channels: Int, members: Int) async throws {
    self.endpoint = endpoint
    self.channels = channels
    self.members = members
    let mint = try await TokenMint(secretFile: secretFile)
    token = try await mint.server(lifetime: .seconds(12 * 3600))
    let caller = try await HTTP2Caller.connect(to: endpoint)
    state = Mutex(State(watermarks: Array(repeating: 0, count: channels * members), caller: caller))
  }

  func close() async { await state.withLock { $0.caller }.close() }

  private static func cid(_ channel: Int) -> String { "messaging:r\(channel)" }
  private static func user(_ group: Int, _ member: Int) -> String { "user-\(group)-\(member)" }
  private var groups: Int { (channels + Self.groupCount - 1) / Self.groupCount }
  private func channels(of group: Int) -> Range<Int> {
    group * Self.groupCount..<min(channels, (group + 1) * Self.groupCount)
  }

  // MARK: Making

  /// Makes the channels, registers their messages, and has the first member of each read the first message.
  func create(_ note: @escaping @Sendable (String) -> Void) async throws {
    try await BenchStack.inParallel(channels, atOnce: Self.creating) { [self] channel in
      if channel % 1_000 == 0 {
        note("\(Figures.count(channel)) of \(Figures.count(channels)) channels made")
      }
      let group = channel / Self.groupCount
      let names = (0..<members).map { "\"\(Self.user(group, $0))\"" }.joined(separator: ",")
      try await expect([201, 200], .put, "/v1/channels/\(Self.cid(channel))", #"{"members":[\#(names)]}"#)
    }
    for message in 1...Self.messages {
      try await BenchStack.inParallel(groups, atOnce: Self.marking) { [self] group in
        note(
          "message \(message): \(Figures.count(group * Self.groupCount)) of \(Figures.count(channels)) registered"
        )
        let entries = channels(of: group).map { #"{"cid":"\#(Self.cid($0))","id":"m\#(message)"}"# }
        let text = try await expect(
          [200],
          .post,
          "/v1/messages",
          #"{"messages":[\#(entries.joined(separator: ","))]}"#
        )
        guard !text.contains(#""code""#) else {
          throw LoadError("messages were refused: \(text.prefix(300))")
        }
      }
    }
    try await BenchStack.inParallel(groups, atOnce: Self.marking) { [self] _ in
      guard let mark = takeMark() else { return }
      guard try await make(mark) else { throw LoadError("the first marks were not taken") }
    }
    _ = takeMarkCount()
  }

  // MARK: Marking

  private struct Mark {
    var group: Int
    var member: Int
    var message: Int
  }

  private func takeMark() -> Mark? {
    state.withLock { state in
      let (number, group) = state.next.quotientAndRemainder(dividingBy: groups)
      let (message, member) = number.quotientAndRemainder(dividingBy: members)
      guard message < Self.messages, !state.isStopped else { return nil }
      state.next += 1
      return Mark(group: group, member: member, message: message + 1)
    }
  }

  /// One request: this member has read this message in every channel of the group.
  ///
  /// - Returns: whether it was acknowledged; a store that is away is no error here.
  private func make(_ mark: Mark) async throws -> Bool {
    let entries = channels(of: mark.group).map { #""\#(Self.cid($0))":"m\#(mark.message)""# }
    let user = Self.user(mark.group, mark.member)
    let answer = try await call(
      .post,
      "/v1/channels/read",
      Array(#"{"user_id":"\#(user)","read_by_channel":{\#(entries.joined(separator: ","))}}"#.utf8)
    )
    guard answer.status == 200, !answer.text.contains(#""ok":false"#) else { return false }
    state.withLock { state in
      for channel in channels(of: mark.group) {
        state.watermarks[channel * members + mark.member] = UInt8(mark.message)
        state.marks += 1
      }
    }
    return true
  }

  /// Marks until ``stopLoad()``, or until there is nothing more to mark.
  func load(_ note: @escaping @Sendable (String) -> Void) async throws {
    state.withLock { $0.isStopped = false }
    try await withThrowingTaskGroup(of: Void.self) { tasks in
      for _ in 0..<Self.marking {
        tasks.addTask { [self] in
          while let mark = takeMark() {
            _ = try await make(mark)
            note("\(Figures.count(state.withLock { $0.marks })) marks acknowledged")
          }
        }
      }
      try await tasks.waitForAll()
    }
  }

  func stopLoad() { state.withLock { $0.isStopped = true } }

  /// Marks acknowledged since the last call.
  func takeMarkCount() -> Int {
    state.withLock { state in
      defer { state.marks = 0 }
      return state.marks
    }
  }

  /// One mark of one channel, again and again until it is acknowledged: the one that its member has made already, or
  /// the first.
  func markUntilAnswered() async throws {
    let channel = Int.random(in: 0..<channels)
    let message = max(1, state.withLock { $0.watermarks[channel * members] })
    let user = Self.user(channel / Self.groupCount, 0)
    let path = "/v1/channels/\(Self.cid(channel))/read?message_id=m\(message)&user_id=\(user)"
    while true {
      let answer = try? await call(.post, path)
      if answer?.status == 200 {
        state.withLock { $0.watermarks[channel * members] = max($0.watermarks[channel * members], message) }
        return
      }
      if let answer, answer.status != 503 {
        throw LoadError("\(path): \(answer.status) \(answer.text.prefix(300))")
      }
      try await Task.sleep(for: .milliseconds(5))
    }
  }

  // MARK: Use of one channel

  /// What may be asked of a channel.
  enum Use {
    case readState
    case mark(member: Int)
    case register

    /// Seven of ten are questions.
    static func random(_ random: inout some RandomNumberGenerator) -> Use {
      switch Int.random(in: 0..<100, using: &random) {
      case ..<70: .readState
      case ..<85: .mark(member: Int.random(in: 0..<1_000, using: &random))
      default: .register
      }
    }
  }

  /// Asks one thing of one channel.
  ///
  /// - Returns: whether it was answered; a store that is busy is no error here.
  func use(_ channel: Int, _ use: Use) async throws -> Bool {
    let cid = Self.cid(channel)
    let answer: HTTPAnswer
    switch use {
    case .readState:
      answer = try await call(.get, "/v1/channels/\(cid)/read-state", nil)
    case .mark(let number):
      let member = number % members
      let user = Self.user(channel / Self.groupCount, member)
      let path = "/v1/channels/\(cid)/read?message_id=m\(Self.messages)&user_id=\(user)"
      answer = try await call(.post, path, nil)
      if answer.status == 200 {
        state.withLock { $0.watermarks[channel * members + member] = UInt8(Self.messages) }
      }
    case .register:
      let id = "z" + String(UInt64.random(in: .min ... .max), radix: 36)
      answer = try await call(.post, "/v1/channels/\(cid)/messages", Array(#"{"id":"\#(id)"}"#.utf8))
    }
    switch answer.status {
    case 200, 201: return true
    case 503: return false
    default: throw LoadError("\(cid): \(answer.status) \(answer.text.prefix(300))")
    }
  }

  // MARK: Reading back

  /// Reads channels drawn at random, and throws where one has less than was acknowledged.
  func check(_ count: Int) async throws -> Int {
    struct User: Decodable { var id: String }
    // The names are the API's own.
    // swift-format-ignore: AlwaysUseLowerCamelCase
    struct Row: Decodable {
      var user: User
      var last_read_seq: Int
    }
    struct Page: Decodable { var read: [Row] }
    let drawn = (0..<count).map { _ in Int.random(in: 0..<channels) }
    try await BenchStack.inParallel(count, atOnce: Self.creating) { [self] position in
      let channel = drawn[position]
      let path = "/v1/channels/\(Self.cid(channel))/read-state"
      let text = try await expect([200], .get, path, nil)
      let page = try JSONDecoder().decode(Page.self, from: Data(text.utf8))
      var rows: [String: Int] = [:]
      for row in page.read { rows[row.user.id] = row.last_read_seq }
      for member in 0..<members {
        let wanted = Int(state.withLock { $0.watermarks[channel * members + member] })
        let user = Self.user(channel / Self.groupCount, member)
        guard let have = rows[user], have >= wanted else {
          throw LoadError(
            "\(Self.cid(channel)): \(user) was acknowledged \(wanted), the store has \(rows[user] ?? -1)"
          )
        }
      }
    }
    return count
  }

  // MARK: Calls

  /// Any call here may be made twice. A gateway ends a connection on which nothing happens for three minutes, which a
  /// store of this size takes now and then.
  private func call(_ method: HTTP2Method, _ path: String, _ body: [UInt8]? = nil) async throws -> HTTPAnswer
  {
    let caller = state.withLock { $0.caller }
    do {
      return try await caller.call(method, path, body: body, token: token)
    } catch CallError.closed {
      let other = try await HTTP2Caller.connect(to: endpoint)
      state.withLock { $0.caller = other }
      return try await other.call(method, path, body: body, token: token)
    }
  }

  @discardableResult
  private func expect(
    _ statuses: Set<Int>,
    _ method: HTTP2Method,
    _ path: String,
    _ body: String?
  ) async throws -> String {
    let answer = try await call(method, path, body.map { Array($0.utf8) })
    guard statuses.contains(answer.status) else {
      throw LoadError("\(method.name) \(path) was answered \(answer.status): \(answer.text.prefix(300))")
    }
    return answer.text
  }
}
