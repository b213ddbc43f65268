internal import Foundation
internal import Histogram
internal import HTTP2Session
internal import IndexRebuild
internal import LocalStack
internal import Operations
internal import Synchronization

/// Marks in a thousand small channels by turns, one after the other on a connection of their own, while something that
/// goes over thousands of memberships is under way.
struct WideWork: Sendable {
  enum Kind: String, CaseIterable, Sendable {
    case nothing
    case badges = "badge counts of 100 users, again and again"
    case making = "200 channels of 1,000 members made at once"
    case rebuild = "the index rebuilt"
  }

  /// Marks beside nothing.
  private static let marks = 2_000
  /// Badge counts that are asked for, one after the other.
  private static let badgeQuestions = 50
  private static let channels = 200
  private static let members = 1_000
  /// Channels in which is marked, and messages of each.
  private static let markedChannels = 1_000
  private static let messages = 20

  private let stack: LocalStack
  private let files: StackFiles
  private let world: UserWorld
  /// For the work, and for the marks.
  private let worker: HTTP2Caller
  private let marker: HTTP2Caller
  private let token: String

  init(stack: LocalStack, files: StackFiles, world: UserWorld) async throws {
    self.stack = stack
    self.files = files
    self.world = world
    worker = try await HTTP2Caller.connect(to: stack.plan.gateways[0].listen)
    marker = try await HTTP2Caller.connect(to: stack.plan.gateways[0].listen)
    token = try await TokenMint(secretFile: files.jwtSecret).server(lifetime: .seconds(12 * 3600))
  }

  func close() async {
    await worker.close()
    await marker.close()
  }

  /// Does the work, and times marks until it is done.
  func measure(_ kind: Kind, isCold: Bool) async throws -> UserBench.Beside {
    let began = MonotonicClock.now
    return try await withThrowingTaskGroup(of: Int.self) { tasks in
      let isDone = Done()
      tasks.addTask {
        defer { isDone.note() }
        try await work(kind)
        return Int((MonotonicClock.now - began) / 1_000)
      }
      var histogram = Histogram<UInt32>(
        highestTrackableValue: 120_000_000,
        numberOfSignificantValueDigits: .three
      )
      var number = 0
      while kind == .nothing ? number < Self.marks : !isDone.isNoted {
        let began = MonotonicClock.now
        try await mark(kind, isCold, number)
        histogram.record((MonotonicClock.now - began) / 1_000)
        number += 1
      }
      return UserBench.Beside(
        work: kind.rawValue,
        isCold: isCold,
        workMicroseconds: try await tasks.next() ?? 0,
        count: Int(histogram.totalCount),
        p50Microseconds: Int(histogram.valueAtPercentile(50)),
        p99Microseconds: Int(histogram.valueAtPercentile(99)),
        maxMicroseconds: Int(histogram.max)
      )
    }
  }

  // MARK: The work

  private func work(_ kind: Kind) async throws {
    switch kind {
    case .nothing: break
    case .badges: for _ in 0..<Self.badgeQuestions { try await world.checkBadges() }
    case .making:
      let names = (0..<Self.members).map { "\"wide-\($0)\"" }.joined(separator: ",")
      let body = #"{"members":[\#(names)]}"#
      try await BenchStack.inParallel(Self.channels, atOnce: Self.channels) { [self] channel in
        try await expect(worker, .put, "/v1/channels/messaging:wide-\(channel)", body)
      }
    case .rebuild:
      let secrets = try SecretFile.load(files.frameSecret, key: "secret-file", warn: { _ in }).all
      _ = try await IndexRebuild(store: stack.plan.store, secrets: secrets).run { _ in }
    }
  }

  // MARK: Marks

  private static func cid(_ kind: Kind, _ isCold: Bool, _ channel: Int) -> String {
    "messaging:beside-\(kind)-\(isCold ? "cold" : "warm")-\(channel)"
  }

  /// Makes the channels for one measurement.
  func prepare(_ kind: Kind, isCold: Bool) async throws {
    try await BenchStack.inParallel(Self.markedChannels, atOnce: 128) { [self] channel in
      let path = "/v1/channels/\(Self.cid(kind, isCold, channel))"
      try await expect(marker, .put, path, #"{"members":["reader"]}"#)
    }
    for message in 0..<Self.messages {
      let entries = (0..<Self.markedChannels).map {
        #"{"cid":"\#(Self.cid(kind, isCold, $0))","id":"b\#($0)-\#(message)"}"#
      }
      let body = #"{"messages":[\#(entries.joined(separator: ","))]}"#
      try await expect(marker, .post, "/v1/messages", body)
    }
  }

  /// The channels by turns; every mark moves the reader by one message, until they have read everything.
  private func mark(_ kind: Kind, _ isCold: Bool, _ number: Int) async throws {
    let channel = number % Self.markedChannels
    let message = min(number / Self.markedChannels, Self.messages - 1)
    let path =
      "/v1/channels/\(Self.cid(kind, isCold, channel))/read?message_id=b\(channel)-\(message)&user_id=reader"
    try await expect(marker, .post, path, nil)
  }

  private func expect(_ caller: HTTP2Caller, _ method: HTTP2Method, _ path: String, _ body: String?)
    async throws
  {
    let answer = try await caller.call(method, path, body: body.map { Array($0.utf8) }, token: token)
    guard (200...201).contains(answer.status) else {
      throw LoadError("\(method.name) \(path) was answered \(answer.status): \(answer.text.prefix(300))")
    }
  }
}

/// Whether the work is over, for those who mark meanwhile.
private final class Done: Sendable {
  private let flag = Atomic(false)

  var isNoted: Bool { flag.load(ordering: .relaxed) }
  func note() { flag.store(true, ordering: .relaxed) }
}
