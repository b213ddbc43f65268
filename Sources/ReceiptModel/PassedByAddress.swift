import Synchronization

/// A stored property that makes its struct one the compiler hands over by address.
///
/// A large struct in a class or a table is otherwise copied, byte by byte, for each call that is not inlined: 352 bytes
/// of a shard and 776 of a channel, some ten times for a mark, a tenth of what it costs the store (docs/benchmarks.md).
/// An atomic may not be looked at anywhere but where it is, so whatever holds one is passed where it is; this one is
/// never used otherwise. Moving it is still a plain `memmove`.
package struct PassedByAddress: ~Copyable, Sendable {
  private let unused = Atomic<UInt8>(0)

  package init() {}
}
