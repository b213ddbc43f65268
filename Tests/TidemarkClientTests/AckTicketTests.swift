import Foundation
import Testing

@testable import TidemarkClient

@Suite struct AckTicketTests {
  private static let url = URL(string: "https://chat.example.org")!

  private static func ack(_ body: String, status: Int = 200) async throws -> Bool {
    let gateway = FakeGateway()
    gateway.answer { _ in (status, body) }
    defer { #expect(gateway.log == ["POST /v1/push/acks"]) }
    return try await ackTicket("abc", url: url, transport: gateway)
  }

  @Test func resultsTellWhetherTicketIsValid() async throws {
    #expect(try await Self.ack(#"{"results":[{"ok":true,"cid":"messaging:a"}]}"#))
    #expect(try await !Self.ack(#"{"results":[{"ok":false,"code":"ticket_expired"}]}"#))
    #expect(try await !Self.ack(#"{"results":[{"ok":false,"code":"channel_not_found"}]}"#))
  }

  @Test(arguments: [(200, #"{"results":[{"ok":false,"code":"store_busy"}]}"#), (503, "{}"), (200, "<html>")])
  func answerThatIsNoneIsTemporary(_ status: Int, _ body: String) async throws {
    let error = await #expect(throws: TidemarkError.self) { try await Self.ack(body, status: status) }
    #expect(error?.isTemporary == true)
  }

  @Test func requestHasNoCredential() async throws {
    let gateway = FakeGateway()
    gateway.answer { _ in (200, #"{"results":[{"ok":true}]}"#) }
    try await ackTicket("abc", url: Self.url, transport: gateway)
    #expect(gateway.headers("/v1/push/acks").map { $0["authorization"] } == [nil])
    #expect(gateway.bodies("/v1/push/acks").first?["tickets"] as? [String] == ["abc"])
  }

  @Test func gatewayThatDoesNotAnswerIsGivenUp() async throws {
    let gateway = FakeGateway()
    gateway.answer { _ in
      try await Task.sleep(for: .seconds(3_600))
      return nil
    }
    let error = await #expect(throws: TidemarkError.self) {
      try await ackTicket("abc", url: Self.url, transport: gateway)
    }
    #expect(error?.code == "connection_lost")
  }
}
