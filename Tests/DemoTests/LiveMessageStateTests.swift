import Testing
import Watch

@testable import Demo

/// A sender's view of their messages, built from events alone.
@Suite struct LiveMessageStateTests {
  /// Apply events in order.
  ///
  /// - Returns: for each event, the state of `a1` in words if it changed.
  private func changes(_ events: [(type: String, data: String)]) throws -> [String?] {
    var liveState = LiveMessageState(sender: "alice")
    return try events.map { event in
      try liveState.apply(StreamedEvent(type: event.type, data: event.data))
        ? liveState.view("a1")?.words : nil
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
      new, new, status, status,
      ("message.new", #"{"user":{"id":"bob"},"message":{"id":"b2","seq":2}}"#),
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
