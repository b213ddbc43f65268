/// Reads a consumer's records from all shards on one stream, and opens another one after a lost connection.
package struct FeedFollower: Sendable {
  /// The partition with all shards.
  private static let partition = "0/1"
  /// Number of records after which what was received is committed; a heartbeat commits too.
  private static let recordsPerCommit = 1_000
  private static let retryPause = Duration.seconds(1)

  private let gateway: FeedGateway
  private let consumer: String
  /// Number of records to receive; nil: unlimited.
  package var countMax: Int?

  package init(_ gateway: FeedGateway, consumer: String) {
    self.gateway = gateway
    self.consumer = consumer
  }

  /// Pass each record and gap to `receive`, and commit them afterwards. Messages for a person go to `note`.
  ///
  /// - Throws: ``GatewayError`` if the gateway refuses the stream; the error of the task's cancellation.
  package func run(
    receive: (FeedLine) -> Void,
    note: (String) -> Void
  ) async throws {
    var remaining = countMax ?? .max
    while remaining > 0 {
      let stream = try await FeedStream.open(
        gateway,
        path: "/v1/feed?consumer=\(consumer)&partition=\(Self.partition)"
      )
      defer { stream.close() }
      let end = try await withTaskCancellationHandler {
        try await follow(stream, &remaining, receive)
      } onCancel: {
        stream.close()
      }
      try Task.checkCancellation()
      guard remaining > 0 else { return }
      if end.isLost { throw GatewayError("another reader of \(consumer) has taken over") }
      let reason = await stream.endReason()
      // A refusal is final, unless it may pass.
      guard end.hasBegun || reason.contains(" 5") else { throw GatewayError(reason) }
      note("\(reason); connecting again")
      try await Task.sleep(for: Self.retryPause)
    }
  }

  private struct End {
    var hasBegun = false
    /// A newer stream has taken the lease.
    var isLost = false
  }

  private func follow(
    _ stream: FeedStream,
    _ remaining: inout Int,
    _ receive: (FeedLine) -> Void
  ) async throws -> End {
    var end = End()
    var epoch: Int64?
    var cursor: String?
    var uncommitted = 0
    func commit() async throws {
      guard let committed = cursor, let epoch else { return }
      try await gateway.commit(consumer, partition: Self.partition, epoch: epoch, cursor: committed)
      (cursor, uncommitted) = (nil, 0)
    }
    while let lines = await stream.next() {
      for line in lines {
        switch line {
        case .lease(let lease):
          epoch = lease.epoch
          end.hasBegun = true
        case .record(let record):
          receive(line)
          (cursor, uncommitted, remaining) = (record.cursor, uncommitted + 1, remaining - 1)
        case .gap(let position, _, _):
          receive(line)
          cursor = position
        case .heartbeat(let position): cursor = position
        case .leaseLost:
          end.isLost = true
          return end
        }
        if remaining == 0 {
          try await commit()
          return end
        }
        if case .heartbeat = line { try await commit() }
      }
      if uncommitted >= Self.recordsPerCommit { try await commit() }
    }
    return end
  }
}
