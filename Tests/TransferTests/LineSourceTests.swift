import Foundation
import NIOCore
import Testing

@testable import Transfer

/// Where the lines of an import start again.
@Suite struct LineSourceTests {
  private static func withFile(_ text: String, _ body: (LineSource) throws -> Void) throws {
    let path = NSTemporaryDirectory() + "tidemark-test-\(UUID().uuidString)"
    defer { try? FileManager.default.removeItem(atPath: path) }
    try Data(text.utf8).write(to: URL(fileURLWithPath: path))
    try body(LineSource(path: path))
  }

  private static func rest(of source: LineSource) throws -> String {
    var text = ""
    while let piece = try source.next() { text += String(buffer: piece) }
    return text
  }

  @Test(arguments: [(0, "a\nb\nc"), (1, "b\nc"), (2, "c"), (3, ""), (4, "")])
  func lastLineNeedsNoLineEnd(_ lines: Int, _ rest: String) throws {
    try Self.withFile("a\nb\nc") { source in
      #expect(source.byteCount == 5)
      #expect(try Self.rest(of: source) == "a\nb\nc")
      try source.restart(afterLine: lines)
      #expect(try Self.rest(of: source) == rest)
      #expect(source.bytesRead == 5)
    }
  }

  /// A file is read in pieces of 64 KiB, so three of its lines are in two pieces each.
  @Test func fileStartsAgainAfterLineInTwoPieces() throws {
    let lines = (0..<20).map { String(repeating: "\($0 % 10)", count: 9_999) + "\n" }
    try Self.withFile(lines.joined()) { source in
      for count in 0...lines.count {
        try source.restart(afterLine: count)
        #expect(source.bytesRead == UInt64(10_000 * count))
        let isRest = try Self.rest(of: source) == lines.dropFirst(count).joined()
        #expect(isRest, "after line \(count)")
        #expect(source.bytesRead == 200_000)
      }
    }
  }

  /// A pipe cannot go back: what is not confirmed is kept.
  @Test func pipeIsSentAgainAfterItsConfirmedLines() throws {
    let pipe = Pipe()
    defer { try? pipe.fileHandleForReading.close() }
    try pipe.fileHandleForWriting.write(contentsOf: Data("a\nb\nc".utf8))
    let source = try LineSource(path: "/dev/fd/\(pipe.fileHandleForReading.fileDescriptor)")
    try pipe.fileHandleForWriting.close()
    #expect(source.byteCount == nil)
    #expect(try Self.rest(of: source) == "a\nb\nc")
    source.confirm(lines: 1)
    for (lines, rest) in [(1, "b\nc"), (2, "c"), (3, "")] {
      try source.restart(afterLine: lines)
      #expect(try Self.rest(of: source) == rest)
    }
    #expect(source.bytesRead == 5)
  }
}
