import Foundation
import TestSupport
import Testing

@testable import DumpReaders

/// Converted dumps on disk.
@Suite struct ConvertedDumpTests {
  @Test func filesHaveLinesAndTheirOrigins() throws {
    let path = try Self.checkFiles()
    #expect(!FileManager.default.fileExists(atPath: path), "the files are deleted with the dump")
  }

  /// - Returns: the path of the lines.
  private static func checkFiles() throws -> String {
    let expected = try Conversion.fixture(.mattermost)
    let dump = packageRoot.appendingPathComponent("Tests/DumpReadersTests/Fixtures/mattermost.jsonl").path
    var bytes: UInt64 = 0
    let converted = try ConvertedDump(dump, from: .mattermost, refused: { _ in }, progress: { bytes = $0 })
    let lines = try String(contentsOfFile: converted.path, encoding: .utf8)
    #expect(lines == expected.json.map { $0 + "\n" }.joined())
    #expect(converted.summary.lines == expected.lines.count && bytes > 0)
    // In order, then backwards.
    let numbers = Array(1...expected.lines.count)
    for number in numbers + numbers.reversed() {
      #expect(converted.origin(ofLine: number) == expected.origins[number - 1])
    }
    #expect(converted.origin(ofLine: expected.lines.count + 1) == nil)
    let copy = NSTemporaryDirectory() + "tidemark-lines-\(UUID().uuidString)"
    defer { try? FileManager.default.removeItem(atPath: copy) }
    try converted.copyLines(to: copy)
    #expect(try String(contentsOfFile: copy, encoding: .utf8) == lines)
    let attributes = try FileManager.default.attributesOfItem(atPath: copy)
    #expect(attributes[.posixPermissions] as? Int == 0o600)
    return converted.path
  }

  @Test func errorsNameTheFileAndLeaveNothingBehind() throws {
    let dump = NSTemporaryDirectory() + "tidemark-dump-test-\(UUID().uuidString)"
    try "{}\n{".write(toFile: dump, atomically: true, encoding: .utf8)
    defer { try? FileManager.default.removeItem(atPath: dump) }
    let text = "\(dump), line 2: the dump ends within an object or a list; fetch it again"
    #expect(throws: DumpError(text)) {
      try ConvertedDump(dump, from: .stream, refused: { _ in }, progress: { _ in })
    }
    #expect(throws: DumpError("/nowhere/dump: cannot be read")) {
      try ConvertedDump("/nowhere/dump", from: .stream, refused: { _ in }, progress: { _ in })
    }
  }

  /// Many records of many channels, mixed, are read back as they were.
  @Test func spoolKeepsChannelsApart() throws {
    let path = NSTemporaryDirectory() + "tidemark-spool-\(UUID().uuidString)"
    defer { try? FileManager.default.removeItem(atPath: path) }
    let spool = try RecordSpool(path: path)
    func record(_ number: Int) -> DumpRecord {
      .event(DumpEvent(id: "$\(number)\n\"", at: DumpTime(milliseconds: Int64(number))!))
    }
    for number in 0..<20_000 { try spool.append(record(number), to: number % 7 == 0 ? 3 : number % 3) }
    #expect(try spool.records(of: 3) == stride(from: 0, to: 20_000, by: 7).map(record))
    #expect(try spool.records(of: 1) == (0..<20_000).filter { $0 % 7 != 0 && $0 % 3 == 1 }.map(record))
    #expect(try spool.records(of: 9) == [])
  }
}
