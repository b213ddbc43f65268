/// Schedule of a paced run: a constant number of requests per second, independent of the responses. A late request
/// stays due, and its latency counts from the time at which it was due, so that delays of the server are not hidden.
struct LoadPace: Sendable {
  /// Interval at which a loop makes the due requests.
  static let tickNanoseconds: Int64 = 1_000_000

  private let nanosecondsBetween: Double
  private let start: UInt64
  private var made: UInt64 = 0

  /// - Parameter rate: requests per second, more than 0.
  init(rate: Double, start: UInt64) {
    precondition(rate > 0)
    nanosecondsBetween = 1e9 / rate
    self.start = start
  }

  /// Return the time at which the next request was due; nil if it is not due yet.
  func next(at now: UInt64) -> UInt64? {
    let due = start + UInt64(Double(made) * nanosecondsBetween)
    return due <= now ? due : nil
  }

  /// Count the due request as made.
  mutating func madeOne() { made += 1 }
}
