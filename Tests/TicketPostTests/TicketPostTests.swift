import GatewayClient
import LocalStack
import Testing

@testable import TicketPost

@Suite struct TicketResultTests {
  @Test func answersFollowTicketOrder() throws {
    let body = """
      {"results":[{"ok":true,"cid":"messaging:team","message_id":"m1","user_id":"dan"},
       {"ok":false,"code":"ticket_expired"},{"ok":false,"code":"not_known_here"}]}
      """
    let responses = try #require(TicketResult.parse(Array(body.utf8), count: 3))
    #expect(responses.map(\.isDelivered) == [true, false, false])
    #expect(
      responses.map(\.line) == [
        "ok messaging:team m1 dan", "ticket_expired: its time is over", "not_known_here",
      ]
    )
    #expect(
      responses.map(\.json) == [
        #"{"cid":"messaging:team","message_id":"m1","ok":true,"user_id":"dan"}"#,
        #"{"code":"ticket_expired","ok":false}"#, #"{"code":"not_known_here","ok":false}"#,
      ]
    )
  }

  @Test(arguments: [
    "", "{}", #"{"results":[]}"#, #"{"results":[{"ok":true,"cid":"a:b","message_id":"m"}]}"#,
    #"{"results":[{"ok":false}]}"#, #"{"results":[{"ok":false,"code":"a"},{"ok":false,"code":"b"}]}"#,
  ])
  func malformedAnswersAreRejected(_ body: String) {
    #expect(TicketResult.parse(Array(body.utf8), count: 1) == nil)
  }

  @Test func plausibleTicketsAreRecognised() {
    #expect(TicketPost.isPlausibleTicket("AQd_-x09"))
    #expect(TicketPost.isPlausibleTicket(String(repeating: "a", count: 160)))
    for text in ["", "a b", "a=", "a+b", "ä", String(repeating: "a", count: 161)] {
      #expect(!TicketPost.isPlausibleTicket(text), "\(text)")
    }
  }
}

/// Posts tickets to a fake gateway.
@Suite struct TicketPostTests {
  private func post(_ tickets: [String], _ responses: [(status: Int, body: String)]) async throws -> (
    lines: [String], error: String, requests: [FakeAcks.Request]
  ) {
    try await FakeAcks.run(responses) { endpoint, requests in
      let post = try await TicketPost.connect(to: try #require(GatewayURL("http://\(endpoint)")), tls: nil)
      var lines: [String] = []
      var error = ""
      do {
        try await post.post(tickets) { lines += $0.map(\.line) }
      } catch let failure {
        error = "\(failure)"
      }
      await post.close()
      return (lines, error, try await requests())
    }
  }

  private static func taken(_ count: Int) -> String {
    let result = #"{"ok":true,"cid":"messaging:team","message_id":"m","user_id":"dan"}"#
    return #"{"results":["# + Array(repeating: result, count: count).joined(separator: ",") + "]}"
  }

  @Test func onlyPlausibleTicketsAreSent() async throws {
    let (lines, error, requests) = try await post(["AQ-1"], [(200, Self.taken(1))])
    #expect(lines == ["ok messaging:team m dan"])
    #expect(error.isEmpty)
    #expect(
      requests == [
        FakeAcks.Request(
          path: "/v1/push/acks",
          authorization: "",
          contentType: "application/json",
          body: #"{"tickets":["AQ-1"]}"#
        )
      ]
    )
  }

  @Test func implausibleTicketsAreAnsweredInOrder() async throws {
    let response = #"{"results":[{"ok":false,"code":"ticket_expired"},"# + Self.taken(1).dropFirst(12)
    let (lines, error, requests) = try await post(["no ticket", "AQ-1", "", "AQ-2"], [(200, response)])
    #expect(error.isEmpty)
    #expect(
      lines.map { $0.prefix { $0 != ":" } } == [
        "ticket_invalid", "ticket_expired", "ticket_invalid", "ok messaging",
      ]
    )
    #expect(requests.map(\.body) == [#"{"tickets":["AQ-1","AQ-2"]}"#])
    #expect(try await post(["no ticket"], []).requests.isEmpty)
  }

  @Test func manyTicketsAreSplitIntoRequests() async throws {
    let tickets = (0..<2_500).map { "AQ-\($0)" }
    let responses = [1_000, 1_000, 500].map { (status: 200, body: Self.taken($0)) }
    let (lines, error, requests) = try await post(tickets, responses)
    #expect(lines.count == 2_500 && error.isEmpty && requests.count == 3)
    #expect(requests[2].body.hasPrefix(#"{"tickets":["AQ-2000","#))
  }

  @Test(arguments: [
    (
      501, #"{"code":"not_implemented","detail":"no --ticket-secret-file"}"#,
      "the gateway answered 501 not_implemented no --ticket-secret-file"
    ),
    (503, "", "the gateway answered 503"),
    (200, #"{"results":[]}"#, #"the response does not match the 1 tickets sent: {"results":[]}"#),
  ])
  func errorAnswersAreReported(_ status: Int, _ body: String, _ says: String) async throws {
    let (lines, error, _) = try await post(["AQ-1"], [(status, body)])
    #expect(lines.isEmpty && error == says)
  }

  @Test func unreachableGatewayIsReported() async throws {
    let port = try LoopbackPorts.free(1)[0]
    let url = try #require(GatewayURL("http://\(port)"))
    await #expect(throws: StackError("\(port): Connection refused")) {
      _ = try await TicketPost.connect(to: url, tls: nil)
    }
  }
}
