internal import HTTP2Session
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// Revocation of single tokens by id.
extension Tokens {
  /// `PUT /v1/tokens/{jti}`.
  func putToken(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    let until = try TokenJSON.revocation(try loop.object(request, .putToken))
    try sendTokenRequest(.revokeToken, match, context) { $0.writeRevokeToken(until: until) }
  }

  /// `GET /v1/tokens/{jti}`.
  func getToken(_ match: borrowing RouteMatch, _ context: RequestContext) throws(Problem) {
    try sendTokenRequest(.getToken, match, context) { _ in }
  }

  private func sendTokenRequest(
    _ kind: FrameKind,
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ fields: (inout ByteBuffer) -> Void
  ) throws(Problem) {
    let answer = EchoingAnswer.token(match.subject.bytes)
    let shard = ShardState.tokenShard
    try loop.echoingAnswers.send(
      kind,
      to: .shard(shard, name: match.subject),
      context,
      route: match.route,
      answer: answer,
      fields
    )
  }
}

/// A token's revocation.
enum TokenJSON {
  /// Parse `{"revoked":true,"expires_at"}` or `{"revoked":false}`.
  ///
  /// - Returns: the end of the revocation; nil: not revoked.
  /// - Throws: `invalid_field`.
  static func revocation(_ body: JSONValue) throws(Problem) -> Timestamp? {
    guard let isRevoked = try body.optionalBool("revoked") else { throw body.missing("revoked") }
    guard isRevoked else {
      if let expiry = body.member("expires_at") {
        throw expiry.error("goes with \"revoked\": true, and is left out where a revocation is taken back")
      }
      return nil
    }
    let text = try body.requiredString("expires_at")
    guard let time = CivilTime.milliseconds(parsing: text) else {
      throw try body.required("expires_at").error(
        "must be a time, as in 2026-01-31T12:00:00.000Z: when the token expires by itself"
      )
    }
    return Timestamp(milliseconds: time)
  }

  /// Write `{"jti","revoked","expires_at"?}`.
  static func write(_ id: RawSpan, until: Timestamp?, into buffer: inout ByteBuffer) {
    let byteMax = 64 + OutputRawSpan.jsonStringByteMax(id.byteCount) + OutputRawSpan.timestampByteCount
    buffer.writeWithOutputRawSpan(minimumWritableBytes: byteMax) { out in
      out.literal("{\"jti\":")
      out.jsonString(id)
      out.literal(",\"revoked\":")
      out.bool(until != nil)
      if let until {
        out.literal(",\"expires_at\":")
        out.timestamp(milliseconds: until.milliseconds)
      }
      out.literal("}")
    }
  }
}

extension KnownFields {
  static let putToken: KnownFields = ["revoked", "expires_at"]
}
