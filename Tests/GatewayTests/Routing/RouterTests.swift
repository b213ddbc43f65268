import Foundation
import HTTP2Session
import Testing

@testable import Gateway

@Suite struct RouterTests {
  private static let long64 = String(repeating: "t", count: 64)
  private static let long255 = String(repeating: "c", count: 255)

  /// Method, path and result: a route with its parts, or a code.
  private static let table: [(HTTP2Method, String, String)] = [
    // Every route of Proto/openapi.yaml.
    (.get, "/v1/channel-types", "list_channel_types"),
    (.put, "/v1/channel-types/messaging", "put_channel_type messaging"),
    (.get, "/v1/channel-types/messaging", "get_channel_type messaging"),
    (.put, "/v1/channels/messaging:c1", "put_channel messaging:c1"),
    (.get, "/v1/channels/messaging:c1", "get_channel messaging:c1"),
    (.delete, "/v1/channels/messaging:c1", "delete_channel messaging:c1"),
    (.post, "/v1/channels/messaging:c1/truncate", "truncate_channel messaging:c1"),
    (.post, "/v1/channels/messaging:c1/members", "change_members messaging:c1"),
    (.put, "/v1/channels/messaging:c1/members/bob", "put_member messaging:c1 bob"),
    (.post, "/v1/channels/messaging:c1/messages", "register_message messaging:c1"),
    (.post, "/v1/messages", "register_messages"),
    (.delete, "/v1/channels/messaging:c1/messages/m1", "delete_message messaging:c1 m1"),
    (.put, "/v1/tokens/backend%2F7", "put_token backend/7"),
    (.get, "/v1/tokens/Zo%C3%AB?x=1", "get_token Zoë ?x=1"),
    (.delete, "/v1/tokens/one", "method_not_allowed GET, HEAD, PUT"),
    (.put, "/v1/tokens/%2e", "invalid_token_id"), (.put, "/v1/tokens/a%7Fb", "invalid_token_id"),
    (.put, "/v1/users/alice", "put_user alice"),
    (.get, "/v1/users/alice", "get_user alice"),
    (.delete, "/v1/users/alice", "delete_user alice"),
    (.post, "/v1/channels/messaging:c1/read", "mark_read messaging:c1"),
    (.post, "/v1/channels/messaging:c1/unread", "mark_unread messaging:c1"),
    (.post, "/v1/channels/delivered", "mark_delivered"),
    (.post, "/v1/channels/read", "mark_read_many"),
    (.post, "/v1/channels/messaging:c1/receipts", "acknowledge_receipts messaging:c1"),
    (.get, "/v1/channels/messaging:c1/read-state", "read_state messaging:c1"),
    (.post, "/v1/channels/messaging:c1/receipts/query", "statuses messaging:c1"),
    (.get, "/v1/channels/messaging:c1/messages/m1/status", "message_status messaging:c1 m1"),
    (.get, "/v1/channels/messaging:c1/messages/m1/readers", "list_readers messaging:c1 m1"),
    (.get, "/v1/channels/messaging:c1/messages/m1/delivered", "list_delivered messaging:c1 m1"),
    (.get, "/v1/channels/messaging:c1/messages/m1/unread", "list_unread messaging:c1 m1"),
    (.get, "/v1/channels/messaging:c1/messages/m1/members", "chosen_members messaging:c1 m1"),
    (.get, "/v1/users/alice/unread", "unread_of_user alice"),
    (.post, "/v1/unread", "unread_of_users"),
    (.get, "/v1/users/alice/channels", "channels_of_user alice"),
    (.get, "/v1/events", "events"),
    (.post, "/v1/push/tickets", "issue_tickets"),
    (.post, "/v1/push/acks", "acknowledge_pushes"),
    (.post, "/v1/push/hooks/fcm", "receive_hook fcm"), (.post, "/v1/push/jobs", "put_push_job"),
    (.post, "/v1/push/jobs/claim", "claim_push_jobs"), (.post, "/v1/push/jobs/renew", "renew_push_jobs"),
    (.post, "/v1/push/jobs/done", "finish_push_jobs"),
    (.post, "/v1/frames", "frames"),
    (.get, "/v1/openapi.yaml", "api_document"), (.get, "/sdk/tidemark.js", "sdk_file tidemark.js"),
    (.get, "/console", "console_page"), (.get, "/console/console.js", "console_file console.js"),
    (.post, "/console/login", "console_login"), (.post, "/console/logout", "console_logout"),
    (.post, "/console/session", "open_console_session"), (.get, "/console/session", "get_console_session"),
    (.post, "/console/codes", "issue_console_code"), (.get, "/console/metrics", "console_metrics"),
    (.get, "/demo", "demo_page"), (.get, "/demo/demo.js", "demo_file demo.js"), (.get, "/demo/session", "demo_session"),
    (.get, "/v1/channels/messaging:c1/messages/m1/acknowledged", "list_acknowledged messaging:c1 m1"),
    (.get, "/v1/channels/messaging:c1/messages/m1/unacknowledged", "list_unacknowledged messaging:c1 m1"),
    (.get, "/v1/users/bob/receipts", "receipts_of_user bob"),
    (.get, "/v1/users/bob/threads", "threads_of_user bob"),
    // Import and export.
    (.post, "/v1/import", "import"), (.get, "/v1/export", "export"),
    // The feed.
    (.get, "/v1/feed?consumer=x&partition=0/4", "read_feed ?consumer=x&partition=0/4"),
    (.get, "/v1/feed/consumers", "list_consumers"), (.put, "/v1/feed/consumers/x", "put_consumer x"),
    (.get, "/v1/feed/consumers/search-index_1.b", "get_consumer search-index_1.b"),
    (.delete, "/v1/feed/consumers/x", "delete_consumer x"),
    (.post, "/v1/feed/consumers/x/commit", "commit_consumer x"),
    (.post, "/v1/feed/consumers/x/lease", "lease_consumer x"), (.head, "/v1/feed", "read_feed"),
    (.post, "/v1/feed", "method_not_allowed GET, HEAD"),
    (.put, "/v1/feed/consumers", "method_not_allowed GET, HEAD"),
    (.patch, "/v1/feed/consumers/x", "method_not_allowed GET, HEAD, PUT, DELETE"),
    (.get, "/v1/feed/consumers/x/lease", "method_not_allowed POST"),
    (.get, "/v1/feed/consumers/", "route_not_found"),
    // HEAD matches the routes of GET.
    (.head, "/v1/channels/messaging:c1/read-state", "read_state messaging:c1"),
    // Queries and escapes.
    (.post, "/v1/channels/messaging:c1/read?message_id=m1", "mark_read messaging:c1 ?message_id=m1"),
    (.post, "/v1/channels/messaging:c1/read?", "mark_read messaging:c1"),
    (.post, "/v1/channels/messaging%3Ac1/read", "mark_read messaging:c1"),
    (.get, "/v1/users/a%40b.c_d-e/unread?x=/y/z", "unread_of_user a@b.c_d-e ?x=/y/z"),
    (.delete, "/v1/channels/m:c/messages/a%25b%22%3f", "delete_message m:c a%b\"?"),
    (.delete, "/v1/channels/m:c/messages/a+b", "delete_message m:c a+b"),
    (.put, "/v1/channels/\(long64):\(long255)", "put_channel \(long64):\(long255)"),
    (.put, "/v1/channels/a:!b", "put_channel a:!b"),
    // No such route.
    (.get, "/", "route_not_found"), (.get, "", "route_not_found"), (.get, "*", "route_not_found"),
    (.get, "/v2/events", "route_not_found"), (.get, "/v1", "route_not_found"),
    (.get, "/v1/", "route_not_found"),
    (.post, "/v1/channels/messaging:c1/read/", "route_not_found"),
    (.post, "//v1/messages", "route_not_found"),
    (.post, "/v1/channels//read", "route_not_found"), (.get, "/V1/events", "route_not_found"),
    (.get, "/v1/channels/a:b/messages/m/status/x", "route_not_found"),
    (.get, "/v1/a/b/c/d/e/f/g/h/i/j/k", "route_not_found"),
    (.get, "/v1/channels/a:b/nothing", "route_not_found"),
    (.get, "/?/v1/events", "route_not_found"), (.get, "/v1/%65vents", "route_not_found"),
    (.get, "/v1/channels/messaging:c1/members", "list_roster messaging:c1"),
    (.get, "/v1/channels/messaging:c1/messages?limit=1", "list_messages messaging:c1 ?limit=1"),
    (.post, "/v1/channels", "put_channels"), (.post, "/v1/users", "put_users"),
    (.post, "/v1/read-state", "read_states"),
    // Wrong method.
    (.get, "/v1/channels/messaging:c1/read", "method_not_allowed POST"),
    (.put, "/v1/messages", "method_not_allowed POST"),
    (.post, "/v1/channels/messaging:c1", "method_not_allowed GET, HEAD, PUT, DELETE"),
    (.patch, "/v1/channel-types/x", "method_not_allowed GET, HEAD, PUT"),
    (.get, "/v1/channels/read", "method_not_allowed POST"),
    (.other, "/v1/events", "method_not_allowed GET, HEAD"),
    (.options, "/v1/channels/a:b/read", "method_not_allowed POST"),
    // The route is matched first, then its parts are checked.
    (.post, "/v1/channels/nocolon/read", "invalid_cid"),
    (.get, "/v1/channels/nocolon/read", "method_not_allowed POST"),
    (.post, "/v1/channels/:c/read", "invalid_cid"), (.post, "/v1/channels/m:/read", "invalid_cid"),
    (.post, "/v1/channels/m:c%2Fd/read", "mark_read m:c/d"), (.post, "/v1/channels/m!:c/read", "invalid_cid"),
    (.post, "/v1/channels/m:c%/read", "invalid_cid"), (.post, "/v1/channels/m:c%4/read", "invalid_cid"),
    (.post, "/v1/channels/m:c%zz/read", "invalid_cid"), (.post, "/v1/channels/m:c.d/read", "mark_read m:c.d"),
    (.post, "/v1/channels/m:a:b/read", "mark_read m:a:b"),
    (.post, "/v1/channels/m:%C3%28/read", "invalid_cid"),
    (.put, "/v1/channels/\(long64)t:c", "invalid_cid"), (.put, "/v1/channels/m:\(long255)c", "invalid_cid"),
    (.put, "/v1/channel-types/a.b", "invalid_channel_type"),
    (.put, "/v1/channel-types/\(long64)t", "invalid_channel_type"),
    (.get, "/v1/users/a%7Fb", "invalid_user_id"), (.get, "/v1/users/\(long255)u", "invalid_user_id"),
    (.delete, "/v1/channels/m:c/messages/a%2Fb", "delete_message m:c a/b"),
    (.get, "/v1/users/auth0%7C5f7c", "get_user auth0|5f7c"),
    (.get, "/v1/users/@bob:example.org", "get_user @bob:example.org"),
    (.get, "/v1/users/%2E", "invalid_user_id"), (.get, "/v1/users/..", "invalid_user_id"),
    (.get, "/v1/users/...", "get_user ..."),
    (.get, "/v1/channels/m:c/messages/%2e%2E/status", "invalid_message_id"),
    (.get, "/v1/channels/m:../read-state", "read_state m:.."),
    (.delete, "/v1/channels/m:c/messages/a%7Fb", "invalid_message_id"),
    (.put, "/v1/channels/m:c/members/auth0%7C5f%2F7c", "put_member m:c auth0|5f/7c"),
    (.put, "/v1/channels/m:c/members/a%7Fb", "invalid_user_id"),
    (.put, "/v1/channels/m:c/members/..", "invalid_user_id"),
    (.delete, "/v1/channels/m:c/messages/%C3%A9", "delete_message m:c é"),
    (.delete, "/v1/channels/m:c/messages/%C3", "invalid_message_id"),
    (.delete, "/v1/channels/m:c/messages/\(long255)x", "invalid_message_id"),
  ]

  @Test func pathsMatchRoutes() {
    let router = Router()
    let scratch = PathScratch()
    for (method, path, expected) in Self.table {
      let bytes = Array(path.utf8)
      var found = ""
      do throws(Problem) {
        let match = try router.match(method, bytes.span.bytes, scratch)
        found = "\(match.route.name)"
        if !match.subject.isEmpty { found += " " + match.subject.text }
        if !match.message.isEmpty { found += " " + match.message.text }
        if !match.member.isEmpty { found += " " + match.member.text }
        if !match.query.isEmpty { found += " ?" + match.query.text }
      } catch {
        found = error.code.rawValue
        if let allow = error.allow { found += " " + allow.value }
      }
      #expect(found == expected, "\(method) \(path)")
    }
  }

  @Test func everyRouteIsInTheTable() {
    let named = Set(Self.table.map { $0.2.split(separator: " ").first.map(String.init) ?? "" })
    for route in Route.allCases { #expect(named.contains("\(route.name)"), "\(route)") }
    #expect(Set(Route.allCases.map { "\($0.name)" }).count == Route.allCases.count)
  }

  @Test(arguments: [
    ("a=1&b=2", ["a=1", "b=2"]), ("", []), ("a", ["a="]), ("a=", ["a="]), ("=b", ["=b"]), ("&&a=1&", ["a=1"]),
    ("m%65ssage_id=a%2Fb", ["message_id=a/b"]), ("a=b=c", ["a=b=c"]), ("a+b=c+d", ["a+b=c+d"]),
    ("a=b%2Cc,d&a=e", ["a=b,c,d", "a=e"]), ("a=%zz", ["invalid_query"]), ("%=1", ["invalid_query"]),
    ("a=1&b=%4", ["a=1", "invalid_query"]),
  ])
  func queriesAreParsed(_ text: String, _ expected: [String]) {
    let scratch = PathScratch()
    let bytes = Array(text.utf8)
    var found: [String] = []
    do throws(Problem) {
      var reader = QueryReader(bytes.span.bytes, scratch)
      while let parameter = try reader.next() {
        found.append("\(parameter.name.text)=\(parameter.value.text)")
      }
    } catch {
      found.append(error.code.rawValue)
    }
    #expect(found == expected)
  }

  /// Lists are split at commas before escapes are resolved.
  @Test(arguments: [
    ("a=b,c", ["b", "c"]), ("a=b%2Cc,d", ["b,c", "d"]), ("a=b%2cc", ["b,c"]), ("a=", [""]), ("a", [""]),
    ("a=,", ["", ""]), ("a=b,,c", ["b", "", "c"]), ("a=b&a=c,d", ["b", "c", "d"]),
    ("a=%C3%A9,x", ["\u{e9}", "x"]),
  ])
  func listParametersAreSplitAtCommas(_ text: String, _ expected: [String]) throws {
    let scratch = PathScratch()
    let bytes = Array(text.utf8)
    var found: [String] = []
    var reader = QueryReader(bytes.span.bytes, scratch)
    while let parameter = try reader.next() {
      var list = parameter.list(scratch)
      while let entry = list.next() { found.append(entry.text) }
    }
    #expect(found == expected)
  }

  @Test(
    arguments: [
      ("0", 0), ("7", 7), ("18446744073709551615", UInt64.max), ("18446744073709551616", nil), ("", nil),
      ("-1", nil),
      ("1x", nil), ("00000000000000000001", 1), ("000000000000000000001", nil),
    ] as [(String, UInt64?)]
  )
  func decimalsAreParsedOrRefused(_ text: String, _ expected: UInt64?) {
    let bytes = Array(text.utf8)
    #expect(bytes.span.bytes.decimal == expected)
  }
}

/// Query parameters, as a caller sends them.
@Suite struct QueryParameterTests {
  private let bob = TestTokens.user("bob")

  @Test func onlyHarmlessEmptyQueryParametersCountAsAbsent() async throws {
    try await TestGateway.run { gateway in
      try await gateway.setUp("messaging:c", members: ["alice", "bob"], messages: ["m1"])
      let path = "/v1/channels/messaging:c/"
      for query in [
        "totals=", "totals", "totals=false",
      ] {
        #expect(try await gateway.client.post("\(path)read?\(query)", nil, token: bob).status == 200)
      }
      for query in ["totals=1", "totals=TRUE", "totals=yes"] {
        let response = try await gateway.client.post("\(path)read?\(query)", nil, token: bob)
        #expect(response.verdict == "400 invalid_query", "\(query)")
      }
      // Omitting an id means the newest message, the channel or another view, so an empty id is refused.
      for query in [
        "message_id=", "thread_id", "message_id=m1&thread_id=", "user_id=", "message_id=m1&message_id=m1",
        "user_id=bob&user_id=alice",
      ] {
        let response = try await gateway.client.post("\(path)read?\(query)", nil, token: bob)
        #expect(response.verdict == "400 invalid_query", "\(query)")
      }
      let status = try await gateway.client.get(
        "\(path)messages/m1/status?user_id=",
        token: TestTokens.server
      )
      #expect(status.verdict == "400 invalid_query")
      let rows = try await gateway.client.get("\(path)read-state?limit=&cursor=", token: bob)
      #expect(rows.status == 200 && (rows.json["read"] as? NSArray)?.count == 2)
    }
  }
}
