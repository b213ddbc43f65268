import LocalStack
import Operations
import Testing

@testable import Demo

@Suite struct TicksTests {
  private func view(
    _ status: MessageView.Status,
    deliveredTo: [String] = [],
    readBy: [String] = []
  ) -> MessageView {
    MessageView(sender: "al", text: "Hi", status: status, deliveredTo: deliveredTo, readBy: readBy)
  }

  @Test func statusIsDescribedInWords() {
    #expect(view(.sent).words == "sent")
    #expect(view(.delivered, deliveredTo: ["bob"]).words == "delivered to bob")
    #expect(view(.read, deliveredTo: ["c"], readBy: ["a", "b"]).words == "read by a and b, delivered to c")
    #expect(MessageView.list(["a", "b", "c"]) == "a, b and c")
    #expect(MessageView.list([]) == "nobody")
  }

  @Test func textWithoutColourIsComplete() {
    let line = TextStyle(usesColor: false).line(
      view(.delivered, deliveredTo: ["bob"]),
      textWidth: 5,
      nameWidth: 3
    )
    #expect(line == "    al   “Hi”     delivered to bob")
  }

  @Test func mismatchIsReportedAndCounted() {
    var checks = Checks()
    #expect(checks.expect("the count", 1, 1) == nil)
    #expect(checks.expect("the count", 2, 1) == "the count: expected 2, actual 1")
    #expect(checks.count == 2)
    #expect(checks.mismatches == ["the count: expected 2, actual 1"])
  }

  @Test func ticksAreColouredByStatus() {
    let style = TextStyle(usesColor: true)
    #expect(style.ticks(.sent) == "\u{1B}[90m✓  \u{1B}[0m")
    #expect(style.ticks(.delivered) == "\u{1B}[90m✓✓ \u{1B}[0m")
    #expect(style.ticks(.read) == "\u{1B}[94m✓✓ \u{1B}[0m")
  }

  @Test func sampleCommandsContainFilesAndPorts() throws {
    let plan = StackPlan(
      store: Endpoint(host: "127.0.0.1", port: 1),
      storeAdmin: Endpoint(host: "127.0.0.1", port: 2),
      gateways: [
        .init(
          name: "t",
          listen: Endpoint(host: "127.0.0.1", port: 3),
          admin: Endpoint(host: "127.0.0.1", port: 4),
          usesTLS: true
        ),
        .init(
          name: "h",
          listen: Endpoint(host: "127.0.0.1", port: 5),
          admin: Endpoint(host: "127.0.0.1", port: 6),
          usesTLS: false
        ),
      ]
    )
    let lines = RunSession.lines(plan, StackFiles(directory: "it's here"))
    #expect(lines[0].contains(#"$(cat 'it'\''s here/server.token')"#))
    #expect(lines[3].contains(#"--cacert 'it'\''s here/tls-cert.pem'"#))
    #expect(lines[4].contains("https://127.0.0.1:3/v1"))
    #expect(lines.last?.contains("http://127.0.0.1:5/v1") == true)
    let welcome = RunSession.welcome(plan, StackFiles(directory: ".tidemark"))
    #expect(lines.count == 10 && welcome.contains(".tidemark/t.log"))
    #expect(welcome.contains("cat .tidemark/server.token"))
  }
}
