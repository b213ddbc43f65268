internal import Foundation

/// The memory that this process may use.
package enum MachineMemory {
  /// The machine's, or less where a control group says so (Linux cgroup v2 `memory.max`, v1 `memory.limit_in_bytes`), as
  /// containers do; in bytes.
  package static var byteCount: Int {
    let files = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
    let limits = files.compactMap { path in
      (try? String(contentsOfFile: path, encoding: .utf8))
        .flatMap { UInt64($0.trimmingCharacters(in: .whitespacesAndNewlines)) }
    }
    return Int(min(limits.min() ?? .max, ProcessInfo.processInfo.physicalMemory))
  }
}
