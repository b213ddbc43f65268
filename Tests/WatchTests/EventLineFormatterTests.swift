import Testing

@testable import Watch

/// Formatting of events as lines.
@Suite struct EventLineFormatterTests {
  private static let base = #""cid":"messaging:team","created_at":"2026-01-02T03:04:05.678Z""#

  @Test(arguments: [
    (
      "message.read", #""user":{"id":"bob"},"last_read_message_id":"m42","last_read_seq":42"#,
      "bob read up to m42 in messaging:team"
    ),
    (
      "message.read", #""user":{"id":"bob"},"last_read_seq":42,"thread_id":"m1""#,
      "bob read up to number 42 in the thread of m1 in messaging:team"
    ),
    (
      "message.delivered", #""user":{"id":"bob"},"last_delivered_message_id":"m42""#,
      "bob received up to m42 in messaging:team"
    ),
    (
      "read_state.changed", #""user":{"id":"bob"},"last_read_seq":0,"last_delivered_seq":7"#,
      "bob is shown as having read up to nothing, received up to number 7 in messaging:team"
    ),
    (
      "notification.mark_read", #""user":{"id":"bob"},"last_read_message_id":"m42","unread_messages":0"#,
      "bob, own devices: read up to m42 in messaging:team, 0 unread"
    ),
    (
      "notification.mark_unread", #""user":{"id":"bob"},"first_unread_message_id":"m40","unread_messages":3"#,
      "bob, own devices: unread from m40 in messaging:team, 3 unread"
    ),
    (
      "notification.mark_unread", #""user":{"id":"bob"},"unread_messages":0,"marked_unread":true"#,
      "bob, own devices: nothing unread in messaging:team, flagged as a whole"
    ),
    (
      "notification.totals", #""total_unread_count":12,"unread_channels":1,"unread_threads":2"#,
      "12 unread in 1 channel and 2 threads"
    ),
    (
      "message.status", #""user":{"id":"alice"},"from_seq":3,"to_seq":7,"last_message_id":"m7","status":"read""#,
      "alice's messages from number 3 up to m7 are read in messaging:team"
    ),
    (
      "message.status", #""user":{"id":"alice"},"from_seq":7,"to_seq":7,"last_message_id":"m7","status":"delivered""#,
      "alice's m7 is delivered in messaging:team"
    ),
    (
      "message.receipt",
      #"""
      "message_id":"m7","receipt_status":"processing","read_count":1,"unread_count":2,\#
      "user":{"id":"bob"},"note":"on it"
      """#, "m7 is processing in messaging:team, read by 1, not by 2; acknowledged by bob: “on it”"
    ),
    (
      "message.receipt", #""message_id":"m7","receipt_status":"expired","read_count":0,"unread_count":3"#,
      "m7 is expired in messaging:team, read by 0, not by 3"
    ),
    (
      "message.new", #""user":{"id":"alice"},"message":{"id":"m43","silent":true}"#,
      "alice sent m43 in messaging:team, silent"
    ),
    (
      "message.new", #""message":{"id":"r1","silent":false,"receipt":true},"thread_id":"m1""#,
      "r1 was sent in the thread of m1 in messaging:team, with an acknowledgement request"
    ), ("message.deleted", #""message_id":"m9""#, "m9 was deleted in messaging:team"),
    ("channel.truncated", #""seq":9"#, "messaging:team was truncated"),
    ("channel.updated", #""channel":{"member_count":3}"#, "messaging:team was changed"),
    ("channel.deleted", #""user":null"#, "messaging:team was deleted"),
    (
      "member.added", #""user":{"id":"dave"},"role":"admin","member_count":4"#,
      "dave joined messaging:team as admin, 4 members"
    ), ("member.removed", #""user":{"id":"dave"},"member_count":1"#, "dave left messaging:team, 1 member"),
    ("stream.reset", #""note":null"#, "earlier events may be missing: query the state again"),
  ]) func eventIsFormattedAsSentence(_ type: String, _ fields: String, _ sentence: String) {
    let line = EventLineFormatter.line(StreamedEvent(type: type, data: "{\(Self.base),\(fields)}"))
    let head = "03:04:05.678  " + type + String(repeating: " ", count: 24 - type.count) + "  "
    #expect(line == head + sentence)
  }

  @Test(arguments: [("message.moved", #"{"created_at":"x"}"#), ("message", "no document")])
  func unknownEventsAreShownRaw(_ type: String, _ data: String) {
    let padding = String(repeating: " ", count: 24 - type.count + 2)
    #expect(
      EventLineFormatter.line(StreamedEvent(type: type, data: data)) == String(repeating: " ", count: 14) + type
        + padding + data
    )
  }

  /// A note may contain terminal control characters.
  @Test func controlCharactersAreReplaced() {
    let line = EventLineFormatter.line(
      StreamedEvent(
        type: "message.receipt",
        data: #"{"message_id":"m7","user":{"id":"eve"},"note":"\u001b[2J\u0007\u009b1m\u202e\n"}"#
      )
    )
    #expect(line.hasSuffix("acknowledged by eve: “\u{FFFD}[2J\u{FFFD}\u{FFFD}1m\u{FFFD}\u{FFFD}”"))
    #expect(!EventLineFormatter.line(StreamedEvent(data: "\u{1B}]0;x")).contains("\u{1B}"))
  }

  @Test func jsonIsFormattedOnOneLine() {
    #expect(EventLineFormatter.json(StreamedEvent(data: "{\n  \"a\": 1\r\n}")) == "{   \"a\": 1  }")
  }
}
