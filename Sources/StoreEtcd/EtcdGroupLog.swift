package import NIOCore
package import Operations
package import StoreEngine

/// The shared log in etcd 3.4 or later (docs/operate/cluster.md, "The shared log in etcd").
///
/// Each call is one transaction of etcd, which checks the call's conditions and applies its effect in one step. A call
/// whose answer is missing or says nothing of the outcome is ``AppendOutcome/unclear``, never a guess, and the next
/// call goes to the next server.
///
/// Not thread-safe: make all calls on its event loop. Call ``close()`` before the last reference goes.
package final class EtcdGroupLog: GroupLog {
  private let configuration: EtcdConfiguration
  private let eventLoop: any EventLoop
  let transactions: EtcdTransactions
  private let servers: EtcdServers
  private let reader: EtcdReader
  private var followers: [GroupID: EtcdFollower] = [:]
  /// A position of each group that exists or existed, as late as known. It keeps the reads of ends short.
  private var known: [GroupID: RecordPosition] = [:]
  private var isCompactionScheduled = false
  /// Records of this node since the last compaction was scheduled.
  private var recordsSinceCompaction = 0
  /// Records after which the history is compacted without a trim, for groups of which a member is away: reports
  /// overwrite their keys all the time, and etcd keeps what they overwrite until then.
  private static let recordsPerCompaction = 1_000

  /// - Parameter report: called on the event loop for each failure of a server, for logs and metrics.
  package init(
    configuration: EtcdConfiguration,
    eventLoop: any EventLoop,
    report: @escaping (EtcdFailure, Endpoint) -> Void = { _, _ in }
  ) {
    self.configuration = configuration
    self.eventLoop = eventLoop
    transactions = EtcdTransactions(cluster: configuration.cluster)
    servers = EtcdServers(configuration: configuration, eventLoop: eventLoop, report: report)
    reader = EtcdReader(transactions: transactions, servers: servers, configuration: configuration)
  }

  /// Close the connections. Open calls fail, and later calls do.
  package func close() {
    for follower in followers.values { follower.cancel() }
    followers = [:]
    servers.close()
  }

  // MARK: GroupLog

  package func append(_ appends: [GroupAppend], done: @escaping ([AppendOutcome]) -> Void) {
    transact(.append, transactions.append(appends)) { [self] response throws(EtcdWireError) in
      let outcomes = try transactions.outcomes(of: appends, response)
      for (append, outcome) in zip(appends, outcomes) {
        if case .committed = outcome { note(append.record.position, of: append.group) }
      }
      recordsSinceCompaction += appends.count
      if recordsSinceCompaction >= Self.recordsPerCompaction { scheduleCompaction(of: response.revision) }
      return outcomes
    } done: { [self] outcomes in
      let outcomes = outcomes ?? appends.map { _ in .unclear }
      for (append, outcome) in zip(appends, outcomes) { count(outcome, of: append.record) }
      done(outcomes)
    }
  }

  package func claim(_ claim: GroupClaim, done: @escaping (AppendOutcome) -> Void) {
    transact(.claim, transactions.claim(claim)) { [self] response throws(EtcdWireError) in
      let outcome = try transactions.outcome(of: claim, response)
      if case .committed = outcome { note(claim.record.position, of: claim.group) }
      return outcome
    } done: { [self] outcome in
      let outcome = outcome ?? .unclear
      count(outcome, of: claim.record)
      done(outcome)
    }
  }

  package func ends(of groups: [GroupID], done: @escaping ([GroupEnd]?) -> Void) {
    ends(of: groups[...], after: [], done: done)
  }

  /// Read the ends in as many transactions as etcd's limit of operations needs.
  private func ends(of groups: ArraySlice<GroupID>, after read: [GroupEnd], done: @escaping ([GroupEnd]?) -> Void) {
    let part = Array(groups.prefix(EtcdTransactions.groupsPerRead))
    let known = part.map { self.known[$0] ?? RecordPosition.zero.next }
    transact(.ends, transactions.ends(of: part, known: known)) { [self] response throws(EtcdWireError) in
      let ends = try transactions.ends(of: part, known: known, response)
      for (group, end) in zip(part, ends) { note(end.last, of: group) }
      return ends
    } done: { [self] ends in
      guard let ends else { return done(nil) }
      let rest = groups.dropFirst(part.count)
      if rest.isEmpty { done(read + ends) } else { self.ends(of: rest, after: read + ends, done: done) }
    }
  }

  package func read(_ group: GroupID, from position: RecordPosition, max: Int, done: @escaping (ReadOutcome) -> Void) {
    reader.read(group, from: position, max: max) { [self] result in
      switch result {
      case .failure: done(.failed)
      case .success(let read):
        switch read.page {
        case .trimmed(let first): done(.trimmed(first: first))
        case .records(let records, let hasMore):
          if let last = records.last { note(last.position, of: group) }
          done(.records(records, reachesEnd: !hasMore))
        }
      }
    }
  }

  package func follow(_ group: GroupID, from position: RecordPosition, receive: @escaping (FollowEvent) -> Void) {
    followers[group]?.cancel()
    followers[group] = EtcdFollower(
      group: group,
      from: position,
      transactions: transactions,
      servers: servers,
      reader: reader
    ) { [weak self] event in
      if case .records(let records) = event, let last = records.last { self?.note(last.position, of: group) }
      receive(event)
    }
  }

  package func unfollow(_ group: GroupID) { followers.removeValue(forKey: group)?.cancel() }

  package func report(
    _ group: GroupID,
    by node: NodeID,
    _ report: MemberReport,
    done: @escaping ([NodeID: MemberReport]?) -> Void
  ) {
    transact(.report, transactions.report(group, by: node, report)) {
      [self] response throws(EtcdWireError) in
      try transactions.reports(response)
    } done: { reports in
      done(reports)
    }
  }

  package func trim(_ trim: GroupTrim) {
    transact(.trim, transactions.trim(trim)) { response throws(EtcdWireError) in
      response
    } done: { [self] response in
      guard let response, response.succeeded else { return }
      servers.counters.trims += 1
      scheduleCompaction(of: response.revision)
    }
  }

  // MARK: Metrics

  /// Add what this client has counted; call on its event loop.
  package func collect(into samples: inout MetricSamples) { servers.collect(into: &samples) }

  private func count(_ outcome: AppendOutcome, of record: GroupRecord) {
    switch outcome {
    case .committed:
      servers.counters.recordsAppended += 1
      servers.counters.bytesAppended += Int64(record.payload.count)
    case .unclear: servers.counters.unclear += 1
    case .fenced: break
    }
  }

  // MARK: Parts

  /// Make a transaction. `done` gets nil if the call failed.
  func transact<Value>(
    _ call: EtcdCall,
    _ transaction: EtcdTransaction,
    _ parse: @escaping (EtcdTransactionResponse) throws(EtcdWireError) -> Value,
    done: @escaping (Value?) -> Void
  ) {
    servers.call(call, GRPCMessage.framed(transaction.write)) { bytes throws(EtcdWireError) in
      try parse(try EtcdTransactionResponse(bytes.readableBytesUInt8Span))
    } done: { result in
      switch result {
      case .success(let value): done(value)
      case .failure: done(nil)
      }
    }
  }

  private func note(_ position: RecordPosition, of group: GroupID) {
    known[group] = max(known[group] ?? RecordPosition.zero.next, position)
  }

  /// Compact the history before a revision, once that is old enough. Calls meanwhile wait for the next one.
  private func scheduleCompaction(of revision: UInt64) {
    guard !isCompactionScheduled else { return }
    isCompactionScheduled = true
    recordsSinceCompaction = 0
    eventLoop.assumeIsolated().scheduleTask(in: configuration.compactionDelay) { [weak self] in
      guard let self else { return }
      isCompactionScheduled = false
      let compaction = EtcdCompaction(revision: revision)
      // Fails if another node has compacted more, which is as good.
      servers.call(.compact, GRPCMessage.framed(compaction.write)) { _ throws(EtcdWireError) in
      } done: { _ in
      }
    }
  }
}
