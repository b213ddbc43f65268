import Testing

@testable import DumpReaders

/// Times of dumps.
@Suite struct DumpTimeTests {
  @Test(arguments: [
    ("2021-02-17T08:17:49.745857Z", "2021-02-17T08:17:49.745Z", 1_613_549_869_745_857),
    ("2024-02-29T23:59:59Z", "2024-02-29T23:59:59.000Z", 1_709_251_199_000_000),
    ("2024-03-01T01:30:00+01:30", "2024-03-01T00:00:00.000Z", 1_709_251_200_000_000),
    ("2025-01-23T13:06:58.365621247Z", "2025-01-23T13:06:58.365Z", 1_737_637_618_365_621),
    ("1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000Z", 0),
    ("2000-12-31t18:00:00.5-06:00", "2001-01-01T00:00:00.500Z", 978_307_200_500_000),
    ("9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999Z", 253_402_300_799_999_999),
  ])
  func timesKeepMicroseconds(_ given: String, _ text: String, _ microseconds: Int64) throws {
    let time = try #require(DumpTime(rfc3339: given))
    #expect(time.microseconds == microseconds)
    #expect(time.text == text)
  }

  @Test(arguments: [
    "", "2024", "2023-02-29T00:00:00Z", "2024-13-01T00:00:00Z", "2024-01-01T24:00:00Z", "2024-01-01T00:00:00",
    "2024-01-01T00:00:00.Z", "2024-01-01T00:00:00Zx", "0001-01-01T00:00:00Z", "1969-12-31T23:59:59Z",
    "9999-12-31T23:59:59-01:00", "2024-01-01T00:00:00+1:00", "２024-01-01T00:00:00Z",
  ])
  func malformedTimesAreNone(_ text: String) { #expect(DumpTime(rfc3339: text) == nil) }

  @Test func numbersOutsideOfTheYearsAreNone() {
    for number in [Int64.min, -1, Int64.max, 253_402_300_800_000] { #expect(DumpTime(milliseconds: number) == nil) }
    #expect(DumpTime(milliseconds: 1)?.text == "1970-01-01T00:00:00.001Z")
  }
}
