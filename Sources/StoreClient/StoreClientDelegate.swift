package import ReceiptModel
package import ReceiptWire

/// Takes what comes back from the store. All calls are on the client's event loop; `send` and `flush` may be
/// called from any of them.
package protocol StoreClientDelegate: AnyObject, SendableMetatype {
  /// A reply. `payload` is its fields, valid during the call; `kind` is the request's with bit 7 set.
  func storeReplied(_ token: UInt64, kind: FrameKind, payload: RawSpan)
  /// The request got no reply, or an error frame. After this the token is done.
  func storeFailed(_ token: UInt64, _ failure: StoreFailure)
  /// Events of what was subscribed to (Proto/frames.md, "Events"). `payload` is the fields, valid during the call.
  ///
  /// - Throws: where they do not parse: the connection is given up.
  func storeEvents(_ shard: ShardID, _ payload: RawSpan) throws(WireError)
  /// All replies of one read, or all failures of one event, were delivered.
  func storeReadComplete()
  /// Whether requests reach a store at once. Those made while they do not wait, until their deadline.
  func storeReadinessChanged(_ isReady: Bool)
  /// The store and this client do not have the same secret. The client goes on trying: the store may be started again
  /// with another one.
  func storeSecretMismatched()
}

extension StoreClientDelegate {
  /// Nothing, for those who subscribe to nothing.
  package func storeEvents(_ shard: ShardID, _ payload: RawSpan) throws(WireError) {}

  /// Nothing, for those who go on trying too.
  package func storeSecretMismatched() {}
}

/// Why a request has no reply.
package enum StoreFailure: Error, Hashable, Sendable {
  /// The store answered this request with an error frame; `retryAfterMilliseconds` is 0 where it named no
  /// time.
  case refused(ErrorCode, retryAfterMilliseconds: UInt32, detail: String)
  /// The local window is full: nothing was sent.
  case busy
  /// It was never sent, or it was a query: nothing was applied.
  case unavailable
  /// A command was sent and may or may not have been applied.
  case outcomeUnknown
}
