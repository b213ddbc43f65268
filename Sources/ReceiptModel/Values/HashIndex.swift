/// An open-addressing index from a key's hash to a number below 2³²−1. An entry takes eight bytes; the owner of the
/// numbers keeps the keys. The same structure finds channels, users, messages and members.
///
/// It cannot be iterated, so its order in memory can never reach an effect (docs/architecture.md).
struct HashIndex: ~Copyable, Sendable {
  /// Upper half: the hash's fragment; lower half: the number + 1; all zero: empty.
  private var entries: [UInt64] = []
  private(set) var count = 0

  init() {}

  /// Size in bytes.
  var byteCount: Int { heapBytes(entries) }

  private static func fragment(_ hash: UInt64) -> UInt32 { UInt32(truncatingIfNeeded: hash ^ (hash >> 32)) }

  /// Return the number whose key has this hash and satisfies `matches`.
  @inline(__always)
  func find(_ hash: UInt64, matches: (UInt32) -> Bool) -> UInt32? {
    guard !entries.isEmpty else { return nil }
    let fragment = Self.fragment(hash)
    let mask = entries.count - 1
    var position = Int(fragment) & mask
    while true {
      let entry = entries[position]
      if entry == 0 { return nil }
      if UInt32(truncatingIfNeeded: entry >> 32) == fragment {
        let number = UInt32(truncatingIfNeeded: entry) - 1
        if matches(number) { return number }
      }
      position = (position + 1) & mask
    }
  }

  /// Add a number; the caller ensures that its key is not present.
  mutating func insert(_ hash: UInt64, _ number: UInt32) {
    // At most three quarters full, so that a search for a missing key stays short.
    if (count + 1) * 4 > entries.count * 3 { grow() }
    store(UInt64(Self.fragment(hash)) << 32 | UInt64(number + 1))
    count += 1
  }

  /// Remove a number and move up later entries of the same run, so that no tombstones remain.
  mutating func remove(_ hash: UInt64, _ number: UInt32) {
    guard !entries.isEmpty else { return }
    let mask = entries.count - 1
    let wanted = UInt64(Self.fragment(hash)) << 32 | UInt64(number + 1)
    var hole = Int(Self.fragment(hash)) & mask
    while entries[hole] != wanted {
      if entries[hole] == 0 { return }
      hole = (hole + 1) & mask
    }
    entries[hole] = 0
    count -= 1
    var position = (hole + 1) & mask
    while entries[position] != 0 {
      let home = Int(entries[position] >> 32) & mask
      // Movable if its home does not lie between the hole and its position.
      if (position &- home) & mask >= (position &- hole) & mask {
        entries[hole] = entries[position]
        entries[position] = 0
        hole = position
      }
      position = (position + 1) & mask
    }
  }

  private mutating func store(_ entry: UInt64) {
    let mask = entries.count - 1
    var position = Int(entry >> 32) & mask
    while entries[position] != 0 { position = (position + 1) & mask }
    entries[position] = entry
  }

  private mutating func grow() {
    let old = entries
    entries = Array(repeating: 0, count: max(8, old.count * 2))
    for entry in old where entry != 0 { store(entry) }
  }
}

/// The heap size of an array that grew by doubling, in bytes: capacity and header. Computed from the count alone:
/// allocators may round up differently, and eviction must not depend on that, or a history could not be replayed.
func heapBytes<Element>(_ array: [Element]) -> Int {
  guard !array.isEmpty else { return 0 }
  let slots = 1 << (Int.bitWidth - (array.count - 1).leadingZeroBitCount)
  return slots * MemoryLayout<Element>.stride + 48
}

extension RawSpan {
  /// Return whether both spans have the same bytes.
  package func isEqual(to other: RawSpan) -> Bool {
    guard byteCount == other.byteCount else { return false }
    var offset = 0
    while offset + 8 <= byteCount {
      if unsafeLoadUnaligned(fromByteOffset: offset, as: UInt64.self)
        != other.unsafeLoadUnaligned(fromByteOffset: offset, as: UInt64.self)
      {
        return false
      }
      offset += 8
    }
    while offset < byteCount {
      if unsafeLoad(fromByteOffset: offset, as: UInt8.self)
        != other.unsafeLoad(fromByteOffset: offset, as: UInt8.self)
      {
        return false
      }
      offset += 1
    }
    return true
  }
}
