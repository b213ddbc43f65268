internal import CommandOutput
internal import GatewayClient
internal import HTTP2Session
internal import Operations
internal import Synchronization

/// Channels of a ``RecoveryBench`` or ``MemoryBench``, and the acknowledged marks in them. A thousand channels form a
/// group and have the same members, so that one request marks all of them for a user.
final class RecoveryDataset: Sendable {
  private static let groupSize = 1_000
  /// Messages of each channel: the number of marks that each member can make.
  private static let messages = 3
  /// Requests in flight while channels are made, and while they are marked.
  private static let creating = 128
  private static let marking = 8

  private struct State {
    /// Last acknowledged message by channel and member.
    var watermarks: [UInt8]
    /// Next mark: every group for the first member, then for the second; then again with the next message.
    var next = 0
    /// Acknowledged marks since ``takeMarkCount()``.
    var marks = 0
    var isStopped = false
  }

  private let channels: Int
  private let members: Int
  private let client: BenchClient
  private let note: ProgressHandler
  private let state: Mutex<State>

  init(_ services: BenchServices, channels: Int, members: Int) {
    self.channels = channels
    self.members = members
    client = services.client
    note = services.note
    state = Mutex(State(watermarks: Array(repeating: 0, count: channels * members)))
  }

  private static func cid(_ channel: Int) -> String { "messaging:r\(channel)" }
  private static func user(_ group: Int, _ member: Int) -> String { "user-\(group)-\(member)" }
  private var groups: Int { (channels + Self.groupSize - 1) / Self.groupSize }
  private func channels(of group: Int) -> Range<Int> {
    group * Self.groupSize..<min(channels, (group + 1) * Self.groupSize)
  }

  // MARK: Set-up

  /// Create the channels, register their messages, and mark the first message read for the first member of each.
  func create() async throws {
    try await inParallel(channels, atOnce: Self.creating, progress: (note, "channels made")) {
      [self] channel in
      let group = channel / Self.groupSize
      try await client.putChannel(Self.cid(channel), members: (0..<members).map { Self.user(group, $0) })
    }
    for message in 1...Self.messages {
      try await inParallel(groups, atOnce: Self.marking) { [self] group in
        let registered = Figures.count(group * Self.groupSize)
        note("message \(message): \(registered) of \(Figures.count(channels)) registered")
        try await client.register(channels(of: group)) { (Self.cid($0), "m\(message)") }
      }
    }
    try await inParallel(groups, atOnce: Self.marking) { [self] _ in
      guard let mark = nextMark() else { return }
      guard try await make(mark) else { throw LoadError("the first marks were refused") }
    }
    _ = takeMarkCount()
  }

  // MARK: Marks

  private struct Mark {
    var group: Int
    var member: Int
    var message: Int
  }

  private func nextMark() -> Mark? {
    state.withLock { state in
      let (number, group) = state.next.quotientAndRemainder(dividingBy: groups)
      let (message, member) = number.quotientAndRemainder(dividingBy: members)
      guard message < Self.messages, !state.isStopped else { return nil }
      state.next += 1
      return Mark(group: group, member: member, message: message + 1)
    }
  }

  /// Mark a message read in every channel of a group, in one request.
  ///
  /// - Returns: whether it was acknowledged; an unavailable store is no error.
  private func make(_ mark: Mark) async throws -> Bool {
    let channels = channels(of: mark.group)
    let messages = channels.lazy.map { (cid: Self.cid($0), id: "m\(mark.message)") }
    guard try await client.markRead(Self.user(mark.group, mark.member), messages) else { return false }
    state.withLock { state in
      for channel in channels {
        state.watermarks[channel * members + mark.member] = UInt8(mark.message)
        state.marks += 1
      }
    }
    return true
  }

  /// Make marks until ``stopLoad()``, or until there are no more messages.
  func load() async throws {
    state.withLock { $0.isStopped = false }
    try await inParallel(Self.marking, atOnce: Self.marking) { [self] _ in
      while let mark = nextMark() {
        _ = try await make(mark)
        note("\(Figures.count(state.withLock { $0.marks })) marks acknowledged")
      }
    }
  }

  func stopLoad() { state.withLock { $0.isStopped = true } }

  /// Return the number of acknowledged marks since the last call.
  func takeMarkCount() -> Int {
    state.withLock { state in
      defer { state.marks = 0 }
      return state.marks
    }
  }

  /// Repeat one mark of one channel until it is acknowledged.
  func markUntilAnswered() async throws {
    let channel = Int.random(in: 0..<channels)
    let message = max(1, state.withLock { $0.watermarks[channel * members] })
    let path = markPath(channel, member: 0, message: Int(message))
    while true {
      let response = try? await client.call(.post, path)
      if response?.status == 200 { return acknowledge(channel, member: 0, message: message) }
      if let response, response.status != 503 {
        throw LoadError("\(path): \(response.status) \(response.text.prefix(300))")
      }
      try await Task.sleep(for: .milliseconds(5))
    }
  }

  private func markPath(_ channel: Int, member: Int, message: Int) -> String {
    let user = Self.user(channel / Self.groupSize, member)
    return "/v1/channels/\(Self.cid(channel))/read?message_id=m\(message)&user_id=\(user)"
  }

  private func acknowledge(_ channel: Int, member: Int, message: UInt8) {
    let index = channel * members + member
    state.withLock { $0.watermarks[index] = max($0.watermarks[index], message) }
  }

  // MARK: Random use

  /// Make a random request about a channel: 70 % read states, 15 % marks, 15 % new messages.
  ///
  /// - Returns: false if the store was busy.
  func use(_ channel: Int, _ random: inout some RandomNumberGenerator) async throws -> Bool {
    let path = "/v1/channels/\(Self.cid(channel))"
    let response: HTTPCallResponse
    switch Int.random(in: 0..<100, using: &random) {
    case ..<70: response = try await client.call(.get, path + "/read-state")
    case ..<85:
      let member = Int.random(in: 0..<members, using: &random)
      response = try await client.call(.post, markPath(channel, member: member, message: Self.messages))
      if response.status == 200 { acknowledge(channel, member: member, message: UInt8(Self.messages)) }
    default:
      let id = "z" + String(UInt64.random(in: .min ... .max, using: &random), radix: 36)
      response = try await client.call(.post, path + "/messages", #"{"id":"\#(id)"}"#)
    }
    switch response.status {
    case 200, 201: return true
    case 503: return false
    default: throw LoadError("\(path): \(response.status) \(response.text.prefix(300))")
    }
  }

  // MARK: Reading back

  /// Read random channels and compare them with the acknowledged marks.
  func check(_ count: Int) async throws -> Int {
    try await inParallel(count, atOnce: Self.creating) { [self] _ in
      let channel = Int.random(in: 0..<channels)
      let page: ReadStateResponse = try await client.get("/v1/channels/\(Self.cid(channel))/read-state")
      let rows = Dictionary(page.read.map { ($0.user.id, $0.last_read_seq) }) { first, _ in first }
      for member in 0..<members {
        let acknowledged = Int(state.withLock { $0.watermarks[channel * members + member] })
        let user = Self.user(channel / Self.groupSize, member)
        guard let found = rows[user], found >= acknowledged else {
          throw LoadError(
            "\(Self.cid(channel)): the store has \(rows[user] ?? -1) for \(user), acknowledged was \(acknowledged)"
          )
        }
      }
    }
    return count
  }
}
