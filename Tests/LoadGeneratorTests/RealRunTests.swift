import Foundation
import LocalStack
import Operations
import TestSupport
import Testing

@testable import LoadGenerator

/// Short runs of every row against the real programs: that they start, answer, and are checked.
@Suite(.serialized) struct RealRunTests {
  /// The foreign programs of those rows; `make bench` installs those that `make test` does not.
  static func areInstalled(_ rows: [BenchRow]) -> Bool {
    do throws(LoadError) {
      try PeerProgram.check(rows)
      return true
    } catch {
      return false
    }
  }

  private func executables() throws -> Executables {
    let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
      .deletingLastPathComponent().path
    return try Executables(
      directory: ProcessInfo.processInfo.environment["TIDEMARK_BIN"] ?? root + "/.build/debug"
    )
  }

  private func run(_ rows: [BenchRow]) async throws -> [Comparison.Measurement] {
    var comparison = Comparison()
    comparison.rows = rows
    comparison.connections = 3
    comparison.channels = 12
    comparison.streams = [4]
    comparison.rounds = 1
    comparison.seconds = 0.5
    comparison.requests = { _ in 3_000 }
    let directory = NSTemporaryDirectory() + "tidemark-test-\(UUID().uuidString)"
    let measurements = try await comparison.run(
      executables: try executables(),
      directory: directory,
      note: { _ in },
      measured: { _ in }
    )
    #expect(!FileManager.default.fileExists(atPath: directory))
    return measurements
  }

  @Test(.timeLimit(.minutes(15)))
  func ourRows() async throws {
    let rows = BenchRow.allCases.filter(\.isOwn)
    let measurements = try await run(rows)
    #expect(measurements.map(\.row) == rows)
    for measurement in measurements {
      #expect(measurement.figures.answers > 0 && measurement.figures.rate > 0)
      let processes = measurement.figures.cpu.map(\.process)
      #expect(
        processes
          == (measurement.row == .storeFrames ? ["generator", "store"] : ["generator", "gateway", "store"])
      )
    }
  }

  @Test(.timeLimit(.minutes(15)))
  func liveEvents() async throws {
    var bench = EventBench()
    bench.rounds = 1
    bench.seconds = 0.5
    bench.rate = 200
    bench.streams = 60
    bench.connections = 3
    bench.awaitsHeartbeat = false
    bench.events = 2
    bench.marks = 2_000
    let directory = NSTemporaryDirectory() + "tidemark-test-\(UUID().uuidString)"
    let report = try await bench.run(executables: try executables(), directory: directory, note: { _ in })
    #expect(report.latencies.map(\.load) == EventReport.Load.allCases)
    #expect(report.latencies.allSatisfy { $0.marks > 0 && $0.eventP50 > 0 && $0.eventP50 <= $0.eventMax })
    #expect(report.idle.map(\.streams) == [60])
    #expect(report.fanOuts.map(\.events) == [2])
    #expect(report.costs.map(\.watched) == EventReport.Watched.allCases)
    #expect(report.costs.map { $0.events > 0 } == [false, false, true])
    #expect(report.costs.allSatisfy { $0.marks == 2_000 })
  }

  @Test(.timeLimit(.minutes(15)))
  func pushAcknowledgements() async throws {
    var bench = PushBench()
    bench.rounds = 1
    bench.count = 6_000
    bench.channels = 500
    bench.members = 3
    let directory = NSTemporaryDirectory() + "tidemark-test-\(UUID().uuidString)"
    let report = try await bench.run(executables: try executables(), directory: directory, note: { _ in })
    #expect(report.runs.map(\.way) == PushWay.allCases)
    #expect(
      report.runs.allSatisfy { $0.acknowledgements == 6_000 && $0.perSecond > 0 && $0.rowsChecked == 300 }
    )
    #expect(report.runs.allSatisfy { $0.gatewayMemory.most >= $0.gatewayMemory.before })
  }

  @Test(.timeLimit(.minutes(15)))
  func nghttpdIsThePeerOfAll() async throws {
    let measurement = try #require(try await run([.nghttpd]).first)
    #expect(measurement.figures.answers > 0)
    #expect(measurement.figures.cpu.map(\.process) == ["generator", "nghttpd"])
  }

  @Test(
    .needs(areInstalled([.nginx, .webdis, .redis]), "`make test-deps` installs them"),
    .timeLimit(.minutes(15))
  )
  func otherPeers() async throws {
    let measurements = try await run([.nginx, .webdis, .redis])
    #expect(measurements.map(\.row) == [.nginx, .webdis, .redis])
    for measurement in measurements { #expect(measurement.figures.rate > 0) }
    #expect(
      measurements.map { $0.figures.cpu.map(\.process) } == [
        ["generator", "nghttpx", "nginx"], ["generator", "nghttpx", "webdis", "redis"],
        ["generator", "redis"],
      ]
    )
    #expect(measurements[2].figures.p999 == nil)
  }
}
