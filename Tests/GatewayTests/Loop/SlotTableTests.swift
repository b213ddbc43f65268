import ReceiptModel
import TestSupport
import Testing

@testable import Gateway

@Suite struct SlotTableTests {
  @Test func indexFindsValueUntilRemoval() {
    var table = SlotTable<String>()
    let (a, b) = (table.insert("a"), table.insert("b"))
    #expect(table[a] == "a" && table[b] == "b" && table.count == 2)
    #expect(table.remove(a) == "a")
    #expect(table[a] == nil && table.remove(a) == nil && table.count == 1)
    #expect(table.all.map(\.value) == ["b"] && table.all.map(\.index) == [b])
  }

  @Test func staleIndexFindsNothing() {
    var table = SlotTable<String>()
    let old = table.insert("old")
    table.remove(old)
    let new = table.insert("new")
    #expect(new.slot == old.slot && new != old)
    #expect(table[old] == nil && table.remove(old) == nil)
    #expect(table[new] == "new" && table.count == 1)
    #expect(table.read(old) { $0.count } == nil && table.read(new) { $0.count } == 3)
    table.remove(new)
    #expect(table.read(new) { $0.count } == nil)
    #expect(SlotTable<String>()[new] == nil)
  }

  @Test func partsHaveEachValueOnce() {
    var table = SlotTable<Int>()
    let indexes = (0..<10).map { table.insert($0) }
    for removed in [0, 4, 9] { table.remove(indexes[removed]) }
    #expect((0..<3).map { table.values(part: $0, of: 3) } == [[3, 6], [1, 7], [2, 5, 8]])
    #expect(table.values(part: 0, of: 1) == [1, 2, 3, 5, 6, 7, 8])
    #expect(table.values(part: 12, of: 20) == [])
  }

  /// Compares the table with a dictionary over a random history.
  @Test func tableMatchesDictionary() {
    var random = SplitMix64(printingSeedOf: "slot table")
    var table = SlotTable<Int>()
    var expected: [SlotIndex: Int] = [:]
    var removed: [SlotIndex] = []
    for value in 0..<2_000 {
      if value % 3 == 2, let index = expected.keys.min(by: { $0.slot < $1.slot }), random.next() % 2 == 0 {
        #expect(table.remove(index) == expected.removeValue(forKey: index))
        removed.append(index)
      } else {
        expected[table.insert(value)] = value
      }
    }
    #expect(table.count == expected.count && !expected.isEmpty && !removed.isEmpty)
    for (index, value) in expected { #expect(table[index] == value) }
    for index in removed { #expect(table[index] == nil) }
    #expect(Dictionary(uniqueKeysWithValues: table.all.map { ($0.index, $0.value) }) == expected)
  }
}

@Suite struct BatchEntryNamesTests {
  @Test func entriesKeepTheirNames() {
    var names = BatchEntryNames()
    let (cid, id, none) = (Array("team:a".utf8), Array("m1".utf8), [UInt8]())
    names.append(cid: cid.span.bytes, id: id.span.bytes)
    names.append(cid: cid.span.bytes)
    names.append(id: id.span.bytes)
    names.append()
    names.append(cid: none.span.bytes, id: none.span.bytes)
    #expect(names.count == 5)
    var kept: [String] = []
    for entry in 0..<names.count {
      var text = "-"
      if let cid = names.cid(entry) { text = cid.withUnsafeBytes { String(decoding: $0, as: UTF8.self) } }
      text += " "
      if let id = names.id(entry) {
        text += id.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
      } else {
        text += "-"
      }
      kept.append(text)
    }
    #expect(kept == ["team:a m1", "team:a -", "- m1", "- -", " "])
  }
}

@Suite struct PendingRequestsTests {
  @Test func removedTagFindsNothing() {
    var pending = PendingRequests(capacity: 2)
    let request = {
      PendingRequest(.tokenList(round: $0), route: .getToken, isServer: true, isPageQuery: false)
    }
    func round(_ request: PendingRequest?) -> UInt32? {
      if case .tokenList(let round)? = request?.target { round } else { nil }
    }
    var tags: [UInt64] = []
    for entry in 0..<100 { tags.append(pending.insert(request(UInt32(entry)))) }
    #expect(pending.count == 100 && Set(tags).count == 100)
    for (entry, tag) in tags.enumerated().reversed() {
      #expect(round(pending.remove(tag)) == UInt32(entry))
      #expect(pending.remove(tag) == nil)
    }
    #expect(pending.count == 0)
    let reused = pending.insert(request(7))
    #expect(!tags.contains(reused))
    for tag in tags { #expect(pending.remove(tag) == nil) }
    #expect(round(pending.remove(reused)) == 7)
    #expect(pending.remove(12_345) == nil)
  }

  /// Thousands of requests wait at once, and each mark copies one in and out.
  @Test func pendingRequestFitsIn48Bytes() { #expect(MemoryLayout<PendingRequest>.size <= 48) }
}
