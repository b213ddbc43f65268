internal import NIOCore
internal import StoreEngine

/// One call to follow a group: reads the records that are there, then watches for those that come.
///
/// The watch begins behind the revision at which the last read found the log's end, so nothing is missed between them.
/// etcd keeps a record's revision only until the history is compacted, so the records that are there cannot be watched.
final class EtcdFollower {
  private enum State {
    /// Becomes watching at the end of the log, or ended.
    case reading
    /// Becomes ended.
    case watching(cancel: () -> Void)
    /// For good.
    case ended
  }

  private let group: GroupID
  private let transactions: EtcdTransactions
  private let servers: EtcdServers
  private let reader: EtcdReader
  private let receive: (FollowEvent) -> Void
  private var next: RecordPosition
  private var state = State.reading

  init(
    group: GroupID,
    from position: RecordPosition,
    transactions: EtcdTransactions,
    servers: EtcdServers,
    reader: EtcdReader,
    receive: @escaping (FollowEvent) -> Void
  ) {
    self.group = group
    self.transactions = transactions
    self.servers = servers
    self.reader = reader
    self.receive = receive
    next = position
    read()
  }

  /// End without an event.
  func cancel() {
    let ended = state
    state = .ended
    if case .watching(let cancel) = ended { cancel() }
  }

  private func read() {
    reader.read(group, from: next, max: ClusterLimits.recordsPerRead) { [self] result in
      guard case .reading = state else { return }
      switch result {
      case .failure: end()
      case .success(let read):
        switch read.page {
        case .trimmed: end()
        case .records(let records, let hasMore):
          deliver(records)
          // The receiver may have replaced this call.
          guard case .reading = state else { return }
          if hasMore { self.read() } else { watch(from: read.revision + 1) }
        }
      }
    }
  }

  private func watch(from revision: UInt64) {
    let watch = transactions.watch(group, from: revision)
    let cancel = servers.open(.watch, GRPCMessage.framed(watch.write), parse: parse) { [self] event in
      guard case .watching(let cancel) = state else { return }
      switch event {
      case .ended: end()
      case .message(let message):
        deliver(message.records)
        // The receiver may have replaced this call.
        guard message.isLast, case .watching = state else { return }
        cancel()
        end()
      }
    }
    if let cancel { state = .watching(cancel: cancel) } else { end() }
  }

  /// Content of one message of the watch.
  private struct Message {
    var records: [GroupRecord]
    var isLast: Bool
  }

  private func parse(_ bytes: ByteBuffer) throws(EtcdWireError) -> Message {
    let response = try EtcdWatchResponse(bytes.readableBytesUInt8Span)
    var records: [GroupRecord] = []
    var expected = next
    for value in response.puts {
      let record = try transactions.record(value, of: group)
      guard record.position == expected else { throw .badValue(.record) }
      records.append(record)
      expected = expected.next
    }
    return Message(records: records, isLast: response.isCanceled)
  }

  private func deliver(_ records: [GroupRecord]) {
    guard let last = records.last else { return }
    next = last.position.next
    receive(.records(records))
  }

  private func end() {
    if case .ended = state { return }
    state = .ended
    receive(.ended)
  }
}
