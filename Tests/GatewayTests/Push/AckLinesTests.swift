import Testing

@testable import Gateway

@Suite struct AckLinesTests {
  private static let long = String(repeating: "x", count: AckLines.byteCountMax)

  /// Bodies and the lines in them; `!` stands for a line that is too long.
  private static let bodies: [(body: String, found: [String])] = [
    ("", []), ("\n", []), ("{}\n", ["{}"]), ("{}", ["{}"]), ("a\nb\n", ["a", "b"]), ("a\nb", ["a", "b"]),
    ("\n\r\n \t\na\r\n\n", ["a\r"]), (" ", []), ("a\n\n\n\nb\n ", ["a", "b"]),
    (long + "\n", [long]), (long, [long]), (long + "y\nz\n", ["!", "z"]),
    (long + long + long + "\nz", ["!", "z"]),
    (long + "y", ["!"]), (long + "y\n" + long + "y\n\nz", ["!", "!", "z"]), ("a\u{0}b\n", ["a\u{0}b"]),
  ]

  /// Read a body in pieces of `pieceBytes`. Bytes that are not consumed are kept for the next piece.
  private static func read(_ body: [UInt8], pieceBytes: Int) -> [String] {
    var lines = AckLines()
    var found: [String] = []
    var rest: [UInt8] = []
    var at = 0
    repeat {
      let end = min(at + pieceBytes, body.count)
      rest += body[at..<end]
      at = end
      var taken = 0
      scan: while true {
        switch lines.next(rest.span.bytes, from: taken, isEnd: at == body.count) {
        case .line(let line, let end):
          found.append(String(decoding: rest[line], as: UTF8.self))
          taken = end
        case .tooLong(let end):
          found.append("!")
          taken = end
        case .needsMore(let end):
          taken = end
          break scan
        }
      }
      rest.removeFirst(taken)
      #expect(rest.count <= AckLines.byteCountMax)
    } while at < body.count
    #expect(rest.isEmpty)
    return found
  }

  @Test(arguments: [1, 2, 3, 7, 100, 4_095, 4_096, 4_097, 5_000, 100_000])
  func linesDoNotDependOnPieceSize(pieceBytes: Int) {
    for (body, found) in Self.bodies {
      // The longest bodies would take too long byte by byte.
      if pieceBytes == 1 && body.utf8.count > 2 * AckLines.byteCountMax { continue }
      let short = body.prefix(20)
      #expect(Self.read(Array(body.utf8), pieceBytes: pieceBytes) == found, "\(short) by \(pieceBytes)")
    }
  }
}
