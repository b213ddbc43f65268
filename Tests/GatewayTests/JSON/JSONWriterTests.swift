import Foundation
import HTTP2Session
import NIOCore
import TestSupport
import Testing

@testable import Gateway

@Suite struct JSONWriterTests {
  private func written(_ byteMax: Int = 1_024, _ write: (inout OutputRawSpan) -> Void) -> String {
    var buffer = ByteBuffer()
    buffer.writeWithOutputRawSpan(minimumWritableBytes: byteMax) { write(&$0) }
    return String(buffer: buffer)
  }

  @Test(arguments: [
    ("", "\"\""), ("abc", "\"abc\""), ("a\"b", "\"a\\\"b\""), ("a\\b", "\"a\\\\b\""),
    ("\n\r\t\u{8}\u{C}", "\"\\n\\r\\t\\b\\f\""),
    ("\u{0}\u{1}\u{F}\u{10}\u{1F}", "\"\\u0000\\u0001\\u000f\\u0010\\u001f\""),
    ("é世😀\u{7F}", "\"é世😀\u{7F}\""),
    ("a/b", "\"a/b\""),
  ])
  func stringsAreEscaped(_ text: String, _ expected: String) throws {
    let bytes = Array(text.utf8)
    #expect(written { $0.jsonString(bytes.span.bytes) } == expected)
    let back =
      try JSONSerialization.jsonObject(with: Data(expected.utf8), options: .fragmentsAllowed) as? String
    #expect(back == text)
  }

  /// Eight bytes are looked at together; the last eight may overlap those before.
  @Test(arguments: [("\"", "\\\""), ("\\", "\\\\"), ("\u{1F}", "\\u001f")])
  func bytesAreEscapedWhereverTheyAre(_ byte: String, _ escaped: String) {
    for count in 0..<26 {
      for place in 0...count {
        let before = String(repeating: "\u{20}", count: place)
        let after = String(repeating: "é", count: count - place)
        let bytes = Array((before + byte + after).utf8)
        #expect(written { $0.jsonString(bytes.span.bytes) } == "\"" + before + escaped + after + "\"")
        let clean = Array((before + after).utf8)
        #expect(written { $0.jsonString(clean.span.bytes) } == "\"" + before + after + "\"")
      }
    }
  }

  @Test func escapedStringFitsByteBound() throws {
    let all = (0..<128).map { UInt8($0) }
    let text = written(OutputRawSpan.jsonStringByteMax(all.count)) { $0.jsonString(all.span.bytes) }
    let back = try JSONSerialization.jsonObject(with: Data(text.utf8), options: .fragmentsAllowed) as? String
    #expect(back.map { Array($0.utf8) } == all)
    let worst = [UInt8](repeating: 1, count: 50)
    #expect(
      written(OutputRawSpan.jsonStringByteMax(50)) { $0.jsonString(worst.span.bytes) }.utf8.count == 302
    )
  }

  @Test(arguments: [
    0, 1, 9, 10, 99, 100, 12_345, Int64.max, Int64.max - 1, -1, -10, Int64.min, 999_999_999_999,
    1_000_000_000_000,
  ])
  func integersAreWritten(_ value: Int64) {
    #expect(written(OutputRawSpan.decimalByteMax) { $0.decimal(value) } == "\(value)")
  }

  @Test func unsignedIntegersOfEveryLengthAreWritten() {
    var bound: UInt64 = 1
    for _ in 0..<20 {
      for value in [bound - 1, bound, bound &+ 1, UInt64.max] {
        #expect(written(20) { $0.decimal(value) } == "\(value)")
      }
      bound = bound.multipliedReportingOverflow(by: 10).partialValue
      if bound == 0 { break }
    }
  }

  @Test func timestampsAreFormattedAsInFoundation() throws {
    var generator = SplitMix64(printingSeedOf: "timestamps compared with Foundation")
    let style = Date.ISO8601FormatStyle(includingFractionalSeconds: true)
    var moments: [Int64] = [0, 1, 999, 1_000, CivilTime.millisecondsMax]
    // The first and last moments of each year and of each February.
    for year in 1970...9999 {
      for (month, day) in [(1, 1), (2, 28), (3, 1), (12, 31)] as [(UInt32, UInt32)] {
        var time = CivilTime(milliseconds: 0)
        time.date = CivilDate(year: UInt32(year), month: month, day: day)
        moments.append(time.milliseconds)
        moments.append(time.milliseconds + 86_399_999)
      }
    }
    for _ in 0..<5_000 { moments.append(generator.number(in: 0...CivilTime.millisecondsMax)) }
    for milliseconds in moments where milliseconds <= CivilTime.millisecondsMax {
      let ours = written(OutputRawSpan.timestampByteCount) { $0.timestamp(milliseconds: milliseconds) }
      // A Double of seconds is not exact to the millisecond, so seconds and milliseconds are formatted separately.
      let date = Date(timeIntervalSince1970: Double(milliseconds / 1_000))
      let whole = style.format(date)
      let digits = String(format: "%03d", Int(milliseconds % 1_000))
      let theirs = "\"" + whole.replacing(".000Z", with: ".\(digits)Z") + "\""
      if ours != theirs { Issue.record("\(milliseconds): \(ours) \(theirs)") }
      let bytes = Array(ours.utf8.dropFirst().dropLast())
      if CivilTime.milliseconds(parsing: bytes.span.bytes) != milliseconds {
        Issue.record("\(milliseconds) back")
      }
    }
  }

  @Test func timestampsAreClampedToFormatRange() {
    #expect(written { $0.timestamp(milliseconds: -1) } == "\"1970-01-01T00:00:00.000Z\"")
    #expect(written { $0.timestamp(milliseconds: .max) } == "\"9999-12-31T23:59:59.999Z\"")
  }

  @Test(
    arguments: [
      ("2024-02-29T12:34:56Z", 1_709_210_096_000), ("2024-02-29T12:34:56.7Z", 1_709_210_096_700),
      ("2024-02-29t12:34:56.789123z", 1_709_210_096_789), ("2024-02-29 14:34:56+02:00", 1_709_210_096_000),
      ("2024-02-29T05:04:56.000-07:30", 1_709_210_096_000), ("1970-01-01T00:00:00Z", 0),
      ("2016-12-31T23:59:60Z", 1_483_228_800_000), ("2023-02-29T00:00:00Z", nil),
      ("2024-13-01T00:00:00Z", nil),
      ("2024-00-01T00:00:00Z", nil), ("2024-04-31T00:00:00Z", nil), ("2024-01-01T24:00:00Z", nil),
      ("2024-01-01T00:60:00Z", nil), ("2024-01-01T00:00:00", nil), ("2024-01-01T00:00:00.Z", nil),
      ("2024-01-01", nil), ("1969-12-31T23:59:59Z", nil), ("24-01-01T00:00:00Z", nil), ("", nil),
      ("2024-01-01T00:00:00Zx", nil), ("1900-02-29T00:00:00Z", nil), ("2100-02-29T00:00:00Z", nil),
      ("2000-02-29T00:00:00Z", 951_782_400_000), ("1970-01-01T00:30:00+01:00", nil),
      ("２024-01-01T00:00:00Z", nil),
    ] as [(String, Int64?)]
  )
  func timestampsAreParsedOrRefused(_ text: String, _ expected: Int64?) {
    let bytes = Array(text.utf8)
    #expect(CivilTime.milliseconds(parsing: bytes.span.bytes) == expected)
  }
}
