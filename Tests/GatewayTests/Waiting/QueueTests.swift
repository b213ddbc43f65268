import HTTP2Session
import NIOCore
import Testing

@testable import Gateway

struct QueryQueueTests {
  private func time(_ seconds: Int64) -> NIODeadline { .uptimeNanoseconds(0) + .seconds(seconds) }

  /// A queue with one query per caller, numbered from 0. Each deadline is the number in seconds.
  private func queue(_ callers: [String]) -> QueryQueue {
    var queue = QueryQueue()
    for (number, user) in callers.enumerated() {
      queue.append(
        QueryQueue.Waiting(
          connection: ConnectionIndex(UInt32(number)),
          stream: HTTP2StreamHandle(slot: UInt32(number), generation: 1),
          caller: Caller(userID: Array(user.utf8), isServer: false),
          route: .readState,
          deadline: time(Int64(number))
        )
      )
    }
    return queue
  }

  @Test func callersAreServedRoundRobin() {
    var queue = queue(["eve", "eve", "eve", "bob", "eve", "ann", "bob"])
    #expect(queue.count == 7)
    var order: [ConnectionIndex] = []
    while let query = queue.next() { order.append(query.connection) }
    #expect(order == [0, 3, 5, 1, 6, 2, 4])
    #expect(queue.count == 0)
  }

  @Test func onlyOverdueQueriesAreTaken() {
    var queue = queue(["eve", "bob", "eve", "bob"])
    let first = queue.takeOverdue(now: time(2), countMax: 2).map(\.connection)
    let second = queue.takeOverdue(now: time(2), countMax: 2).map(\.connection)
    #expect(first == [0, 2] && second == [1] && queue.count == 1)
    #expect(queue.takeOverdue(now: time(2), countMax: 2).isEmpty)
    // Eve has no queries left.
    #expect(queue.next()?.connection == 3 && queue.next() == nil)
  }

  @Test func abandonedQueriesAreRemoved() {
    var queue = queue(["eve", "bob", "eve", "ann"])
    queue.removeAll { [0, 1, 2].contains($0.connection) && $0.connection != 2 }
    #expect(queue.count == 2)
    queue.removeAll { $0.connection == 2 }
    #expect(queue.count == 1 && queue.next()?.connection == 3 && queue.next() == nil)
  }

  @Test func returningCallerIsServedLast() {
    var queue = queue(["eve", "bob", "bob"])
    #expect(queue.next()?.connection == 0)
    for number in UInt32(3)..<5 {
      queue.append(
        QueryQueue.Waiting(
          connection: ConnectionIndex(number),
          stream: HTTP2StreamHandle(slot: number, generation: 1),
          caller: Caller(userID: Array("eve".utf8), isServer: false),
          route: .readState,
          deadline: time(9)
        )
      )
    }
    var order: [ConnectionIndex] = []
    while let query = queue.next() { order.append(query.connection) }
    #expect(order == [1, 3, 2, 4])
  }
}

struct BatchQueueTests {
  private func time(_ seconds: Int64) -> NIODeadline { .uptimeNanoseconds(0) + .seconds(seconds) }

  /// Each row has the room at a time, and the batches, by connection, that begin.
  @Test func oldestBatchBeginsFirstAndOverdueBatchesBegin() {
    var queue = BatchQueue()
    for (number, entries) in [1_000, 100, 1_000].enumerated() {
      queue.append(
        BatchQueue.Waiting(
          connection: ConnectionIndex(UInt32(number)),
          stream: HTTP2StreamHandle(slot: UInt32(number), generation: 1),
          caller: Caller(userID: [], isServer: true),
          entries: entries,
          deadline: time(5 + Int64(number))
        )
      )
    }
    let rows: [(room: Int, at: Int64, begin: [ConnectionIndex])] = [
      // The small batch would fit, but does not overtake the large one.
      (999, 1, []),
      (1_100, 2, [0, 1]),
      (0, 6, []),
      // An overdue batch begins without room: its entries are then refused one by one.
      (0, 7, [2]),
      (9_999, 8, []),
    ]
    for row in rows {
      var room = row.room
      var begun: [ConnectionIndex] = []
      while let batch = queue.next(now: time(row.at), hasRoom: { $0 <= room }) {
        room -= batch.entries
        begun.append(batch.connection)
      }
      #expect(begun == row.begin, "\(row)")
    }
    #expect(queue.count == 0 && queue.deadline == nil)
  }
}
