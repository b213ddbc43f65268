internal import Foundation

/// Memory available to this process.
package enum AvailableMemory {
  /// The machine's memory in bytes, or the limit of the control group if that is lower, as in containers (Linux cgroup
  /// v2 `memory.max`, v1 `memory.limit_in_bytes`).
  package static var byteCount: Int {
    let files = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
    let limits = files.compactMap { path in
      (try? String(contentsOfFile: path, encoding: .utf8))
        .flatMap { UInt64($0.trimmingCharacters(in: .whitespacesAndNewlines)) }
    }
    return Int(min(limits.min() ?? .max, ProcessInfo.processInfo.physicalMemory))
  }
}
