internal import HTTP2Session
internal import Logging
internal import NIOCore
internal import Operations
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// The store requests of ``SettlementRounds``.
enum SettlementStoreRequest {
  case unsettled(ShardID)
  /// By the number of the value.
  case assignment(UInt32)
  case settle(UInt32)
}

/// Background completion of changes of channel types and users that have not reached every shard: performs the actions
/// of ``SettlementRounds``.
final class SettlementPart: GatewayPart {
  private var machine = SettlementRounds()
  /// Nil where another loop does this, or after the end.
  private var ticker: RepeatedTask?

  /// Start the timer that looks for values that are not settled.
  override func start() {
    guard let interval = loop.limits.settlementInterval else { return }
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

  func completed(_ request: SettlementStoreRequest, with result: StoreResult) {
    guard case .reply(let kind, let payload) = result else { return perform(failure(of: request)) }
    do throws(WireError) {
      let actions: [SettlementRounds.Action]
      switch request {
      case .unsettled(let shard):
        let reply = try UnsettledReply(payload)
        let values = reply.types.map { SharedValue.channelType($0) } + reply.users.map { .user($0) }
        actions = machine.found(values, in: shard)
      case .settle(let value): actions = machine.settled(Int(value), isDone: try FlagReply(payload).isSet)
      case .assignment(let value): actions = machine.assigned(Int(value), isDone: true)
      }
      perform(actions)
    } catch {
      loop.logMalformedReply(error, kind)
      perform(failure(of: request))
    }
  }

  /// Handle the end of an erasure that a round has started.
  func erasureEnded(_ value: Int, isDone: Bool) { perform(machine.erased(value, isDone: isDone)) }

  /// Handle the end of an announcement that a round has started.
  func announced(_ value: Int, isDone: Bool) { perform(machine.announced(value, isDone: isDone)) }

  private func failure(of request: SettlementStoreRequest) -> [SettlementRounds.Action] {
    switch request {
    case .unsettled: machine.listFailed()
    case .settle(let value): machine.settled(Int(value), isDone: false)
    case .assignment(let value): machine.assigned(Int(value), isDone: false)
    }
  }

  private func perform(_ actions: [SettlementRounds.Action]) {
    // After `stop` nothing is sent.
    if ticker != nil { performAll(actions) { perform($0) } }
  }

  private func perform(_ action: SettlementRounds.Action) -> [SettlementRounds.Action] {
    switch action {
    case .listUnsettled(let shard):
      return trySend(.listUnsettled, to: shard, name: nil, request: .unsettled(shard)) { _ in }
    case .assign(let settlement, let value, let shardCount):
      loop.shared.logger.debug("Settling a change in every shard", metadata: ["version": "\(value.version)"])
      let name = Array(value.name.utf8)
      let home = Int(value.home(shardCount: shardCount).rawValue)
      return (0..<shardCount).filter { $0 != home }.flatMap { shard in
        trySend(value.assignKind, to: ShardID(UInt16(shard)), name: name, request: .assignment(UInt32(settlement))) {
          value.writeAssignment(into: &$0)
        }
      }
    case .announce(let settlement, let value, let shardCount):
      let scan = UserChannelScan(.announce, users: [Array(value.name.utf8)], shardCount: shardCount)
      loop.userScans.begin(UserScanJob(.settlement(settlement), scan))
      return []
    case .settle(let settlement, let value, let shardCount):
      let name = Array(value.name.utf8)
      let home = value.home(shardCount: shardCount)
      return trySend(.settle, to: home, name: name, request: .settle(UInt32(settlement))) {
        value.writeSettle(into: &$0)
      }
    case .erase(let settlement, let settings, let shardCount):
      if loop.erasures.resume(settings, shardCount: shardCount, settlement: settlement) { return [] }
      return machine.erased(settlement, isDone: false)
    }
  }

  private func trySend(
    _ kind: FrameKind,
    to shard: ShardID,
    name: [UInt8]?,
    request: SettlementStoreRequest,
    _ fields: (inout ByteBuffer) -> Void
  ) -> [SettlementRounds.Action] {
    let pending = PendingRequest(.settlement(request), route: .putChannelType, isServer: true, isPageQuery: false)
    if loop.trySend(kind, to: .shard(shard, name: name?.span.bytes), pending, fields) { return [] }
    machine.storeIsBusy()
    return failure(of: request)
  }

  // MARK: Metrics

  override func collect(into samples: inout MetricSamples) {
    samples.counter(
      "tidemark_gateway_values_settled_total",
      help: "Changes of channel types and users that a gateway left incomplete and another settled in every shard.",
      Int64(machine.settledCount)
    )
  }
}
