import Foundation
package import Testing

/// What the environment says of this test run.
package enum TestRun {
  /// `TIDEMARK_TEST_LONG=1`, as `make test-long` sets it: more seeds, longer histories, nothing sampled.
  package static let isLong = ProcessInfo.processInfo.environment["TIDEMARK_TEST_LONG"] == "1"

  /// How many of something a test goes through: `count`, or `long` in a long run.
  package static func count(_ count: Int, long: Int) -> Int { isLong ? long : count }

  /// A number from the environment, such as `TIDEMARK_SEEDS`; nil where it is not set.
  ///
  /// It traps on a value that is no number, so that a misspelt variable is no test run that proves nothing.
  package static func number(_ name: String) -> Int? {
    ProcessInfo.processInfo.environment[name].map { value in
      guard let number = Int(value), number >= 0 else {
        preconditionFailure("\(name) is not a number: \(value)")
      }
      return number
    }
  }

  /// `TIDEMARK_SEED` alone, or the seeds from 1 to `TIDEMARK_SEEDS`, by default `count`, or `long` in a long run.
  package static func seeds(_ count: Int, long: Int) -> [UInt64] {
    if let seed = number("TIDEMARK_SEED") { return [UInt64(seed)] }
    return Array(1...UInt64(number("TIDEMARK_SEEDS") ?? self.count(count, long: long)))
  }

  /// `TIDEMARK_SEED`, or a random one. Tests that draw a seed print it.
  package static var seed: Int { number("TIDEMARK_SEED") ?? Int.random(in: 1...1_000_000) }
}

extension Trait where Self == ConditionTrait {
  /// A test of a foreign tool: skipped with `comment` where the tool is missing. Continuous integration, which sets
  /// `TIDEMARK_TEST_EVERYTHING=1`, skips nothing: there the test runs, and fails without its tool.
  package static func needs(_ isInstalled: Bool, _ comment: Comment) -> Self {
    let skipsNothing = ProcessInfo.processInfo.environment["TIDEMARK_TEST_EVERYTHING"] == "1"
    return .enabled(if: isInstalled || skipsNothing, comment)
  }
}
