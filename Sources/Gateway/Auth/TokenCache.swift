/// A bounded cache of verified tokens for one event loop: token bytes to caller.
///
/// Four-way set associative: a token's hash selects four possible entries, so a look-up is four hash comparisons and
/// nothing grows. A full set evicts its least recently used entry. Only verified tokens are inserted, so a client
/// without a valid token cannot evict others.
package struct TokenCache {
  private static let wayCount = 4

  private struct Entry {
    var token: [UInt8]
    var caller: Caller
    var lastUse: UInt32
  }

  private var entries: [Entry?]
  /// The hashes of the entries, stored apart so that a look-up reads no other entry; 0: empty.
  private var hashes: [UInt64]
  private let setMask: UInt64
  private let seed: UInt64
  private var clock: UInt32 = 0
  /// Number of cached tokens.
  package private(set) var count = 0

  /// - Parameters:
  ///   - capacity: maximum number of tokens, rounded up to a power of two. Each takes some 300 bytes.
  ///   - seed: random, so that an attacker cannot choose tokens that share a set.
  package init(capacity: Int, seed: UInt64) {
    let setCount = max(1, capacity.nextPowerOfTwo / Self.wayCount)
    entries = Array(repeating: nil, count: setCount * Self.wayCount)
    hashes = Array(repeating: 0, count: setCount * Self.wayCount)
    setMask = UInt64(setCount - 1)
    self.seed = seed
  }

  /// Return the caller of a cached token, whatever its times are; they must be checked separately.
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

  /// Insert a verified token. It replaces its own entry, an empty or expired one, or the least recently used one.
  package mutating func insert(_ token: [UInt8], _ caller: Caller, now: Int64) {
    let hash = Self.hash(token.span.bytes, seed: seed)
    let first = Int(hash & setMask) * Self.wayCount
    clock &+= 1
    var slot = first
    var slotAge: UInt32 = 0
    for index in first..<(first + Self.wayCount) {
      guard let entry = entries[index], entry.caller.expiresAt > now else {
        slot = index
        slotAge = .max
        continue
      }
      if hashes[index] == hash && entry.token == token {
        slot = index
        break
      }
      // The clock wraps; ages, as differences, stay correct for entries used within the last 2^32 look-ups.
      let age = clock &- entry.lastUse
      if age > slotAge {
        slot = index
        slotAge = age
      }
    }
    if entries[slot] == nil { count += 1 }
    hashes[slot] = hash
    entries[slot] = Entry(token: token, caller: caller, lastUse: clock)
  }

  /// The cached tokens.
  var tokens: [[UInt8]] { entries.compactMap { $0?.token } }

  /// Remove all tokens.
  mutating func removeAll() {
    for index in entries.indices where entries[index] != nil {
      entries[index] = nil
      hashes[index] = 0
    }
    count = 0
  }

  /// Hash eight bytes at a time by multiplying and folding, as wyhash does; a token has some 200 bytes.
  static func hash(_ bytes: RawSpan, seed: UInt64) -> UInt64 {
    var hash = seed ^ UInt64(bytes.byteCount)
    var at = 0
    while at + 8 <= bytes.byteCount {
      hash = fold(hash ^ bytes.unsafeLoadUnaligned(fromByteOffset: at, as: UInt64.self), 0x9E37_79B9_7F4A_7C15)
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
