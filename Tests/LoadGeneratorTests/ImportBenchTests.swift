import Foundation
import TestSupport
import Testing

@testable import LoadGenerator

@Suite struct ImportBenchTests {
  private static func newDirectory() -> String { NSTemporaryDirectory() + "tidemark-test-\(UUID().uuidString)" }

  private static func lines(_ path: String) throws -> [String] {
    try String(contentsOfFile: path, encoding: .utf8).split(separator: "\n").map(String.init)
  }

  @Test func bothFilesHaveTheSamePositions() throws {
    let files = ImportFiles(directory: Self.newDirectory(), channels: 2, members: 5, messages: 3)
    defer { files.remove() }
    try files.write()
    let (lines, rows) = (try Self.lines(files.lines), try Self.lines(files.rows))
    #expect(lines.count == 2 * (1 + 3 + 5))
    #expect(rows.count == files.rowCount)
    #expect(files.position(4) == ImportFiles.Position(read: 2, delivered: 3))
    let fields = [
      "messaging:room-1", "user-4", "2024-01-01T00:00:00.000Z", "m1-2", "2024-01-01T00:02:05.000Z", "m1-3",
      "2024-01-01T00:03:02.000Z",
    ]
    #expect(rows.last == fields.joined(separator: "\t"))
    let line = try #require(lines.last)
    #expect(line.hasPrefix(#"{"member":{"#))
    for field in fields { #expect(line.contains("\"\(field)\""), "\(field)") }
    for line in lines { #expect((try? JSONSerialization.jsonObject(with: Data(line.utf8))) != nil, "\(line)") }
  }

  @Test func deliveredPositionsAreNotBehindReadOnes() {
    let files = ImportFiles(directory: "/", channels: 1, members: 1_000, messages: 20)
    for member in 0..<files.members {
      let position = files.position(member)
      #expect((1...position.delivered).contains(position.read) && position.delivered <= files.messages)
    }
  }

  private func report(postgresVersion: Int?) -> ImportReport {
    let files = ImportFiles(directory: "/", channels: 100, members: 10, messages: 1)
    var report = ImportReport(files, postgresVersion: postgresVersion)
    let cpu = ServiceCPUMeter.Seconds(client: 0.25, gateway: 0.5, store: 1)
    report.imports = [6, 2, 4].map { .init(rows: files.rowCount, seconds: $0, cpu: cpu, rowsChecked: 7) }
    if postgresVersion != nil {
      report.copies = [3, 1, 1].map { .init(rows: files.rowCount, seconds: $0) }
    }
    return report
  }

  @Test func ratioComparesWithinRounds() {
    let text = report(postgresVersion: 15).markdown
    #expect(text.contains("10,000 to 30,000") && text.contains("20,000 to 60,000"))
    #expect(text.contains("PostgreSQL 15, \\copy"))
    #expect(text.contains("The import has 0.50 of the rate of \\copy"))
  }

  @Test func missingPostgresIsNamedInItsRow() {
    let text = report(postgresVersion: nil).markdown
    #expect(text.contains("PostgreSQL, \\copy: not installed (apt-get install postgresql)"))
    #expect(text.contains("15,000") && !text.contains("of the rate of"))
  }

  @Test func onlyWholeInstallationsAreFound() throws {
    let directory = Self.newDirectory()
    defer { try? FileManager.default.removeItem(atPath: directory) }
    #expect(PostgresServer.installedVersion(in: directory) == nil)
    let all = ["initdb", "postgres", "psql"]
    for (version, programs) in [(9, all), (15, ["psql"]), (13, all)] {
      let programDirectory = "\(directory)/\(version)/bin"
      try FileManager.default.createDirectory(atPath: programDirectory, withIntermediateDirectories: true)
      for program in programs {
        let attributes: [FileAttributeKey: Any] = [.posixPermissions: 0o755]
        let path = "\(programDirectory)/\(program)"
        _ = FileManager.default.createFile(atPath: path, contents: nil, attributes: attributes)
      }
    }
    #expect(PostgresServer.installedVersion(in: directory) == 13)
  }

  @Test(.needs(PostgresServer.installedVersion() != nil, "`make test-deps` installs it"), .timeLimit(.minutes(5)))
  func postgresCopiesRowsAndStops() async throws {
    let version = try #require(PostgresServer.installedVersion())
    let files = ImportFiles(directory: Self.newDirectory(), channels: 2, members: 5, messages: 3)
    defer { files.remove() }
    try files.write()
    let server = try await PostgresServer.start(version: version, in: files.directory + "/postgres")
    for _ in 0..<2 {
      let copy = try? await server.copy(files.rows, into: "positions", columns: ImportFiles.columns)
      #expect(copy?.rows == files.rowCount)
    }
    await #expect(throws: LoadError.self) {
      _ = try await server.copy(files.lines, into: "positions", columns: ImportFiles.columns)
    }
    await server.stop()
    #expect(!FileManager.default.fileExists(atPath: server.directory))
  }
}
