import Logging
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
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

struct ErrorTextTests {
  /// The system's error text, without call names and numbers.
  @Test func socketErrorsHavePlainText() async throws {
    let group = MultiThreadedEventLoopGroup.singleton
    let listener = try await ServerBootstrap(group: group).bind(host: "127.0.0.1", port: 0).get()
    let port = try #require(listener.localAddress?.port)
    var errors: [String] = []
    do {
      try await ServerBootstrap(group: group).bind(host: "127.0.0.1", port: port).get().close()
    } catch {
      errors.append(ErrorText.of(error))
    }
    try await listener.close()
    do {
      try await ClientBootstrap(group: group).connect(host: "127.0.0.1", port: port).get().close()
    } catch {
      errors.append(ErrorText.of(error))
    }
    #expect(errors == ["Address already in use", "Connection refused"])
  }

  @Test func resolverTimeoutAndSettingsErrorsHavePlainText() {
    // An invalid name, so that no resolver is queried.
    let unknown = #expect(throws: (any Error).self) {
      _ = try SocketAddress.makeAddressResolvingHost("no..name", port: 1)
    }
    #expect(unknown.map { ErrorText.of($0) } == #"cannot resolve "no..name""#)
    #expect(ErrorText.of(ChannelError.connectTimeout(.seconds(2))) == "timed out after 2 s")
    let ours = SettingsError("listen", "is wrong")
    #expect(ErrorText.of(ours) == "\(ours)")
  }
}

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
      let settings = try await Settings(flags: ["event-interval": text], keys: ["event-interval"], environment: [:])
      #expect(try settings.milliseconds("event-interval", in: 100...60_000) == expected)
    }
    for text in ["99ms", "61s", "250", "soon"] {
      let settings = try await Settings(flags: ["event-interval": text], keys: ["event-interval"], environment: [:])
      #expect(throws: SettingsError.self, "\(text)") {
        _ = try settings.milliseconds("event-interval", in: 100...60_000)
      }
    }
  }
}
