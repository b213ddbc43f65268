internal import HTTP2Session
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// Channel types: versioned values that every shard has. A type's home shard decides changes. The result is
/// assigned to all other shards, and the response waits for the last of them.
extension ChannelRoutes {
  /// Handle `PUT /v1/channel-types/{type}`.
  func putChannelType(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    let patch = try OptionsJSON.patch(try loop.object(request, .options))
    let home = try loop.homeShard(of: match.subject)
    loop.valueChanges.begin(
      .patchChannelType,
      at: .shard(home, name: match.subject),
      context,
      route: match.route
    ) {
      $0.writeOptionPatch(patch)
    }
  }

  /// Handle `GET /v1/channel-types/{type}`: the home shard's value; a type that was never set has the defaults.
  func getChannelType(_ match: borrowing RouteMatch, _ context: RequestContext) throws(Problem) {
    let home = try loop.homeShard(of: match.subject)
    try loop.send(.getChannelType, to: .shard(home, name: match.subject), context, route: match.route) {
      _ in
    }
  }

  /// Handle `GET /v1/channel-types`: query all shards, since a shard that missed a PUT may lack the newest value.
  func listChannelTypes(_ match: borrowing RouteMatch, _ context: RequestContext) throws(Problem) {
    guard loop.store.shardCount > 0 else { throw Problem(.storeUnavailable) }
    let fanOut = loop.fanOuts.begin(context, match.route, count: loop.store.shardCount, .channelTypes)
    for shard in 0..<loop.store.shardCount {
      loop.fanOuts.send(
        .listChannelTypes,
        to: .shard(ShardID(UInt16(shard)), name: nil),
        context,
        route: match.route,
        entry: shard,
        of: fanOut
      ) {
        _ in
      }
    }
    loop.fanOuts.closeSending(fanOut)
  }
}
