internal import HTTP2Session
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// Channel types: versioned values that every shard holds a copy of. A type's home shard decides about
/// changes; the result is assigned to all others, and the answer waits for the last of them.
extension GatewayLoop {
  /// `PUT /v1/channel-types/{type}`.
  func putChannelType(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    let patch = try OptionsJSON.patch(try object(request, .options))
    let home = try homeShard(of: match.subject)
    let gather = beginGather(context, match.route, count: 1)
    sendTyped(.patchChannelType, home, match.subject, context, match.route, gather, 0) {
      $0.writeOptionPatch(patch)
    }
    finishSending(gather)
  }

  /// `GET /v1/channel-types/{type}`: what its home shard holds; a type that was never set has the defaults.
  func getChannelType(_ match: borrowing RouteMatch, _ context: RequestContext) throws(Problem) {
    let home = try homeShard(of: match.subject)
    let token = keep(context, match.route, .channelType)
    guard
      store.send(
        .getChannelType,
        shard: home,
        name: match.subject,
        token: token,
        issued: context.caller.issued,
        { _ in }
      )
    else {
      _ = pending.remove(token)
      throw Problem(.storeBusy)
    }
  }

  /// `GET /v1/channel-types`: all shards are asked, as one that was away during a PUT may lack the newest
  /// value.
  func listChannelTypes(_ match: borrowing RouteMatch, _ context: RequestContext) throws(Problem) {
    guard store.shardCount > 0 else { throw Problem(.storeUnavailable) }
    let gather = beginGather(context, match.route, count: store.shardCount)
    for shard in 0..<store.shardCount {
      sendTyped(.listChannelTypes, ShardID(UInt16(shard)), nil, context, match.route, gather, shard) { _ in }
    }
    finishSending(gather)
  }

  /// Assigns what the home shard has made of a change to every other shard.
  func assignEverywhere(_ value: SharedValue, _ gather: Gather, _ index: UInt32) {
    gather.stage = .assigning(value)
    // A value that was never set, and is not now, is what every shard has.
    guard value.version > 0 else { return }
    let name = Array(value.name.utf8)
    let home = value.home(shardCount: store.shardCount)
    for shard in 0..<store.shardCount where shard != Int(home.rawValue) {
      gather.waiting += 1
      gather.results.append(Gather.Result())
      sendTyped(
        value.assignKind,
        ShardID(UInt16(shard)),
        name.span.bytes,
        Self.context(of: gather),
        gather.route,
        index,
        gather.results.count - 1
      ) { value.writeAssignment(into: &$0) }
    }
  }

  /// Tells the home shard that every shard has its value. False: there is nothing to wait for.
  func settle(_ value: SharedValue, _ gather: Gather, _ index: UInt32) -> Bool {
    guard value.version > 0 else { return false }
    let name = Array(value.name.utf8)
    let home = value.home(shardCount: store.shardCount)
    gather.waiting += 1
    sendTyped(.settle, home, name.span.bytes, Self.context(of: gather), gather.route, index, 0) {
      value.writeSettlement(into: &$0)
    }
    return gather.waiting > 0
  }

  /// The gather has no caller any more, and these requests are the gateway's own: what is kept of the caller is
  /// whether a server asked.
  private static func context(of gather: Gather) -> RequestContext {
    RequestContext(
      caller: Caller(userID: [], isServer: gather.isServer),
      connection: gather.connection,
      stream: gather.stream
    )
  }

  func homeShard(of name: RawSpan) throws(Problem) -> ShardID {
    // Before the first connection to the store nobody knows how many shards there are.
    guard store.shardCount > 0 else { throw Problem(.storeUnavailable) }
    return ShardID.owning(name, count: store.shardCount)
  }

  func sendTyped(
    _ kind: FrameKind,
    _ shard: ShardID,
    _ name: RawSpan?,
    _ context: RequestContext,
    _ route: Route,
    _ gather: UInt32,
    _ entry: Int,
    _ fields: (inout ByteBuffer) -> Void
  ) {
    let token = keep(context, route, .entry, gather: gather, entry: entry)
    if !store.send(kind, shard: shard, name: name, token: token, issued: context.caller.issued, fields) {
      _ = pending.remove(token)
      finishEntry(gather, entry, .storeBusy)
    }
  }
}
