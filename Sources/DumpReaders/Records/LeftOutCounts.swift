/// How much of a dump has no place in lines, by kind.
package struct LeftOutCounts: Hashable, Sendable, CustomStringConvertible {
  private static let kindsMax = 100

  package private(set) var counts: [String: Int] = [:]

  package init() {}

  /// - Parameter kind: a plural, such as `reactions`. Once there are many kinds, new ones are counted together.
  mutating func add(_ count: Int, _ kind: String) {
    guard count > 0 else { return }
    let kind = counts.count < Self.kindsMax || counts[kind] != nil ? kind : "others"
    counts[kind, default: 0] += count
  }

  mutating func add(_ kind: String) { add(1, kind) }

  mutating func add(_ other: Self) {
    for (kind, count) in other.counts { add(count, kind) }
  }

  /// `3 files, 12 reactions`, sorted by kind; empty if nothing was left out.
  package var description: String {
    counts.sorted { $0.key < $1.key }.map { "\($0.value) \($0.key)" }.joined(separator: ", ")
  }
}
