import Testing

@testable import Operations

@Suite struct TimeSpanTests {
  @Test(
    arguments: [
      ("500ms", 500), ("90s", 90_000), ("15m", 900_000), ("1h", 3_600_000), ("7d", 604_800_000),
      ("0.5s", 500),
      ("1.5m", 90_000), ("5", 5_000), ("0.25", 250), ("0", 0), ("0.0004s", 0), ("", nil), ("s", nil),
      ("ms", nil),
      ("-5s", nil), ("+5s", nil), ("5 s", nil), ("5S", nil), (".5s", nil), ("5.s", nil), ("1.2.3s", nil),
      ("1e3s", nil),
      ("5s5", nil), ("5w", nil), ("nan", nil), ("99999999999999999999d", nil),
    ] as [(String, Int64?)]
  )
  func durationIsParsed(text: String, expected: Int64?) {
    #expect(TimeSpan.milliseconds(text) == expected, "\(text)")
  }

  @Test(
    arguments: [
      (0, "0s"), (500, "500ms"), (1_000, "1s"), (90_000, "90s"), (900_000, "15m"), (3_600_000, "1h"),
      (315_360_000_000, "3650d"),
    ] as [(Int64, String)]
  )
  func durationIsFormatted(milliseconds: Int64, text: String) {
    #expect(TimeSpan.text(milliseconds: milliseconds) == text)
  }

  @Test func settingsHaveARange() async throws {
    for (text, expected) in [("0.25", 250), ("250ms", 250), ("2s", 2_000), ("2", 2_000)] as [(String, Int64)] {
      let settings = try await Settings(
        flags: ["event-interval": text],
        keys: ["event-interval"],
        environment: [:]
      )
      #expect(try settings.milliseconds("event-interval", in: 100...60_000) == expected)
    }
    for text in ["99ms", "61s", "250", "soon"] {
      let settings = try await Settings(
        flags: ["event-interval": text],
        keys: ["event-interval"],
        environment: [:]
      )
      #expect(throws: SettingsError.self, "\(text)") {
        _ = try settings.milliseconds("event-interval", in: 100...60_000)
      }
    }
  }
}
