internal import CommandOutput
internal import Foundation
internal import Glibc
internal import LocalStack
internal import Operations

/// Memory of a process, and sizes of files.
enum ProcessFigures {
  /// Return the resident memory of a process in bytes; nil after its exit.
  static func residentBytes(of processID: Int32) -> Int? {
    guard let data = FileManager.default.contents(atPath: "/proc/\(processID)/status") else { return nil }
    return bytes("VmRSS:", status: String(decoding: data, as: UTF8.self))
  }

  /// Return the peak resident memory of a process in bytes since its start or ``resetPeak(of:)``; nil after its exit.
  static func peakBytes(of processID: Int32) -> Int? {
    guard let data = FileManager.default.contents(atPath: "/proc/\(processID)/status") else { return nil }
    return bytes("VmHWM:", status: String(decoding: data, as: UTF8.self))
  }

  /// Reset the peak (proc_pid_clear_refs(5)).
  ///
  /// - Returns: false if the system refuses it.
  static func resetPeak(of processID: Int32) -> Bool {
    guard let file = FileHandle(forWritingAtPath: "/proc/\(processID)/clear_refs") else { return false }
    defer { try? file.close() }
    return (try? file.write(contentsOf: Data("5".utf8))) != nil
  }

  /// Return the size of a field in the text of `/proc/PID/status`, in bytes.
  static func bytes(_ field: String, status: String) -> Int? {
    for line in status.split(separator: "\n") where line.hasPrefix(field) {
      return line.split(whereSeparator: { $0 == " " || $0 == "\t" }).dropFirst().first
        .flatMap { Int($0) }.map { $0 << 10 }
    }
    return nil
  }

  /// Return the size of the files in a directory whose names have an ending, without subdirectories.
  static func fileBytes(in directory: String, ending: String = "") -> Int {
    let names = (try? FileManager.default.contentsOfDirectory(atPath: directory)) ?? []
    return names.filter { $0.hasSuffix(ending) }.reduce(0) { sum, name in
      let attributes = try? FileManager.default.attributesOfItem(atPath: directory + "/" + name)
      return sum + ((attributes?[.size] as? Int) ?? 0)
    }
  }
}

/// Meter of the CPU time of processes and their descendants, user and system time together, in seconds.
struct ProcessCPUMeter: Sendable {
  /// For each process: itself, then its descendants.
  private let trees: [[Int32]]

  /// Descendants are those that exist now; one that exits later counts through the parent that waits for it.
  init(processIDs: [Int32]) {
    let parents = processIDs.isEmpty ? [] : Self.parents()
    trees = processIDs.map { Self.tree(of: $0, parents) }
  }

  /// Return the times of this process, then of the others in order; nil for a process that does not exist.
  func sample() -> [Double?] {
    // In microseconds (POSIX).
    let own = Double(clock()) / 1e6
    return [own]
      + trees.map { tree in
        guard let root = Self.seconds(of: tree[0]) else { return nil }
        return tree.dropFirst().reduce(root) { $0 + (Self.seconds(of: $1) ?? 0) }
      }
  }

  /// Return the times since an earlier sample, in its order; nil for a process that did not exist all the time.
  func seconds(since start: [Double?]) -> [Double?] {
    zip(start, sample()).map { start, end in
      guard let start, let end else { return nil }
      return end - start
    }
  }

  /// CPU time of the exited children of this process.
  static var endedChildren: Double {
    guard let fields = statFields(of: getpid()), let user = Double(fields[13]), let system = Double(fields[14]) else {
      return 0
    }
    return (user + system) / Double(sysconf(Int32(_SC_CLK_TCK)))
  }

  /// Process and its descendants.
  static func tree(of root: Int32, _ parents: [(process: Int32, parent: Int32)]) -> [Int32] {
    var tree = [root]
    var index = 0
    while index < tree.count {
      tree += parents.filter { $0.parent == tree[index] && !tree.contains($0.process) }.map(\.process)
      index += 1
    }
    return tree
  }

  /// Return all processes of this machine with their parents.
  private static func parents() -> [(process: Int32, parent: Int32)] {
    let names = (try? FileManager.default.contentsOfDirectory(atPath: "/proc")) ?? []
    return names.compactMap { name in
      guard let process = Int32(name), let fields = statFields(of: process), let parent = Int32(fields[1])
      else { return nil }
      return (process, parent)
    }
  }

  /// Return the CPU time in /proc/PID/stat, with a resolution of 10 ms.
  private static func seconds(of processID: Int32) -> Double? {
    statFields(of: processID).flatMap { seconds($0, ticksPerSecond: sysconf(Int32(_SC_CLK_TCK))) }
  }

  private static func statFields(of processID: Int32) -> [Substring]? {
    let descriptor = open("/proc/\(processID)/stat", O_RDONLY)
    guard descriptor >= 0 else { return nil }
    defer { close(descriptor) }
    var buffer = [UInt8](repeating: 0, count: 1024)
    let count = read(descriptor, &buffer, buffer.count)
    guard count > 0 else { return nil }
    return fields(String(decoding: buffer[..<count], as: UTF8.self))
  }

  /// Return the fields from the third one, the state, on. The second one, the program's name in brackets, may contain
  /// spaces and brackets.
  static func fields(_ text: String) -> [Substring]? {
    guard let bracket = text.lastIndex(of: ")") else { return nil }
    let fields = text[text.index(after: bracket)...].split(separator: " ")
    return fields.count > 14 ? fields : nil
  }

  /// Return the CPU time: utime, stime, cutime and cstime are fields 14 to 17.
  static func seconds(_ fields: [Substring], ticksPerSecond: Int) -> Double? {
    let times = fields[11...14].compactMap { Int($0) }
    return times.count == 4 ? Double(times.reduce(0, +)) / Double(ticksPerSecond) : nil
  }
}

extension LocalStack {
  /// Return a metric of the store; nil if the store does not answer.
  func storeMetric(_ name: String) async -> Double? {
    await Self.metric(name, at: plan.storeAdmin)
  }

  /// Bytes that the channels occupy in the store's memory; 0 if the store does not answer.
  var storeResidentBytes: Int {
    get async { Int(await storeMetric("tidemark_store_resident_bytes") ?? 0) }
  }

  /// Return a metric of an operations listener; nil if it does not answer.
  static func metric(_ name: String, at endpoint: Endpoint) async -> Double? {
    let response = await HealthCheck.get("http://\(endpoint)/metrics")
    return response.flatMap { MetricText.value(name, in: $0.body) }
  }

  /// Return the buckets of an operations listener's histogram; empty if it does not answer.
  static func buckets(_ name: String, at endpoint: Endpoint) async -> [Double: Double] {
    let response = await HealthCheck.get("http://\(endpoint)/metrics")
    return response.map { MetricText.buckets(name, in: $0.body) } ?? [:]
  }

  /// Restart the store with a memory budget.
  func restartStore(memoryBytes: Int) async throws {
    await stopStore()
    setStoreFlags(["--memory", String(memoryBytes)])
    try await startStore(within: .seconds(120))
    try await waitUntilGatewaysAreReady()
  }

  /// Wait until a metric of the store has a value. The store updates its metrics four times a second.
  ///
  /// - Parameter what: names what it waits for in the progress and in the error.
  /// - Returns: the time that it took, in seconds.
  @discardableResult
  func wait(
    untilMetric name: String,
    is value: Int,
    within seconds: Int,
    for what: String,
    _ note: ProgressHandler
  ) async throws -> Double {
    let start = MonotonicClock.now
    while true {
      let found = await storeMetric(name).map { Int($0) }
      let elapsed = MonotonicClock.seconds(since: start)
      if found == value { return elapsed }
      let text = found.map { Figures.count($0) } ?? "unknown"
      guard elapsed < Double(seconds) else {
        throw LoadError("timed out after \(seconds) s waiting for \(what): \(name) is \(text)")
      }
      note("waiting for \(what): \(text)")
      try await Task.sleep(for: .milliseconds(20))
    }
  }

  /// Wait until the store has loaded all channels that only its log had and has written its dirty pages.
  ///
  /// - Parameter dirtyPagesMax: pages that may stay dirty.
  func waitUntilIdle(dirtyPagesMax: Int = 0, within seconds: Int, _ note: ProgressHandler) async throws {
    let deadline = MonotonicClock.now + UInt64(seconds) * 1_000_000_000
    while MonotonicClock.now < deadline {
      if let dirty = await storeMetric("tidemark_store_dirty_pages"),
        let tail = await storeMetric("tidemark_store_tail_channels")
      {
        if Int(dirty) <= dirtyPagesMax, tail == 0 { return }
        note("\(Figures.count(Int(dirty))) pages to write, \(Figures.count(Int(tail))) channels of the log to load")
      }
      try await Task.sleep(for: .milliseconds(100))
    }
    throw LoadError("timed out after \(seconds) s waiting for the store to write its pages")
  }
}
