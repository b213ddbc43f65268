import Synchronization

/// A stored property that makes the compiler pass its struct by address.
///
/// Otherwise a large struct in a class or a table is copied, byte by byte, for each call that is not inlined. That is
/// 352 bytes of a shard and 776 of a channel, some ten times for a mark: a tenth of its cost in the store
/// (docs/benchmarks.md). An atomic has a stable address, so a struct that contains one is passed by address. This
/// atomic has no other use. Moving the struct is still a plain `memmove`.
package struct PassedByAddress: ~Copyable, Sendable {
  private let unused = Atomic<UInt8>(0)

  package init() {}
}
