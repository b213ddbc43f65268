import Testing

@testable import DumpReaders

/// The order of lines, ids that are made, stays, repetitions and deletions.
@Suite struct OrderStoryTests {
  private static func post(_ user: String, _ second: Int, _ more: String = "") -> String {
    let fields = #""team":"t","channel":"c","user":"\#(user)","create_at":\#(1_714_554_000_000 + second * 1_000)"#
    return #"{"type":"post","post":{\#(fields)\#(more)}}"#
  }

  private static func mattermost(_ lines: [String]) throws -> [String] {
    let conversion = try Conversion(.mattermost, ([#"{"type":"version","version":1}"#] + lines).joined(separator: "\n"))
    #expect(conversion.refused == [])
    return conversion.lines
  }

  /// Messages come by time; those of the same time as in the dump. Replies come after all messages.
  @Test func messagesComeByTime() throws {
    let reply = #","replies":[{"user":"ann","create_at":1714554001000}]"#
    #expect(
      try Self.mattermost([Self.post("bob", 3), Self.post("cat", 2, reply), Self.post("ann", 3), Self.post("ann", 1)])
        == [
          "channel mattermost:t/c created 09:00:01",
          "1714554001000:ann:2 by ann 09:00:01",
          "1714554002000:cat by cat 09:00:02",
          "1714554003000:bob by bob 09:00:03",
          "1714554003000:ann by ann 09:00:03",
          "1714554001000:ann by ann 09:00:01 reply to 1714554002000:cat",
        ]
    )
  }

  /// A dump may mix channels; their lines do not.
  @Test func channelsStayTogether() throws {
    let other = Self.post("ann", 2).replacing(#""c""#, with: #""d""#)
    #expect(
      try Self.mattermost([Self.post("ann", 1), other, Self.post("ann", 3)]) == [
        "channel mattermost:t/c created 09:00:01", "1714554001000:ann by ann 09:00:01",
        "1714554003000:ann by ann 09:00:03", "channel mattermost:t/d created 09:00:02",
        "1714554002000:ann by ann 09:00:02",
      ]
    )
  }

  /// Parts of a made id cannot be mistaken for others.
  @Test func madeIDsDiffer() throws {
    let lines = [
      #"{"type":"channel","channel":{"team":"a/b","name":"c"}}"#,
      #"{"type":"channel","channel":{"team":"a","name":"b/c"}}"#,
      #"{"type":"channel","channel":{"team":"a%2Fb","name":"c"}}"#,
      #"{"type":"direct_channel","direct_channel":{"members":["bob","ann","bob"]}}"#,
      #"{"type":"direct_channel","direct_channel":{"members":["ann,bob"]}}"#,
    ]
    #expect(
      try Self.mattermost(lines).filter { $0.hasPrefix("channel") } == [
        "channel mattermost:a%2Fb/c", "channel mattermost:a/b%2Fc", "channel mattermost:a%252Fb/c",
        "channel mattermost-direct:ann,bob", "channel mattermost-direct:ann%2Cbob",
      ]
    )
  }

  /// Ids are bytes: two forms of the same letter are two users.
  @Test func formsOfLettersDiffer() throws {
    let conversion = try Conversion(
      .sendbird,
      #"{"channel_url":"a","members":[{"user_id":"\u00e9"},{"user_id":"e\u0301"}]}"#
    )
    #expect(conversion.lines.count == 3 && conversion.leftOut == "")
  }

  private static func matrix(_ changes: [String]) throws -> [String] {
    let events = changes.enumerated().map { index, change in
      let words = change.split(separator: " ")
      return #"{"type":"m.room.member","room_id":"!a","event_id":"$\#(index)","state_key":"\#(words[1])","#
        + #""origin_server_ts":\#(1_714_554_000_000 + (Int(words[0]) ?? 0) * 1_000),"#
        + #""content":{"membership":"\#(words[2])"}}"#
    }
    return Array(try Conversion(.matrix, "[" + events.joined(separator: ",") + "]").lines.dropFirst())
  }

  @Test(arguments: [
    (["1 bob join", "2 bob join"], ["bob joined 09:00:01"]),
    (["1 bob join", "2 bob leave"], ["bob joined 09:00:01 left 09:00:02"]),
    // Pages of /messages may come backwards.
    (["3 bob join", "2 bob ban", "1 bob join"], ["bob joined 09:00:01 left 09:00:02", "bob joined 09:00:03"]),
    // What happened before the first event is not known.
    (["2 bob leave", "3 bob leave"], ["bob left 09:00:02"]),
    (["1 bob invite"], []),
    (["1 bob invite", "2 bob leave"], []),
    (["1 bob invite", "2 bob join", "3 bob leave"], ["bob joined 09:00:02 left 09:00:03"]),
    (["2 cat join", "1 bob join", "3 bob leave"], ["bob joined 09:00:01 left 09:00:03", "cat joined 09:00:02"]),
  ])
  func joinsAndLeavesBecomeStays(_ changes: [String], _ expected: [String]) throws {
    #expect(try Self.matrix(changes) == expected)
  }

  /// A redaction deletes a message before or after it; what is redacted besides messages is not counted.
  @Test func redactionsDelete() throws {
    let event = #""room_id":"!a","origin_server_ts":1714554001000"#
    let conversion = try Conversion(
      .matrix,
      """
      {"type":"m.room.redaction","event_id":"$d",\(event),"content":{"redacts":"$m"}}
      {"type":"m.room.message","event_id":"$m",\(event)}
      {"type":"m.reaction","event_id":"$x",\(event)}
      {"type":"m.room.redaction","event_id":"$e",\(event),"redacts":"$x"}
      {"type":"m.room.redaction","event_id":"$f",\(event),"redacts":"$gone"}
      {"type":"m.room.message","event_id":"$edit",\(event),"content":{"m.relates_to":{"rel_type":"m.replace"}}}
      """
    )
    #expect(conversion.lines.dropFirst() == ["$m 09:00:01 deleted 09:00:01"])
    #expect(conversion.leftOut == "1 deletions of messages that are not in the dump, 1 edits, 1 reactions")
  }

  /// Pages of an API may overlap: the later one has the message as it is now.
  @Test func repeatedRecordsCountOnce() throws {
    let conversion = try Conversion(
      .sendbird,
      """
      {"messages":[{"message_id":1,"channel_url":"a","created_at":1714554001000}]}
      {"messages":[{"message_id":1,"channel_url":"a","created_at":1714554001000,"is_removed":true}]}
      {"channel_url":"a","members":[{"user_id":"bob"}]}
      {"channel_url":"a","members":[{"user_id":"bob","role":"operator"}]}
      """
    )
    #expect(conversion.lines.dropFirst() == ["1 09:00:01 deleted moves", "bob as operator"])
    #expect(conversion.leftOut == "1 repeated members, 1 repeated messages")
  }

  /// What is malformed in a message beside its id, sender and time does not make the message missing.
  @Test func malformedContentDoesNotMatter() throws {
    let matrix = try Conversion(
      .matrix,
      """
      {"type":"m.room.message","room_id":"!a","event_id":"$m","origin_server_ts":1714554001000,
       "content":{"m.relates_to":"x","m.mentions":{"user_ids":7},"membership":[]}}
      {"type":"m.room.message","room_id":"!a","event_id":"$n","origin_server_ts":1714554002000,
       "content":{"m.mentions":{"user_ids":["","@bob:x"]}}}
      """
    )
    #expect(matrix.lines.dropFirst() == ["$m 09:00:01", "$n 09:00:02 mentions @bob:x"])
    #expect(matrix.leftOut == "1 mentions of ids that Tidemark does not take" && matrix.refused == [])
    let stream = try Conversion(
      .stream,
      """
      {"channel":{"type":"a","id":"b"},"messages":[{"id":"m","created_at":"2024-05-01T09:00:00Z",
       "reaction_counts":{"like":9223372036854775807,"love":1},"attachments":"x"}]}
      """
    )
    #expect(stream.lines.dropFirst() == ["m 09:00:00 moves"] && stream.refused == [])
  }

  @Test func mentionsBeyondTheLimitAreCounted() throws {
    let users = (1...102).map { #"{"id":"u\#($0)"}"# }.joined(separator: ",")
    let conversion = try Conversion(
      .stream,
      """
      {"channel":{"type":"a","id":"b"},"members":[{"user_id":"bob","channel_role":"head of all"}],
       "messages":[{"id":"m","created_at":"2024-05-01T09:00:00Z","mentioned_users":[\(users)]}]}
      """
    )
    #expect(conversion.lines.last == "bob")
    #expect(conversion.lines[1].hasSuffix(",u99,u100 moves"))
    #expect(conversion.leftOut == "2 mentions beyond 100 in one message, 1 roles with other characters")
  }
}
