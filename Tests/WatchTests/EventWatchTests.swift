import LocalStack
import NIOCore
import NIOPosix
import Synchronization
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
      var watch = EventWatch(
        gateway: try #require(GatewayURL("http://\(endpoint)")),
        tls: nil,
        request: request
      ) {
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
      [
        .stream(
          [":\n\n", "id: s-1\nevent: message.read\ndata: {\"a\":1}\n\nda", "ta: 2\n\n"],
          thenEnds: false
        )
      ],
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
        "the gateway answered 503 unavailable soon; reconnecting in 0 s, from s-4 on",
        "the last event's id is s-4",
      ]
    )
  }

  @Test func refusalsAreReported() async throws {
    for (response, says) in [
      (
        FakeEvents.Response.problem(403, #"{"code":"not_a_member"}"#, retryAfter: ""),
        "the gateway answered 403 not_a_member"
      ),
      (.problem(404, "no document", retryAfter: ""), "the gateway answered 404"),
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
      [
        .stream(["retry: 1\nid: s-1\n\n"], thenEnds: false), .stream(["data: 1\n\n"], thenEnds: false),
      ],
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
    await #expect(throws: CancellationError.self) { try await task.value }
    #expect(
      notes.withLock { $0 } == ["127.0.0.1:\(port): Connection refused; reconnecting in 1 s"]
    )
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
      await #expect(throws: CancellationError.self) { try await task.value }
      return notes.withLock { $0 }
    }
    #expect(notes == ["the last event's id is s-9"])
  }
}
