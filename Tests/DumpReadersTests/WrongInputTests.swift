import Testing

@testable import DumpReaders

/// Dumps that are not what they should be: each error names the place, the field and the remedy.
@Suite struct WrongInputTests {
  private static let version = #"{"type":"version","version":1}"# + "\n"

  /// A wrong record is refused, and the others are converted.
  @Test(arguments: [
    (#"{"type":"post","post":{"team":"t","channel":"c","user":"ann"}}"#, "line 2: post.create_at is missing"),
    (
      #"{"type":"post","post":{"team":"t","channel":"c","user":"ann","create_at":"now"}}"#,
      "line 2: post.create_at must be a whole number"
    ),
    (
      #"{"type":"post","post":{"team":"t","channel":"c","user":"ann","create_at":0}}"#,
      "line 2: create_at is 0: a post needs its time"
    ),
    (
      #"{"type":"post","post":{"team":"t","channel":"c","user":"ann","create_at":-5}}"#,
      "line 2: post.create_at must be milliseconds since 1970, of the years 1970 to 9999"
    ),
    (#"{"type":"post","post":{"channel":"c","user":"ann","create_at":1}}"#, "line 2: post.team is missing"),
    (
      #"{"type":"post","post":{"team":"t","channel":"c","user":"","create_at":1}}"#,
      "line 2: user id is empty: Tidemark takes 1 to 255 bytes"
    ),
    (#"{"type":"post"}"#, "line 2: post is missing"),
    (#"{"type":"post","post":[]}"#, "line 2: post must be an object"),
    (#"{"type":7}"#, "line 2: type must be a string"),
    (
      #"{"type":"user","user":{"username":"a","teams":[{"name":"t","channels":[{"name":"c","last_viewed_at":"x"}]}]}}"#,
      "line 2, user.teams[0].channels[0]: last_viewed_at must be a whole number"
    ),
    (
      #"{"type":"post","post":{"team":"t","channel":"c","user":"ann","create_at":1,"replies":[{"user":"bob"}]}}"#,
      "line 2, post.replies[0]: create_at is missing"
    ),
    (#"{"type":"post","post":{"team":"t""#, "line 2: it is not JSON, or was cut off"),
    ("null", "line 2: it is null: it must be an object"),
    ("]", "line 2: it is not JSON, or was cut off"),
    (String(repeating: "[", count: 200), "line 2: has more than 128 levels; shorten it or leave it out"),
    (
      #"{"type":"\#(String(repeating: "x", count: 400))"}"#,
      "line 2: has more than 400 bytes; shorten it or leave it out"
    ),
  ])
  func wrongLinesAreRefused(_ line: String, _ refusal: String) throws {
    let good = #"{"type":"channel","channel":{"team":"t","name":"c"}}"#
    for size in [1, 9, .max] {
      let dump = Self.version + line + "\n\n" + good
      let conversion = try Conversion(.mattermost, dump, pieces: size, objectBytesMax: 400)
      #expect(conversion.refused == [refusal])
      #expect(conversion.lines.first?.hasPrefix("channel mattermost:t/c") == true)
    }
  }

  @Test(arguments: [
    (
      DumpFormat.stream, #"{"channel":{"type":"a","id":"b"},"messages":[{"id":"m"}]}"#,
      "line 1, messages[0]: created_at is missing"
    ),
    (
      .stream, #"{"channel":{"type":"a b","id":"c"}}"#,
      #"line 1: channel type "a b": Tidemark takes 1 to 64 of A-Z a-z 0-9 _ -"#
    ),
    (.stream, #"{"channel":{"id":"c"}}"#, "line 1: channel.type is missing"),
    (
      .stream, #"{"type":"message","item":{}}"#,
      "line 1: channel is missing: give an export of channels that was made without version v2"
    ),
    (
      .stream, #"{"channel":{"type":"a","id":"b"},"messages":[{"id":"m","created_at":"yesterday"}]}"#,
      "line 1, messages[0]: created_at must be a time, as RFC 3339 has it"
    ),
    (
      .stream, #"{"channel":{"type":"a","id":"b"},"members":[{"user_id":"a\u0000b"}]}"#,
      #"line 1, members[0]: user id "a\u{0}b" has control characters, which Tidemark does not take"#
    ),
    (
      .stream, #"{"channel":{"type":"a","id":"b"},"members":[{"channel_role":"x"}]}"#,
      "line 1, members[0]: user_id is missing"
    ),
    (
      .sendbird, #"{"members":[{"user_id":"bob"}],"next":""}"#,
      "line 1: channel_url is missing: add it to a page of members, or use show_member of a channel"
    ),
    (
      .sendbird, #"{"user_id":"bob"}"#,
      "line 1: it is no answer with channels, messages or members of the Platform API"
    ),
    (
      .sendbird, #"{"messages":[{"message_id":"x","channel_url":"a","created_at":1}]}"#,
      "line 1, messages[0]: message_id must be a whole number"
    ),
    (
      .matrix, #"{"messages":[{"type":"m.room.message","event_id":"$m","origin_server_ts":1}]}"#,
      "line 1, messages[0]: room_id is missing"
    ),
    (
      .matrix, #"{"messages":[{"type":"m.room.message","room_id":"!a","origin_server_ts":1}]}"#,
      "line 1, messages[0]: event_id is missing"
    ),
    (.matrix, #"{"name":"x"}"#, "line 1: it is no export of a room, no answer of /messages or /sync, and no event"),
  ])
  func wrongRecordsAreRefused(_ format: DumpFormat, _ dump: String, _ refusal: String) throws {
    #expect(try Conversion(format, dump).refused == [refusal])
  }

  /// Ids of 255 bytes are taken, longer ones are refused by name.
  @Test func longIDsAreRefused() throws {
    let (long, longer) = (String(repeating: "é", count: 127) + "x", String(repeating: "é", count: 128))
    let conversion = try Conversion(
      .sendbird,
      #"{"channel_url":"a","members":[{"user_id":"\#(long)"},{"user_id":"\#(longer)"}]}"#
    )
    #expect(conversion.lines.dropFirst() == [long])
    let shown = String(repeating: "é", count: 80)
    #expect(conversion.refused == [#"line 1, members[1]: user id "\#(shown)…" has 256 bytes: Tidemark takes 1 to 255"#])
  }

  /// What cannot be read at all ends the conversion.
  @Test(arguments: [
    (
      DumpFormat.mattermost, #"{"type":"team"}"#,
      "line 1: the first line must be the version; give the import.jsonl of an export"
    ),
    (.mattermost, #"{"type":"version","version":2}"#, "line 1: version 2 of the format; this reads version 1"),
    (.mattermost, "PK\u{3}\u{4}…", "line 1: it is an archive; unpack it, and give the JSON file in it"),
    (.stream, "<html>", "line 1: expected a JSON object; give the JSON file that the product wrote, unpacked"),
    (.stream, "[\n[", "line 2: expected a JSON object; give the JSON file that the product wrote, unpacked"),
    (.stream, "{}\n{", "line 2: the dump ends within an object or a list; fetch it again"),
    (.stream, "[{}", "line 1: the dump ends within an object or a list; fetch it again"),
    (
      .stream, #"{"a":"\#(String(repeating: "x", count: 400))"}"#,
      "line 1: an object has more than 400 bytes; export fewer channels or a shorter time at once"
    ),
    (
      .stream, #"{"a":"# + String(repeating: "[", count: 200),
      "line 1: an object has more than 128 levels; leave it out"
    ),
    (.mattermost, "[\n{", "line 1: the first line must be the version; give the import.jsonl of an export"),
  ])
  func unreadableDumpsEndTheConversion(_ format: DumpFormat, _ dump: String, _ text: String) {
    for size in [1, 5, .max] {
      #expect(throws: DumpError(text)) { try Conversion(format, dump, pieces: size, objectBytesMax: 400) }
    }
  }

  /// Byte order marks, blank lines, carriage returns, lists and a missing line feed at the end do not matter.
  @Test func formsOfFilesDoNotMatter() throws {
    let channel = #"{"channel":{"type":"a","id":"b"}}"#
    for dump in ["\u{FEFF}" + channel, "\r\n" + channel + "\r\n", "[ " + channel + " ]", "[]\n\(channel)"] {
      #expect(try Conversion(.stream, dump).lines == ["channel a:b"])
    }
    let lines = "\u{FEFF}" + Self.version + "\r\n  " + #"{"type":"channel","channel":{"team":"t","name":"c"}}"# + "\r\n"
    #expect(try Conversion(.mattermost, lines).lines == ["channel mattermost:t/c"])
    for format in DumpFormat.allCases { #expect(try Conversion(format, "").lines == []) }
  }

  /// Names from the dump that a person reads, and places in it, have no control characters.
  @Test func namesFromTheDumpAreShownPlainly() throws {
    let conversion = try Conversion(
      .matrix,
      #"{"rooms":{"join":{"!a\n\u001b":{"timeline":{"events":[{"type":"x","event_id":"$e","origin_server_ts":1}]}}}}}"#
    )
    #expect(conversion.refused.allSatisfy { !$0.contains("\n") && !$0.contains("\u{1b}") })
    #expect(conversion.refused.count == 1 && conversion.refused[0].hasPrefix(#"line 1, rooms.join["!a\u{a}\u{1b}"]"#))
  }
}
