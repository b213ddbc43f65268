import ArgumentParser
import Foundation
import LocalStack
import Operations
import TestSupport
import Testing

@testable import LoadGenerator

/// Short runs of every row against the real programs: they start, answer and are verified.
@Suite(.serialized, .processLanes) struct RealRunTests {
  /// Whether the foreign programs of these rows are installed. `make bench` installs all of them.
  static func areInstalled(_ rows: [BenchRow]) -> Bool {
    do throws(LoadError) {
      try PeerProgram.check(rows)
      return true
    } catch {
      return false
    }
  }

  private func executables() throws -> Executables {
    return try Executables(
      directory: ProcessInfo.processInfo.environment["TIDEMARK_BIN"] ?? packageRoot.path + "/.build/debug"
    )
  }

  /// Measure in a new directory, and expect that no directory is left.
  private func measure<Bench: Benchmark>(_ bench: Bench) async throws -> Bench.Report {
    let parent = NSTemporaryDirectory() + "tidemark-test-\(UUID().uuidString)"
    let run = BenchRun(executables: try executables(), directory: parent + "/run", note: { _ in })
    let report = try await bench.measure(run)
    #expect(try FileManager.default.contentsOfDirectory(atPath: parent) == [])
    try FileManager.default.removeItem(atPath: parent)
    return report
  }

  private func run(_ rows: [BenchRow]) async throws -> [Comparison.Measurement] {
    let comparison = try Comparison.parse([
      "--connections", "3", "--channels", "12", "--streams", "4", "--rounds", "1", "--seconds", "0.5",
      "--requests", "3000", "--rows", rows.map(\.rawValue).joined(separator: ","),
    ])
    return try await measure(comparison)
  }

  @Test(.timeLimit(.minutes(15)))
  func ownRowsAreMeasured() async throws {
    let rows = BenchRow.allCases.filter(\.isOwn)
    let measurements = try await run(rows)
    #expect(measurements.map(\.row) == rows)
    for measurement in measurements {
      #expect(measurement.figures.requests > 0 && measurement.figures.rate > 0)
      let processes = measurement.figures.cpu.map(\.process)
      #expect(
        processes == (measurement.row == .storeFrames ? ["generator", "store"] : ["generator", "gateway", "store"])
      )
    }
  }

  @Test(.timeLimit(.minutes(15)))
  func liveEventsAreMeasured() async throws {
    let report = try await measure(
      try EventBench.parse([
        "--rounds", "1", "--seconds", "0.5", "--rate", "200", "--streams", "60", "--connections", "3",
        "--no-awaits-heartbeat", "--events", "2", "--marks", "2000",
      ])
    )
    #expect(report.latencies.map(\.load) == EventReport.Load.allCases)
    #expect(report.latencies.allSatisfy { $0.marks > 0 && $0.eventP50 > 0 && $0.eventP50 <= $0.eventMax })
    #expect(report.idle.map(\.streams) == [60])
    #expect(report.fanOuts.map(\.events) == [2])
    #expect(report.costs.map(\.watched) == EventReport.Watched.allCases)
    #expect(report.costs.map { $0.events > 0 } == [false, false, true])
    #expect(report.costs.allSatisfy { $0.marks == 2_000 })
  }

  @Test(.timeLimit(.minutes(15)), .needs(Executables.find("etcd") != nil, "needs Debian's etcd-server"))
  func clustersAreMeasured() async throws {
    let report = try await measure(
      try ClusterBench.parse([
        "--rounds", "1", "--seconds", "0.3", "--requests", "1000", "--connections", "2", "--streams", "4", "--ends",
        "1",
      ])
    )
    let rows = [BenchRow.readQuery, .readQuery, .status, .status, .storeFrames, .storeFrames]
    #expect(report.measurements.map(\.row) == rows)
    #expect(report.measurements.map(\.isCluster) == [false, true, false, true, false, true])
    #expect(report.measurements.allSatisfy { $0.figures.requests > 0 && $0.figures.rate > 0 })
    // On a busy machine a node can lose its groups meanwhile, and is then a standby.
    let processes = report.measurements.map { Set($0.figures.cpu.map(\.process)).subtracting(["standby"]) }
    #expect(processes[1] == ["generator", "gateway", "store", "etcd"])
    #expect(processes[5] == ["generator", "store", "etcd"])
    #expect(report.measurements[1].followAge.map { $0.p50 <= $0.p99 } == true)
    #expect(report.measurements[0].followAge == nil)
    #expect(report.pauses.killed.count == 1 && report.pauses.stopped.count == 1 && report.pauses.returned.count == 2)
    #expect(report.pauses.requests > 0)
  }

  @Test(.timeLimit(.minutes(15)))
  func pushAcknowledgementsAreMeasured() async throws {
    let report = try await measure(
      try PushBench.parse(["--rounds", "1", "--count", "6000", "--channels", "500", "--members", "3"])
    )
    #expect(report.runs.map(\.way) == PushMode.allCases)
    #expect(report.runs.allSatisfy { $0.acknowledgements == 6_000 && $0.perSecond > 0 && $0.rowsChecked == 300 })
    #expect(report.runs.allSatisfy { $0.gatewayMemory.most >= $0.gatewayMemory.before })
  }

  @Test(.timeLimit(.minutes(15)))
  func changeFeedIsMeasured() async throws {
    let report = try await measure(try FeedBench.parse(["--quick", "--connections", "4"]))
    #expect(report.marks.map(\.row) == [.readQuery, .storeFrames, .readQuery, .storeFrames])
    #expect(report.marks.map(\.isOn) == [false, false, true, true])
    #expect(report.marks.allSatisfy { $0.figures.rate > 0 && $0.figures.cpu(of: "store") != nil })
    let reading = try #require(report.readings.first)
    #expect(report.readings.count == 1)
    #expect(reading.records > reading.marks && reading.marks > 0 && reading.recordsPerSecond > 0)
  }

  @Test(.timeLimit(.minutes(15)))
  func remindersAreMeasured() async throws {
    let report = try await measure(try ReminderBench.parse(["--quick"]))
    let round = try #require(report.first)
    #expect(report.count == 1 && round.reminders == 2_000 && round.channels == 20)
    for atRest in [round.without, round.with] {
      #expect(atRest.residentBytes > 0 && atRest.diskBytes > 0 && atRest.readySeconds > 0)
    }
    #expect(round.toldSeconds > 0 && round.readSeconds > 0)
  }

  @Test(.timeLimit(.minutes(15)))
  func importsAreMeasured() async throws {
    let report = try await measure(try ImportBench.parse(["--quick", "--rounds", "2"]))
    #expect(report.rows == 1_000 && report.imports.count == 2)
    #expect(report.imports.allSatisfy { $0.rowsPerMinute > 0 && $0.rowsChecked == 500 })
    // The bench goes on without PostgreSQL.
    #expect(report.postgresVersion == PostgresServer.installedVersion())
    #expect(report.copies.count == (report.postgresVersion == nil ? 0 : 2))
    #expect(report.copies.allSatisfy { $0.rowsPerMinute > 0 })
  }

  @Test(.timeLimit(.minutes(15)))
  func nghttpdIsMeasured() async throws {
    let measurement = try #require(try await run([.nghttpd]).first)
    #expect(measurement.figures.requests > 0)
    #expect(measurement.figures.cpu.map(\.process) == ["generator", "nghttpd"])
  }

  @Test(.needs(areInstalled([.nginx, .webdis, .redis]), "`make test-deps` installs them"), .timeLimit(.minutes(15)))
  func otherPeersAreMeasured() async throws {
    let measurements = try await run([.nginx, .webdis, .redis])
    #expect(measurements.map(\.row) == [.nginx, .webdis, .redis])
    for measurement in measurements { #expect(measurement.figures.rate > 0) }
    #expect(
      measurements.map { $0.figures.cpu.map(\.process) } == [
        ["generator", "nghttpx", "nginx"], ["generator", "nghttpx", "webdis", "redis"], ["generator", "redis"],
      ]
    )
    #expect(measurements[2].figures.p999 == nil)
  }
}
