import Foundation
import LocalStack
import Operations
import Testing
import TestSupport

@testable import LoadGenerator

@Suite struct FiguresTests {
  @Test(arguments: [
    ("http://127.0.0.1:8080/a?b=c#d", "127.0.0.1", 8080, "/a?b=c", false),
    ("https://localhost", "localhost", 443, "/", true), ("HTTP://h", "h", 80, "/", false),
    ("http://[::1]:1/x", "::1", 1, "/x", false), ("https://h:9?q", "h", 9, "/?q", true),
  ]) func urlIsParsed(_ text: String, _ host: String, _ port: Int, _ path: String, _ usesTLS: Bool) throws {
    let url = try #require(HTTPURL(text))
    #expect(url.endpoint == Endpoint(host: host, port: port))
    #expect(url.path == path)
    #expect(url.usesTLS == usesTLS)
  }

  @Test(arguments: ["", "ftp://h", "h:80", "http://", "http://h:x", "http://h/ä", "http://h/a b"])
  func invalidURLIsRefused(_ text: String) { #expect(HTTPURL(text) == nil) }

  @Test func figuresAreFormatted() {
    #expect(
      [0, 999, 1000, 1_234_567, -1000].map(Figures.count) == ["0", "999", "1,000", "1,234,567", "-1,000"]
    )
    #expect(
      [5, 999.6, 4210, 1_300_000].map { Figures.time(microseconds: $0) } == [
        "5 µs", "1000 µs", "4.21 ms", "1.30 s",
      ]
    )
    #expect([3, 1, 2].medianValue(\.self) == 2)
    #expect([4, 1, 2, 3].medianValue(\.self) == 2.5)
    #expect([Double]().medianValue(\.self) == nil)
    #expect([3_000, 900.6, 1_000].spread(\.self) == "901 to 3,000")
    #expect([Double]().spread(\.self).isEmpty)
  }

  @Test func tableColumnsAreAligned() {
    let table = ReportTable<(Int, String)>(columns: [.count("n", \.0), .text("what", \.1)])
    #expect(
      table.markdown([(1, "a"), (100, "longer")])
        == "|   n | what   |\n| --: | ------ |\n|   1 | a      |\n| 100 | longer |"
    )
    #expect(table.markdown([]) == nil)
    #expect(table.heading == "| n | what |\n| ---: | ---- |" && table.line((1, "a")) == "| 1 | a |")
  }

  @Test func timedEntryIsOneObject() throws {
    struct Entry: Encodable { var question: String }
    var latencies = Latencies()
    latencies.record(nanoseconds: 2_000_000)
    let timed = Timed(Entry(question: "q"), latencies)
    #expect(
      try ReportDocument.line(timed)
        == #"{"maxMicroseconds":2000,"p50Microseconds":2000,"p99Microseconds":2000,"question":"q"}"#
    )
    let table = ReportTable<Timed<Entry>>(columns: [.text("question", \.question)] + Timed.columns())
    #expect(table.line(timed) == "| q | 2.000 ms | 2.000 ms | 2.000 ms |")
  }

  @Test func processTimesAreReadForAnyProcessName() throws {
    // utime and stime, then those of the children that were waited for.
    let stat = "42 (a (b) c d) S 7 42 42 0 -1 4194304 100 0 0 0 150 50 20 10 20 0 3 0 1 2 3"
    let fields = try #require(ProcessCPUMeter.fields(stat))
    #expect(ProcessCPUMeter.seconds(fields, ticksPerSecond: 100) == 2.3)
    #expect(fields[1] == "7")
    #expect(ProcessCPUMeter.fields("") == nil)
    #expect(ProcessCPUMeter.fields("42 (a) S 1 2 3") == nil)
    #expect(ProcessCPUMeter(processIDs: [Int32.max]).sample().count == 2)
  }

  @Test func exitedServiceHasNoProcessTime() throws {
    let own = ProcessInfo.processInfo.processIdentifier
    for (gateway, store, exited) in [(Int32.max, own, "gateway"), (own, .max, "store")] {
      let meter = ServiceCPUMeter(ServiceProcesses(gateway: gateway, store: store))
      let start = meter.start()
      #expect(throws: LoadError("the \(exited) has exited")) { try meter.seconds(since: start) }
    }
    let meter = ServiceCPUMeter(ServiceProcesses(gateway: own, store: own))
    let seconds = try meter.seconds(since: meter.start())
    #expect(seconds.client >= 0 && seconds.gateway >= 0 && seconds.store >= 0)
  }

  @Test func processTreeIncludesWorkers() {
    let parents: [(process: Int32, parent: Int32)] = [(1, 0), (5, 1), (6, 5), (7, 6), (8, 1), (9, 5)]
    #expect(ProcessCPUMeter.tree(of: 5, parents) == [5, 6, 9, 7])
    #expect(ProcessCPUMeter.tree(of: 8, parents) == [8])
    #expect(ProcessCPUMeter.tree(of: 3, parents) == [3])
  }

  @Test func fileSystemIsThatOfTheLongestMount() {
    let mounts = """
      /dev/sda / ext4 rw 0 0
      tmpfs /tmp tmpfs rw 0 0
      /dev/sdb /tmp/disk xfs rw 0 0
      """
    #expect(Machine.fileSystem(of: "/home/a", mounts: mounts) == "ext4")
    #expect(Machine.fileSystem(of: "/tmp", mounts: mounts) == "tmpfs")
    #expect(Machine.fileSystem(of: "/tmp/x", mounts: mounts) == "tmpfs")
    #expect(Machine.fileSystem(of: "/tmp/disk/x", mounts: mounts) == "xfs")
    #expect(Machine.fileSystem(of: "/tmpx", mounts: mounts) == "ext4")
  }
}

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
