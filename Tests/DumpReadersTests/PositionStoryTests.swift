import Testing

@testable import DumpReaders

/// Where a position is, and which one of several counts. The stories are in the shape of Matrix events, which can say
/// the most.
@Suite struct PositionStoryTests {
  /// A room with bob, messages $1 to $3 at seconds 1 to 3, a reply $r to $1 at second 4, and these receipts, each as
  /// `event kind seconds thread`.
  private static func bob(_ receipts: [String]) throws -> [String] {
    var events = [
      #"{"type":"m.room.create","room_id":"!a","event_id":"$c","state_key":"","origin_server_ts":1714554000000}"#,
      event("$j", "m.room.member", 0, #""state_key":"@bob:x","content":{"membership":"join"}"#),
      event("$topic", "m.room.topic", 2, #""state_key":"""#),
    ]
    for number in 1...3 { events.append(event("$\(number)", "m.room.message", number, #""content":{}"#)) }
    events.append(
      event("$r", "m.room.message", 4, #""content":{"m.relates_to":{"rel_type":"m.thread","event_id":"$1"}}"#)
    )
    for receipt in receipts {
      let words = receipt.split(separator: " ").map(String.init)
      let thread = words.count > 3 ? #","thread_id":"\#(words[3])""# : ""
      let mark = #"{"@bob:x":{"ts":1714554000000\#(thread)}}"#.replacing("4000000", with: "40\(words[2])000")
      events.append(#"{"type":"m.receipt","room_id":"!a","content":{"\#(words[0])":{"\#(words[1])":\#(mark)}}}"#)
    }
    let conversion = try Conversion(.matrix, events.joined(separator: "\n"))
    #expect(conversion.refused == [])
    return conversion.lines.filter { $0.hasPrefix("@bob") } + [conversion.leftOut]
  }

  private static func event(_ id: String, _ type: String, _ second: Int, _ fields: String) -> String {
    let time = #""origin_server_ts":\#(1_714_554_000_000 + second * 1_000)"#
    return #"{"type":"\#(type)","room_id":"!a","event_id":"\#(id)",\#(time),\#(fields)}"#
  }

  @Test(arguments: [
    // What it names.
    (["$2 m.read 10"], ["@bob:x joined 09:00:00 read $2 at 09:00:10"]),
    (["$2 m.read.private 10"], ["@bob:x joined 09:00:00 read $2 at 09:00:10 hidden"]),
    // The further one of two counts, in any order; a public one before a private one.
    (["$3 m.read 20", "$2 m.read 10"], ["@bob:x joined 09:00:00 read $3 at 09:00:20"]),
    (["$2 m.read 10", "$3 m.read.private 20"], ["@bob:x joined 09:00:00 read $3 at 09:00:20 hidden"]),
    (["$3 m.read.private 20", "$3 m.read 30"], ["@bob:x joined 09:00:00 read $3 at 09:00:30"]),
    (["$3 m.read 30", "$3 m.read 20"], ["@bob:x joined 09:00:00 read $3 at 09:00:20"]),
    // An event that is no message stands for the messages before it.
    (["$topic m.read 10"], ["@bob:x joined 09:00:00 read $2 at 09:00:10"]),
    (["$c m.read 10"], ["@bob:x joined 09:00:00"]),
    // Threads have positions of their own.
    (["$r m.read 10 $1"], ["@bob:x joined 09:00:00", "@bob:x in $1 read $r at 09:00:10"]),
    (["$r m.read 10"], ["@bob:x joined 09:00:00 read $3 at 09:00:10"]),
    (["$3 m.read 10 main"], ["@bob:x joined 09:00:00 read $3 at 09:00:10"]),
    (["$1 m.read 10 $1"], ["@bob:x joined 09:00:00", "@bob:x in $1"]),
  ])
  func receiptsBecomePositions(_ receipts: [String], _ expected: [String]) throws {
    #expect(try Self.bob(receipts) == expected + ["1 m.room.topic events"])
  }

  @Test(arguments: [
    (["$9 m.read 10"], "1 m.room.topic events, 1 positions at messages that are not in the dump"),
    (["$3 m.read 10 $3"], "1 m.room.topic events, 1 participants of threads without replies"),
    (["$3 m.fully_read 10"], "1 m.fully_read receipts, 1 m.room.topic events"),
  ])
  func receiptsWithoutPlaceAreCounted(_ receipts: [String], _ leftOut: String) throws {
    #expect(try Self.bob(receipts) == ["@bob:x joined 09:00:00", leftOut])
  }

  /// A position that is only a time is the last message up to then, and that time. 0 is no time.
  @Test(arguments: [
    (0, "bob"), (1_714_554_000_999, "bob"), (1_714_554_001_000, "bob read 1 at 09:00:01"),
    (1_714_554_002_999, "bob read 2 at 09:00:02.999"), (1_714_640_400_000, "bob read 2 at 2024-05-02T09:00:00.000Z"),
  ])
  func timesBecomePositions(_ time: Int, _ expected: String) throws {
    let conversion = try Conversion(
      .sendbird,
      """
      {"message_id":2,"channel_url":"a","created_at":1714554002000}
      {"message_id":1,"channel_url":"a","created_at":1714554001000}
      {"channel_url":"a","members":[{"user_id":"bob","read_ts":\(time)}]}
      """
    )
    #expect(conversion.lines.last == expected)
  }

  /// Stream's times decide with microseconds, and where the named message was not exported.
  @Test(arguments: [
    (#""last_read":"2024-05-01T09:00:01.000499Z""#, "bob"),
    (#""last_read":"2024-05-01T09:00:01.0005Z""#, "bob read m1 at 09:00:01"),
    (#""last_read":"2024-05-01T09:00:05Z","last_read_message_id":"m1""#, "bob read m1 at 09:00:05"),
    (#""last_read":"2024-05-01T09:00:05Z","last_read_message_id":"gone""#, "bob read m2 at 09:00:05"),
    (#""last_read":1714554005000000000"#, "bob read m2 at 09:00:05"),
    (#""last_read":"0001-01-01T00:00:00Z","last_read_message_id":"""#, "bob"),
    (#""last_read_message_id":"m2""#, "bob read m2"),
    (#""last_delivered_message_id":"m1""#, "bob delivered m1"),
  ])
  func readStatesBecomePositions(_ fields: String, _ expected: String) throws {
    let conversion = try Conversion(
      .stream,
      """
      {"channel":{"type":"a","id":"b"},"messages":[
        {"id":"m1","created_at":"2024-05-01T09:00:01.0005Z"},{"id":"m2","created_at":"2024-05-01T09:00:02Z"}],
       "members":[{"user_id":"bob"}],"read":[{"user":{"id":"bob"},\(fields)}]}
      """
    )
    #expect(conversion.lines.last == expected)
  }

  /// A user with a private receipt that counts hides read receipts, once; one whose public receipt is ahead does not.
  @Test func privateReceiptsHideTheUser() throws {
    func room(_ id: String, _ receipts: String) -> String {
      let fields = #""room_id":"\#(id)","origin_server_ts":1714554000000"#
      return #"{"type":"m.room.member","event_id":"$j","state_key":"bob",\#(fields),"content":{"membership":"join"}}"#
        + #"{"type":"m.room.message","event_id":"$m",\#(fields)}"#
        + #"{"type":"m.receipt","room_id":"\#(id)","content":{"$m":{\#(receipts)}}}"#
    }
    let (hidden, shown) = (#""m.read.private":{"bob":{"ts":1714554000000}}"#, #""m.read":{"bob":{"ts":1714554000000}}"#)
    let users = { (dump: String) in
      try Conversion(.matrix, dump).lines.filter { $0.hasPrefix("user") || $0.hasPrefix("channel") }
    }
    let times = " created 09:00:00"
    #expect(
      try users(room("a", shown) + room("b", hidden) + room("c", hidden)) == [
        "channel matrix:a" + times, "user bob hides read_receipts", "channel matrix:b" + times,
        "channel matrix:c" + times,
      ]
    )
    #expect(try users(room("a", hidden + "," + shown)) == ["channel matrix:a" + times])
  }

  @Test func positionsOfStrangersAreCounted() throws {
    let conversion = try Conversion(
      .stream,
      #"{"channel":{"type":"a","id":"b"},"read":[{"user":{"id":"eve"},"last_read":"2024-05-01T09:00:00Z"}]}"#
    )
    #expect(conversion.lines == ["channel a:b"])
    #expect(conversion.leftOut == "1 positions of users who are no members")
  }
}
