/// Pauses between attempts: 0.5 s, doubled up to 30 s, each shortened by up to a half.
struct Backoff: Sendable {
  private let random: @Sendable () -> Double
  private var failures = 0

  init(random: @escaping @Sendable () -> Double) { self.random = random }

  /// The pause after one more failure.
  ///
  /// - Parameter least: The pause that the server asks for.
  mutating func next(least: Duration? = nil) -> Duration {
    let longest = min(30, 0.5 * Double(1 << min(failures, 6)))
    failures += 1
    return max(least ?? .zero, .seconds(longest * (0.5 + random() / 2)))
  }

  mutating func reset() { failures = 0 }
}
