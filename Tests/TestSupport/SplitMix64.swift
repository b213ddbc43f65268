/// Random numbers for tests: the same sequence for the same seed, on every machine and in every release.
package struct SplitMix64: RandomNumberGenerator, Sendable {
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
    print("\(test): TIDEMARK_SEED=\(seed)")
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

  package mutating func number(in range: ClosedRange<Int>) -> Int { range.lowerBound + below(range.count) }

  /// True with a probability of 1 in `times`.
  package mutating func oneIn(_ times: Int) -> Bool { below(times) == 0 }

  package mutating func pick<Element>(_ elements: [Element]) -> Element { elements[below(elements.count)] }

  /// The elements in random order. The standard library's algorithm may change between releases, so this is our own.
  package mutating func shuffled<Element>(_ elements: [Element]) -> [Element] {
    var elements = elements
    for index in stride(from: elements.count - 1, to: 0, by: -1) { elements.swapAt(index, below(index + 1)) }
    return elements
  }
}
