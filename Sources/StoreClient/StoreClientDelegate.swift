package import ReceiptModel
package import ReceiptWire

/// Callbacks for the store's replies and events. All calls are on the client's event loop; each may call `send` and
/// `flush`.
package protocol StoreClientDelegate: AnyObject, SendableMetatype {
  /// Handle a reply. `payload` is its fields, valid during the call; `kind` is the request's with bit 7 set.
  func storeReplied(_ token: UInt64, kind: FrameKind, payload: RawSpan)
  /// Handle the failure of a request, with an error frame or without a reply. No other call follows for this token.
  func storeFailed(_ token: UInt64, _ failure: StoreFailure)
  /// Handle events of subscriptions (Proto/frames.md, "Events"). `payload` is the fields, valid during the call.
  ///
  /// - Throws: if the fields do not parse; the connection is then dropped.
  func storeEvents(_ shard: ShardID, _ payload: RawSpan) throws(WireError)
  /// Handle the end of one read's replies, or of one event's failures: all have been delivered.
  func storeReadComplete()
  /// Handle a connection that became ready or not ready. While it is not, requests wait until their deadline.
  func storeReadinessChanged(_ isReady: Bool)
  /// Handle a change of the nodes that serve the shards of a cluster; see ``StoreClient/unservedShards``. It comes before
  /// the change of readiness.
  ///
  /// - Parameter reopened: shards that were lost, or have another owner, and are served now. There are no subscriptions
  ///   to their events.
  func storeShardsChanged(reopened: [ShardID])
  /// Handle the failure of a connection or of an attempt to connect. The client keeps retrying.
  func storeConnectionFailed(_ failure: LinkFailure)
}

extension StoreClientDelegate {
  /// Do nothing, for clients without subscriptions.
  package func storeEvents(_ shard: ShardID, _ payload: RawSpan) throws(WireError) {}

  /// Do nothing, for clients without subscriptions.
  package func storeShardsChanged(reopened: [ShardID]) {}

  /// Do nothing, for clients that just keep retrying.
  package func storeConnectionFailed(_ failure: LinkFailure) {}
}

/// Reason why a request has no reply.
package enum StoreFailure: Error, Hashable, Sendable {
  /// The store answered with an error frame; `retryAfterMilliseconds` is 0 if it named no time.
  case refused(ErrorCode, retryAfterMilliseconds: UInt32, detail: String)
  /// The local window is full, and nothing was sent.
  case busy
  /// The request was never sent, or was a query. Nothing was applied.
  case unavailable
  /// A command was sent and may or may not have been applied.
  case outcomeUnknown
}
