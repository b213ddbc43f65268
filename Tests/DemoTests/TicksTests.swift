import LocalStack
import Operations
import Testing
import Watch

@testable import Demo

@Suite struct TicksTests {
  private func view(_ status: MessageView.Status, deliveredTo: [String] = [], readBy: [String] = []) -> MessageView {
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
    let line = TextStyle(usesColor: false).line(view(.delivered, deliveredTo: ["bob"]), textWidth: 5, nameWidth: 3)
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
    let welcome = RunSession.welcome(plan, StackFiles(directory: ".tidemark"), page: "  demo page  https://")
    #expect(lines.count == 10 && welcome.contains(".tidemark/t.log"))
    #expect(welcome.contains("cat .tidemark/server.token"))
  }
}

/// A sender's view of their messages, built from events alone.
@Suite struct LiveMessageStateTests {
  /// Apply events in order.
  ///
  /// - Returns: for each event, the state of `a1` in words if it changed.
  private func changes(_ events: [(type: String, data: String)]) throws -> [String?] {
    var liveState = LiveMessageState(sender: "alice")
    return try events.map { event in
      try liveState.apply(StreamedEvent(type: event.type, data: event.data)) ? liveState.view("a1")?.words : nil
    }
  }

  private let new = ("message.new", #"{"user":{"id":"alice"},"message":{"id":"a1","seq":1}}"#)

  @Test func stateAdvancesFromSentToRead() throws {
    let words = try changes([
      new, ("message.delivered", #"{"user":{"id":"bob"},"last_delivered_seq":1}"#),
      ("message.status", #"{"user":{"id":"alice"},"from_seq":1,"to_seq":1,"status":"delivered"}"#),
      ("message.status", #"{"user":{"id":"alice"},"from_seq":1,"to_seq":3,"status":"read"}"#),
      ("message.read", #"{"user":{"id":"bob"},"last_read_seq":1}"#),
      ("message.delivered", #"{"user":{"id":"carol"},"last_delivered_seq":2}"#),
    ])
    #expect(
      words == [
        "sent", "sent", "delivered to bob", "read by nobody, delivered to bob", "read by bob",
        "read by bob, delivered to carol",
      ]
    )
  }

  /// Repeated events, events about other users' messages or threads, and events that do not affect ticks.
  @Test func irrelevantEventsChangeNothing() throws {
    let status = ("message.status", #"{"user":{"id":"alice"},"from_seq":1,"to_seq":1,"status":"delivered"}"#)
    let words = try changes([
      new, new, status, status, ("message.new", #"{"user":{"id":"bob"},"message":{"id":"b2","seq":2}}"#),
      ("message.read", #"{"user":{"id":"alice"},"last_read_seq":2}"#),
      ("message.read", #"{"user":{"id":"bob"},"thread_id":"a1","last_read_seq":5}"#),
      ("message.status", #"{"user":{"id":"bob"},"from_seq":1,"to_seq":2,"status":"read"}"#),
      ("message.status", #"{"user":{"id":"alice"},"from_seq":2,"to_seq":9,"status":"read"}"#),
      ("notification.totals", #"{"user":{"id":"alice"},"total_unread_count":1}"#),
    ])
    #expect(words == ["sent", nil, "delivered to nobody"] + Array(repeating: nil, count: 7))
  }

  /// A row that becomes hidden from others counts as having no position.
  @Test func hiddenRowLosesItsPosition() throws {
    let words = try changes([
      new, ("message.read", #"{"user":{"id":"bob"},"last_read_seq":1}"#),
      ("message.status", #"{"user":{"id":"alice"},"from_seq":1,"to_seq":1,"status":"read"}"#),
      ("read_state.changed", #"{"user":{"id":"bob"},"last_read_seq":0,"last_delivered_seq":1}"#),
      ("message.status", #"{"user":{"id":"alice"},"from_seq":1,"to_seq":1,"status":"delivered"}"#),
    ])
    #expect(words == ["sent", "sent", "read by bob", "read by nobody, delivered to bob", "delivered to bob"])
  }

  @Test func malformedEventThrows() {
    var liveState = LiveMessageState(sender: "alice")
    #expect(throws: (any Error).self) { try liveState.apply(StreamedEvent(type: "message.read", data: "[")) }
  }
}
