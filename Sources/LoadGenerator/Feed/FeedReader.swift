internal import CommandOutput
internal import HTTP2Session
internal import Synchronization
internal import Transfer

/// Consumer that reads the whole change feed from its beginning, all shards through one stream.
struct FeedReader: Sendable {
  /// Flags of a store that keeps the feed of a whole run.
  static let storeFlags = ["--feed-retention", "24h"]

  /// What a consumer was sent.
  struct Outcome: Sendable {
    /// Records of all types.
    var records: Int
    /// Records of the expected type.
    var expected: Int
    var byteCount: Int
    /// Time from the request until the last record had arrived.
    var seconds: Double
  }

  let services: BenchServices

  /// Read until a heartbeat tells that there are no more records, about ten seconds after the last one.
  ///
  /// - Parameters:
  ///   - consumer: name of a consumer that does not exist yet.
  ///   - filter: member of the consumer's body that selects records, behind a comma; empty for all.
  ///   - expected: a type, and the least number of its records: an earlier heartbeat does not end the stream.
  ///   - limit: timeout in seconds.
  func read(
    _ consumer: String,
    filter: String = "",
    until expected: (type: String, count: Int),
    within limit: Int
  ) async throws -> Outcome {
    let path = "/v1/feed/consumers/\(consumer)"
    try await services.client.expect(.put, path, #"{"from":"earliest"\#(filter)}"#)
    let call = StreamedCall(
      gateway: try services.gatewayURL,
      tls: nil,
      method: .get,
      path: "/v1/feed?consumer=\(consumer)&partition=0/1",
      token: services.client.token
    )
    let progress = FeedProgress(expected, services.note)
    let start = MonotonicClock.now
    let what = "\(Figures.count(expected.count)) records of type \(expected.type) and a heartbeat"
    try await withTimeLimit(seconds: limit, waitingFor: what) {
      do {
        try await call.run {
          nil
        } receive: {
          try progress.receive($0)
        }
      } catch is CaughtUp {
        return
      }
      throw LoadError("the gateway has ended the feed's stream")
    }
    return progress.outcome(since: start)
  }
}

/// Thrown to end a stream that has no more records.
private struct CaughtUp: Error {}

/// Lines of a ``FeedReader``'s stream so far.
private final class FeedProgress: Sendable {
  private static let noteInterval = 100_000

  private struct State {
    var lines = FeedLineCounts()
    var byteCount = 0
    var lastRecordAt: UInt64 = 0
    var notedRecords = 0
  }

  private let state = Mutex(State())
  private let expectedType: String
  private let expectedCount: Int
  private let note: ProgressHandler

  init(_ expected: (type: String, count: Int), _ note: @escaping ProgressHandler) {
    expectedType = expected.type
    expectedCount = expected.count
    self.note = note
  }

  func receive(_ bytes: RawSpan) throws {
    try state.withLock { state in
      let (records, heartbeats) = (state.lines.records, state.lines.heartbeats)
      try bytes.withUnsafeBytes { try state.lines.read($0) }
      state.byteCount += bytes.byteCount
      if state.lines.records > records { state.lastRecordAt = MonotonicClock.now }
      if state.lines.records - state.notedRecords >= Self.noteInterval {
        state.notedRecords = state.lines.records
        note("\(Figures.count(state.lines.records)) records read")
      }
      if state.lines.heartbeats > heartbeats, state.lines.count(of: expectedType) >= expectedCount { throw CaughtUp() }
    }
  }

  func outcome(since start: UInt64) -> FeedReader.Outcome {
    state.withLock { state in
      FeedReader.Outcome(
        records: state.lines.records,
        expected: state.lines.count(of: expectedType),
        byteCount: state.byteCount,
        seconds: Double(max(state.lastRecordAt, start) - start) / 1e9
      )
    }
  }
}
