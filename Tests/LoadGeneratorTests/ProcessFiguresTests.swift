import Foundation
import Testing

@testable import LoadGenerator

@Suite struct ProcessFiguresTests {
  @Test func residentMemoryIsReadFromTheStatus() {
    let status = "Name:\ttidemark-store\nVmPeak:\t  900000 kB\nVmRSS:\t   51234 kB\nRssAnon:\t   40000 kB\n"
    #expect(ProcessFigures.residentBytes(status: status) == 51_234 << 10)
    #expect(ProcessFigures.residentBytes(status: "Name:\tx\n") == nil)
    #expect(ProcessFigures.residentBytes(of: getpid()) ?? 0 > 1 << 20)
  }

  @Test func aMetricIsFoundByItsWholeName() {
    let text = "# HELP pages Pages.\npages_written 3\npages 12\nother{loop=\"0\"} 1\n"
    #expect(ProcessFigures.metric("pages", in: text) == 12)
    #expect(ProcessFigures.metric("missing", in: text) == nil)
  }

  @Test func filesAreCountedByTheirEnding() throws {
    let directory = NSTemporaryDirectory() + "tidemark-figures-\(UUID().uuidString)"
    defer { try? FileManager.default.removeItem(atPath: directory) }
    try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
    for (name, count) in [("1.log", 10), ("2.log", 5), ("3.sst", 100)] {
      try Data(repeating: 0, count: count).write(to: URL(fileURLWithPath: directory + "/" + name))
    }
    #expect(ProcessFigures.fileBytes(in: directory) == 115)
    #expect(ProcessFigures.fileBytes(in: directory, ending: ".log") == 15)
  }
}
