import Logging
import NIOCore
import NIOConcurrencyHelpers
import Testing

@testable import Operations

/// The log of refusals by address.
@Suite struct RefusalLogTests {
  /// Collects logged lines.
  private struct Lines: LogHandler {
    let lines: NIOLockedValueBox<[String]>
    var metadata: Logger.Metadata = [:]
    var logLevel = Logger.Level.trace

    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
      get { metadata[key] }
      set { metadata[key] = newValue }
    }

    func log(event: LogEvent) {
      let fields = (event.metadata ?? [:]).sorted { $0.key < $1.key }.map { "\($0.key)=\($0.value)" }
      lines.withLockedValue { $0.append(fields.joined(separator: " ")) }
    }
  }

  @Test func reportHasTopAddressesAndTheRest() throws {
    let lines = NIOLockedValueBox<[String]>([])
    let log = RefusalLog(logger: Logger(label: "test") { _ in Lines(lines: lines) })
    log.write()
    #expect(lines.withLockedValue { $0 }.isEmpty)
    for last in 1...12 as ClosedRange<UInt64> {
      for _ in 0..<last { log.record(.token, from: PeerAddress(high: 0, low: 0xFFFF_C000_0200 | last)) }
    }
    log.record(.rate, from: PeerAddress(high: 0, low: 0xFFFF_C000_020C))
    log.record(.connection, from: nil)
    log.write()
    let written = lines.withLockedValue { $0 }
    #expect(written.count == 11)
    #expect(written.first == "address=192.0.2.12 connections=0 requests=1 tokens=12")
    #expect(written.last == "address=others connections=1 requests=0 tokens=3")
    log.write()
    #expect(lines.withLockedValue { $0 }.count == 11)
  }

  @Test(
    arguments: [
      ("192.0.2.7", "192.0.2.7"), ("192.0.2.7:5000", "192.0.2.7"), ("2001:db8::7", "2001:db8:0:0:0:0:0:7"),
      ("[2001:db8::7]:443", "2001:db8:0:0:0:0:0:7"), ("[2001:db8::7]", "2001:db8:0:0:0:0:0:7"),
      ("::ffff:192.0.2.7", "192.0.2.7"), ("", nil), ("unknown", nil), ("_hidden", nil), ("192.0.2", nil),
      ("[2001:db8::7", nil), ("1.2.3.4.5", nil),
    ] as [(String, String?)]
  )
  func addressIsParsedWithOrWithoutPort(_ text: String, expected: String?) {
    let bytes = Array(text.utf8)
    #expect(PeerAddress(text: bytes.span.bytes)?.description == expected)
  }
}
