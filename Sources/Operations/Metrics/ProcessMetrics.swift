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
        labels: [],
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
      samples.gauge(
        "process_open_fds",
        help: "Open file descriptors of this process.",
        Double(descriptors.count)
      )
    }
    samples.gauge(
      "process_start_time_seconds",
      help: "When this process started, in seconds since 1970.",
      startTime
    )
  }

  /// Evaluated at the registry's first scrape or, through `recordStartTime`, when the process starts.
  private static let startTime = (Date().timeIntervalSince1970 * 1_000).rounded() / 1_000

  /// Record the current time as the start time.
  static func recordStartTime() { _ = startTime }
}
