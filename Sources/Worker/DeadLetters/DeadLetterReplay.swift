package import FeedClient
internal import GatewayClient
internal import Operations

/// A dead letter with its place.
package struct PlacedDeadLetter: Sendable, Hashable {
  /// Name of the webhook.
  package var webhook: String
  /// Such as `3/8`.
  package var partition: String
  /// The range and its failures.
  package var letter: DeadLetter

  /// Identifier for the command line.
  package var id: String { letter.id(partition: partition) }
}

/// Listing, replay and removal of dead letters, beside running workers.
///
/// A replay opens no lease. It reads the range with a bounded read, delivers it, and removes the dead letter by a
/// commit of the state with the epoch that the gateway tells, while a worker may write the same state. Neither write
/// is conditional, so both sides keep these rules:
///
/// - The worker takes the dead letters from the stored state each time it writes, so a removal lasts. If a removal
///   falls between the worker's read and its write, the dead letter reappears; ``remove(_:)`` looks again and repeats
///   it.
/// - The worker adds a dead letter under one epoch, and commits the position behind it only under the next, and only if
///   the dead letter is still stored (``PartitionMachine``). A replay that read the state before holds an older epoch
///   then, and its commit is refused. So no removal can overwrite a new dead letter.
/// - A removal may overwrite the attempts of the current batch with earlier ones. The worker writes them again after
///   its next attempt.
package struct DeadLetterReplay: Sendable {
  /// Result of one dead letter's replay.
  package enum Result: Sendable, Hashable {
    /// Delivered and removed, with the number of records.
    case delivered(records: Int)
    /// Records are no longer in the feed. The rest of them, if any, was delivered; the dead letter stays.
    case incomplete(records: Int)
    /// The endpoint did not take it; the dead letter stays.
    case failed(String)
  }

  /// Times that the stored state is checked for a reappeared dead letter.
  private static let checksMax = 30

  private let gateway: FeedGateway
  private let task: WebhookTask
  private let endpoint: WebhookEndpoint
  private let checkInterval: Duration

  /// - Parameter checkInterval: time between the checks that a removed dead letter stays removed.
  package init(
    gateway: FeedGateway,
    task: WebhookTask,
    lookup: @escaping HostResolver.Lookup = HostResolver.system,
    checkInterval: Duration = .seconds(1)
  ) {
    self.gateway = gateway
    self.task = task
    endpoint = WebhookEndpoint(task, lookup: lookup)
    self.checkInterval = checkInterval
  }

  /// Return the dead letters of a webhook, by partition, oldest first.
  package static func list(_ gateway: FeedGateway, webhook: String) async throws -> [PlacedDeadLetter] {
    try await gateway.consumer(webhook).partitions.flatMap { partition throws -> [PlacedDeadLetter] in
      guard let state = PartitionState(partition.state) else {
        throw GatewayError("the stored state of partition \(partition.partition) is of a newer version or damaged")
      }
      return state.deadLetters.map {
        PlacedDeadLetter(webhook: webhook, partition: partition.partition, letter: $0)
      }
    }
  }

  /// Deliver a dead letter once, in batches of the webhook's size, and remove it.
  package func replay(_ placed: PlacedDeadLetter) async throws -> Result {
    guard let from = placed.letter.from else { return .failed("its first position is unknown; it cannot be read") }
    let path =
      "/v1/feed?consumer=\(task.name)&partition=\(placed.partition)&from=\(from.queryEscaped)"
      + "&to=\(placed.letter.to.queryEscaped)"
    let stream = try await FeedStream.open(gateway, path: path)
    defer { stream.close() }
    var assembler = BatchAssembler(recordsMax: task.batchRecordsMax, waitMilliseconds: 0)
    var position = from
    var batchFrom = from
    var delivered = 0
    var hasGap = false
    func deliver() async -> String? {
      let batch = Batch(consumer: task.name, partition: placed.partition, from: batchFrom, records: assembler.take())
      guard case .failed(let failure) = await endpoint.deliver(batch) else {
        delivered += batch.count
        return nil
      }
      return [failure.cause.description, failure.detail].filter { !$0.isEmpty }.joined(separator: ": ")
    }
    while position != placed.letter.to {
      guard let lines = await stream.next() else {
        return .failed("the range could not be read to its end: \(await stream.endReason())")
      }
      for line in lines {
        switch line {
        case .record(let record):
          if assembler.records.isEmpty { batchFrom = position }
          assembler.add(record, now: 0)
          position = record.cursor
        case .heartbeat(let cursor): position = cursor
        case .gap(let cursor, _, _):
          hasGap = true
          position = cursor
        case .lease, .leaseLost: return .failed("the gateway did not answer with a bounded read")
        }
        if !assembler.takesRecords, let problem = await deliver() { return .failed(problem) }
      }
    }
    if !assembler.records.isEmpty, let problem = await deliver() { return .failed(problem) }
    guard !hasGap else { return .incomplete(records: delivered) }
    do {
      try await remove(placed)
    } catch let error as GatewayError {
      throw GatewayError("delivered, but not removed: \(error)")
    }
    return .delivered(records: delivered)
  }

  /// Remove a dead letter, whether it was delivered or not, and look again until it stays removed. Only the stored
  /// state is read and written, not the feed.
  package func remove(_ placed: PlacedDeadLetter) async throws {
    var absences = 0
    var wasThere = false
    for _ in 0..<Self.checksMax {
      let stored = try await gateway.consumer(task.name).partitions.first { $0.partition == placed.partition }
      guard let stored, let epoch = stored.epoch, var state = PartitionState(stored.state) else {
        throw GatewayError("the stored state of partition \(placed.partition) cannot be read")
      }
      let count = state.deadLetters.count
      state.deadLetters.removeAll { $0.to == placed.letter.to && $0.from == placed.letter.from }
      if state.deadLetters.count == count {
        absences += 1
        // It may reappear once more after the removal, not after two looks.
        if absences >= 2 {
          if wasThere { return }
          throw GatewayError("the dead letter is no longer there: it was merged or removed meanwhile; list them again")
        }
      } else {
        absences = 0
        wasThere = true
        do {
          // No stream reads a partition of another number than today's: it has no epoch.
          try await gateway.commit(
            task.name,
            partition: placed.partition,
            epoch: epoch > 0 ? epoch : nil,
            state: state.text
          )
        } catch let error as GatewayError where error.code == "lease_lost" {
          // A worker has opened a stream since: read the state again.
          continue
        }
      }
      try await Task.sleep(for: checkInterval)
    }
    throw GatewayError("the dead letter reappeared after each removal; try again later")
  }

  /// Close the connections to the endpoint.
  package func close() async { await endpoint.shutDown() }
}
