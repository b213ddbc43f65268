import Testing

@testable import LoadGenerator

@Suite struct FeedLineCountsTests {
  private static let text = #"""
    {"cursor":"AQAA","type":"lease","epoch":1767225607000}
    {"cursor":"AQAB","id":"8.1.5","type":"read","cid":"messaging:a","user":{"id":"\"type\":\"x"}}
    {"cursor":"AQAC","id":"8.2.5","type":"status","cid":"messaging:a"}
    {"cursor":"AQAD","id":"8.3.5","type":"read","cid":"messaging:b","user":{"id":"bob"}}
    {"cursor":"AQAD","type":"heartbeat","at":"2026-01-01T00:00:17.000Z"}

    """#

  private func read(_ text: String, pieces: Int = 1_000) throws -> FeedLineCounts {
    var counts = FeedLineCounts()
    let bytes = Array(text.utf8)
    for start in stride(from: 0, to: bytes.count, by: pieces) {
      try bytes[start..<min(start + pieces, bytes.count)].withUnsafeBytes { try counts.read($0) }
    }
    return counts
  }

  @Test(arguments: [1, 2, 7, 50, 1_000])
  func countsDoNotDependOnPieceSize(pieces: Int) throws {
    let counts = try read(Self.text, pieces: pieces)
    #expect(counts.count(of: "read") == 2 && counts.count(of: "status") == 1 && counts.count(of: "x") == 0)
    #expect(counts.records == 3 && counts.heartbeats == 1)
  }

  @Test func unfinishedLineIsNotCounted() throws {
    #expect(try read(String(Self.text.dropLast())).heartbeats == 0)
  }

  @Test(arguments: [
    #"{"cursor":"AQAB","type":"gap","from":"2026-01-01T00:00:17.000Z"}"#, #"{"type":"lease_lost"}"#,
    #"{"type":"error","code":"store_unavailable"}"#, "{}", "",
  ]) func missingRecordsAreAnError(line: String) {
    #expect(throws: LoadError.self) { try read(line + "\n") }
  }

  @Test func oversizeLineIsAnError() throws {
    let half = String(repeating: "x", count: FeedLineCounts.byteCountMax / 2 + 1)
    #expect(throws: LoadError.self) { try read(half + half, pieces: half.utf8.count) }
  }
}

@Suite struct FeedReportTests {
  private func marks(_ round: Int, isOn: Bool, rate: Double) -> FeedReport.Marks {
    let cpu = [LoadReport.CPU(process: "gateway", perRequest: 2), .init(process: "store", perRequest: 3)]
    let figures = RunFigures(requests: 1, seconds: 1, rate: rate, p50: 1, p99: 2, p999: 3, cpu: cpu)
    return FeedReport.Marks(row: .readQuery, round: round, isOn: isOn, figures: figures)
  }

  @Test func ratioComparesWithinRounds() {
    var report = FeedReport(rounds: 2, connections: 16, streams: 100)
    // The machine is twice as fast in the second round.
    report.marks = [
      marks(1, isOn: false, rate: 1_000), marks(1, isOn: true, rate: 700), marks(2, isOn: false, rate: 2_000),
      marks(2, isOn: true, rate: 1_600),
    ]
    let rows = report.markdown.split(separator: "\n").filter { $0.hasPrefix("| mark-read, query") }
    #expect(rows.count == 2)
    #expect(rows.first?.contains("1,000 to 2,000") == true && rows.first?.contains("0.") == false)
    #expect(rows.last?.contains("700 to 1,600") == true && rows.last?.contains(" 0.75 ") == true)
  }
}
