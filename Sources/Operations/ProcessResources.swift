internal import Foundation

#if canImport(Glibc)
  internal import Glibc
#elseif canImport(Musl)
  internal import Musl
#endif

/// Process metrics of the Prometheus client libraries, under their standard names. They are read from `/proc`, and
/// omitted where there is none.
enum ProcessMetrics {
  static func add(to samples: inout MetricSamples) {
    var usage = rusage()
    if getrusage(__rusage_who_t(RUSAGE_SELF.rawValue), &usage) == 0 {
      let seconds = { (time: timeval) in Double(time.tv_sec) + Double(time.tv_usec) / 1_000_000 }
      samples.add(
        "process_cpu_seconds_total",
        .counter,
        help: "User and system CPU time of this process.",
        labels: [:],
        .number(seconds(usage.ru_utime) + seconds(usage.ru_stime))
      )
    }
    if let statm = try? String(contentsOfFile: "/proc/self/statm", encoding: .ascii) {
      let pages = statm.split(separator: " ").compactMap { Double($0) }
      if pages.count > 1 {
        samples.gauge(
          "process_resident_memory_bytes",
          help: "Resident memory of this process.",
          pages[1] * Double(sysconf(Int32(_SC_PAGESIZE)))
        )
      }
    }
    if let descriptors = try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd") {
      samples.gauge("process_open_fds", help: "Open file descriptors of this process.", Double(descriptors.count))
    }
    samples.gauge("process_start_time_seconds", help: "When this process started, in seconds since 1970.", startTime)
  }

  /// Evaluated at the registry's first scrape or, through `recordStartTime`, when the process starts.
  private static let startTime = (Date().timeIntervalSince1970 * 1_000).rounded() / 1_000

  /// Record the current time as the start time.
  static func recordStartTime() { _ = startTime }
}

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

/// Maximum number of open descriptors (sockets and files) of the process (setrlimit(2), `RLIMIT_NOFILE`).
package enum DescriptorLimit {
  /// More than any listener here uses.
  private static let most: UInt64 = 1 << 20

  /// Return the share of the limit for connections. The rest is for files, the connection to the store, and
  /// administration.
  ///
  /// - Parameter limit: result of ``raise()``.
  package static func forConnections(of limit: Int) -> Int { limit - min(limit / 2, 256) }

  /// Raise the soft limit to the hard one, which needs no privilege. Debian's soft limit is 1,024.
  ///
  /// - Returns: the new limit.
  package static func raise() -> Int {
    var limit = rlimit()
    #if canImport(Musl)
      let resource = RLIMIT_NOFILE
    #else
      let resource = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
    #endif
    guard getrlimit(resource, &limit) == 0 else { return 1_024 }
    let soft = UInt64(limit.rlim_cur)
    limit.rlim_cur = limit.rlim_max
    let raised = setrlimit(resource, &limit) == 0 ? UInt64(limit.rlim_max) : soft
    return Int(min(raised, most))
  }
}
