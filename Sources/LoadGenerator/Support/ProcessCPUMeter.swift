internal import Foundation
internal import Glibc

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
    var time = timespec()
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time)
    let own = Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
    return [own]
      + trees.map { tree in
        guard let root = Self.seconds(of: tree[0]) else { return nil }
        return tree.dropFirst().reduce(root) { $0 + (Self.seconds(of: $1) ?? 0) }
      }
  }

  /// CPU time of the exited children of this process.
  static var endedChildren: Double {
    var usage = rusage()
    getrusage(RUSAGE_CHILDREN.rawValue, &usage)
    func seconds(_ time: timeval) -> Double { Double(time.tv_sec) + Double(time.tv_usec) / 1e6 }
    return seconds(usage.ru_utime) + seconds(usage.ru_stime)
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
