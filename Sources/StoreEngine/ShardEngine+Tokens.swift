import NIOCore
import ReceiptModel
import ReceiptWire

/// Requests about tokens that are revoked one by one, of which one shard keeps the list (Proto/frames.md, 0x34, 0x35
/// and 0x46).
extension ShardEngine {
  /// Revocations in one reply: some 270 KB where the ids are as long as they may be.
  private static let revocationsPerReply = 1_000

  /// A request about tokens.
  func performTokens(_ header: FrameHeader, _ payload: RawSpan, _ lane: ReplyLane) throws(WireError) {
    var reader = FieldReader(payload)
    switch header.kind {
    case .revokeToken: try revokeToken(header, &reader, lane)
    case .getToken: try getToken(header, &reader, lane)
    default: try listRevokedTokens(header, &reader, lane)
    }
  }

  private func revokeToken(
    _ header: FrameHeader,
    _ reader: inout FieldReader,
    _ lane: ReplyLane
  ) throws(WireError) {
    let name = try reader.string()
    let counter = try Self.counter(&reader)
    let isRevoked = try reader.byte()
    let until = try reader.time()
    try reader.end()
    let command = takeUp(counter, lane)
    if let (code, detail) = fault(token: name, isRevoked: isRevoked, until: until) {
      noteRefused(command)
      return refuse(header, code, detail, lane)
    }
    let id = name.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
    _ = state.advance(clock: loop.clock)
    if !command.isCovered {
      do throws(ShardState.TokenRefusal) {
        if isRevoked == 1 {
          try state.decideRevoke(token: id, until: until, into: &effects)
        } else {
          state.decideTakeBack(token: id, into: &effects)
        }
      } catch {
        noteRefused(command)
        let (code, detail) = Self.words(error)
        return refuse(header, code, detail, lane, tokenDeparture(lane))
      }
    }
    finish(nil, command)
    replyTokenState(header, id, lane)
  }

  private static func words(_ refusal: ShardState.TokenRefusal) -> (ErrorCode, String) {
    switch refusal {
    case .endsInThePast: (.invalidField, "expires_at: must be in the future, by the store's clock")
    case .endsTooLate: (.invalidField, "expires_at: at most 3660 days ahead, by the store's clock")
    case .limitReached:
      (
        .limitReached,
        "revoked tokens of a store: at most \(RevokedTokenTable.countMax) at the same time; "
          + "replace the signing key to refuse all of its tokens"
      )
    }
  }

  private func fault(token name: RawSpan, isRevoked: UInt8, until: Timestamp) -> (ErrorCode, String)? {
    if let fault = fault(token: name) { return fault }
    if isRevoked > 1 { return (.invalidField, "revoked: 0 or 1") }
    if isRevoked == 0, until != .none { return (.invalidField, "until: 0 where it is not revoked") }
    return nil
  }

  private func fault(token name: RawSpan) -> (ErrorCode, String)? {
    guard Identifier.isID(name) else {
      return (.invalidField, "jti: 1 to 255 bytes of UTF-8 without control characters")
    }
    return state.id == ShardState.tokenShard ? nil : (.wrongShard, "another shard keeps the revoked tokens")
  }

  private func getToken(
    _ header: FrameHeader,
    _ reader: inout FieldReader,
    _ lane: ReplyLane
  ) throws(WireError) {
    let name = try reader.string()
    try reader.end()
    if let (code, detail) = fault(token: name) { return refuse(header, code, detail, lane) }
    _ = state.advance(clock: loop.clock)
    replyTokenState(header, name.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }, lane)
  }

  private func replyTokenState(_ header: FrameHeader, _ id: String, _ lane: ReplyLane) {
    let fields = TokenStateFields(
      until: state.revokedTokens.revocation(of: id, at: state.time)?.until ?? .none,
      version: state.revokedTokens.version
    )
    reply(header, tokenDeparture(lane), lane) { $0.writeTokenState(fields) }
  }

  /// What an answer says of the list is durable when it leaves; that revocations have ended is logged (R20).
  private func tokenDeparture(_ lane: ReplyLane) -> ReplyLane.Departure {
    departure(dirty.tokensLast, sayingExpiredAt: state.revokedTokens.ended(at: state.time), lane)
  }

  private func listRevokedTokens(
    _ header: FrameHeader,
    _ reader: inout FieldReader,
    _ lane: ReplyLane
  ) throws(WireError) {
    let known = try reader.varint()
    let after = try reader.varint()
    try reader.end()
    guard state.id == ShardState.tokenShard else {
      return refuse(header, .wrongShard, "another shard keeps the revoked tokens", lane)
    }
    let time = state.advance(clock: loop.clock)
    let tokens = state.revokedTokens
    let isAnew = known == 0 || known > tokens.version || known < tokens.takenBackVersion
    let found = tokens.revocations(
      after: isAnew ? 0 : after,
      at: time,
      limit: Self.revocationsPerReply + 1
    )
    let fields = RevokedTokenListFields(
      version: tokens.version,
      isAnew: isAnew,
      hasMore: found.count > Self.revocationsPerReply,
      ended: tokens.ended(at: time),
      revocations: Array(found.prefix(Self.revocationsPerReply))
    )
    reply(header, tokenDeparture(lane), lane) { fields.write(into: &$0) }
  }
}
