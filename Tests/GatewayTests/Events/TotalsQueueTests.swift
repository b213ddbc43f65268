import Testing

@testable import Gateway

/// The order and times in which ``TotalsQueue`` counts users.
@Suite struct TotalsQueueTests {
  private func ref(_ slot: UInt32) -> EventHub.Ref { EventHub.Ref(slot: slot, generation: 1) }

  private func queue(_ users: [String]) -> TotalsQueue {
    var queue = TotalsQueue()
    for (slot, user) in users.enumerated() { queue.add(ref(UInt32(slot)), of: user) }
    return queue
  }

  @Test func usersAreCountedInOrderOfChange() {
    var queue = queue(["alice", "bob", "zoe"])
    #expect(queue.next(at: 0) == nil)
    for user in ["zoe", "alice", "zoe", "nobody"] { queue.changed(user) }
    #expect(queue.next(at: 0) == "zoe" && queue.next(at: 10) == "alice" && queue.next(at: 10) == nil)
    #expect(queue.countingCount == 2)
    // A user who changes constantly does not overtake waiting users.
    queue.counted("zoe", isDone: true)
    queue.changed("zoe")
    queue.changed("bob")
    #expect(queue.next(at: 999) == "bob" && queue.next(at: 999) == nil)
    #expect(queue.next(at: 1_000) == "zoe")
  }

  @Test func userIsCountedAtMostOncePerSecond() {
    var queue = queue(["alice"])
    queue.changed("alice")
    #expect(queue.next(at: 5) == "alice")
    // A change during the count makes the user count again.
    queue.changed("alice")
    #expect(queue.next(at: 2_000) == nil)
    queue.counted("alice", isDone: true)
    #expect(queue.next(at: 2_000) == "alice")
    queue.counted("alice", isDone: true)
    #expect(queue.next(at: 9_000) == nil && queue.countingCount == 0)
    // A failed count is repeated later.
    queue.changed("alice")
    #expect(queue.next(at: 9_000) == "alice")
    queue.counted("alice", isDone: false)
    #expect(queue.next(at: 9_999) == nil && queue.next(at: 10_000) == "alice")
  }

  @Test func removedUserIsNotCounted() {
    var queue = queue(["alice", "bob"])
    queue.changed("alice")
    queue.changed("bob")
    queue.remove(ref(0), of: "alice")
    #expect(queue.next(at: 0) == "bob" && queue.next(at: 0) == nil && queue.userCount == 1)
    queue.remove(ref(1), of: "bob")
    #expect(queue.streams(of: "bob").isEmpty)
    // A user who returns within the second is still counted only once in it.
    queue.add(ref(2), of: "bob")
    queue.changed("bob")
    queue.counted("bob", isDone: true)
    #expect(queue.next(at: 999) == nil && queue.next(at: 1_000) == "bob")
    queue.remove(ref(2), of: "bob")
    queue.counted("bob", isDone: true)
    #expect(queue.next(at: 5_000) == nil && queue.userCount == 0 && queue.countingCount == 0)
  }
}
