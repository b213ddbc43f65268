import ReceiptModel
import TestSupport
import Testing

/// How workers share the partitions of a consumer.
@Suite("Leases of the feed's workers", .computing)
struct FeedLeasesTests {
  /// The result of a story, a line for each step: a time, a worker, its held partitions, and `leave` if it leaves.
  private static func words(_ story: String, partitions: UInt16 = 4) -> [String] {
    var workers: [FeedWorker] = []
    return story.split(separator: "\n").map { line in
      let words = line.split(separator: " ").map(String.init)
      let held = words[2] == "-" ? [] : words[2].split(separator: ",").map { UInt16($0)! }
      var leases = FeedLeases(workers, at: Timestamp(milliseconds: Int64(words[0])!))
      let request = FeedLeases.Request(
        worker: words[1],
        partitionCount: partitions,
        held: held,
        milliseconds: words.last == "leave" ? 0 : 100
      )
      let granted = leases.renew(request)
      workers = leases.workers
      return granted.map { "\(words[1]): \($0.map { "\($0)" }.joined(separator: " "))" } ?? "refused"
    }
  }

  @Test("one worker has all; a second one gets its share once the first has let go")
  func secondWorkerGetsItsShare() {
    #expect(
      Self.words(
        """
        1 a -
        2 b -
        3 a 0,1,2,3
        4 b -
        5 a 0,1
        6 b -
        7 b 2,3
        """
      ) == ["a: 0 1 2 3", "b: ", "a: 0 1", "b: ", "a: 0 1", "b: 2 3", "b: 2 3"]
    )
  }

  @Test("the partitions of a worker that is silent go to others after its lease, and do not come back by themselves")
  func silentWorkerLosesItsPartitions() {
    #expect(
      Self.words(
        """
        1 a -
        50 b -
        60 a 0,1
        61 b 2,3
        140 b 2,3
        161 b 2,3
        170 a 0,1
        """
      ) == ["a: 0 1 2 3", "b: ", "a: 0 1", "b: 2 3", "b: 2 3", "b: 0 1 2 3", "a: "]
    )
  }

  @Test("a worker that leaves frees its partitions at once; uneven shares differ by one")
  func leavingFreesPartitions() {
    #expect(
      Self.words(
        """
        1 a -
        2 b -
        3 c -
        4 a 0,1
        5 b -
        6 c -
        7 a 0,1 leave
        8 b 2
        9 c 3
        """
      ) == ["a: 0 1 2 3", "b: ", "c: ", "a: 0 1", "b: 2", "c: 3", "a: ", "b: 0 2", "c: 1 3"]
    )
  }

  @Test("workers that divide the feed differently are refused while others live")
  func otherDivisionIsRefused() {
    var leases = FeedLeases([], at: Timestamp(milliseconds: 1))
    #expect(leases.renew(.init(worker: "a", partitionCount: 4, held: [], milliseconds: 100)) == [0, 1, 2, 3])
    #expect(leases.renew(.init(worker: "b", partitionCount: 8, held: [], milliseconds: 100)) == nil)
    // The only worker may divide it anew.
    #expect(leases.renew(.init(worker: "a", partitionCount: 2, held: [], milliseconds: 100)) == [0, 1])
  }

  @Test("no two workers ever hold one partition, and all are held soon, in random histories")
  func randomHistoriesShareEachPartitionOnce() {
    var random = SplitMix64(printingSeedOf: "leases of the feed")
    for _ in 0..<200 {
      var workers: [FeedWorker] = []
      var held: [String: Set<UInt16>] = [:]
      var until: [String: Int64] = [:]
      for time in Int64(1)...200 {
        for name in Array(held.keys) where until[name]! <= time { held[name] = nil }
        let name = "w\(random.below(4))"
        let isLeaving = random.below(12) == 0
        if isLeaving { held[name] = nil }
        var leases = FeedLeases(workers, at: Timestamp(milliseconds: time))
        let granted = leases.renew(
          .init(
            worker: name,
            partitionCount: 5,
            held: held[name].map { $0.sorted() } ?? [],
            milliseconds: isLeaving ? 0 : 30
          )
        )!
        workers = leases.workers
        if isLeaving { continue }
        until[name] = time + 30
        // It stops what is not granted some calls later.
        if random.below(2) == 0 { held[name] = Set(granted) } else { held[name, default: []].formUnion(granted) }
        let all = held.values.flatMap { $0 }
        #expect(all.count == Set(all).count, "a partition with two workers")
      }
    }
  }
}
