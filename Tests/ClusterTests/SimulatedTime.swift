import HeapModule
import TestSupport

/// The simulation's time, and what happens when. Nodes do not see it: each has a clock of its own.
final class SimulatedTime {
  private struct Entry: Comparable {
    let at: Int64
    let number: UInt64
    let body: () -> Void

    static func == (a: Entry, b: Entry) -> Bool { a.number == b.number }
    static func < (a: Entry, b: Entry) -> Bool { (a.at, a.number) < (b.at, b.number) }
  }

  private(set) var nanoseconds: Int64 = 0
  private var heap: Heap<Entry> = []
  private var scheduled: UInt64 = 0

  /// Calls of the same time run in the order in which they were scheduled.
  func schedule(at time: Int64, _ body: @escaping () -> Void) {
    scheduled += 1
    heap.insert(Entry(at: max(time, nanoseconds), number: scheduled, body: body))
  }

  func schedule(after delay: Int64, _ body: @escaping () -> Void) {
    schedule(at: nanoseconds + delay, body)
  }

  /// Runs everything up to `end`, then sets the time to it.
  func run(until end: Int64, while condition: () -> Bool) {
    while let next = heap.min, next.at <= end, condition() {
      heap.removeMin()
      nanoseconds = next.at
      next.body()
    }
    nanoseconds = max(nanoseconds, end)
  }
}

extension Int64 {
  /// A duration in nanoseconds.
  static func milliseconds(_ count: Int) -> Int64 { Int64(count) * 1_000_000 }
}

extension SplitMix64 {
  /// A duration in nanoseconds between two numbers of milliseconds.
  mutating func milliseconds(_ range: ClosedRange<Int>) -> Int64 {
    let span = (range.upperBound - range.lowerBound) * 1_000
    return Int64.milliseconds(range.lowerBound) + Int64(below(span + 1)) * 1_000
  }

  /// True with a probability of so many percent.
  mutating func percent(_ percent: Int) -> Bool { below(100) < percent }
}
