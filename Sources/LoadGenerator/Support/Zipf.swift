internal import Foundation

/// Zipf-distributed numbers 0 to `count`−1: the frequency of rank r is proportional to 1/r^`exponent`, and ranks are
/// scattered over the numbers. Method: Gray et al., "Quickly generating billion-record synthetic databases" (SIGMOD
/// 1994), which benchmarks of key-value stores use.
struct Zipf: Sendable {
  private let count: Int
  private let exponent: Double
  private let zeta: Double
  private let alpha: Double
  private let eta: Double

  /// - Parameters:
  ///   - count: at least 2.
  ///   - exponent: above 0 and below 1.
  init(count: Int, exponent: Double) {
    precondition(count >= 2 && exponent > 0 && exponent < 1)
    self.count = count
    self.exponent = exponent
    var sum = 0.0
    for rank in 1...count { sum += 1 / pow(Double(rank), exponent) }
    zeta = sum
    alpha = 1 / (1 - exponent)
    let two = 1 + pow(0.5, exponent)
    eta = (1 - pow(2 / Double(count), 1 - exponent)) / (1 - two / sum)
  }

  /// Return the rank of a uniform random number in 0..<1; rank 0 is the most frequent.
  func rank(_ uniform: Double) -> Int {
    let scaled = uniform * zeta
    if scaled < 1 { return 0 }
    if scaled < 1 + pow(0.5, exponent) { return 1 }
    return min(count - 1, Int(Double(count) * pow(eta * uniform - eta + 1, alpha)))
  }

  func next(_ random: inout some RandomNumberGenerator) -> Int {
    let rank = rank(Double.random(in: 0..<1, using: &random))
    // Scatters neighbouring ranks; any odd factor without a common divisor with the count would do.
    return Int((UInt64(rank) &* 0x9E37_79B9_7F4A_7C15 >> 16) % UInt64(count))
  }
}
