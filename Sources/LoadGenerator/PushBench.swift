internal import Glibc
package import LocalStack
internal import NIOPosix

/// Push acknowledgements through one stream, by ticket and by name, as NDJSON and as frames, through the real
/// processes. Every answer is compared, and rows are read back.
package struct PushBench: Sendable {
  package var ways = PushWay.allCases
  package var rounds = 3
  /// Acknowledgements of each run, at least.
  package var count = 1_000_000
  package var channels = 1_000
  /// Members of each channel, at most ``membersMax``.
  package var members = 10

  /// What one page of a read state shows.
  package static let membersMax = 100

  package init() {}

  private var walk: PushWalk { PushWalk(atLeast: count, channels: channels, members: members) }

  /// Runs it all, each run on services of its own with its data in a new directory that is removed at its end.
  ///
  /// - Parameter note: told how far it is.
  package func run(
    executables: Executables,
    directory: String,
    note: @escaping @Sendable (String) -> Void
  ) async throws -> PushReport {
    var report = PushReport(rounds: rounds, walk)
    for round in 1...rounds {
      for way in ways {
        let say: @Sendable (String) -> Void = { [rounds] in
          note("round \(round) of \(rounds), \(way.rawValue): \($0)")
        }
        report.runs.append(
          try await measure(way, executables, "\(directory)-\(round)-\(way.rawValue)", say)
        )
      }
    }
    return report
  }

  private func measure(
    _ way: PushWay,
    _ executables: Executables,
    _ directory: String,
    _ note: @escaping @Sendable (String) -> Void
  ) async throws -> PushReport.Run {
    // What is set up goes through another gateway: memory that it needed, and has again, would not be seen to grow.
    try await BenchStack.run(executables: executables, directory: directory, gateways: 2) { stack, files in
      guard let gateway = await stack.gatewayProcesses.last, let store = await stack.storeProcess else {
        throw LoadError("the services were not started")
      }
      let world = try await PushWorld(walk, stack: stack, files: files)
      do {
        try await world.make(note)
        let bodies = try await world.bodies(way, note)
        let processes = [gateway.processID, store.processID]
        let stream = PushStream(
          endpoint: stack.plan.gateways[1].listen,
          token: world.token,
          way: way,
          meter: ProcessCPUMeter(processIDs: processes)
        )
        note("acknowledging")
        let memory = try [getpid()].map(MemoryPeak.init) + processes.map(MemoryPeak.init)
        let outcome = try await stream.run(bodies, on: MultiThreadedEventLoopGroup.singleton.next())
        let grown = try memory.map { try $0.look() }
        note("reading rows back")
        let rows = try await world.check()
        await world.close()
        return PushReport.Run(way, walk, bodies, outcome, memory: grown, rowsChecked: rows)
      } catch {
        await world.close()
        throw error
      }
    }
  }
}

/// The most memory that a process has taken since.
struct MemoryPeak: Sendable {
  private let processID: Int32
  private let first: Int

  /// From now on.
  init(_ processID: Int32) throws(LoadError) {
    self.processID = processID
    guard ProcessFigures.forgetPeak(of: processID), let bytes = ProcessFigures.residentBytes(of: processID)
    else { throw LoadError("process \(processID): its peak of memory cannot be set anew") }
    first = bytes
  }

  func look() throws(LoadError) -> PushReport.Memory {
    guard let most = ProcessFigures.peakBytes(of: processID) else {
      throw LoadError("process \(processID) has ended")
    }
    return PushReport.Memory(before: first, most: max(first, most))
  }
}
