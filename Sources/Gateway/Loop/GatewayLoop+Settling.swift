internal import HTTP2Session
internal import Logging
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// Performs what ``Settling`` says. No client waits for any of it.
extension GatewayLoop {
  /// Begins to look for unsettled values, once in every interval.
  func startSettling() {
    guard let interval = limits.settlingInterval else { return }
    let bound = NIOLoopBound(self, eventLoop: eventLoop)
    settlingTicker = eventLoop.scheduleRepeatedTask(initialDelay: interval, delay: interval) { _ in
      bound.value.settleWhatIsLeft()
    }
  }

  func stopSettling() {
    settlingTicker?.cancel()
    settlingTicker = nil
  }

  /// A round, where the store is reached and the last one has ended.
  func settleWhatIsLeft() {
    guard settlingTicker != nil, store.isReady, !settling.isBusy else { return }
    perform(settling.roundIsDue(shardCount: store.shardCount))
    endTurnSoon()
  }

  func settlingReplied(_ request: PendingRequest, _ kind: FrameKind, _ payload: RawSpan) {
    do throws(WireError) {
      var reader = FieldReader(payload)
      let steps: [Settling.Step]
      switch kind {
      case .listUnsettledReply:
        let values = try reader.unsettledValues()
        try reader.end()
        steps = settling.found(values, in: ShardID(UInt16(request.entry)))
      case .settleReply:
        let isDone = try reader.byte() == 1
        try reader.end()
        steps = settling.settled(Int(request.entry), isDone: isDone)
      default: steps = settling.assigned(Int(request.entry), isDone: true)
      }
      perform(steps)
    } catch {
      storeIsMistaken(error, kind)
      settlingFailed(request)
    }
  }

  /// An erasing that a round has begun has come to its end.
  func settlingErased(_ spread: Int, isDone: Bool) { perform(settling.settled(spread, isDone: isDone)) }

  func settlingAnnounced(_ spread: Int, isDone: Bool) { perform(settling.announced(spread, isDone: isDone)) }

  func settlingFailed(_ request: PendingRequest) {
    perform(failure(of: request.shape, Int(request.entry)))
  }

  private func failure(of shape: ReplyShape, _ entry: Int) -> [Settling.Step] {
    switch shape {
    case .unsettled: settling.askFailed()
    case .settlement: settling.settled(entry, isDone: false)
    default: settling.assigned(entry, isDone: false)
    }
  }

  private func perform(_ steps: [Settling.Step]) {
    // After the end nobody is there to go on.
    guard settlingTicker != nil else { return }
    // A request that is refused at once makes more steps, or ends the round.
    var waiting = steps
    while let step = waiting.popLast() {
      switch step {
      case .ask(let shard):
        waiting += ask(.listUnsettled, shard, nil, .unsettled, Int(shard.rawValue)) { _ in }
      case .assign(let spread, let value, let shardCount):
        logger.debug("Bringing a change to every shard", metadata: ["version": "\(value.version)"])
        let name = Array(value.name.utf8)
        let home = value.home(shardCount: shardCount)
        for shard in 0..<shardCount where shard != Int(home.rawValue) {
          let target = ShardID(UInt16(shard))
          waiting += ask(value.assignKind, target, name, .assignment, spread) {
            value.writeAssignment(into: &$0)
          }
        }
      case .announce(let spread, let value, let shardCount):
        let walk = UserWalk(.announce, users: [Array(value.name.utf8)], shardCount: shardCount)
        beginJob(UserJob(.settling(spread: spread), walk))
      case .settle(let spread, let value, let shardCount):
        let name = Array(value.name.utf8)
        let home = value.home(shardCount: shardCount)
        waiting += ask(.settle, home, name, .settlement, spread) { value.writeSettlement(into: &$0) }
      case .erase(let spread, let settings, let shardCount):
        if !erase(settings, shardCount: shardCount, settling: spread) {
          waiting += settling.settled(spread, isDone: false)
        }
      }
    }
  }

  private func ask(
    _ kind: FrameKind,
    _ shard: ShardID,
    _ name: [UInt8]?,
    _ shape: ReplyShape,
    _ entry: Int,
    _ fields: (inout ByteBuffer) -> Void
  ) -> [Settling.Step] {
    // It belongs to no stream: what it says of one is not looked at.
    let request = PendingRequest(
      stream: HTTP2StreamHandle(slot: 0, generation: 0),
      connection: 0,
      entry: UInt32(entry),
      shape: shape,
      route: .putChannelType,
      isServer: true
    )
    let token = pending.insert(request)
    let isSent =
      if let name {
        store.send(kind, shard: shard, name: name.span.bytes, token: token, fields)
      } else {
        store.send(kind, shard: shard, name: nil, token: token, fields)
      }
    if isSent { return [] }
    _ = pending.remove(token)
    settling.storeIsBusy()
    return failure(of: shape, entry)
  }
}

extension FieldReader {
  /// list(type record); list(user settings).
  @_lifetime(self: copy self)
  fileprivate mutating func unsettledValues() throws(WireError) -> [SharedValue] {
    var values: [SharedValue] = []
    for _ in 0..<(try count(elementBytesMin: 3)) { values.append(.channelType(try channelTypeRecord())) }
    for _ in 0..<(try count(elementBytesMin: 6)) { values.append(.user(try userSettings())) }
    return values
  }
}
