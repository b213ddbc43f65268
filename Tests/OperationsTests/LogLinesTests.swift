import Logging
import NIOConcurrencyHelpers
import NIOCore
import Testing

@testable import Operations

/// Text from peers cannot forge log lines or control a terminal that shows them.
struct LogLinesTests {
  @Test func eachEntryIsOneLine() {
    let lines = NIOLockedValueBox<[String]>([])
    var logger = Logger(label: "test") { label in
      LogLines.handler(label: label) { line in lines.withLockedValue { $0.append(line) } }
    }
    logger[metadataKey: "peer"] = "a\r\nb"
    logger.info(
      "a text of \("x\ny")",
      metadata: [
        "id": "evil\n2026-11-23 error tidemark-store: all is lost\u{1B}[2J\u{7F}\u{9B}1m",
        "list": ["\u{2028}", .dictionary(["\tkey": "\u{202E}Zoë\u{0}"])],
      ]
    )
    let written = lines.withLockedValue { $0 }
    #expect(written.count == 1)
    let line = written.first ?? ""
    #expect(line.hasSuffix("\n") && line.dropLast().unicodeScalars.allSatisfy { $0.value >= 0x20 })
    #expect(line.contains(#"peer=a\r\nb"#) && line.contains(#"a text of x\ny"#))
    #expect(line.contains(#"id=evil\n2026-11-23 error tidemark-store: all is lost\u{1B}[2J\u{7F}\u{9B}1m"#))
    #expect(line.contains(#"\u{2028}"#) && line.contains(#"\tkey"#) && line.contains("Zoë"))
  }

  @Test(arguments: [("", ""), ("plain 😀 é", "plain 😀 é"), ("\r\n", #"\r\n"#), ("a\\n", "a\\n")])
  func controlCharactersAreEscaped(_ text: String, _ expected: String) {
    #expect(LogLines.escaped(text) == expected)
  }

  @Test func kindsAreThrottledSeparately() {
    let throttle = LogThrottle()
    let start = NIODeadline.uptimeNanoseconds(5_000_000_000)
    #expect(throttle.occurrencesToLog("a", at: start) == 1 && throttle.occurrencesToLog("b", at: start) == 1)
    for _ in 0..<499 { #expect(throttle.occurrencesToLog("a", at: start + .milliseconds(500)) == nil) }
    #expect(throttle.occurrencesToLog("a", at: start + .seconds(1)) == 500)
    #expect(throttle.occurrencesToLog("b", at: start + .seconds(1)) == 1)
  }
}
