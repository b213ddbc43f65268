internal import CommandOutput
internal import HTTP2Session
internal import LocalStack
internal import Synchronization

/// Channels of a ``UserBench`` and the expected unread counts. One user is in the first ten channels, one in the first
/// thousand, and so on. Each channel also has one of a hundred users for badge counts.
final class UserDataset: Sendable {
  static let badgeUsers = 100
  private static let inFlight = 128
  /// Messages of each channel before the measurements.
  private static let messages = 5

  let channels: Int
  let sizes: [Int]
  private let stack: LocalStack
  private let client: BenchClient
  let note: ProgressHandler
  /// Tokens by the number of the user's channels.
  private let tokens: [Int: String]
  private let state: Mutex<State>

  private struct State: Sendable {
    /// Number of messages by channel.
    var posted: [Int]
    /// Number of messages that a user has read, by the number of the user's channels and by channel.
    var read: [Int: [Int]] = [:]
  }

  init(_ services: BenchServices, sizes: [Int]) async throws {
    stack = services.stack
    client = services.client
    note = services.note
    self.sizes = sizes
    channels = max(sizes.max() ?? 0, Self.badgeUsers)
    var tokens: [Int: String] = [:]
    var state = State(posted: Array(repeating: 0, count: channels))
    for size in sizes {
      tokens[size] = try await services.token(Self.user(size))
      state.read[size] = Array(repeating: 0, count: size)
    }
    self.tokens = tokens
    self.state = Mutex(state)
  }

  private static func user(_ size: Int) -> String { "in-\(size)" }
  private static func badgeUser(_ number: Int) -> String { "badge-\(number)" }
  private static func cid(_ channel: Int) -> String { "messaging:of-users-\(channel)" }

  /// Channels that the store has loaded since its start.
  var loads: Int {
    get async { Int(await stack.storeMetric("tidemark_store_channels_loaded_total") ?? 0) }
  }

  // MARK: Set-up

  func create() async throws {
    try await inParallel(channels, atOnce: Self.inFlight, progress: (note, "channels made")) {
      [self] channel in
      let users = sizes.filter { channel < $0 }.map(Self.user) + [Self.badgeUser(channel % Self.badgeUsers)]
      try await client.putChannel(Self.cid(channel), members: users)
    }
    for _ in 0..<Self.messages { try await postEverywhere() }
  }

  /// Register another message in every channel.
  func postEverywhere() async throws {
    note("registering a message in each channel")
    try await post(toFirst: channels)
  }

  /// Register another message in each of the first channels.
  func post(toFirst count: Int) async throws {
    let numbers = state.withLock { state in
      for channel in 0..<count { state.posted[channel] += 1 }
      return state.posted
    }
    try await client.register(0..<count) { (Self.cid($0), "m\($0)-\(numbers[$0])") }
  }

  // MARK: Questions

  /// Request the totals of the user with this number of channels.
  func checkTotals(_ size: Int) async throws {
    let found: TotalsResponse = try await client.get("/v1/users/\(Self.user(size))/unread?limit=1")
    let unread = state.withLock { state in
      (0..<size).map { state.posted[$0] - (state.read[size]?[$0] ?? 0) }
    }
    let expected = TotalsResponse(
      total_unread_count: unread.reduce(0, +),
      unread_channels: unread.count { $0 > 0 },
      unread_threads: 0
    )
    guard found == expected else { throw LoadError("totals: \(found), expected \(expected)") }
  }

  /// Request the badge counts of a hundred users, each in a hundredth of the channels.
  func checkBadges() async throws {
    let users = (0..<Self.badgeUsers).map(Self.badgeUser)
    let found: BadgesResponse = try await client.decode(
      .post,
      "/v1/unread",
      #"{"user_ids":\#(BenchClient.array(users))}"#
    )
    var expected = Array(repeating: (messages: 0, channels: 0), count: Self.badgeUsers)
    state.withLock { state in
      for (channel, count) in state.posted.enumerated() {
        expected[channel % Self.badgeUsers].messages += count
        expected[channel % Self.badgeUsers].channels += 1
      }
    }
    let isRight =
      found.users.map(\.user_id) == users
      && zip(found.users, expected).allSatisfy { badge, expected in
        badge.total_unread_count == expected.messages && badge.unread_channels == expected.channels
      }
    guard isRight else { throw LoadError("wrong badge counts: \(found)") }
  }

  /// Mark all channels of the user with this number of channels read.
  func markAll(_ size: Int) async throws {
    let found: MarkAllResponse = try await client.decode(
      .post,
      "/v1/channels/read",
      #"{"all":true}"#,
      token: tokens[size]
    )
    guard found.channels_read == size, found.failed.isEmpty else {
      throw LoadError("of \(size) channels \(found.channels_read) were marked read: \(found.failed)")
    }
    state.withLock { state in
      for channel in 0..<size { state.read[size]?[channel] = state.posted[channel] }
    }
  }
}
