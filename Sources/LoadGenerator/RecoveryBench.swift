internal import Foundation
internal import Glibc
internal import HTTP2Session
package import LocalStack
internal import Operations

/// How long a store takes to answer again after `kill -9`: a store of many channels is made through the real gateway,
/// killed as soon as it is made, at rest and under load, started again, and asked for what it had acknowledged.
package struct RecoveryBench: Sendable {
  package var channels = 100_000
  /// Members of each channel.
  package var members = 10
  /// How long marks are made before the second kill.
  package var loadSeconds = 10.0
  /// Have the kernel forget the data's files before each start, as after a power cut; else they are in its cache, as
  /// after a crash.
  package var isCold = false
  /// Channels that are read back after each start, drawn at random.
  package var checks = 2_000

  /// One kill and what came after it.
  package struct Measurement: Sendable, Codable {
    /// When the store was killed: "just made", "at rest" or "under load".
    package var killed: String
    package var channels: Int
    package var members: Int
    /// Marks that were acknowledged since the store was last at rest.
    package var marks: Int
    package var dataBytes: Int
    /// What the store has to read at start, at most: the files of the write-ahead log.
    package var logBytes: Int
    /// Channels with effects that only the log had, when the store was ready.
    package var tailChannels: Int
    package var readySeconds: Double
    package var firstMarkSeconds: Double
    /// Until every page was written and the log cut.
    package var settledSeconds: Double
    package var residentBytesReady: Int
    package var residentBytesSettled: Int
    /// Channels that were read back; every one was as acknowledged, or the run has failed.
    package var checked: Int
  }

  package init() {}

  /// Runs it all, with the data in a new directory that is removed at the end.
  ///
  /// - Parameters:
  ///   - note: told how far it is.
  ///   - measured: told of each kill.
  package func run(
    executables: Executables,
    directory: String,
    note: @escaping @Sendable (String) -> Void,
    measured: @escaping @Sendable (Measurement) -> Void
  ) async throws {
    try await BenchStack.run(executables: executables, directory: directory) { stack, files in
      let world = try await RecoveryWorld(
        endpoint: stack.plan.gateways[0].listen,
        secretFile: files.jwtSecret,
        channels: channels,
        members: members
      )
      try await world.create(note)
      measured(try await killAndStart("just made", stack, world, note))
      measured(try await killAndStart("at rest", stack, world, note))
      measured(try await loadAndKill(stack, world, note))
      await world.close()
    }
  }

  private func loadAndKill(
    _ stack: LocalStack,
    _ world: RecoveryWorld,
    _ note: @escaping @Sendable (String) -> Void
  ) async throws -> Measurement {
    let load = Task { try await world.load(note) }
    do {
      try await Task.sleep(for: .seconds(loadSeconds))
      let measurement = try await killAndStart("under load", stack, world, note, load: load)
      return measurement
    } catch {
      load.cancel()
      _ = try? await load.value
      throw error
    }
  }

  // MARK: One kill

  private func killAndStart(
    _ killed: String,
    _ stack: LocalStack,
    _ world: RecoveryWorld,
    _ note: @escaping @Sendable (String) -> Void,
    load: Task<Void, any Error>? = nil
  ) async throws -> Measurement {
    await stack.killStore()
    // What is under way is sent again by the gateway; nothing new is begun.
    world.stopLoad()
    let data = stack.files.data
    var measurement = Measurement(
      killed: killed,
      channels: channels,
      members: members,
      marks: world.takeMarkCount(),
      dataBytes: ProcessFigures.fileBytes(in: data),
      logBytes: ProcessFigures.fileBytes(in: data, ending: ".log"),
      tailChannels: 0,
      readySeconds: 0,
      firstMarkSeconds: 0,
      settledSeconds: 0,
      residentBytesReady: 0,
      residentBytesSettled: 0,
      checked: 0
    )
    if isCold { Self.forgetFiles(in: data) }
    note("killed \(killed); starting again over \(measurement.dataBytes >> 20) MiB")
    let began = MonotonicClock.now
    async let firstMark: Void = world.markUntilAnswered()
    try await stack.startStore(within: .seconds(600))
    measurement.readySeconds = Self.seconds(since: began)
    measurement.residentBytesReady = await resident(stack)
    measurement.tailChannels = Int(await BenchStack.storeMetric("tidemark_store_tail_channels", stack) ?? 0)
    try await firstMark
    measurement.firstMarkSeconds = Self.seconds(since: began)
    try await load?.value
    try await settle(stack, note)
    measurement.settledSeconds = Self.seconds(since: began)
    measurement.residentBytesSettled = await resident(stack)
    note("reading back \(checks) channels")
    measurement.checked = try await world.check(checks)
    return measurement
  }

  /// Waits until every page is written and the log is cut.
  private func settle(_ stack: LocalStack, _ note: @Sendable (String) -> Void) async throws {
    let deadline = MonotonicClock.now + 1_800 * 1_000_000_000
    while MonotonicClock.now < deadline {
      try Task.checkCancellation()
      if let dirty = await BenchStack.storeMetric("tidemark_store_dirty_pages", stack),
        let tail = await BenchStack.storeMetric("tidemark_store_tail_channels", stack)
      {
        // The head page of a shard is written with each checkpoint, and is dirty again by it now and then.
        if dirty <= 32, tail == 0 { return }
        note(
          "\(Figures.count(Int(dirty))) pages to write, \(Figures.count(Int(tail))) channels of the log to load"
        )
      }
      try await Task.sleep(for: .milliseconds(100))
    }
    throw LoadError("the store did not come to rest in half an hour")
  }

  private func resident(_ stack: LocalStack) async -> Int {
    guard let store = await stack.storeProcess else { return 0 }
    return ProcessFigures.residentBytes(of: store.processID) ?? 0
  }

  private static func seconds(since start: UInt64) -> Double { Double(MonotonicClock.now - start) / 1e9 }

  /// Syncs the files, without which the kernel keeps what it has not written, and asks it to drop them.
  private static func forgetFiles(in directory: String) {
    for name in (try? FileManager.default.contentsOfDirectory(atPath: directory)) ?? [] {
      let descriptor = open(directory + "/" + name, O_RDONLY)
      guard descriptor >= 0 else { continue }
      fsync(descriptor)
      posix_fadvise(descriptor, 0, 0, Int32(POSIX_FADV_DONTNEED))
      close(descriptor)
    }
  }
}
