import HTTP2Session
import NIOCore
import Testing

@Suite("Messages and slots of streams")
struct StreamSlotTests {
  @Test("a request's fields, headers and body are read in place")
  func requestIsReadInPlace() throws {
    let server = try TestServer()
    var seen: [String] = []
    server.delegate.onRequest = { stream, connection in
      connection.withRequest(stream) { request in
        seen = [
          "\(request.method)", text(request.path), text(request.authority), text(request.authorization),
          text(request.contentType), text(request.accept), text(request.origin), text(request.forwardedFor),
          text(request.requestID), text(request.lastEventID), text(request.body),
        ]
        if let custom = request.header("x-custom") { seen.append(text(custom)) }
        if request.header("x-missing") == nil { seen.append("missing") }
      }
      connection.respond(stream, status: 200)
    }
    server.send(
      headers(
        1,
        [
          (":method", "PATCH"), (":scheme", "https"), (":authority", "example.org"), (":path", "/a?b=c"),
          ("authorization", "Bearer x"), ("content-type", "application/json"),
          ("accept", "text/event-stream"),
          ("origin", "https://o"), ("x-forwarded-for", "10.0.0.1"), ("x-request-id", "r1"),
          ("last-event-id", "e1"),
          ("x-custom", "c1"),
        ],
        end: false
      ),
      data(1, "{\"a\":", end: false),
      data(1, "1}")
    )
    #expect(
      seen == [
        "patch", "/a?b=c", "example.org", "Bearer x", "application/json", "text/event-stream", "https://o",
        "10.0.0.1",
        "r1", "e1", "{\"a\":1}", "c1", "missing",
      ]
    )
  }

  @Test("only the requested header fields are kept")
  func onlyRequestedHeadersAreKept() throws {
    var limits = HTTP2Limits()
    limits.retainedHeaders = ["x-kept"]
    let server = try TestServer(limits: limits)
    var found: [String] = []
    server.delegate.onRequest = { stream, connection in
      connection.withRequest(stream) { request in
        found = ["\(request.method)", text(request.path), text(request.authorization)]
        if let kept = request.header("x-kept") { found.append(text(kept)) }
        if let other = request.header("x-other") { found.append(text(other)) }
      }
      connection.respond(stream, status: 200)
    }
    server.send(get(1, "/a", extra: [("x-other", "1"), ("authorization", "Bearer x"), ("x-kept", "2")]))
    #expect(found == ["get", "/a", "Bearer x", "2"])
  }

  /// Browsers over HTTP/2 send each cookie in a field of its own.
  @Test(
    "a cookie is found in any field and place",
    arguments: [
      (["a=1"], "1"), (["b=2; a=1"], "1"), (["b=2", "a=1"], "1"), (["a=1; a=2"], "1"), (["a="], ""), (["a=1;b=2"], "1"),
      (["aa=1"], nil), (["b=a=1"], nil), (["a"], nil), ([""], nil), ([], nil), (["b=2;  ; a=1;"], "1"),
    ]
  )
  func cookieIsFound(fields: [String], expected: String?) throws {
    let server = try TestServer()
    var found: String?
    server.delegate.onRequest = { stream, connection in
      connection.withRequest(stream) { request in
        if let cookie = request.cookie("a") { found = text(cookie) }
      }
      connection.respond(stream, status: 200)
    }
    server.send(get(1, "/a", extra: fields.map { ("cookie", $0) }))
    #expect(found == expected)
  }

  @Test("a stale handle does nothing")
  func staleHandleDoesNothing() throws {
    let server = try TestServer()
    server.send(get(1, "/hold"))
    let stream = server.delegate.held[0]
    let connection = server.connection
    #expect(connection.isOpen(stream))
    #expect(connection.respond(stream, status: 200) == .queued)
    #expect(connection.respond(stream, status: 200) == .gone)
    connection.flushIfNeeded()
    server.send(get(3, "/hold"))
    #expect(server.delegate.held[1].slot == stream.slot)
    #expect(server.delegate.held[1] != stream)
    #expect(connection.respond(stream, status: 200) == .gone)
    #expect(connection.withRequest(stream) { _ in 1 } == nil)
    #expect(connection.startStreaming(stream, status: 200, contentType: .eventStream) == .gone)
    #expect(connection.write(stream, ByteBuffer(string: "x")) == .gone)
    #expect(connection.finish(stream) == .gone)
    connection.reset(stream, .cancel)
    #expect(connection.isOpen(server.delegate.held[1]))
    #expect(HTTP2StreamHandle(rawValue: stream.rawValue) == stream)
  }
}
