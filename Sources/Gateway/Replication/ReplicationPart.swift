internal import HTTP2Session
internal import Logging
internal import NIOCore
internal import Operations
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// The store requests of ``SettingsReplication``.
enum ReplicationStoreRequest {
  case unreplicated(ShardID)
  /// By the number of the value.
  case assignment(UInt32)
  case markReplicated(UInt32)
}

/// Background completion of changes of channel types and users that have not reached every shard: performs the steps of
/// ``SettingsReplication``.
final class ReplicationPart: GatewayPart {
  private var machine = SettingsReplication()
  /// Nil where another loop does this, or after the end.
  private var ticker: RepeatedTask?

  /// Start the timer that looks for values that are not replicated.
  override func start() {
    guard let interval = loop.limits.replicationInterval else { return }
    let bound = NIOLoopBound(self, eventLoop: loop.eventLoop)
    ticker = loop.eventLoop.scheduleRepeatedTask(initialDelay: interval, delay: interval) { _ in
      bound.value.startRound()
    }
  }

  override func stop() {
    ticker?.cancel()
    ticker = nil
  }

  /// Start a round if the store is reachable and the last round has ended.
  func startRound() {
    guard ticker != nil, loop.store.isReady, !machine.isBusy else { return }
    perform(machine.roundIsDue(shardCount: loop.store.shardCount))
    loop.endTurnSoon()
  }

  func completed(_ request: ReplicationStoreRequest, with result: StoreResult) {
    guard case .reply(let kind, let payload) = result else { return perform(failure(of: request)) }
    do throws(WireError) {
      var reader = FieldReader(payload)
      let steps: [SettingsReplication.Step]
      switch request {
      case .unreplicated(let shard):
        let values = try reader.unreplicatedValues()
        try reader.end()
        steps = machine.found(values, in: shard)
      case .markReplicated(let value):
        let isDone = try reader.byte() == 1
        try reader.end()
        steps = machine.markedReplicated(Int(value), isDone: isDone)
      case .assignment(let value): steps = machine.assigned(Int(value), isDone: true)
      }
      perform(steps)
    } catch {
      loop.logMalformedReply(error, kind)
      perform(failure(of: request))
    }
  }

  /// Handle the end of an erasure that a round has started.
  func erasureEnded(_ value: Int, isDone: Bool) { perform(machine.erased(value, isDone: isDone)) }

  /// Handle the end of an announcement that a round has started.
  func announced(_ value: Int, isDone: Bool) { perform(machine.announced(value, isDone: isDone)) }

  private func failure(of request: ReplicationStoreRequest) -> [SettingsReplication.Step] {
    switch request {
    case .unreplicated: machine.listFailed()
    case .markReplicated(let value): machine.markedReplicated(Int(value), isDone: false)
    case .assignment(let value): machine.assigned(Int(value), isDone: false)
    }
  }

  private func perform(_ steps: [SettingsReplication.Step]) {
    // After `stop` nothing is sent.
    if ticker != nil { performAll(steps) { perform($0) } }
  }

  private func perform(_ step: SettingsReplication.Step) -> [SettingsReplication.Step] {
    switch step {
    case .listUnreplicated(let shard):
      return trySend(.listUnreplicated, to: shard, name: nil, request: .unreplicated(shard)) { _ in }
    case .assign(let replication, let value, let shardCount):
      loop.shared.logger.debug("Replicating a change to every shard", metadata: ["version": "\(value.version)"])
      let name = Array(value.name.utf8)
      let home = Int(value.home(shardCount: shardCount).rawValue)
      return (0..<shardCount).filter { $0 != home }.flatMap { shard in
        trySend(
          value.assignKind,
          to: ShardID(UInt16(shard)),
          name: name,
          request: .assignment(UInt32(replication))
        ) {
          value.writeAssignment(into: &$0)
        }
      }
    case .announce(let replication, let value, let shardCount):
      let scan = UserChannelScan(.announce, users: [Array(value.name.utf8)], shardCount: shardCount)
      loop.userScans.begin(UserScanJob(.replication(replication), scan))
      return []
    case .markReplicated(let replication, let value, let shardCount):
      let name = Array(value.name.utf8)
      let home = value.home(shardCount: shardCount)
      return trySend(.markReplicated, to: home, name: name, request: .markReplicated(UInt32(replication))) {
        value.writeMarkReplicated(into: &$0)
      }
    case .erase(let replication, let settings, let shardCount):
      if loop.erasures.resume(settings, shardCount: shardCount, replication: replication) { return [] }
      return machine.erased(replication, isDone: false)
    }
  }

  private func trySend(
    _ kind: FrameKind,
    to shard: ShardID,
    name: [UInt8]?,
    request: ReplicationStoreRequest,
    _ fields: (inout ByteBuffer) -> Void
  ) -> [SettingsReplication.Step] {
    let pending = PendingRequest(.replication(request), route: .putChannelType)
    if loop.trySend(kind, to: .shard(shard, name: name?.span.bytes), pending, fields) { return [] }
    machine.storeIsBusy()
    return failure(of: request)
  }

  // MARK: Metrics

  override func collect(into samples: inout MetricSamples) {
    samples.counter(
      "tidemark_gateway_values_settled_total",
      help:
        "Changes of channel types and users that a gateway left incomplete and another replicated to every shard.",
      Int64(machine.replicatedCount)
    )
  }
}

extension FieldReader {
  /// Read list(type record); list(user settings).
  @_lifetime(self: copy self)
  fileprivate mutating func unreplicatedValues() throws(WireError) -> [SharedValue] {
    var values: [SharedValue] = []
    for _ in 0..<(try count(elementBytesMin: 3)) { values.append(.channelType(try channelTypeRecord())) }
    for _ in 0..<(try count(elementBytesMin: 6)) { values.append(.user(try userSettings())) }
    return values
  }
}
