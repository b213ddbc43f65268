/// An open-addressing index from a key's hash to a number below 2³²−1. An entry takes eight bytes; the owner of the
/// numbers keeps the keys. The same structure finds channels, users, messages and members.
///
/// It cannot be iterated, so its order in memory can never reach an effect (docs/contribute/architecture.md).
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

/// XXH64, the public xxHash algorithm. It maps a channel to its shard, the same in every process and release
/// (Proto/frames.md, "Channel to shard"). Swift's own `Hasher` is seeded per process and must not be used for this.
package enum StableHash {
  private static let prime1: UInt64 = 0x9E37_79B1_85EB_CA87
  private static let prime2: UInt64 = 0xC2B2_AE3D_27D4_EB4F
  private static let prime3: UInt64 = 0x1656_67B1_9E37_79F9
  private static let prime4: UInt64 = 0x85EB_CA77_C2B2_AE63
  private static let prime5: UInt64 = 0x27D4_EB2F_1656_67C5

  /// Return the 64-bit hash of `bytes`.
  package static func hash(_ bytes: RawSpan, seed: UInt64 = 0) -> UInt64 {
    let count = bytes.byteCount
    var offset = 0
    var hash: UInt64
    if count >= 32 {
      var lanes = (seed &+ prime1 &+ prime2, seed &+ prime2, seed, seed &- prime1)
      while offset <= count - 32 {
        lanes.0 = round(lanes.0, word(bytes, offset))
        lanes.1 = round(lanes.1, word(bytes, offset + 8))
        lanes.2 = round(lanes.2, word(bytes, offset + 16))
        lanes.3 = round(lanes.3, word(bytes, offset + 24))
        offset += 32
      }
      hash = rotate(lanes.0, 1) &+ rotate(lanes.1, 7) &+ rotate(lanes.2, 12) &+ rotate(lanes.3, 18)
      hash = merge(hash, lanes.0)
      hash = merge(hash, lanes.1)
      hash = merge(hash, lanes.2)
      hash = merge(hash, lanes.3)
    } else {
      hash = seed &+ prime5
    }
    hash &+= UInt64(count)
    while offset + 8 <= count {
      hash = rotate(hash ^ round(0, word(bytes, offset)), 27) &* prime1 &+ prime4
      offset += 8
    }
    if offset + 4 <= count {
      let half = UInt64(UInt32(littleEndian: bytes.unsafeLoadUnaligned(fromByteOffset: offset, as: UInt32.self)))
      hash = rotate(hash ^ (half &* prime1), 23) &* prime2 &+ prime3
      offset += 4
    }
    while offset < count {
      let byte = UInt64(bytes.unsafeLoad(fromByteOffset: offset, as: UInt8.self))
      hash = rotate(hash ^ (byte &* prime5), 11) &* prime1
      offset += 1
    }
    hash = (hash ^ (hash >> 33)) &* prime2
    hash = (hash ^ (hash >> 29)) &* prime3
    return hash ^ (hash >> 32)
  }

  private static func word(_ bytes: RawSpan, _ offset: Int) -> UInt64 {
    UInt64(littleEndian: bytes.unsafeLoadUnaligned(fromByteOffset: offset, as: UInt64.self))
  }

  private static func rotate(_ value: UInt64, _ by: UInt64) -> UInt64 { (value << by) | (value >> (64 - by)) }

  private static func round(_ lane: UInt64, _ word: UInt64) -> UInt64 {
    rotate(lane &+ word &* prime2, 31) &* prime1
  }

  private static func merge(_ hash: UInt64, _ lane: UInt64) -> UInt64 {
    (hash ^ round(0, lane)) &* prime1 &+ prime4
  }
}
