/// A worker that shares a consumer's partitions with others.
package struct FeedWorker: Hashable, Sendable {
  package var name: String
  /// Number of partitions by which it divides the feed.
  package var partitionCount: UInt16
  /// The worker is gone unless it renews its lease before this time.
  package var until: Timestamp
  /// The partitions that it may be serving, in rising order: those that it was given, and those that it still holds.
  package var partitions: [UInt16]

  package init(name: String, partitionCount: UInt16, until: Timestamp, partitions: [UInt16]) {
    self.name = name
    self.partitionCount = partitionCount
    self.until = until
    self.partitions = partitions
  }
}

/// How workers share the partitions of one consumer: each partition has one worker at most, and all have about as many.
/// A partition moves only when its worker no longer holds it, or the worker's lease has ended.
package struct FeedLeases {
  package static let workersMax = 256
  package static let millisecondsMax: Int64 = 60_000

  /// A worker's renewal of its lease.
  package struct Request {
    package var worker: String
    package var partitionCount: UInt16
    /// Partitions that the worker serves now.
    package var held: [UInt16]
    /// 0: the worker leaves.
    package var milliseconds: Int64

    package init(worker: String, partitionCount: UInt16, held: [UInt16], milliseconds: Int64) {
      self.worker = worker
      self.partitionCount = partitionCount
      self.held = held
      self.milliseconds = milliseconds
    }
  }

  /// By name.
  package private(set) var workers: [FeedWorker]
  private let time: Timestamp

  package init(_ workers: [FeedWorker], at time: Timestamp) {
    self.workers = workers.filter { $0.until > time }
    self.time = time
  }

  /// Renew a worker's lease.
  ///
  /// - Returns: the partitions that it may serve from now on, in rising order; nil: other workers divide the feed by
  ///   another number of partitions.
  package mutating func renew(_ request: Request) -> [UInt16]? {
    let known = workers.firstIndex { $0.name == request.worker }
    guard request.milliseconds > 0 else {
      if let known { workers.remove(at: known) }
      return []
    }
    var worker = FeedWorker(
      name: request.worker,
      partitionCount: request.partitionCount,
      until: Timestamp(milliseconds: time.milliseconds + request.milliseconds),
      partitions: []
    )
    var given: [UInt16] = []
    if let known {
      if workers[known].partitionCount == request.partitionCount { given = workers[known].partitions }
      workers.remove(at: known)
    }
    guard workers.allSatisfy({ $0.partitionCount == request.partitionCount }) else { return nil }
    let position = workers.firstIndex { $0.name > request.worker } ?? workers.endIndex
    let share = Self.share(of: position, workers: workers.count + 1, partitions: Int(request.partitionCount))
    let taken = Set(workers.flatMap(\.partitions))
    let held = Set(request.held.filter { $0 < request.partitionCount })
    // What it serves comes first, so that no partition moves without need.
    var mine = held.filter { !taken.contains($0) }.sorted()
    mine += given.filter { !held.contains($0) && !taken.contains($0) }
    mine += (0..<request.partitionCount).filter { !mine.contains($0) && !taken.contains($0) }
    let assigned = mine.prefix(share).sorted()
    worker.partitions = Set(assigned).union(held.subtracting(taken)).sorted()
    workers.insert(worker, at: position)
    return assigned
  }

  /// Return the number of partitions for the worker at a position in the list.
  private static func share(of position: Int, workers: Int, partitions: Int) -> Int {
    partitions / workers + (position < partitions % workers ? 1 : 0)
  }
}
