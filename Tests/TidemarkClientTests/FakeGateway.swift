import Foundation

@testable import TidemarkClient

struct Unexpected: Error {}

/// A gateway in memory for one user: it knows what its client asks for, and no rules.
///
/// `@unchecked`: every access to the variables is under the lock.
final class FakeGateway: Transport, @unchecked Sendable {
  /// An answer other than the usual one; nil: the usual one.
  typealias Override = @Sendable (TransportRequest) async throws -> (status: Int, body: String)?

  private let lock = NSLock()
  private var requests: [TransportRequest] = []
  private var streams: [AsyncThrowingStream<Data, any Error>.Continuation] = []
  private var override: Override?
  private var resetCount = 0
  private var providedTokens = 0
  private var isOpening = true

  /// A client of this gateway.
  func client(
    user: String = "alice",
    store: any Store = MemoryStore(),
    timing: Tidemark.Timing = Tidemark.Timing(),
    interval: Duration = .milliseconds(20)
  ) -> Tidemark {
    Tidemark(
      user: user,
      store: store,
      transport: self,
      interval: interval,
      timing: timing,
      random: { 0 },
      tokenProvider: { [weak self] in self?.provideToken() ?? "" }
    )
  }

  private func provideToken() -> String {
    lock.withLock {
      providedTokens += 1
      return "token \(providedTokens)"
    }
  }

  /// Answer some requests in another way from now on.
  func answer(_ override: @escaping Override) { lock.withLock { self.override = override } }

  /// Number of tokens that the client has asked for.
  var tokens: Int { lock.withLock { providedTokens } }
  /// Number of times that the client has dropped its connections.
  var resets: Int { lock.withLock { resetCount } }
  /// The requests, as method and path.
  var log: [String] { lock.withLock { requests.map { "\($0.method) \($0.path)" } } }
  /// The headers of the requests to a path.
  func headers(_ path: String) -> [[String: String]] {
    lock.withLock { requests.filter { $0.path == path }.map(\.headers) }
  }
  /// The bodies of the requests to a path.
  func bodies(_ path: String) -> [[String: Any]] {
    lock.withLock { requests }.filter { $0.path == path }.compactMap(\.body).compactMap {
      try? JSONSerialization.jsonObject(with: $0) as? [String: Any]
    }
  }
  /// The marks that were sent, with their messages.
  var marks: [String] {
    lock.withLock { requests }.filter { $0.method == "POST" && $0.path != "/v1/read-state" }.map { request in
      let body = request.body.flatMap { try? JSONSerialization.jsonObject(with: $0) } as? [String: Any]
      return "\(request.method) \(request.path) \(body?["message_id"] as? String ?? "")"
    }
  }

  /// Send bytes to the event streams.
  func send(_ text: String) { lock.withLock { streams }.forEach { $0.yield(Data(text.utf8)) } }

  /// Send an event to the event streams.
  func send(event: String, id: String) { send("id: \(id)\ndata: \(event)\n\n") }

  /// Whether new streams are silent from the start.
  func silenceStreams() { lock.withLock { isOpening = false } }

  func open(_ request: TransportRequest) async throws -> TransportResponse {
    let override = lock.withLock {
      requests.append(request)
      return self.override
    }
    if let (status, body) = try await override?(request) { return Self.response(status, body) }
    let path = request.path
    if path.hasPrefix("/v1/events") { return openStream() }
    if path.hasSuffix("/unread?limit=1") {
      return Self.response(
        200,
        #"{"total_unread_count":0,"unread_channels":0,"unread_threads":0,"unread_mentions":0}"#
      )
    }
    if path.contains("/read-state") {
      let rows = ["alice", "bob"].map {
        #"{"user":{"id":"\#($0)"},"joined_seq":0,"last_read_seq":1,"last_delivered_seq":1,"unread_messages":0}"#
      }
      return Self.response(200, #"{"read":[\#(rows.joined(separator: ","))]}"#)
    }
    if path.hasSuffix("/receipts/query") {
      return Self.response(200, #"{"statuses":[{"message_id":"m2","seq":2,"status":"sent"}]}"#)
    }
    if path.hasSuffix("/read") || path.hasSuffix("/unread") {
      let row = #"{"user":{"id":"alice"},"joined_seq":0,"last_read_seq":9,"last_delivered_seq":9,"unread_epoch":8}"#
      return Self.response(200, #"{"read":\#(row)}"#)
    }
    return Self.response(200, "{}")
  }

  private func openStream() -> TransportResponse {
    let (chunks, body) = AsyncThrowingStream<Data, any Error>.makeStream()
    lock.withLock {
      streams.append(body)
      if isOpening { body.yield(Data(":\nid: start\n\n".utf8)) }
    }
    return TransportResponse(status: 200, headers: [:], chunks: chunks)
  }

  private static func response(_ status: Int, _ text: String) -> TransportResponse {
    let (chunks, body) = AsyncThrowingStream<Data, any Error>.makeStream()
    body.yield(Data(text.utf8))
    body.finish()
    return TransportResponse(status: status, headers: [:], chunks: chunks)
  }

  /// End the streams with an error.
  func cut() {
    let ended = lock.withLock {
      defer { streams = [] }
      return streams
    }
    for stream in ended { stream.finish(throwing: URLError(.networkConnectionLost)) }
  }

  func reset() {
    lock.withLock { resetCount += 1 }
    cut()
  }

  func close() { cut() }
}
