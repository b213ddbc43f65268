/// When the requests of a paced run are due: so many a second from its beginning, whatever became of those before. One
/// that could not be made in time stays due, and its latency counts from when it should have been made: a server that
/// falls behind is not spared what it has delayed.
struct LoadPace: Sendable {
  /// How often a loop looks for what is due.
  static let tickNanoseconds: Int64 = 1_000_000

  private let nanosecondsBetween: Double
  private let start: UInt64
  private var made: UInt64 = 0

  /// - Parameter rate: requests a second, more than 0.
  init(rate: Double, start: UInt64) {
    precondition(rate > 0)
    nanosecondsBetween = 1e9 / rate
    self.start = start
  }

  /// When the next request is due, if it is by now.
  func next(at now: UInt64) -> UInt64? {
    let due = start + UInt64(Double(made) * nanosecondsBetween)
    return due <= now ? due : nil
  }

  /// The request that was due was made.
  mutating func madeOne() { made += 1 }
}
