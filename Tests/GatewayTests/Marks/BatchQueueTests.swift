import HTTP2Session
import NIOCore
import Testing

@testable import Gateway

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
