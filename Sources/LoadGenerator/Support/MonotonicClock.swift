internal import Glibc

/// Monotonic clock in nanoseconds.
enum MonotonicClock {
  @inline(__always)
  static var now: UInt64 {
    var time = timespec()
    // Never fails for this clock.
    clock_gettime(CLOCK_MONOTONIC, &time)
    return UInt64(bitPattern: Int64(time.tv_sec)) &* 1_000_000_000 &+ UInt64(bitPattern: Int64(time.tv_nsec))
  }

  static func seconds(since start: UInt64) -> Double { Double(now - start) / 1e9 }
}
