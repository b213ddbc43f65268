import Testing

@testable import Gateway

struct WaitingQueueTests {
  /// A queue with one entry per caller, numbered from 0.
  private func queue(_ callers: [String], limit: Int = .max, limitPerShare: Int = .max) -> WaitingQueue<Int, Int> {
    var queue = WaitingQueue<Int, Int>(limit: limit, limitPerShare: limitPerShare)
    for (number, caller) in callers.enumerated() { append(number, of: caller, to: &queue) }
    return queue
  }

  @discardableResult
  private func append(_ number: Int, of caller: String, to queue: inout WaitingQueue<Int, Int>) -> Bool {
    queue.append(number, id: number, share: Caller(userID: Array(caller.utf8), isServer: false).key)
  }

  /// Take all entries, in order.
  private func rest(_ queue: inout WaitingQueue<Int, Int>) -> [Int] {
    var order: [Int] = []
    while let first = queue.first, let entry = queue.popFirst() {
      #expect(first == entry)
      order.append(entry)
    }
    #expect(queue.isEmpty && queue.first == nil && queue.idCount == 0)
    return order
  }

  @Test func callersAreServedRoundRobin() {
    var queue = queue(["eve", "eve", "eve", "bob", "eve", "ann", "bob"])
    #expect(queue.count == 7)
    #expect(rest(&queue) == [0, 3, 5, 1, 6, 2, 4])
  }

  @Test func returningCallerIsServedLast() {
    var queue = queue(["eve", "bob", "bob"])
    #expect(queue.popFirst() == 0)
    for number in 3..<5 { append(number, of: "eve", to: &queue) }
    #expect(rest(&queue) == [1, 3, 2, 4])
  }

  @Test func oldestEntriesOfEachCallerAreTakenAsFarAsTheyMatch() {
    var queue = queue(["eve", "bob", "eve", "bob"])
    #expect(queue.popOldest(countMax: 2) { $0 <= 2 } == [0, 2])
    #expect(queue.popOldest(countMax: 2) { $0 <= 2 } == [1])
    #expect(queue.popOldest(countMax: 2) { $0 <= 2 } == [])
    // Eve has no entries left.
    #expect(rest(&queue) == [3])
  }

  @Test func cancelledEntriesAreSkipped() {
    var queue = queue(["eve", "bob", "eve", "ann"])
    #expect(queue.cancel(0) == 0 && queue.cancel(1) == 1 && queue.cancel(1) == nil && queue.cancel(9) == nil)
    #expect(queue.count == 2 && !queue.contains(0) && queue.contains(2))
    #expect(rest(&queue) == [2, 3])
  }

  /// The small entry would fit, but does not overtake the large one.
  @Test func entryWithoutRoomKeepsTheOthersWaiting() {
    var queue = WaitingQueue<Int, Int>()
    for (id, size) in [1_000, 100, 1_000].enumerated() { queue.requeue(size, id: id) }
    #expect(queue.popFirst { $0 <= 999 } == nil)
    #expect(queue.popFirst { $0 <= 1_100 } == 1_000)
    #expect(queue.popFirst { $0 <= 100 } == 100)
    #expect(queue.popFirst { $0 <= 0 } == nil && queue.count == 1)
  }

  @Test func entriesAreLimitedInAllAndPerShare() {
    var queue = queue(["eve", "eve"], limit: 4, limitPerShare: 2)
    #expect(!append(2, of: "eve", to: &queue) && append(3, of: "bob", to: &queue))
    // Entries of no share count only with all others.
    #expect(queue.append(4, id: 4) && queue.isFull && !queue.append(5, id: 5))
    queue.cancel(1)
    #expect(append(6, of: "eve", to: &queue) && !append(7, of: "eve", to: &queue))
    // An entry that has begun before is not refused.
    queue.requeue(8, id: 8)
    #expect(queue.count == 5 && queue.addedCount == 6)
  }

  /// Ids of cancelled entries do not accumulate behind an entry that waits.
  @Test func cancelledEntriesTakeNoMemory() {
    var queue = WaitingQueue<Int, Int>()
    for id in 0..<10_000 {
      queue.requeue(id, id: id, share: UInt64(id % 3))
      if id > 5 { queue.cancel(id) }
      #expect(queue.idCount <= 1_100)
    }
    #expect(queue.count == 6)
    #expect(rest(&queue) == [0, 1, 2, 3, 4, 5])
  }
}
