import Operations
import Testing

@testable import LocalStack

@Suite struct GatewayURLTests {
  @Test(arguments: [
    ("https://localhost:8443", "localhost:8443", true), ("http://127.0.0.1:8080/", "127.0.0.1:8080", false),
    ("https://chat.example.org", "chat.example.org:443", true), ("http://[::1]:80", "[::1]:80", false),
    ("https://[::1]", "[::1]:443", true),
  ])
  func gatewayURLsAreParsed(_ text: String, _ endpoint: String, _ isTLS: Bool) throws {
    let url = try #require(GatewayURL(text))
    #expect("\(url.endpoint)" == endpoint && url.isTLS == isTLS)
  }

  @Test(arguments: [
    "", "localhost:8443", "ftp://localhost", "https://", "https:///", "https://localhost/v1",
    "https://localhost:0",
    "https://localhost:65536", "https://a b",
  ])
  func invalidGatewayURLsAreRejected(_ text: String) { #expect(GatewayURL(text) == nil) }

  @Test func problemDocumentsAreParsed() {
    func parts(_ text: String) -> [String] {
      let (code, detail) = ProblemDocument.parts(of: Array(text.utf8))
      return [code, detail]
    }
    #expect(parts(#"{"code":"not_a_member","detail":"no","status":403}"#) == ["not_a_member", "no"])
    #expect(parts(#"{"status":403}"#) == ["", ""])
    #expect(parts("<html>") == ["", ""])
  }
}
