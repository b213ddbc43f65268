import Foundation
import LocalStack
import TestSupport
import Testing

@testable import LoadGenerator

@Suite struct ProcessFiguresTests {
  @Test func residentMemoryIsReadFromStatus() {
    let status = "Name:\ttidemark-store\nVmPeak:\t  900000 kB\nVmRSS:\t   51234 kB\nRssAnon:\t   40000 kB\n"
    #expect(ProcessFigures.bytes("VmRSS:", status: status) == 51_234 << 10)
    #expect(ProcessFigures.bytes("VmRSS:", status: "Name:\tx\n") == nil)
    #expect(ProcessFigures.residentBytes(of: getpid()) ?? 0 > 1 << 20)
  }

  /// A separate process allocates 50 MB, frees them, prints a line and waits.
  @Test func memoryPeakIsResetAtStart() async throws {
    let log = NSTemporaryDirectory() + "tidemark-peak-\(UUID().uuidString)"
    defer { try? FileManager.default.removeItem(atPath: log) }
    let process = try ChildProcess(
      name: "python3",
      executable: "/usr/bin/python3",
      arguments: ["-c", "import time; x = b'1' * 50_000_000; del x; print(1, flush=True); time.sleep(60)"],
      logFile: log
    )
    try await eventually("the process has printed a line or ended") {
      !process.isRunning || FileManager.default.contents(atPath: log)?.isEmpty == false
    }
    let before = ProcessFigures.peakBytes(of: process.processID)
    let peak = try? MemoryPeak(process.processID)
    let after = try? peak?.growth()
    process.signal(9)
    await process.waitForExit()
    #expect(try #require(before) > 50_000_000)
    #expect(try #require(after).most < 50_000_000)
    #expect(try #require(after).most >= #require(after).before)
    #expect(throws: LoadError.self) { try MemoryPeak(Int32.max) }
  }

  @Test func fileBytesAreCountedBySuffix() throws {
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
