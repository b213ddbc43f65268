/// Random numbers for tests: the same sequence for the same seed, on every machine and in every release.
///
/// It is no `RandomNumberGenerator`, because the standard library's algorithms (`shuffled(using:)`,
/// `Int.random(in:using:)`) may change between releases, and a seed would then replay another test.
package struct SplitMix64: Sendable {
  package let seed: UInt64
  private var state: UInt64

  package init(seed: UInt64) {
    self.seed = seed
    state = seed
  }

  /// Random numbers of one test: their seed is printed, and `TIDEMARK_SEED` replays it.
  package init(printingSeedOf test: String) { self.init(seed: UInt64(TestRun.printedSeed(of: test))) }

  /// Random numbers of one test that runs once for each seed: the seed is printed.
  ///
  /// - Parameter offset: gives several tests that share their seeds different numbers.
  package init(printing seed: UInt64, of test: String, offset: UInt64 = 0) {
    TestRun.printSeed(seed, of: test)
    self.init(seed: seed &+ offset)
  }

  package mutating func next() -> UInt64 {
    state &+= 0x9E37_79B9_7F4A_7C15
    var word = state
    word = (word ^ (word >> 30)) &* 0xBF58_476D_1CE4_E5B9
    word = (word ^ (word >> 27)) &* 0x94D0_49BB_1331_11EB
    return word ^ (word >> 31)
  }

  /// A number from 0 up to, not including, `limit`.
  package mutating func below(_ limit: Int) -> Int { Int(next() % UInt64(limit)) }

  package mutating func number<Number: FixedWidthInteger>(in range: ClosedRange<Number>) -> Number {
    let width = UInt64(truncatingIfNeeded: range.upperBound &- range.lowerBound) & mask(Number.bitWidth)
    let offset = width == .max ? next() : next() % (width + 1)
    return range.lowerBound &+ Number(truncatingIfNeeded: offset)
  }

  private func mask(_ bitWidth: Int) -> UInt64 { bitWidth >= 64 ? .max : (1 << bitWidth) - 1 }

  /// A number from 0 up to, not including, 1.
  package mutating func fraction() -> Double { Double(next() >> 11) * 0x1p-53 }

  /// True with a probability of 1 in `times`.
  package mutating func oneIn(_ times: Int) -> Bool { below(times) == 0 }

  package mutating func pick<Element>(_ elements: [Element]) -> Element { elements[below(elements.count)] }

  /// The elements in random order.
  package mutating func shuffled<Element>(_ elements: [Element]) -> [Element] {
    var elements = elements
    for index in stride(from: elements.count - 1, to: 0, by: -1) { elements.swapAt(index, below(index + 1)) }
    return elements
  }
}
