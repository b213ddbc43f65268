/// The encoding of what the nodes of a cluster share: records, the batches in them, and snapshots
/// (docs/operate/cluster.md, "Upgrades").
///
/// A cluster has one level, stored beside its log. Owners write that level at most, so that nodes of an older and a
/// newer program can run together. An operator raises it once all nodes support the next one. It never falls.
package struct ClusterLevel: Hashable, Comparable, Sendable, BitwiseCopyable {
  package var rawValue: UInt8
  package init(_ rawValue: UInt8) { self.rawValue = rawValue }
  package static func < (a: Self, b: Self) -> Bool { a.rawValue < b.rawValue }

  /// The levels that this program reads and writes.
  ///
  /// A change that earlier programs cannot read adds a level: extend this range, and write the new encoding only where
  /// ``Ownership/writtenLevel`` allows it. ``oldest`` rises a release later at the earliest.
  ///
  /// - Level 1, of preview builds: batches in plain text. No program supports it.
  /// - Level 2: sealed batches, record keys and purges.
  package static let supported = oldest...ClusterLevel(2)
  package static let oldest = ClusterLevel(2)
}

extension ClosedRange<ClusterLevel> {
  /// Such as "2" or "2 to 4".
  package var text: String {
    let (first, last) = (lowerBound.rawValue, upperBound.rawValue)
    return first == last ? "\(first)" : "\(first) to \(last)"
  }
}
