import Testing
import Watch

@testable import Demo

/// What a sender sees of their messages, made of nothing but events.
@Suite struct LivePictureTests {
  /// Takes events in turn.
  ///
  /// - Returns: for each, what `a1` is in words if that changed.
  private func told(_ events: [(type: String, data: String)]) throws -> [String?] {
    var picture = LivePicture(sender: "alice")
    return try events.map { event in
      try picture.take(StreamedEvent(type: event.type, data: event.data)) ? picture.view("a1")?.words : nil
    }
  }

  private let new = ("message.new", #"{"user":{"id":"alice"},"message":{"id":"a1","seq":1}}"#)

  @Test func sentDeliveredRead() throws {
    let words = try told([
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

  /// Events that come twice, those of others' messages, of threads, and those that say nothing about ticks.
  @Test func whatChangesNothing() throws {
    let status = ("message.status", #"{"user":{"id":"alice"},"from_seq":1,"to_seq":1,"status":"delivered"}"#)
    let words = try told([
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

  /// A position that others are not shown any more is at none.
  @Test func aRowThatFalls() throws {
    let words = try told([
      new, ("message.read", #"{"user":{"id":"bob"},"last_read_seq":1}"#),
      ("message.status", #"{"user":{"id":"alice"},"from_seq":1,"to_seq":1,"status":"read"}"#),
      ("read_state.changed", #"{"user":{"id":"bob"},"last_read_seq":0,"last_delivered_seq":1}"#),
      ("message.status", #"{"user":{"id":"alice"},"from_seq":1,"to_seq":1,"status":"delivered"}"#),
    ])
    #expect(words == ["sent", "sent", "read by bob", "read by nobody, delivered to bob", "delivered to bob"])
  }

  @Test func whatIsNoEvent() {
    var picture = LivePicture(sender: "alice")
    #expect(throws: (any Error).self) { try picture.take(StreamedEvent(type: "message.read", data: "[")) }
  }
}
