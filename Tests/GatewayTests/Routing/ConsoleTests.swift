import Foundation
import HTTP2Session
import NIOCore
import Operations
import StoreTestSupport
import TestSupport
import Testing

@testable import Gateway

/// The console's sessions: who gets one, what it may do, and when it ends.
struct ConsoleTests {
  private func with(writes: Bool = false, _ body: (TestGateway) async throws -> Void) async throws {
    let console = ConsoleSessions(.init(allowsWrites: writes), metrics: MetricsRegistry())
    try await TestGateway.run(console: console, body)
  }

  private func request(
    _ gateway: TestGateway,
    _ path: String,
    cookie: String?,
    _ headers: [(name: String, value: String)] = []
  ) async throws -> TestResponse {
    let cookies = cookie.map { [(name: "cookie", value: $0)] } ?? []
    return try await gateway.client.request(.get, path, nil, token: nil, headers: cookies + headers)
  }

  /// The cookie of an answer, as a browser sends it back.
  private func cookie(_ response: TestResponse) throws -> String {
    String(try #require(response.headers["set-cookie"]?.split(separator: ";").first))
  }

  private func logIn(_ gateway: TestGateway) async throws -> String {
    let issued = try await gateway.client.post("/console/codes", nil)
    #expect(issued.status == 201 && issued.headers["cache-control"] == "no-store")
    let code = try #require(issued.body.firstMatch(of: /"code":"([0-9a-f]{64})"/)?.1)
    return try cookie(try await gateway.client.post("/console/login", #"{"code":"\#(code)"}"#, token: nil))
  }

  /// Without `--console` there is neither a page nor a session.
  @Test func consoleIsOffByDefault() async throws {
    try await TestGateway.run { gateway in
      for path in ["/console", "/console/console.js", "/console/v1/channel-types"] {
        #expect(try await gateway.client.get(path).verdict == "404 route_not_found", "\(path)")
      }
      for path in ["/console/codes", "/console/session"] {
        #expect(try await gateway.client.post(path, nil).verdict == "404 route_not_found", "\(path)")
      }
      let login = try await gateway.client.post("/console/login", #"{"code":"x"}"#, token: nil)
      #expect(login.verdict == "404 route_not_found")
    }
  }

  @Test func pageHasAStrictPolicy() async throws {
    try await with { gateway in
      let page = try await gateway.client.get("/console", token: nil)
      #expect(page.status == 200 && page.contentType == "text/html; charset=utf-8")
      let policy = try #require(page.headers["content-security-policy"])
      #expect(policy.hasPrefix("default-src 'none';") && !policy.contains("unsafe"))
      #expect(page.headers["x-content-type-options"] == "nosniff")
    }
  }

  @Test func codeIsValidOnce() async throws {
    try await with { gateway in
      let issued = try await gateway.client.post("/console/codes", nil)
      let code = try #require(issued.body.firstMatch(of: /"code":"([0-9a-f]{64})"/)?.1)
      let body = #"{"code":"\#(code)"}"#
      let opened = try await gateway.client.post("/console/login", body, token: nil)
      let cookie = try #require(opened.headers["set-cookie"])
      #expect(opened.status == 200 && cookie.contains("; HttpOnly; Secure; SameSite=Strict"))
      let seconds = try #require(cookie.firstMatch(of: /; Path=\/console; Max-Age=(\d+);/)?.1)
      #expect((28_700...28_800).contains(try #require(Int(seconds))))
      for wrong in [body, #"{"code":"x"}"#, #"{"code":""}"#] {
        let refused = try await gateway.client.post("/console/login", wrong, token: nil)
        #expect(refused.verdict == "401 console_code_invalid" && refused.headers["set-cookie"] == nil)
      }
      #expect(try await gateway.client.post("/console/login", "{}", token: nil).verdict == "400 invalid_field")
    }
  }

  @Test func codeExpires() async throws {
    try await with { gateway in
      let issued = try await gateway.client.post("/console/codes", nil)
      let code = try #require(issued.body.firstMatch(of: /"code":"([0-9a-f]{64})"/)?.1)
      gateway.clock.advance(by: .milliseconds(ConsoleSessions.codeMilliseconds))
      let late = try await gateway.client.post("/console/login", #"{"code":"\#(code)"}"#, token: nil)
      #expect(late.verdict == "401 console_code_invalid")
    }
  }

  @Test func onlyServersGetSessions() async throws {
    try await with { gateway in
      for path in ["/console/codes", "/console/session"] {
        let user = try await gateway.client.post(path, nil, token: TestTokens.user("alice"))
        let nobody = try await gateway.client.post(path, nil, token: nil)
        #expect([user, nobody].map(\.verdict) == ["403 server_token_required", "401 token_missing"])
      }
    }
  }

  @Test func sessionOnlyReads() async throws {
    try await with { gateway in
      try await gateway.setUp("messaging:team", members: ["alice", "bob"], messages: ["m1"])
      let cookie = try await logIn(gateway)
      let types = try await request(gateway, "/console/v1/channels/messaging:team/read-state?limit=1", cookie: cookie)
      #expect(types.status == 200 && types.body.contains(#""unread_messages""#))
      #expect(try await request(gateway, "/console/session", cookie: cookie).body.contains(#""writes":false"#))
      for (method, path, body) in [
        (.post, "/channels/messaging:team/read", "{}"), (.put, "/channel-types/support", "{}"),
        (.delete, "/users/bob", nil), (.post, "/channels/delivered", "{}"), (.put, "/tokens/x", "{}"),
        (.post, "/frames", nil),
      ] as [(HTTP2Method, String, String?)] {
        let refused = try await gateway.client.request(
          method,
          "/console/v1" + path,
          body,
          token: nil,
          headers: [("cookie", cookie)]
        )
        #expect(refused.verdict == "403 console_read_only", "\(path)")
      }
      // Outside of the console the cookie means nothing, and a token means nothing inside.
      #expect(try await request(gateway, "/v1/channel-types", cookie: cookie).verdict == "401 token_missing")
      #expect(try await gateway.client.get("/console/v1/channel-types").verdict == "401 token_missing")
      for path in ["/console/v1/push/acks", "/console/v1/push/hooks/x", "/console/v1/console/session"] {
        #expect(try await request(gateway, path, cookie: cookie).status >= 400, "\(path)")
      }
    }
  }

  @Test func sessionChangesIfAllowed() async throws {
    try await with(writes: true) { gateway in
      let cookie = try await logIn(gateway)
      let changed = try await gateway.client.request(
        .put,
        "/console/v1/channel-types/support",
        #"{"history":"hidden"}"#,
        token: nil,
        headers: [("cookie", cookie)]
      )
      #expect(changed.status == 200 && changed.body.contains(#""history":"hidden""#))
      #expect(try await request(gateway, "/console/session", cookie: cookie).body.contains(#""writes":true"#))
    }
  }

  /// A browser says whose page has made a request.
  @Test(arguments: [("same-origin", 200), ("same-site", 401), ("cross-site", 401), ("none", 401)])
  func otherSitesMayNotUseSession(site: String, status: Int) async throws {
    try await with { gateway in
      let cookie = try await logIn(gateway)
      let headers = [(name: "sec-fetch-site", value: site)]
      #expect(try await request(gateway, "/console/session", cookie: cookie, headers).status == status)
      #expect(try await request(gateway, "/console/v1/channel-types", cookie: cookie, headers).status == status)
    }
  }

  @Test func sessionEnds() async throws {
    try await with { gateway in
      let cookie = try await logIn(gateway)
      let other = try await logIn(gateway)
      let left = try await gateway.client.request(
        .post,
        "/console/logout",
        nil,
        token: nil,
        headers: [("cookie", cookie)]
      )
      #expect(left.status == 200 && left.headers["set-cookie"]?.contains("Max-Age=0") == true)
      #expect(try await request(gateway, "/console/session", cookie: cookie).status == 401)
      #expect(try await request(gateway, "/console/session", cookie: other).status == 200)
      gateway.clock.advance(by: .milliseconds(ConsoleSessions.sessionMilliseconds))
      #expect(try await request(gateway, "/console/session", cookie: other).verdict == "401 token_expired")
    }
  }

  /// A pasted token's session ends with the token.
  @Test func sessionDoesNotOutliveItsToken() {
    let console = ConsoleSessions(.init(), metrics: MetricsRegistry())
    let caller = Caller(userID: [], isServer: true, expiresAt: 5_000, tokenID: TokenID(Array("jti".utf8)))
    let opened = console.open(for: caller, now: 1_000)
    #expect(opened.caller.expiresAt == 5_000 && opened.caller.isReadOnly && opened.caller.isServer)
    #expect(opened.caller.tokenID == caller.tokenID, "revoking the token ends the session")
    #expect(console.caller(opened.secret.utf8.span.bytes) === opened.caller)
  }

  @Test func sessionsAreBounded() {
    let console = ConsoleSessions(.init(), metrics: MetricsRegistry())
    let caller = Caller(userID: [], isServer: true)
    let secrets = (0..<ConsoleSessions.sessionsMax + 3).map { console.open(for: caller, now: Int64($0)).secret }
    #expect(console.count == ConsoleSessions.sessionsMax)
    #expect(console.caller(secrets[0].utf8.span.bytes) == nil)
    #expect(console.caller(secrets[secrets.count - 1].utf8.span.bytes) != nil)
    let codes = (0..<ConsoleSessions.codesMax + 1).map { console.issueCode(to: caller, now: Int64($0)) }
    #expect(console.open(code: codes[0].utf8.span.bytes, now: 100) == nil)
    #expect(console.open(code: codes[1].utf8.span.bytes, now: 100) != nil)
  }

  /// A thief of a token that was revoked, or of a secret that was replaced, has no session left.
  @Test func sessionsEndWithTheirTokens() throws {
    let console = ConsoleSessions(.init(), metrics: MetricsRegistry())
    let one = Caller(userID: [], isServer: true, tokenID: TokenID(Array("one".utf8)))
    let other = Caller(userID: [], isServer: true, tokenID: TokenID(Array("other".utf8)))
    let (first, second) = (console.open(for: one, now: 0), console.open(for: other, now: 0))
    let code = console.issueCode(to: one, now: 0)
    #expect(first.caller.key == one.key, "sessions share the rate of their token")
    console.end { $0.tokenID == one.tokenID }
    #expect(console.caller(first.secret.utf8.span.bytes) == nil)
    #expect(console.open(code: code.utf8.span.bytes, now: 1) == nil)
    #expect(console.caller(second.secret.utf8.span.bytes) === second.caller)
  }

  @Test(arguments: ["/console/login", "/console/logout", "/console/session"])
  func otherSitesLogNobodyInOrOut(path: String) async throws {
    try await with { gateway in
      let cookie = try await logIn(gateway)
      let code = try await gateway.client.post("/console/codes", nil)
      let body = path.hasSuffix("login") ? code.body.replacing(/,.*/, with: "}") : nil
      let token = path.hasSuffix("session") ? TestTokens.server : nil
      let headers = [(name: "sec-fetch-site", value: "cross-site"), (name: "cookie", value: cookie)]
      let refused = try await gateway.client.request(.post, path, body, token: token, headers: headers)
      #expect(refused.status == 401 && refused.headers["set-cookie"] == nil)
      #expect(try await request(gateway, "/console/session", cookie: cookie).status == 200)
    }
  }

  /// Logging out ends what the session has open.
  @Test func streamsEndWithTheirSession() async throws {
    try await with { gateway in
      try await gateway.setUp("messaging:team", members: ["alice"])
      let cookie = try await logIn(gateway)
      let stream = try await gateway.client.submit(
        .get,
        "/console/v1/events?channels=messaging:team",
        nil,
        token: nil,
        headers: [("cookie", cookie)]
      )
      try await eventually("the stream is open") {
        try await gateway.eventLoop.submit { gateway.loop.value.events.openStreams.count == 1 }.get()
      }
      _ = try await gateway.client.request(.post, "/console/logout", nil, token: nil, headers: [("cookie", cookie)])
      // The second if its subscription was not answered yet.
      let verdict = try await stream.value("the end of the stream").verdict
      #expect(["200", "401 token_revoked"].contains(verdict))
    }
  }

  @Test func metricsNeedSession() async throws {
    try await with { gateway in
      #expect(try await gateway.client.get("/console/metrics").verdict == "401 token_missing")
      let metrics = try await request(gateway, "/console/metrics", cookie: try await logIn(gateway))
      #expect(metrics.status == 200 && metrics.contentType == "text/plain; charset=utf-8")
      #expect(metrics.body.contains("process_resident_memory_bytes"))
      for query in ["store=0", "store=x", "store=", "other=1"] {
        let cookie = try await logIn(gateway)
        #expect(try await request(gateway, "/console/metrics?\(query)", cookie: cookie).status == 400, "\(query)")
      }
    }
  }
}
