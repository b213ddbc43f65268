internal import Foundation
internal import HTTP2Session
internal import LocalStack
internal import Synchronization

/// The channels of a ``UserBench``: the first ten are those of the first user, the first thousand those of the second,
/// and so on. In each is one of a hundred other users too, by turns, for badge counts.
final class UserWorld: Sendable {
  static let badgeUsers = 100
  private static let inFlight = 128
  /// Messages that one call registers.
  private static let messagesPerCall = 1_000
  /// Messages in each channel from the beginning.
  private static let messages = 5

  let channels: Int
  private let sizes: [Int]
  private let stack: LocalStack
  private let caller: HTTP2Caller
  private let server: String
  /// By how many channels they are in.
  private let tokens: [Int: String]
  private let state: Mutex<State>

  /// What is known to be so.
  private struct State: Sendable {
    /// How many messages each channel has.
    var posted: [Int]
    /// How many of the first channels' messages each user has read, by how many channels they are in.
    var read: [Int: [Int]] = [:]
  }

  init(stack: LocalStack, secretFile: String, sizes: [Int]) async throws {
    let mint = try await TokenMint(secretFile: secretFile)
    let lifetime = Duration.seconds(12 * 3600)
    self.stack = stack
    self.sizes = sizes
    channels = max(sizes.max() ?? 0, Self.badgeUsers)
    caller = try await HTTP2Caller.connect(to: stack.plan.gateways[0].listen)
    server = try await mint.server(lifetime: lifetime)
    var tokens: [Int: String] = [:]
    var state = State(posted: Array(repeating: 0, count: channels))
    for size in sizes {
      tokens[size] = try await mint.user(Self.user(size), lifetime: lifetime)
      state.read[size] = Array(repeating: 0, count: size)
    }
    self.tokens = tokens
    self.state = Mutex(state)
  }

  private static func user(_ size: Int) -> String { "in-\(size)" }
  private static func badgeUser(_ number: Int) -> String { "badge-\(number)" }
  private static func cid(_ channel: Int) -> String { "messaging:of-users-\(channel)" }

  func close() async { await caller.close() }

  /// Channels that came into memory since the store started.
  var loads: Int {
    get async { Int(await BenchStack.storeMetric("tidemark_store_channels_loaded_total", stack) ?? 0) }
  }

  // MARK: Making

  func create(_ note: @escaping @Sendable (String) -> Void) async throws {
    let count = channels
    try await BenchStack.inParallel(count, atOnce: Self.inFlight) { [self] channel in
      if channel % 500 == 0 { note("\(Figures.count(channel)) of \(Figures.count(count)) channels made") }
      let users =
        sizes.filter { channel < $0 }.map(Self.user) + [Self.badgeUser(channel % Self.badgeUsers)]
      let names = users.map { "\"\($0)\"" }.joined(separator: ",")
      try await expect(.put, "/v1/channels/\(Self.cid(channel))", #"{"members":[\#(names)]}"#, token: server)
    }
    for _ in 0..<Self.messages { try await postEverywhere(note) }
  }

  /// Another message in every channel.
  func postEverywhere(_ note: @Sendable (String) -> Void) async throws {
    note("registering a message in each channel")
    try await post(toFirst: channels)
  }

  /// Another message in each of the first channels.
  func post(toFirst count: Int) async throws {
    for first in stride(from: 0, to: count, by: Self.messagesPerCall) {
      let range = first..<min(count, first + Self.messagesPerCall)
      let numbers = state.withLock { state in
        for channel in range { state.posted[channel] += 1 }
        return state.posted
      }
      let entries = range.map { #"{"cid":"\#(Self.cid($0))","id":"m\#($0)-\#(numbers[$0])"}"# }
      let body = #"{"messages":[\#(entries.joined(separator: ","))]}"#
      let text = try await expect(.post, "/v1/messages", body, token: server)
      guard !text.contains(#""code""#) else { throw LoadError("messages were refused: \(text.prefix(300))") }
    }
  }

  // MARK: Questions

  // The names are the API's own.
  // swift-format-ignore: AlwaysUseLowerCamelCase
  private struct Totals: Decodable, Equatable {
    var total_unread_count: Int
    var unread_channels: Int
    var unread_threads: Int
  }
  // swift-format-ignore: AlwaysUseLowerCamelCase
  private struct Badge: Decodable {
    var user_id: String
    var total_unread_count: Int?
    var unread_channels: Int?
  }
  private struct Badges: Decodable { var users: [Badge] }
  // swift-format-ignore: AlwaysUseLowerCamelCase
  private struct Marked: Decodable {
    var channels_read: Int
    var failed: [String]
  }

  /// Asks for the totals of the user who is in so many channels.
  func checkTotals(_ size: Int) async throws {
    let text = try await expect(.get, "/v1/users/\(Self.user(size))/unread?limit=1", nil, token: server)
    let found = try JSONDecoder().decode(Totals.self, from: Data(text.utf8))
    let unread = state.withLock { state in
      (0..<size).map { state.posted[$0] - (state.read[size]?[$0] ?? 0) }
    }
    let expected = Totals(
      total_unread_count: unread.reduce(0, +),
      unread_channels: unread.count { $0 > 0 },
      unread_threads: 0
    )
    guard found == expected else { throw LoadError("totals: \(found), not \(expected)") }
  }

  /// Asks for the badge counts of a hundred users, each in a hundredth of the channels.
  func checkBadges() async throws {
    let names = (0..<Self.badgeUsers).map { "\"\(Self.badgeUser($0))\"" }.joined(separator: ",")
    let text = try await expect(.post, "/v1/unread", #"{"user_ids":[\#(names)]}"#, token: server)
    let found = try JSONDecoder().decode(Badges.self, from: Data(text.utf8))
    var expected = Array(repeating: (messages: 0, channels: 0), count: Self.badgeUsers)
    state.withLock { state in
      for (channel, count) in state.posted.enumerated() {
        expected[channel % Self.badgeUsers].messages += count
        expected[channel % Self.badgeUsers].channels += 1
      }
    }
    let isRight =
      found.users.count == Self.badgeUsers
      && zip(found.users, expected).enumerated().allSatisfy { place, pair in
        pair.0.user_id == Self.badgeUser(place) && pair.0.total_unread_count == pair.1.messages
          && pair.0.unread_channels == pair.1.channels
      }
    guard isRight else { throw LoadError("badge counts are wrong: \(text.prefix(300))") }
  }

  /// The user who is in so many channels marks all of them read.
  func markAll(_ size: Int) async throws {
    let text = try await expect(.post, "/v1/channels/read", #"{"all":true}"#, token: tokens[size] ?? server)
    let found = try JSONDecoder().decode(Marked.self, from: Data(text.utf8))
    guard found.channels_read == size, found.failed.isEmpty else {
      throw LoadError("of \(size) channels \(found.channels_read) were marked: \(text.prefix(300))")
    }
    state.withLock { state in
      for channel in 0..<size { state.read[size]?[channel] = state.posted[channel] }
    }
  }

  @discardableResult
  private func expect(_ method: HTTP2Method, _ path: String, _ body: String?, token: String) async throws
    -> String
  {
    let answer = try await caller.call(method, path, body: body.map { Array($0.utf8) }, token: token)
    guard (200...201).contains(answer.status) else {
      throw LoadError("\(method.name) \(path) was answered \(answer.status): \(answer.text.prefix(300))")
    }
    return answer.text
  }
}
