import GatewayClient
import HTTP2Session
import NIOCore
import NIOPosix
import Operations
import Synchronization
import TestPrograms
import TestSupport
import Testing

@testable import Watch

/// A watch against a fake gateway.
@Suite struct EventWatchTests {
  /// Run a watch to its end, and return its results.
  private func watch(
    _ responses: [FakeEvents.Response],
    request: WatchRequest = WatchRequest(user: "bob"),
    since: String = "",
    count: Int?,
    silenceMax: Duration = .seconds(60)
  ) async throws -> (events: [String], notes: [String], error: String, requests: [FakeEvents.Request]) {
    try await FakeEvents.run(responses) { endpoint, requests in
      let seen = Mutex((events: [String](), notes: [String](), tokens: 0))
      var watch = EventWatch(gateway: try #require(GatewayURL("http://\(endpoint)")), tls: nil, request: request) {
        seen.withLock {
          $0.tokens += 1
          return "token-\($0.tokens)"
        }
      }
      watch.countMax = count
      watch.silenceMax = silenceMax
      var error = ""
      do {
        try await watch.run(since: since) { event in
          seen.withLock { $0.events.append("\(event.type) \(event.data)") }
        } note: { line in
          seen.withLock { $0.notes.append(line) }
        }
      } catch let failure {
        error = "\(failure)"
      }
      return (seen.withLock { $0.events }, seen.withLock { $0.notes }, error, try await requests())
    }
  }

  @Test func eventsAreDeliveredUnchanged() async throws {
    let (events, notes, error, requests) = try await watch(
      [.stream([":\n\n", "id: s-1\nevent: message.read\ndata: {\"a\":1}\n\nda", "ta: 2\n\n"], thenEnds: false)],
      request: WatchRequest(user: "bob", channels: ["messaging:team"], wantsTotals: true),
      count: 2
    )
    #expect(events == ["message.read {\"a\":1}", "message 2"])
    #expect(notes == ["the last event's id is s-1"])
    #expect(error.isEmpty)
    #expect(
      requests == [
        FakeEvents.Request(
          path: "/v1/events?user_id=bob&channels=messaging:team&totals=true",
          authorization: "Bearer token-1",
          lastEventID: ""
        )
      ]
    )
  }

  /// However a stream ends, the next one resumes from the last id, even if that id came without an event.
  @Test func reconnectResumesFromLastID() async throws {
    let (events, notes, error, requests) = try await watch(
      [
        .stream(["retry: 1\nid: s-1\ndata: 1\n\n", ":\nid: s-2\n\n", "id: s-3\ndata: half"], thenEnds: true),
        .broken, .stream(["id: s-4\ndata: 2\n\n"], thenEnds: true),
        .problem(503, #"{"code":"unavailable","detail":"soon"}"#, retryAfter: "0"),
        .stream(["data: 3\n\ndata: 4\n\n"], thenEnds: false),
      ],
      since: "s-0",
      count: 3
    )
    #expect(events == ["message 1", "message 2", "message 3"])
    #expect(requests.map(\.lastEventID) == ["s-0", "s-2", "s-2", "s-4", "s-4"])
    #expect(requests.map(\.authorization) == (1...5).map { "Bearer token-\($0)" })
    #expect(error.isEmpty)
    #expect(
      notes == [
        "the gateway ended the stream; reconnecting in 0 s, from s-2 on",
        "the stream was reset with HTTP/2 error code 2; reconnecting in 0 s, from s-2 on",
        "the gateway ended the stream; reconnecting in 0 s, from s-4 on",
        "the gateway answered 503 unavailable soon; reconnecting in 0 s, from s-4 on", "the last event's id is s-4",
      ]
    )
  }

  @Test func refusalsAreReported() async throws {
    for (response, says) in [
      (
        FakeEvents.Response.problem(403, #"{"code":"not_a_member"}"#, retryAfter: ""),
        "the gateway answered 403 not_a_member"
      ), (.problem(404, "no document", retryAfter: ""), "the gateway answered 404"),
      (.problem(200, "{}", retryAfter: ""), "the response is not an event stream"),
    ] {
      let (events, notes, error, requests) = try await watch([response], count: 1)
      #expect(error == says)
      #expect(events.isEmpty && notes.isEmpty && requests.count == 1)
    }
  }

  /// A connection without any data is closed after a timeout.
  @Test func silentConnectionTimesOut() async throws {
    let (events, notes, _, requests) = try await watch(
      [.stream(["retry: 1\nid: s-1\n\n"], thenEnds: false), .stream(["data: 1\n\n"], thenEnds: false)],
      count: 1,
      silenceMax: .seconds(2)
    )
    #expect(events == ["message 1"])
    #expect(notes.first == "timed out without events or comments; reconnecting in 0 s, from s-1 on")
    #expect(requests.map(\.lastEventID) == ["", "s-1"])
  }

  /// Each new stream is noted before its events; a refused one is not.
  @Test func newStreamsAreReported() async throws {
    let responses: [FakeEvents.Response] = [
      .stream(["retry: 1\ndata: 1\n\n"], thenEnds: true), .problem(503, "{}", retryAfter: "0"),
      .stream([":\n\n", "data: 2\n\n"], thenEnds: false),
    ]
    let seen = try await FakeEvents.run(responses) { endpoint, _ in
      let seen = Mutex([String]())
      var watch = EventWatch(
        gateway: try #require(GatewayURL("http://\(endpoint)")),
        tls: nil,
        request: WatchRequest(user: "bob")
      ) { "token" }
      watch.countMax = 2
      watch.opened = { seen.withLock { $0.append("begun") } }
      try await watch.run { event in
        seen.withLock { $0.append(event.data) }
      } note: { _ in
      }
      return seen.withLock { $0 }
    }
    #expect(seen == ["begun", "1", "begun", "2"])
  }

  @Test func refusedConnectionIsRetried() async throws {
    let free = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton).bind(
      host: "127.0.0.1",
      port: 0
    ).get()
    let port = try #require(free.localAddress?.port)
    try await free.close()
    let notes = Mutex([String]())
    let watch = EventWatch(
      gateway: try #require(GatewayURL("http://127.0.0.1:\(port)")),
      tls: nil,
      request: WatchRequest(user: "bob")
    ) { "token" }
    // The test cancels the watch after the first failure.
    let task = Task {
      try await watch.run { _ in
      } note: { line in
        notes.withLock { $0.append(line) }
        withUnsafeCurrentTask { $0?.cancel() }
      }
    }
    let result = try await within("the watch's end") { await task.result }
    #expect(throws: CancellationError.self) { try result.get() }
    #expect(notes.withLock { $0 } == ["127.0.0.1:\(port): Connection refused; reconnecting in 1 s"])
  }

  /// An interrupt ends an open stream, and the last id is printed.
  @Test func cancellingEndsStreamAndPrintsLastID() async throws {
    let notes = try await FakeEvents.run([.stream(["id: s-9\ndata: 1\n\n"], thenEnds: false)]) {
      endpoint,
      _ in
      let notes = Mutex([String]())
      let watch = EventWatch(
        gateway: try #require(GatewayURL("http://\(endpoint)")),
        tls: nil,
        request: WatchRequest(user: "bob")
      ) { "token" }
      let (came, continuation) = AsyncStream.makeStream(of: Void.self)
      let task = Task {
        try await watch.run { _ in
          continuation.yield()
        } note: { line in
          notes.withLock { $0.append(line) }
        }
      }
      try await within("the first event") { for await _ in came { break } }
      task.cancel()
      let result = try await within("the watch's end") { await task.result }
      #expect(throws: CancellationError.self) { try result.get() }
      return notes.withLock { $0 }
    }
    #expect(notes == ["the last event's id is s-9"])
  }
}

/// Retries after a connection ends, gateway addresses, and request paths.
@Suite struct WatchRetryPolicyTests {
  @Test(arguments: [
    (
      WatchEnd.finished,
      WatchRetryPolicy.Action.retry(afterMilliseconds: 1_000, because: "the gateway ended the stream")
    ), (.countReached, .stop),
    (.lost("why"), .retry(afterMilliseconds: 1_000, because: "why")),
    (.silent, .retry(afterMilliseconds: 1_000, because: "timed out without events or comments")),
    (.unreadable("why"), .fail("why")),
    (
      .untrusted("why"),
      .fail("the gateway's certificate is not accepted (why): give the certificate of its authority with --ca FILE")
    ),
    (
      .refused(status: 403, code: "not_a_member", detail: "", retryAfterSeconds: nil),
      .fail("the gateway answered 403 not_a_member")
    ),
    (
      .refused(status: 401, code: "token_expired", detail: "it is over", retryAfterSeconds: 9),
      .fail("the gateway answered 401 token_expired it is over")
    ),
    (
      .refused(status: 503, code: "unavailable", detail: "", retryAfterSeconds: 5),
      .retry(afterMilliseconds: 5_000, because: "the gateway answered 503 unavailable")
    ),
    (
      .refused(status: 429, code: "", detail: "", retryAfterSeconds: 1_000_000),
      .retry(afterMilliseconds: 3_600_000, because: "the gateway answered 429")
    ),
    (
      .refused(status: 502, code: "", detail: "", retryAfterSeconds: nil),
      .retry(afterMilliseconds: 1_000, because: "the gateway answered 502")
    ),
  ]) func endDeterminesNextAction(_ end: WatchEnd, _ action: WatchRetryPolicy.Action) {
    var policy = WatchRetryPolicy()
    #expect(policy.ended(end, hasOpened: true, retryMilliseconds: nil) == action)
  }

  private static func delays(_ opened: [Bool], retry: Int? = nil) -> [Int] {
    var policy = WatchRetryPolicy()
    return opened.map { hasOpened in
      guard case .retry(let milliseconds, _) = policy.ended(.lost(""), hasOpened: hasOpened, retryMilliseconds: retry)
      else { return -1 }
      return milliseconds
    }
  }

  @Test func failedConnectionsBackOff() {
    #expect(
      Self.delays([false, false, false, false, false, false, false, true, false, false]) == [
        1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 1_000, 1_000, 2_000,
      ]
    )
    #expect(Self.delays([true, true, true]) == [1_000, 1_000, 1_000])
    // The stream sets the delay, within limits.
    #expect(Self.delays([true, false, false], retry: 200) == [200, 200, 400])
    #expect(Self.delays([true], retry: 1_000_000) == [30_000])
    #expect(Self.delays([true], retry: 0) == [1])
    #expect(Self.delays([false, false], retry: .max) == [30_000, 30_000])
    // The delay has a maximum, after any number of failures.
    #expect(Self.delays(Array(repeating: false, count: 100)).last == 30_000)
  }

  @Test func pathHasEncodedParameters() {
    #expect(WatchRequest(user: "bob").path == "/v1/events?user_id=bob")
    #expect(
      WatchRequest(user: "b@x", channels: ["messaging:a", "team:!m&=#"], wantsTotals: true).path
        == "/v1/events?user_id=b@x&channels=messaging:a,team:!m%26%3D%23&totals=true"
    )
    #expect(WatchRequest(channels: ["a:b"]).path == "/v1/events?channels=a:b")
    #expect(WatchRequest(user: "\n✓").path == "/v1/events?user_id=%0A%E2%9C%93")
  }
}

/// A fake gateway that answers each request for events with the next of its responses.
final class FakeEvents: HTTP2ServerDelegate {
  enum Response: Sendable {
    /// Pieces of an event stream, each in its own write; then the stream ends, or stays open.
    case stream([String], thenEnds: Bool)
    /// The stream is reset.
    case broken
    case problem(Int, String, retryAfter: String)
  }

  struct Request: Hashable, Sendable {
    var path: String
    var authorization: String
    var lastEventID: String
  }

  private let responses: [Response]
  private(set) var requests: [Request] = []

  init(_ responses: [Response]) { self.responses = responses }

  func http2RequestReceived(_ stream: HTTP2StreamHandle, on connection: HTTP2ServerConnection<FakeEvents>) {
    func text(_ span: RawSpan) -> String { span.withUnsafeBytes { String(decoding: $0, as: UTF8.self) } }
    let request = connection.withRequest(stream) { request in
      Request(
        path: text(request.path),
        authorization: text(request.authorization),
        lastEventID: request.header("last-event-id")?.withUnsafeBytes { String(decoding: $0, as: UTF8.self) } ?? ""
      )
    }
    guard let request else { return }
    requests.append(request)
    guard requests.count <= responses.count else { return connection.fail(.internalError) }
    switch responses[requests.count - 1] {
    case .stream(let pieces, let thenEnds):
      connection.startStreaming(stream, status: 200, contentType: .eventStream)
      for piece in pieces { connection.write(stream, ByteBuffer(string: piece)) }
      if thenEnds { connection.finish(stream) }
    case .broken: connection.reset(stream, .internalError)
    case .problem(let status, let body, let retryAfter):
      let headers = retryAfter.isEmpty ? [] : [HTTP2Header("retry-after", retryAfter)]
      connection.respond(stream, status: status, contentType: .problem, headers: headers) {
        $0.writeString(body)
      }
    }
  }

  /// Serve the responses on a free loopback port while `body` runs. `body` can ask for the received requests.
  static func run<Value>(
    _ responses: [Response],
    _ body: (Endpoint, () async throws -> [Request]) async throws -> Value
  ) async throws -> Value {
    try await withServer({ FakeEvents(responses) }) { endpoint, server in
      try await body(endpoint) { try await server.eventLoop.submit { server.value.requests }.get() }
    }
  }
}
