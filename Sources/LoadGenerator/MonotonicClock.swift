internal import Glibc

/// Nanoseconds of a clock that never goes back.
enum MonotonicClock {
  @inline(__always)
  static var now: UInt64 {
    var time = timespec()
    // Never fails for this clock.
    clock_gettime(CLOCK_MONOTONIC, &time)
    return UInt64(bitPattern: Int64(time.tv_sec)) &* 1_000_000_000 &+ UInt64(bitPattern: Int64(time.tv_nsec))
  }
}

/// CPU time of processes, in seconds, user and system together.
struct ProcessCPUMeter: Sendable {
  let processIDs: [Int32]

  /// The time of this process, then of the others in order; nil for one that is not there.
  func sample() -> [Double?] {
    var time = timespec()
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time)
    let own = Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
    return [own] + processIDs.map { Self.seconds(of: $0) }
  }

  /// From /proc/PID/stat, whose resolution is a clock tick, 10 ms.
  private static func seconds(of processID: Int32) -> Double? {
    let descriptor = open("/proc/\(processID)/stat", O_RDONLY)
    guard descriptor >= 0 else { return nil }
    defer { close(descriptor) }
    var buffer = [UInt8](repeating: 0, count: 1024)
    let count = read(descriptor, &buffer, buffer.count)
    guard count > 0 else { return nil }
    return parse(
      String(decoding: buffer[..<count], as: UTF8.self),
      ticksPerSecond: sysconf(Int32(_SC_CLK_TCK))
    )
  }

  /// utime and stime are fields 14 and 15; the second, the program's name in brackets, may hold spaces and brackets.
  static func parse(_ text: String, ticksPerSecond: Int) -> Double? {
    guard let bracket = text.lastIndex(of: ")") else { return nil }
    let fields = text[text.index(after: bracket)...].split(separator: " ")
    guard fields.count > 12, let user = Int(fields[11]), let system = Int(fields[12]) else { return nil }
    return Double(user + system) / Double(ticksPerSecond)
  }
}
