import TestSupport
import Testing

@testable import ReceiptModel

/// The index compared with a dictionary, with hashes that collide on purpose.
@Suite("Hash index")
struct HashIndexTests {
  /// A mapping from keys to hashes. The index keeps 32 bits of a hash; the lowest of them select the first slot.
  enum Spread: String, CaseIterable, Sendable {
    /// A different slot for every key.
    case even
    /// Seven hashes for all keys.
    case few
    /// Different hashes with the same 32 kept bits.
    case sameFragment
    /// Different kept bits that all start at the last slot, so that runs wrap around the end.
    case atTheEnd
    /// Adjacent hashes, as multiples of one number make them.
    case neighbours

    func hash(_ key: UInt32) -> UInt64 {
      let key = UInt64(key)
      switch self {
      case .even: return key &* 0x9E37_79B9_7F4A_7C15
      case .few: return key % 7
      case .sameFragment: return key << 32 | (key ^ 0xABCD)
      case .atTheEnd: return key << 12 | 0xFFF
      case .neighbours: return key / 3
      }
    }
  }

  @Test("agrees with a dictionary", arguments: Spread.allCases, TestRun.seeds(3, long: 30))
  func agreesWithDictionary(spread: Spread, seed: UInt64) {
    var random = SplitMix64(printing: seed, of: "hash index, \(spread)")
    var index = HashIndex()
    // The number of each key; as with an index's owners, the keys are stored by number.
    var numbers: [UInt32: UInt32] = [:]
    var keys: [UInt32] = []
    func found(_ index: borrowing HashIndex, _ key: UInt32) -> UInt32? {
      index.find(spread.hash(key)) { keys[Int($0)] == key }
    }
    let keyCount = 120
    for step in 0..<6000 {
      let key = UInt32(random.below(keyCount))
      if let number = numbers[key] {
        if random.oneIn(2) {
          index.remove(spread.hash(key), number)
          numbers[key] = nil
        }
      } else if random.oneIn(step / 1500 % 2 == 0 ? 1 : 3) {
        keys.append(key)
        numbers[key] = UInt32(keys.count - 1)
        index.insert(spread.hash(key), UInt32(keys.count - 1))
      } else {
        // An absent key: removing it does nothing.
        index.remove(spread.hash(key), UInt32(keys.count))
      }
      guard index.count == numbers.count, found(index, key) == numbers[key] else {
        Issue.record("\(spread), seed \(seed), step \(step): \(key)")
        return
      }
      if step % 100 == 0 {
        for key in 0..<UInt32(keyCount) where found(index, key) != numbers[key] {
          Issue.record("\(spread), seed \(seed), step \(step): \(key) after a change of another")
          return
        }
      }
    }
  }

  @Test("grows, and still finds every key")
  func growsAndStillFindsEveryKey() {
    var index = HashIndex()
    #expect(index.find(1) { _ in true } == nil)
    index.remove(1, 0)
    for number in 0..<UInt32(5000) { index.insert(HashIndexTests.Spread.even.hash(number), number) }
    #expect(index.count == 5000)
    let isWhole = (0..<UInt32(5000)).allSatisfy { number in
      index.find(HashIndexTests.Spread.even.hash(number)) { $0 == number } == number
    }
    #expect(isWhole)
    for number in stride(from: UInt32(0), to: 5000, by: 2) {
      index.remove(HashIndexTests.Spread.even.hash(number), number)
    }
    #expect(index.count == 2500)
    let isHalf = (0..<UInt32(5000)).allSatisfy { number in
      let found = index.find(HashIndexTests.Spread.even.hash(number)) { $0 == number }
      return found == (number % 2 == 0 ? nil : number)
    }
    #expect(isHalf)
  }

  @Test("the match closure separates numbers with equal hashes")
  func matchClosureSeparatesNumbersWithEqualHashes() {
    var index = HashIndex()
    for number in 0..<UInt32(20) { index.insert(42, number) }
    #expect(index.find(42) { $0 == 13 } == 13)
    index.remove(42, 13)
    #expect(index.find(42) { $0 == 13 } == nil)
    #expect(index.find(42) { $0 == 19 } == 19)
    #expect(index.find(43) { _ in true } == nil)
  }

  @Test("stores the largest supported number")
  func storesLargestSupportedNumber() {
    var index = HashIndex()
    index.insert(7, UInt32.max - 1)
    #expect(index.find(7) { _ in true } == UInt32.max - 1)
    index.remove(7, UInt32.max - 1)
    #expect(index.count == 0)
  }
}

@Suite("Byte comparison")
struct SpanEqualityTests {
  @Test("comparison finds a difference at every length and position", arguments: 0...34)
  func comparisonFindsDifferenceAtEveryLengthAndPosition(count: Int) {
    let bytes = (0..<count).map { UInt8($0) }
    #expect(areEqual(bytes, bytes.map { $0 }))
    #expect(!areEqual(bytes, bytes + [0]))
    #expect(!areEqual(bytes + [0], bytes))
    for place in 0..<count {
      var other = bytes
      other[place] ^= 0x80
      #expect(!areEqual(bytes, other), "at \(place)")
    }
  }
}

@Suite("User table")
struct UserTableTests {
  @Test("interns each id once, and returns it")
  func internsEachIdOnce() {
    var table = UserTable()
    let ids = (0..<3000).map { "user-\($0)" } + ["a", "A", String(repeating: "x", count: 128)]
    let numbers = ids.map { table.intern($0) }
    #expect(Set(numbers).count == ids.count)
    #expect(!numbers.contains(.nobody))
    #expect(ids.map { table.intern($0) } == numbers)
    for (id, number) in zip(ids, numbers) {
      #expect(table.text(number) == id)
      #expect(table.find(id) == number)
    }
    #expect(table.find("user-3000") == nil)
    // Ids that are part of other ids, or span the boundary of two.
    for part in ["user-", "ser-1", "user-1user-2", "1user"] {
      #expect(table.find(part) == nil, "\(part)")
    }
  }

  @Test("the empty id is UserNumber.nobody, and not in the table")
  func emptyIDIsNobody() {
    var table = UserTable()
    #expect(table.intern("") == .nobody)
    #expect(table.text(.nobody) == "")
    #expect(table.find("") == nil)
    #expect(table.intern("alice") == UserNumber(1))
    #expect(table.text(.nobody) == "")
    #expect(table.find("") == nil)
  }
}
