internal import ReceiptWire
internal import StoreClient

/// The result of one store request, as its sender gets it. The payload is valid during the call.
enum StoreResult: ~Escapable {
  case reply(kind: FrameKind, payload: RawSpan)
  case failure(StoreRequestFailure)

  var isReply: Bool {
    if case .reply = self { true } else { false }
  }
}

/// A failed store request.
struct StoreRequestFailure {
  let reason: StoreFailure
  /// The route and the kind of caller decide how the failure is reported.
  let route: Route
  let isServer: Bool

  /// The failure as the caller sees it.
  var problem: Problem { Problem(reason, route: route, isServer: isServer) }
}
