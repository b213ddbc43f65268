import Foundation
import Testing

@testable import HTTP2Session

@Suite("HTTP dates")
struct HTTPDateTests {
  private func text(_ seconds: Int) -> String {
    withUnsafeTemporaryAllocation(of: UInt8.self, capacity: HTTPDate.byteCount) { bytes in
      HTTPDate.write(secondsSince1970: seconds, to: bytes.baseAddress!)
      return String(decoding: bytes, as: UTF8.self)
    }
  }

  @Test("known dates are formatted")
  func knownDatesAreFormatted() {
    #expect(text(0) == "Thu, 01 Jan 1970 00:00:00 GMT")
    #expect(text(784_111_777) == "Sun, 06 Nov 1994 08:49:37 GMT")
    #expect(text(951_782_399) == "Mon, 28 Feb 2000 23:59:59 GMT")
    #expect(text(951_782_400) == "Tue, 29 Feb 2000 00:00:00 GMT")
    #expect(text(4_107_542_400) == "Mon, 01 Mar 2100 00:00:00 GMT")
  }

  @Test("dates equal Foundation's")
  func datesEqualFoundationDates() {
    let formatter = DateFormatter()
    formatter.locale = Locale(identifier: "en_US_POSIX")
    formatter.timeZone = TimeZone(identifier: "GMT")
    formatter.dateFormat = "EEE, dd MMM yyyy HH:mm:ss 'GMT'"
    for step in 0..<500 {
      let seconds = step * 86_400 * 37 + step * 4_001
      #expect(text(seconds) == formatter.string(from: Date(timeIntervalSince1970: Double(seconds))))
    }
  }
}

/// RFC 9110 section 8.3.1.
@Suite("Content types")
struct ContentTypeTests {
  @Test(
    "a content type matches in any case and with any parameters",
    arguments: [
      ("application/x-ndjson", true), ("Application/X-NDJSON", true),
      ("application/x-ndjson;charset=utf-8", true), ("application/x-ndjson ; charset=utf-8", true),
      ("application/x-ndjson\t;a=b", true), ("application/x-ndjson;", true), ("", false),
      ("application/x-ndjso", false), ("application/x-ndjson2", false), ("application/json", false),
      (" application/x-ndjson", false), ("application/x\u{4d}ndjson", false),
      ("application/x-ndjson, a/b", false),
    ]
  )
  func contentTypeMatchesInAnyCaseAndWithAnyParameters(_ header: String, _ isNamed: Bool) {
    let bytes = Array(header.utf8)
    let (isOne, isNone) = (
      HTTP2ContentType.ndjson.isNamed(by: bytes.span.bytes),
      HTTP2ContentType.none.isNamed(by: bytes.span.bytes)
    )
    #expect(isOne == isNamed && !isNone)
  }
}
