import Foundation
package import Testing

/// Settings of this test run from the environment.
package enum TestRun {
  /// `TIDEMARK_TEST_LONG=1`, as set by `make test-long`: more seeds, longer histories, no sampling.
  package static let isLong = ProcessInfo.processInfo.environment["TIDEMARK_TEST_LONG"] == "1"

  /// The number of iterations of a test: `count`, or `long` in a long run.
  package static func count(_ count: Int, long: Int) -> Int { isLong ? long : count }

  /// A number from the environment, such as `TIDEMARK_SEEDS`; nil where it is not set.
  ///
  /// It traps on a value that is not a number, so that a wrong variable cannot turn a test run into one that proves
  /// nothing.
  package static func number(_ name: String) -> Int? {
    ProcessInfo.processInfo.environment[name].map { value in
      guard let number = Int(value), number >= 0 else {
        preconditionFailure("\(name) is not a number: \(value)")
      }
      return number
    }
  }

  /// The seeds of a test that runs once for each of them.
  ///
  /// - Returns: the seed `TIDEMARK_SEED` alone; or those from 1 to `TIDEMARK_SEEDS`; or `count` seeds, `long` in a long
  ///   run. The last of these is drawn, so that each run explores what no run has: print it, to replay a failure.
  package static func seeds(_ count: Int, long: Int) -> [UInt64] {
    if let seed = number("TIDEMARK_SEED") { return [UInt64(seed)] }
    if let count = number("TIDEMARK_SEEDS") { return Array(1...UInt64(count)) }
    let count = UInt64(self.count(count, long: long))
    return Array(1..<count) + [UInt64.random(in: count...1_000_000)]
  }

  /// `TIDEMARK_SEED`, or a random seed. It is printed under the test's name, so that a failure can be replayed.
  package static func printedSeed(of test: String) -> Int {
    let seed = number("TIDEMARK_SEED") ?? Int.random(in: 1...1_000_000)
    printSeed(UInt64(seed), of: test)
    return seed
  }

  /// Print the seed of a test that runs once for each seed, before anything that may trap.
  package static func printSeed(_ seed: UInt64, steps: Int? = nil, of test: String) {
    print("\(test): TIDEMARK_SEED=\(seed)\(steps.map { " TIDEMARK_STEPS=\($0)" } ?? "")")
  }
}

/// Whether this process may mount file systems, which takes root's rights.
package let canMount: Bool = {
  let path = NSTemporaryDirectory() + "tidemark-mount-\(UUID().uuidString)"
  guard mkdir(path, 0o700) == 0 else { return false }
  defer { rmdir(path) }
  guard mount("tmpfs", path, "tmpfs", 0, "size=64k") == 0 else { return false }
  umount2(path, Int32(MNT_DETACH))
  return true
}()

extension Trait where Self == ConditionTrait {
  /// A test that needs a foreign tool. Without the tool the test is skipped with `comment`. Continuous integration
  /// sets `TIDEMARK_TEST_EVERYTHING=1` and skips nothing: there the test runs, and fails without its tool.
  package static func needs(_ isInstalled: Bool, _ comment: Comment) -> Self {
    let skipsNothing = ProcessInfo.processInfo.environment["TIDEMARK_TEST_EVERYTHING"] == "1"
    return .enabled(if: isInstalled || skipsNothing, comment)
  }
}
