internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// A client's request that one or several shards answer. It is answered itself when the last of them has.
class ShardRequest {
  final let context: RequestContext
  /// Shards that have not answered, plus one for the sending itself.
  private final var waiting = 1
  /// The first problem of a shard.
  final var problem: Problem?

  init(_ context: RequestContext) { self.context = context }

  /// Send a frame to a shard.
  ///
  /// - Parameter target: where its reply goes.
  final func send(
    _ frame: FrameKind,
    to destination: StoreDestination,
    _ target: ReplyTarget,
    on loop: GatewayLoop,
    _ fields: (inout ByteBuffer) -> Void
  ) {
    waiting += 1
    let request = PendingRequest(target, route: context.route, isServer: true, isPageQuery: false)
    if !loop.trySend(frame, to: destination, request, fields) {
      problem = problem ?? Problem(.storeBusy)
      waiting -= 1
    }
  }

  /// Count a shard's answer, or the end of the sending.
  ///
  /// - Returns: whether nothing is waited for any more.
  final func endsWaiting() -> Bool {
    waiting -= 1
    return !isWaiting
  }

  /// Whether a shard has not answered.
  final var isWaiting: Bool { waiting > 0 }

  /// Take a shard's answer.
  ///
  /// - Parameter body: reads a reply.
  final func receive(
    _ result: StoreResult,
    on loop: GatewayLoop,
    _ body: (FrameKind, RawSpan) throws(WireError) -> Void
  ) {
    switch result {
    case .failure(let failure): problem = problem ?? failure.problem
    case .reply(let kind, let payload):
      do throws(WireError) {
        try body(kind, payload)
      } catch {
        loop.logMalformedReply(error, kind)
        problem = Problem(.internalError)
      }
    }
  }
}
