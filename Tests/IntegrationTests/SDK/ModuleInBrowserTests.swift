import LocalStack
import Operations
import TestPrograms
import Testing

extension RealProcesses {
  /// tidemark.js in a browser: a module of another origin, `fetch` with an event stream, and IndexedDB.
  @Suite struct SDKInBrowser {
    private static let channel = "/v1/channels/messaging:web"

    @Test func moduleShowsTicksAndKeepsMarks() async throws {
      let place = try Browser.Place()
      try await TestServices.with(gatewayFlags: ["--cors-origin", "http://\(place.listed)"]) { services in
        try await services.makeChannel("messaging:web", message: "m1")
        let browser = try await Browser(
          services,
          place,
          page: place.listed,
          token: try await services.token("alice"),
          Browser.Content(document: "Documents/module_page.html", files: [:])
        )
        do {
          try await Self.play(browser, services)
        } catch {
          await browser.end()
          throw error
        }
        await browser.end()
        #expect(browser.count("broken") == 0 && browser.count("refused") == 0)
        for gateway in services.stack.plan.gateways {
          #expect(try !services.log(of: gateway.name).contains("access_token"))
        }
      }
    }

    private static func play(_ browser: Browser, _ services: TestServices) async throws {
      try await browser.wait(for: ["started"])
      let bob = try await services.token("bob")
      try await services.expect(200, "POST", channel + "/read", token: bob, json: #"{"message_id":"m1"}"#)
      try await browser.wait(for: ["shows", #""status":"read","readers":["bob"]"#])
      let message = #"{"id":"m2","user_id":"bob"}"#
      try await services.expect(201, "POST", channel + "/messages", token: services.serverToken, json: message)
      try await browser.wait(for: ["shows", #""unread":1"#])
      // The mark is made without a connection, and sent by another instance, as by a page that was loaded again.
      try await browser.way("cut")
      try await browser.wait(for: ["offline"], ["marked", #""pending":1"#], ["again"])
      try await browser.way("mend")
      try await browser.wait(for: ["online"], ["shows", #""unread":0,"last":"m2","pending":0"#])
    }
  }
}
