internal import HTTP2Session
internal import NIOCore
internal import StoreEngine

/// Reads of records, in pages of a limited size.
///
/// etcd limits a range by its number of keys, not by bytes. So the number follows the size of the records that were
/// read last. A page above the limit of a response, or one that does not come in time, is read again with fewer; later
/// ones grow slowly.
final class EtcdReader {
  /// A page of a group's log.
  struct Read {
    var page: EtcdTransactions.Page
    /// etcd's revision at which the page was read.
    var revision: UInt64
  }

  private let transactions: EtcdTransactions
  private let servers: EtcdServers
  private let bytesWanted: Int
  /// Half of the time that a call may take.
  private let slowTime: TimeAmount
  private var recordsMax: Int
  /// Wanted size of a page: halved when one does not come in time, then growing again; at most `bytesWanted`.
  private var pageBytes: Int

  init(transactions: EtcdTransactions, servers: EtcdServers, configuration: EtcdConfiguration) {
    self.transactions = transactions
    self.servers = servers
    bytesWanted = configuration.readBytes
    slowTime = .nanoseconds(configuration.callTimeout.nanoseconds / 2)
    pageBytes = bytesWanted
    // As many as fit into a response, if each has the maximum size.
    recordsMax = max(1, configuration.responseBytesMax / (GroupRecord.payloadBytesMax + 1_024))
  }

  func read(
    _ group: GroupID,
    from position: RecordPosition,
    max: Int,
    done: @escaping (Result<Read, EtcdFailure>) -> Void
  ) {
    let count = min(max, recordsMax)
    let began = NIODeadline.now()
    let transaction = transactions.read(group, from: position, max: count)
    servers.call(.read, GRPCMessage.framed(transaction.write)) { [self] bytes throws(EtcdWireError) in
      let response = try EtcdTransactionResponse(bytes.readableBytesUInt8Span)
      let page = try transactions.page(of: group, from: position, response)
      adapt(to: page, bytes: bytes.readableBytes, of: count, began)
      return Read(page: page, revision: response.revision)
    } done: { [self] result in
      switch result {
      // This side resets a stream whose response is too large.
      case .failure(.reset(HTTP2ErrorCode.cancel.rawValue)): recordsMax = Swift.max(1, recordsMax / 8)
      // Another call may have timed out first, because this one fills the connection.
      case .failure(.timedOut) where isSlow(began), .failure(.connectionLost) where isSlow(began):
        recordsMax = Swift.max(1, recordsMax / 2)
        pageBytes = Swift.max(1, pageBytes / 2)
      case .failure, .success: break
      }
      done(result)
    }
  }

  /// Whether a call has taken long.
  private func isSlow(_ began: NIODeadline) -> Bool { NIODeadline.now() - began > slowTime }

  private func adapt(to page: EtcdTransactions.Page, bytes: Int, of count: Int, _ began: NIODeadline) {
    guard case .records(let records, hasMore: _) = page, !records.isEmpty else { return }
    let recordBytes = max(1, bytes / records.count)
    if records.count == count, !isSlow(began) { pageBytes = min(bytesWanted, pageBytes + pageBytes / 8 + 1) }
    recordsMax = max(1, min(pageBytes / recordBytes, ClusterLimits.recordsPerRead))
  }
}
