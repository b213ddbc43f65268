internal import HTTP2Session
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// Revocation of single tokens by id.
extension TokensPart {
  /// Handle `PUT /v1/tokens/{jti}`.
  func putToken(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    let until = try TokenJSON.revocation(try loop.object(request, .putToken))
    try sendTokenRequest(.revokeToken, match, context) { $0.writeRevokeToken(until: until) }
  }

  /// Handle `GET /v1/tokens/{jti}`.
  func getToken(_ match: borrowing RouteMatch, _ context: RequestContext) throws(Problem) {
    try sendTokenRequest(.getToken, match, context) { _ in }
  }

  private func sendTokenRequest(
    _ kind: FrameKind,
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ fields: (inout ByteBuffer) -> Void
  ) throws(Problem) {
    let response = EchoingResponse.token(match.subject.bytes)
    let shard = RevokedTokenTable.shard
    try loop.echoingResponses.send(
      kind,
      to: .shard(shard, name: match.subject),
      context,
      route: match.route,
      response: response,
      fields
    )
  }
}

extension KnownFields {
  static let putToken: KnownFields = ["revoked", "expires_at"]
}
