import HTTP2Session
import Operations
import Testing

@testable import Gateway

/// Requests from pages of other origins (`--cors-origin`).
@Suite struct CrossOriginTests {
  private let page = [(name: "origin", value: "https://chat.example.org")]
  private let stranger = [(name: "origin", value: "https://chat.example.org.evil.net")]

  @Test func answersToAllowedOriginsHaveCORSHeaders() async throws {
    let origins = try CrossOrigins(["https://Chat.example.org:443", "http://localhost:3000"])
    try await TestGateway.run(origins: origins) { gateway in
      let client = gateway.client
      let token = TestTokens.user("alice")
      for (path, status) in [("/v1/users/alice", 200), ("/v1/users/bob", 403), ("/v1/nothing", 404)] {
        let response = try await client.request(.get, path, nil, token: token, headers: page)
        #expect(response.status == status && response.headers["vary"] == "origin")
        #expect(response.headers["access-control-allow-origin"] == "https://chat.example.org", "\(path)")
        let other = try await client.request(.get, path, nil, token: token, headers: stranger)
        #expect(other.status == status && other.headers["access-control-allow-origin"] == nil)
        let none = try await client.get(path, token: token)
        #expect(none.headers["access-control-allow-origin"] == nil && none.headers["vary"] == "origin")
      }
      let head = try await client.request(.head, "/v1/events", nil, token: token, headers: page)
      #expect(head.headers["access-control-allow-origin"] == "https://chat.example.org")
      let missing = try await client.request(.get, "/v1/events", nil, token: nil, headers: page)
      #expect(missing.status == 401 && missing.headers["access-control-allow-origin"] != nil)
    }
  }

  @Test func preflightIsAnsweredForAllowedOriginsOnly() async throws {
    try await TestGateway.run(origins: try CrossOrigins(["https://chat.example.org"])) { gateway in
      let client = gateway.client
      let preflight = [(name: "access-control-request-method", value: "PUT")]
      let response = try await client.request(
        .options,
        "/v1/users/alice",
        nil,
        token: nil,
        headers: page + preflight
      )
      #expect(response.status == 204 && response.body.isEmpty)
      #expect(response.headers["access-control-allow-origin"] == "https://chat.example.org")
      #expect(response.headers["access-control-allow-methods"] == "GET, HEAD, POST, PUT, DELETE")
      #expect(
        response.headers["access-control-allow-headers"] == "authorization, content-type, last-event-id"
      )
      for headers in [stranger + preflight, page, preflight] {
        let refused = try await client.request(.options, "/v1/users/alice", nil, token: nil, headers: headers)
        #expect(refused.verdict == "405 method_not_allowed")
      }
    }
    try await TestGateway.run { gateway in
      let preflight = page + [(name: "access-control-request-method", value: "PUT")]
      let response = try await gateway.client.request(
        .options,
        "/v1/users/alice",
        nil,
        token: nil,
        headers: preflight
      )
      #expect(response.status == 405 && response.headers["vary"] == nil)
    }
  }

  @Test(arguments: [
    "chat.example.org", "https://", "https://chat.example.org/", "https://chat.example.org/app", "ftp://x",
    "https://a b", "null", "https://x?y",
  ])
  func invalidOriginIsRefused(text: String) {
    #expect(throws: SettingsError.self) { _ = try CrossOrigins([text]) }
  }

  private func allow(_ origin: String, _ origins: CrossOrigins) -> Bool {
    let bytes = Array(origin.utf8)
    return origins.allow(bytes.span.bytes)
  }

  @Test func onlyConfiguredOriginsAreAllowed() throws {
    let origins = try CrossOrigins(["https://chat.example.org:443", "http://[::1]:8080"])
    let wildcard = try CrossOrigins(["*"])
    let table: [(String, Bool)] = [
      ("https://chat.example.org", true), ("https://chat.example.org:444", false),
      ("http://[::1]:8080", true),
      ("http://chat.example.org", false), ("null", false),
    ]
    for (origin, isAllowed) in table {
      #expect(allow(origin, origins) == isAllowed, "\(origin)")
      #expect(allow(origin, wildcard))
    }
    #expect(!allow("", wildcard))
    #expect(CrossOrigins().isEmpty && !origins.isEmpty && !wildcard.isEmpty)
  }
}
