import Foundation
import LocalStack
import Operations
import TestPrograms
import Testing

extension RealProcesses {
  /// A browser's EventSource on a page of another origin, over TLS, with the script of docs/api/events.md.
  @Suite struct Browsers {
    private static let channel = "/v1/channels/messaging:web"

    /// Events arrive by type. After the gateway was killed, the browser resumes by itself from the last id. After its
    /// token was revoked, the script resumes with a new token. No event is lost, and no token is in a log.
    @Test func eventSourceFollowsAndReconnects() async throws {
      let place = try Browser.Place()
      try await TestServices.with(gatewayFlags: [
        "--cors-origin", "https://first.example.org", "http://\(place.listed)",
      ]) { services in
        try await Self.makeChannel(services)
        let first = try await services.token("alice")
        let browser = try await Browser(services, place, page: place.listed, token: first, .events())
        do {
          try await browser.wait(for: ["made"], ["open"])
          try await Self.follow(browser, services)
          try await Self.reconnectBrowser(browser, services)
          let second = try await Self.reconnectBrowserWithNewToken(browser, services)
          #expect(browser.count("stream.reset") == 0)
          #expect(browser.count("queryAnew") == 0)
          #expect(browser.count("broken") == 0)
          for gateway in services.stack.plan.gateways {
            let log = try services.log(of: gateway.name)
            #expect(!log.contains(first) && !log.contains(second) && !log.contains("access_token"))
          }
        } catch {
          await browser.end()
          throw error
        }
        await browser.end()
      }
    }

    /// The browser withholds the response from a page of an unlisted origin; the same page of the listed origin gets
    /// it.
    @Test func unlistedOriginIsRefused() async throws {
      let place = try Browser.Place()
      try await TestServices.with(gatewayFlags: [
        "--cors-origin", "http://\(place.listed)", "--cors-origin", "https://last.example.org",
      ]) { services in
        for page in [place.other, place.listed] {
          let browser = try await Browser(
            services,
            place,
            page: page,
            token: try await services.token("alice"),
            .events()
          )
          do {
            let isListed = page == place.listed
            try await browser.wait(for: ["made"], [isListed ? "open" : "closed"])
            #expect(browser.count(isListed ? "closed" : "open") == 0)
            #expect(browser.console.contains("blocked by CORS policy") != isListed, "\(browser.console)")
          } catch {
            await browser.end()
            throw error
          }
          await browser.end()
        }
      }
    }

    // MARK: Steps

    private static func makeChannel(_ services: TestServices) async throws {
      let members = #"{"members":["alice","bob"]}"#
      try await services.expect(201, "PUT", channel, token: services.serverToken, json: members)
    }

    private static func register(_ id: String, by user: String, _ services: TestServices) async throws {
      let message = #"{"id":"\#(id)","user_id":"\#(user)"}"#
      try await services.expect(
        201,
        "POST",
        channel + "/messages",
        token: services.serverToken,
        json: message
      )
    }

    private static func readByBob(_ id: String, _ services: TestServices) async throws {
      let mark = #"{"message_id":"\#(id)"}"#
      try await services.expect(
        200,
        "POST",
        channel + "/read",
        token: try await services.token("bob"),
        json: mark
      )
    }

    private static func follow(_ browser: Browser, _ services: TestServices) async throws {
      try await register("m1", by: "alice", services)
      try await services.expect(
        201,
        "POST",
        "/v1/channels/delivered",
        token: try await services.token("bob"),
        json: #"{"latest_delivered_messages":[{"cid":"messaging:web","id":"m1"}]}"#
      )
      try await browser.wait(
        for: ["message.new", #""id":"m1""#],
        ["message.delivered", #""last_delivered_message_id":"m1""#],
        ["message.status", #""status":"delivered""#],
        ["showTicks", #""status":"delivered""#]
      )
      try await readByBob("m1", services)
      try await register("m2", by: "bob", services)
      try await browser.wait(
        for: ["message.read", #""user":{"id":"bob"}"#, #""last_read_message_id":"m1""#],
        ["showReader", #""user":{"id":"bob"}"#, #""last_read_message_id":"m1""#],
        ["message.status", #""status":"read""#],
        ["showTicks", #""status":"read""#],
        ["message.new", #""id":"m2""#],
        ["notification.totals", #""total_unread_count":1"#],
        ["showBadge", #""total_unread_count":1"#]
      )
    }

    private static func reconnectBrowser(_ browser: Browser, _ services: TestServices) async throws {
      // The proxy is restored once the gateway is ready: a response of 503 would end the EventSource.
      try await browser.way("cut")
      await services.stack.killGateway(0)
      try await register("m3", by: "alice", services)
      try await readByBob("m3", services)
      try await services.stack.startGateway(0)
      try await browser.way("mend")
      try await browser.wait(
        for: ["lost"],
        ["open"],
        ["message.new", #""id":"m3""#],
        ["showReader", #""user":{"id":"bob"}"#, #""last_read_message_id":"m3""#],
        ["showTicks", #""last_message_id":"m3","status":"read""#]
      )
      #expect(browser.count("made") == 1, "the browser itself came back")
      #expect(browser.count("closed") == 0)
      #expect(try await resumes(services) == 1)
    }

    /// - Returns: the token.
    private static func reconnectBrowserWithNewToken(_ browser: Browser, _ services: TestServices)
      async throws -> String
    {
      let now = Date(timeIntervalSince1970: Date().timeIntervalSince1970.rounded(.down))
      let revoke = #"{"revoke_tokens_before":"\#(now.ISO8601Format())"}"#
      try await services.expect(200, "PUT", "/v1/users/alice", token: services.serverToken, json: revoke)
      let token = try await services.token("alice")
      try Browser.setToken(token, services)
      try await register("m4", by: "bob", services)
      try await browser.wait(for: ["closed"], ["made"], ["open"], ["message.new", #""id":"m4""#])
      #expect(browser.count("made") == 2)
      #expect(try await resumes(services) == 2)
      return token
    }

    /// The number of streams that resumed from an id since the gateway with TLS was started.
    private static func resumes(_ services: TestServices) async throws -> Int {
      Int(try await Scrape.value("tidemark_gateway_event_resumes_total", of: services.stack.plan.gateways[0].admin))
    }
  }
}
