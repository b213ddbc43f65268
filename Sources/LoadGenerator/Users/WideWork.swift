internal import HTTP2Session
internal import IndexRebuild
internal import LocalStack
internal import Operations
internal import Synchronization

/// Marks in a thousand small channels in turn, one at a time on a connection of their own, during work that covers
/// thousands of memberships.
struct WideWork: Sendable {
  enum Kind: String, CaseIterable, Sendable {
    case nothing
    case badges = "badge counts of 100 users, again and again"
    case making = "200 channels of 1,000 members made at once"
    case rebuild = "the index rebuilt"

    /// Kinds that are measured with all channels in memory, or on storage, where new channels cannot be.
    static func measured(isCold: Bool) -> [Kind] { isCold ? allCases.filter { $0 != .making } : allCases }
  }

  /// Number of marks without other work.
  private static let marks = 2_000
  /// Number of badge count requests, one after the other.
  private static let badgeQuestions = 50
  private static let channels = 200
  private static let members = 1_000
  /// Channels in which marks are made, and messages of each.
  private static let markedChannels = 1_000
  private static let messages = 20

  let services: BenchServices
  let dataset: UserDataset

  /// Do the work of each kind, and time marks until it is done.
  func measure(isCold: Bool) async throws -> [Timed<UserBench.Beside>] {
    let gateway = services.stack.plan.gateways[0].listen
    return try await BenchClient.with(gateway, tokenIssuer: services.tokenIssuer) { marker in
      var besides: [Timed<UserBench.Beside>] = []
      for kind in Kind.measured(isCold: isCold) {
        services.note("timing: marks beside \(kind.rawValue)")
        besides.append(try await measure(kind, isCold: isCold, marker))
      }
      return besides
    }
  }

  private func measure(_ kind: Kind, isCold: Bool, _ marker: BenchClient) async throws -> Timed<UserBench.Beside> {
    let start = MonotonicClock.now
    return try await withThrowingTaskGroup(of: Int.self) { tasks in
      let isDone = Flag()
      tasks.addTask {
        defer { isDone.set() }
        try await work(kind)
        return Int((MonotonicClock.now - start) / 1_000)
      }
      var latencies = Latencies()
      var number = 0
      while kind == .nothing ? number < Self.marks : !isDone.isSet {
        let start = MonotonicClock.now
        try await mark(kind, isCold: isCold, number, marker)
        latencies.record(since: start)
        number += 1
      }
      let workMicroseconds = try await tasks.next() ?? 0
      return Timed(
        .init(work: kind.rawValue, isCold: isCold, workMicroseconds: workMicroseconds, count: latencies.count),
        latencies
      )
    }
  }

  private func work(_ kind: Kind) async throws {
    switch kind {
    case .nothing: break
    case .badges: for _ in 0..<Self.badgeQuestions { try await dataset.checkBadges() }
    case .making:
      let members = (0..<Self.members).map { "wide-\($0)" }
      try await inParallel(Self.channels, atOnce: Self.channels) { [self] channel in
        try await services.client.putChannel("messaging:wide-\(channel)", members: members)
      }
    case .rebuild:
      let secrets = try SecretFile.load(services.stack.files.frameSecret, key: "secret-file", warn: { _ in }).all
      _ = try await IndexRebuild(store: services.stack.plan.store, secrets: secrets).run { _ in }
    }
  }

  // MARK: Marks

  private static func cid(_ kind: Kind, isCold: Bool, _ channel: Int) -> String {
    "messaging:beside-\(kind)-\(isCold ? "cold" : "warm")-\(channel)"
  }

  /// Create the channels of one measurement.
  func prepare(_ kind: Kind, isCold: Bool) async throws {
    try await inParallel(Self.markedChannels, atOnce: 128) { [self] channel in
      try await services.client.putChannel(Self.cid(kind, isCold: isCold, channel), members: ["reader"])
    }
    try await services.client.register(0..<Self.messages * Self.markedChannels) { number in
      let (message, channel) = number.quotientAndRemainder(dividingBy: Self.markedChannels)
      return (Self.cid(kind, isCold: isCold, channel), "b\(channel)-\(message)")
    }
  }

  /// Move the reader by one message in the next channel, as long as there are messages.
  private func mark(_ kind: Kind, isCold: Bool, _ number: Int, _ marker: BenchClient) async throws {
    let channel = number % Self.markedChannels
    let message = min(number / Self.markedChannels, Self.messages - 1)
    let path = "/v1/channels/\(Self.cid(kind, isCold: isCold, channel))/read"
    try await marker.expect(.post, path + "?message_id=b\(channel)-\(message)&user_id=reader")
  }
}

/// Flag that one task sets and another reads.
private final class Flag: Sendable {
  private let flag = Atomic(false)

  var isSet: Bool { flag.load(ordering: .relaxed) }
  func set() { flag.store(true, ordering: .relaxed) }
}
