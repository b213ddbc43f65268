import ReceiptModel
import StoreEngine
import Testing

/// The clock readings that are accepted as the shards' time (R20). Times are in minutes. The limits are one hour for a
/// jump and ten hours at a start.
@Suite("Clock guard")
struct ClockGuardTests {
  private static let minute: Int64 = 60_000
  private static let limits = ClockGuard.Limits(jumpMax: 60 * minute, startMax: 600 * minute)

  /// A clock reading at a time since boot, and its expected result.
  struct Reading {
    var boot: Int64
    var wall: Int64
    var expected: String
  }

  struct Story: CustomTestStringConvertible {
    var testDescription: String
    /// 0: no time was ever logged.
    var logged: Int64 = 1_000
    /// At the start, 5 minutes after boot.
    var wall: Int64 = 1_000
    var start = "taken"
    var readings: [Reading] = []
  }

  static let stories = [
    Story(
      testDescription: "a steady clock is accepted",
      readings: [
        Reading(boot: 5, wall: 1_000, expected: "1000"), Reading(boot: 500, wall: 1_495, expected: "1495"),
      ]
    ),
    Story(
      testDescription: "a jump is held while time advances with the uptime, until the clock is right",
      readings: [
        Reading(boot: 6, wall: 1_001, expected: "1001"),
        Reading(boot: 7, wall: 1_063, expected: "held: 1002, 61 ahead"),
        Reading(boot: 9, wall: 9_004, expected: "held 1004, 8000 ahead"),
        Reading(boot: 10, wall: 1_066, expected: "held 1005, 61 ahead"),
        Reading(boot: 11, wall: 1_066, expected: "ended: 1066"),
        Reading(boot: 12, wall: 1_067, expected: "1067"),
      ]
    ),
    Story(
      testDescription: "consecutive steps within the limit are accepted",
      readings: [
        Reading(boot: 6, wall: 1_061, expected: "1061"), Reading(boot: 7, wall: 1_122, expected: "1122"),
        Reading(boot: 8, wall: 1_184, expected: "held: 1123, 61 ahead"),
      ]
    ),
    Story(
      testDescription: "a clock set back may be set forward to its old time plus the jump limit",
      readings: [
        Reading(boot: 6, wall: 400, expected: "400"), Reading(boot: 7, wall: 1_002, expected: "1002"),
        Reading(boot: 8, wall: 400, expected: "400"), Reading(boot: 9, wall: 1_064, expected: "1064"),
        Reading(boot: 10, wall: 400, expected: "400"),
        // A held time advances from the reading that was accepted last.
        Reading(boot: 11, wall: 1_127, expected: "held: 401, 726 ahead"),
      ]
    ),
    Story(
      testDescription: "a clock far ahead is corrected",
      readings: [
        Reading(boot: 6, wall: 99_999, expected: "held: 1001, 98998 ahead"),
        Reading(boot: 7, wall: 10, expected: "ended: 10"),
      ]
    ),
    Story(
      testDescription: "a new store accepts any clock",
      logged: 0,
      wall: 99_999,
      readings: [Reading(boot: 6, wall: 100_000, expected: "100000")]
    ),
    Story(
      testDescription: "downtime up to the start limit is accepted",
      wall: 1_600,
      start: "gap of 600",
      readings: [
        Reading(boot: 6, wall: 1_601, expected: "1601"),
        Reading(boot: 7, wall: 1_663, expected: "held: 1602, 61 ahead"),
      ]
    ),
    Story(testDescription: "an hour is no gap", wall: 1_060, start: "taken"),
    Story(
      testDescription: "downtime beyond the start limit is held at the last logged time",
      wall: 1_601,
      start: "held, 601 ahead",
      readings: [
        Reading(boot: 6, wall: 1_602, expected: "held 1001, 601 ahead"),
        Reading(boot: 15, wall: 1_610, expected: "ended: 1610"),
        Reading(boot: 16, wall: 1_672, expected: "held: 1611, 61 ahead"),
      ]
    ),
    Story(
      testDescription:
        "a log far ahead is reported; the clock's time is used, and the shards' times stand still",
      wall: 900,
      start: "behind by 100",
      readings: [Reading(boot: 6, wall: 901, expected: "901")]
    ),
    Story(testDescription: "a log slightly ahead is not reported", wall: 940, start: "taken"),
  ]

  @Test("plausible times are accepted, and jumps are refused", arguments: stories)
  func plausibleTimesAreAccepted(_ story: Story) {
    func time(_ minutes: Int64) -> Timestamp { Timestamp(milliseconds: minutes * Self.minute) }
    var clock = ClockGuard(
      limits: Self.limits,
      logged: time(story.logged),
      wall: time(story.wall),
      boot: 5 * Self.minute
    )
    let start =
      switch clock.start {
      case .accepted: "taken"
      case .acceptedWithGap(let gap): "gap of \(gap / Self.minute)"
      case .behindLog(let gap): "behind by \(gap / Self.minute)"
      case .held(let ahead): "held, \(ahead / Self.minute) ahead"
      }
    #expect(start == story.start)
    #expect(clock.isHeld == clock.isHeldSinceStart)
    for reading in story.readings {
      let (wall, boot) = (time(reading.wall), reading.boot * Self.minute)
      let change = clock.read(wall: wall, boot: boot)
      let shown = (clock.isHeld ? clock.time(boot: boot) : wall).milliseconds / Self.minute
      let ahead = clock.ahead(wall: wall, boot: boot) / Self.minute
      let words =
        switch change {
        case .none: clock.isHeld ? "held \(shown), \(ahead) ahead" : "\(shown)"
        case .heldSince(let told): "held: \(shown), \(told / Self.minute) ahead"
        case .released: "ended: \(shown)"
        }
      #expect(words == reading.expected, "at \(reading.boot)")
      #expect(clock.isHeld || wall.milliseconds - boot <= clock.differenceAccepted)
    }
  }
}
