internal import HTTP2Session
internal import NIOCore
internal import StoreEngine

/// Reads of records, in pages of a limited size.
///
/// etcd limits a range by its number of keys, not by bytes. So the number follows the size of the records that were
/// read last, and a page above the limit of a response is read again with fewer.
final class EtcdReader {
  /// A page of a group's log.
  struct Read {
    var page: EtcdTransactions.Page
    /// The store's revision at which the page was read.
    var revision: UInt64
  }

  private let transactions: EtcdTransactions
  private let servers: EtcdServers
  private let bytesWanted: Int
  private var recordsMax: Int

  init(transactions: EtcdTransactions, servers: EtcdServers, configuration: EtcdConfiguration) {
    self.transactions = transactions
    self.servers = servers
    bytesWanted = configuration.readBytes
    // As many as fit into a response, if each has the maximum size.
    recordsMax = max(1, configuration.responseBytesMax / (GroupRecord.payloadBytesMax + 1_024))
  }

  func read(
    _ group: GroupID,
    from position: RecordPosition,
    max: Int,
    done: @escaping (Result<Read, EtcdFailure>) -> Void
  ) {
    let transaction = transactions.read(group, from: position, max: min(max, recordsMax))
    servers.call(.read, GRPCMessage.framed(transaction.write)) { [self] bytes throws(EtcdWireError) in
      let response = try EtcdTransactionResponse(bytes.readableBytesUInt8Span)
      let page = try transactions.page(of: group, from: position, response)
      adapt(to: page, bytes: bytes.readableBytes)
      return Read(page: page, revision: response.revision)
    } done: { [self] result in
      // This side resets a stream whose response is too large.
      if case .failure(.reset(HTTP2ErrorCode.cancel.rawValue)) = result {
        recordsMax = Swift.max(1, recordsMax / 8)
      }
      done(result)
    }
  }

  private func adapt(to page: EtcdTransactions.Page, bytes: Int) {
    guard case .records(let records, hasMore: _) = page, !records.isEmpty else { return }
    let recordBytes = max(1, bytes / records.count)
    recordsMax = max(1, min(bytesWanted / recordBytes, ClusterLimits.recordsPerRead))
  }
}
