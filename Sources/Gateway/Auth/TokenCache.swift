/// The verified tokens of one event loop: token bytes to caller, bounded.
///
/// Four-way set associative: a token can stand in four places that its hash chooses, so finding is four
/// comparisons of a hash and nothing grows. A full set gives up the entry that was used longest ago. Only
/// verified tokens get in, so nobody without a key can push others out.
package struct TokenCache {
  private static let wayCount = 4

  private struct Entry {
    var token: [UInt8]
    var caller: Caller
    var lastUse: UInt32
  }

  private var entries: [Entry?]
  /// The hashes of the entries, apart from them so that looking for one touches no other; 0 where there is
  /// none.
  private var hashes: [UInt64]
  private let setMask: UInt64
  private let seed: UInt64
  private var clock: UInt32 = 0
  /// How many tokens are held.
  package private(set) var count = 0

  /// - Parameters:
  ///   - capacity: tokens held at most, rounded up to a power of two. One takes some 300 bytes.
  ///   - seed: random, so that nobody can choose tokens that share a set.
  package init(capacity: Int, seed: UInt64) {
    let setCount = max(1, capacity.nextPowerOfTwo / Self.wayCount)
    entries = Array(repeating: nil, count: setCount * Self.wayCount)
    hashes = Array(repeating: 0, count: setCount * Self.wayCount)
    setMask = UInt64(setCount - 1)
    self.seed = seed
  }

  /// The caller of a token that is in the cache, whatever its times say: the caller of this checks them.
  package mutating func find(_ token: RawSpan) -> Caller? {
    let hash = Self.hash(token, seed: seed)
    let first = Int(hash & setMask) * Self.wayCount
    for index in first..<(first + Self.wayCount) where hashes[index] == hash {
      guard let entry = entries[index], token.equals(entry.token.span.bytes) else { continue }
      clock &+= 1
      entries[index]!.lastUse = clock
      return entry.caller
    }
    return nil
  }

  /// Puts in a verified token, in the place of itself, of an empty or expired entry, or of the one used
  /// longest ago.
  package mutating func insert(_ token: [UInt8], _ caller: Caller, now: Int64) {
    let hash = Self.hash(token.span.bytes, seed: seed)
    let first = Int(hash & setMask) * Self.wayCount
    clock &+= 1
    var place = first
    var placeAge: UInt32 = 0
    for index in first..<(first + Self.wayCount) {
      guard let entry = entries[index], entry.caller.expiresAt > now else {
        place = index
        placeAge = .max
        continue
      }
      if hashes[index] == hash && entry.token == token {
        place = index
        break
      }
      // The clock wraps; ages, as differences, stay right for entries used within the last 2^32 finds.
      let age = clock &- entry.lastUse
      if age > placeAge {
        place = index
        placeAge = age
      }
    }
    if entries[place] == nil { count += 1 }
    hashes[place] = hash
    entries[place] = Entry(token: token, caller: caller, lastUse: clock)
  }

  /// The tokens that are held.
  var tokens: [[UInt8]] { entries.compactMap { $0?.token } }

  /// Forgets all of them.
  mutating func removeAll() {
    for index in entries.indices where entries[index] != nil {
      entries[index] = nil
      hashes[index] = 0
    }
    count = 0
  }

  /// Eight bytes at a time, multiplied and folded (as in wyhash): a token is some 200 bytes.
  static func hash(_ bytes: RawSpan, seed: UInt64) -> UInt64 {
    var hash = seed ^ UInt64(bytes.byteCount)
    var at = 0
    while at + 8 <= bytes.byteCount {
      hash = fold(
        hash ^ bytes.unsafeLoadUnaligned(fromByteOffset: at, as: UInt64.self),
        0x9E37_79B9_7F4A_7C15
      )
      at += 8
    }
    var rest: UInt64 = 0
    while at < bytes.byteCount {
      rest = rest << 8 | UInt64(bytes.unsafeLoad(fromByteOffset: at, as: UInt8.self))
      at += 1
    }
    return max(1, fold(hash ^ rest, 0xD6E8_FEB8_6659_FD93))
  }

  private static func fold(_ a: UInt64, _ b: UInt64) -> UInt64 {
    let product = a.multipliedFullWidth(by: b)
    return product.high ^ product.low
  }
}

extension Int {
  fileprivate var nextPowerOfTwo: Int {
    self <= 1 ? 1 : 1 << (Int.bitWidth - (self - 1).leadingZeroBitCount)
  }
}
