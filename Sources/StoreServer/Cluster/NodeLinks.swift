internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient
internal import StoreEngine

/// One event loop's connections to the other nodes, for messages between shards. The other nodes accept it as they
/// accept a gateway.
///
/// `@unchecked Sendable`: everything but `eventLoop` is used on `eventLoop` only.
final class NodeLinks: @unchecked Sendable {
  /// The client sends no requests, so that nothing calls back.
  private final class NoRequests: StoreClientDelegate {
    func storeReplied(_ tag: UInt64, kind: FrameKind, payload: RawSpan) {}
    func storeFailed(_ tag: UInt64, _ failure: StoreFailure) {}
    func storeReadComplete() {}
    func storeReadinessChanged(_ isReady: Bool) {}
  }

  let eventLoop: any EventLoop
  /// Nil until another node is known.
  private var client: StoreClient<NoRequests>?

  init(eventLoop: any EventLoop) { self.eventLoop = eventLoop }

  /// Connect to the nodes that the directory has now.
  ///
  /// - Parameter configuration: with the addresses of these nodes.
  func connect(to nodes: [ShardMap.Peer], _ configuration: StoreClientConfiguration) {
    if let client { return client.listNodes(nodes) }
    guard !nodes.isEmpty else { return }
    let client = StoreClient(eventLoop: eventLoop, configuration: configuration, delegate: NoRequests())
    client.start()
    self.client = client
  }

  /// Send a message to the owner of its shard, if that is connected.
  func send(_ message: MessageBetweenShards) {
    for frame in message.frames { client?.post(to: message.to) { frame.write(into: &$0) } }
  }

  func replaceSecrets(_ secrets: [[UInt8]]) { client?.replaceSecrets(secrets) }

  func close() -> EventLoopFuture<Void> { client?.close() ?? eventLoop.makeSucceededVoidFuture() }
}
