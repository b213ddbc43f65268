import HTTP2Session
import TestSupport
import Testing

@Suite("Fragmentation")
struct FragmentationTests {
  /// One connection with every kind of frame that a client may send.
  private static let exchange: [Frame] = [
    settings([(4, 1_000_000), (1, 4096)]), settings(ack: true), get(1), post(3, [("content-length", "8")]),
    data(3, "1234", end: false), ping(), data(3, "5678"), windowUpdate(0, 1_000), priority(7, dependsOn: 3),
    Frame(.headers, flags: 1, stream: 5, HPACK.plain(getFields)),
    continuation(5, HPACK.plain([("x-a", "1")]), end: false),
    continuation(5, HPACK.plain([("x-b", "2")])),
    Frame(type: 0xee, stream: 5, Array(repeating: 1, count: 300)),
    post(7), data(7, "body", end: false), headers(7, [("x-trailer", "1")]), get(9, "/hold"), rst(9),
    headers(11, [("X-BAD", "1")] + getFields),
    get(13, extra: [("x-long", String(repeating: "v", count: 5_000))]),
    post(15),
    Frame(.data, flags: 0x9, stream: 15, [10] + Array("padded".utf8) + Array(repeating: 0, count: 10)),
    headers(
      17,
      block: [0x82, 0x86, 0x44] + HPACK.string("/indexed") + [0x41] + HPACK.string("localhost") + [0x40]
        + HPACK.string("x-test") + HPACK.string("table")
    ),
    headers(19, block: [0x82, 0x86, 0xc0, 0xbf, 0xbe]), ping("the end."),
  ]

  /// The frames that the peer sees, regardless of how they are split and when windows are updated.
  private func outcome(_ reads: [[UInt8]]) throws -> [String] {
    let server = try TestServer(preface: false)
    for read in reads { server.send(read) }
    var lines = server.delegate.log.filter { !$0.contains("/hold") && $0 != "aborted" }.sorted()
    for stream in stride(from: Int32(1), to: 21, by: 2) where stream != 9 {
      let status = server.status(stream).map { String($0) } ?? "none"
      let reset = server.frames(.rstStream, stream: stream).compactMap(\.errorCode)
      lines.append("\(stream) \(status) \(reset) \(server.isEnded(stream)) \(server.body(stream))")
    }
    lines.append("\(server.frames(.ping).map(\.payload)) \(server.frames(.goAway)) \(server.isClosed)")
    return lines
  }

  private var bytes: [UInt8] { TestServer.preface + FragmentationTests.exchange.flatMap(\.bytes) }

  @Test("whole, frame-by-frame and byte-by-byte delivery give the same result")
  func deliveryInAnyPiecesGivesSameResult() throws {
    let whole = try outcome([bytes])
    #expect(whole.contains("post / 8") && whole.contains("get /indexed 0"))
    #expect(whole.contains { $0.hasPrefix("19 200") } && whole.contains { $0.hasPrefix("11 none [1]") })
    #expect(try outcome([TestServer.preface] + FragmentationTests.exchange.map(\.bytes)) == whole)
    #expect(try outcome(bytes.map { [$0] }) == whole)
  }

  @Test("every split in two, and random splits into many pieces, give the same result", arguments: 0..<8)
  func everySplitGivesSameResult(_ part: Int) throws {
    let whole = try outcome([bytes])
    var random = SplitMix64(printingSeedOf: "fragmentation \(part)")
    for cut in stride(from: part, to: bytes.count, by: 64) {
      #expect(try outcome([Array(bytes[..<cut]), Array(bytes[cut...])]) == whole, "cut at \(cut)")
    }
    for _ in 0..<20 {
      var reads: [[UInt8]] = []
      var rest = bytes[...]
      while !rest.isEmpty {
        let count = random.number(in: 1...200)
        reads.append(Array(rest.prefix(count)))
        rest = rest.dropFirst(count)
      }
      #expect(try outcome(reads) == whole, "TIDEMARK_SEED=\(random.seed)")
    }
  }
}
