import Testing

@testable import DumpReaders

/// One small dump of each product, whole.
@Suite struct FixtureTests {
  @Test func mattermostExportBecomesLines() throws {
    let conversion = try Conversion.fixture(.mattermost)
    #expect(
      conversion.lines == [
        "channel mattermost:crew/town-square created 09:00:00",
        "1714554000000:alice by alice 09:00:00 silent",
        "1714554060000:alice by alice 09:01:00",
        "1714554120000:bob by bob 09:02:00",
        "1714554120000:bob:2 by bob 09:02:00",
        "1714554070000:bob by bob 09:01:10 reply to 1714554060000:alice",
        "1714554080000:alice by alice 09:01:20 reply to 1714554060000:alice",
        "alice as channel_admin read 1714554120000:bob:2 at 09:03:00",
        "bob read 1714554060000:alice at 09:01:30.500",
        "carol",
        "alice in 1714554060000:alice read 1714554080000:alice at 09:01:25",
        "bob in 1714554060000:alice read 1714554070000:bob at 09:01:15",
        "channel mattermost-direct:alice,bob created 09:04:00",
        "1714554240000:alice by alice 09:04:00",
        "bob read 1714554240000:alice at 09:05:00",
        "alice",
      ]
    )
    #expect(conversion.refused == [])
    #expect(conversion.leftOut == "1 files, 1 permission roles, 1 reactions")
    #expect(
      conversion.origins[2...5] == ["line 9, post", "line 10, post", "line 11, post", "line 9, post.replies[0]"]
    )
  }

  @Test func streamExportBecomesLines() throws {
    let conversion = try Conversion.fixture(.stream)
    #expect(
      conversion.lines == [
        "user carol hides read_receipts",
        "channel messaging:general created 08:00:00",
        "m1 by alice 09:00:00.100 mentions bob moves",
        "m2 by bob 09:02:00 deleted 09:05:00 moves",
        "m3 by alice 09:03:00 silent moves",
        "r1 by bob 09:01:00 reply to m1 moves",
        "alice as channel_moderator joined 08:00:00 read m3 at 09:03:00",
        "bob as channel_member joined 08:00:00 read m2 at 09:02:10 delivered m3 at 09:03:01",
        "carol as channel_member joined 09:02:30 muted",
      ]
    )
    #expect(conversion.refused == [])
    #expect(conversion.leftOut == "1 attachments, 3 reactions")
    #expect(conversion.origins[3] == "line 2, messages[2]")
  }

  @Test func sendbirdAnswersBecomeLines() throws {
    let conversion = try Conversion.fixture(.sendbird)
    #expect(
      conversion.lines == [
        "channel group_channels:sendbird_group_channel_1 created 08:00:00",
        "7001 by alice 09:01:00 mentions all moves",
        "7003 by bob 09:01:20 deleted moves",
        "7004 09:02:00 silent moves",
        "7002 by bob 09:01:10 reply to 7001 mentions alice moves",
        "alice as operator read 7004 at 09:03:00 delivered 7004 at 09:03:00",
        "bob read 7003 at 09:01:30 delivered 7004 at 09:02:30",
      ]
    )
    #expect(conversion.refused == [])
    #expect(conversion.leftOut == "1 files, 1 invitations")
  }

  @Test func matrixEventsBecomeLines() throws {
    let conversion = try Conversion.fixture(.matrix)
    #expect(
      conversion.lines == [
        // Bob's furthest receipt is private.
        "user @bob:example.org hides read_receipts",
        "channel matrix:!crew:example.org created 08:00:00",
        "$m1 by @alice:example.org 09:01:00 mentions @bob:example.org",
        "$m2 by @bob:example.org 09:01:40 deleted 09:01:50",
        "$m3 by @alice:example.org 09:02:00",
        "$r1 by @bob:example.org 09:01:30 reply to $m1",
        "@alice:example.org joined 08:00:00.100 read $m3 at 09:02:20",
        "@bob:example.org joined 08:01:40 left 09:01:10",
        "@bob:example.org joined 09:01:20 read $m2 at 09:02:30 hidden",
        "@alice:example.org in $m1 read $r1 at 09:01:36",
      ]
    )
    #expect(conversion.refused == [])
    #expect(conversion.leftOut == "1 m.room.topic events, 1 reactions")
  }

  /// A dump may arrive in pieces of any size; the lines are the same, and so are those of a second conversion.
  @Test(arguments: DumpFormat.allCases, [1, 2, 7, 1_000])
  func piecesChangeNothing(_ format: DumpFormat, _ size: Int) throws {
    #expect(try Conversion.fixture(format, pieces: size) == Conversion.fixture(format))
  }

  /// A dump that is cut anywhere is refused, or gives some lines; it never crashes.
  @Test(arguments: DumpFormat.allCases)
  func cutDumpsNeverCrash(_ format: DumpFormat) throws {
    let dump = try Conversion.bytes(of: format)
    for end in stride(from: 0, to: dump.count, by: 13) { _ = try? Conversion(format, Array(dump[..<end])) }
  }
}
