internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// Requests about individually revoked tokens, whose list is kept by one shard (Proto/frames.md, 0x34, 0x35 and 0x46).
final class ShardTokens: ShardPart {
  /// Maximum number of revocations in one reply: some 270 KB if all ids have the maximum length.
  private static let revocationsPerReply = 1_000

  func revokeToken(_ request: inout Request) throws(WireError) -> Outcome {
    let name = try request.fields.string()
    try shard.begin(&request)
    let fields = try RevokeTokenRequest(&request.fields)
    let (isRevoked, until) = (fields.isRevoked, fields.until)
    if let (code, detail) = fault(token: name, isRevoked: isRevoked, until: until) {
      return .refused(code, detail)
    }
    let id = ShardEngine.text(name)
    let time = shard.advanceTime()
    if !request.isDuplicate {
      do throws(RevokedTokenTable.Refusal) {
        if isRevoked == 1 {
          try shard.state.revokedTokens.decideRevoke(id, until: until, at: time, into: &request.effects)
        } else {
          shard.state.revokedTokens.decideLift(id, at: time, into: &request.effects)
        }
      } catch {
        let (code, detail) = Self.words(error)
        return .refused(code, detail, tokenReplyTiming(request.lane))
      }
    }
    shard.applyCommand(nil, request)
    return replyTokenState(request, id)
  }

  private static func words(_ refusal: RevokedTokenTable.Refusal) -> (ErrorCode, String) {
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
    if isRevoked == 0, until != .none { return (.invalidField, "until: must be 0 unless revoked is 1") }
    return nil
  }

  private func fault(token name: RawSpan) -> (ErrorCode, String)? {
    guard Identifier.isID(name) else {
      return (.invalidField, "\(Identifier.tokenRange)")
    }
    return wrongShardFault
  }

  private var wrongShardFault: (ErrorCode, String)? {
    shard.state.id == RevokedTokenTable.shard ? nil : (.wrongShard, "another shard keeps the revoked tokens")
  }

  func getToken(_ request: inout Request) throws(WireError) -> Outcome {
    let name = try request.fields.string()
    try request.fields.end()
    if let (code, detail) = fault(token: name) { return .refused(code, detail) }
    shard.advanceTime()
    return replyTokenState(request, ShardEngine.text(name))
  }

  private func replyTokenState(_ request: borrowing Request, _ id: String) -> Outcome {
    let reply = TokenReply(
      until: shard.state.revokedTokens.revocation(of: id, at: shard.state.time)?.until ?? .none,
      version: shard.state.revokedTokens.version
    )
    return shard.reply(request, tokenReplyTiming(request.lane)) { reply.write(into: &$0) }
  }

  /// Return the earliest timing of a reply about the list: when the reply is durable. The time is logged if the reply
  /// reveals that revocations have expired (R20).
  private func tokenReplyTiming(_ lane: ReplyLane) -> ReplyLane.Timing {
    shard.replyTiming(
      shard.dirty.tokensLast,
      revealingExpiryAt: shard.state.revokedTokens.ended(at: shard.state.time),
      lane
    )
  }

  func listRevokedTokens(_ request: inout Request) throws(WireError) -> Outcome {
    let fields = try ListRevokedTokensRequest(&request.fields)
    let known = fields.known
    if let (code, detail) = wrongShardFault { return .refused(code, detail) }
    let time = shard.advanceTime()
    let tokens = shard.state.revokedTokens
    let isAnew = known == 0 || known > tokens.version || known < tokens.liftedVersion
    let found = tokens.revocations(after: isAnew ? 0 : fields.after, at: time, limit: Self.revocationsPerReply + 1)
    let list = RevokedTokensReply(
      version: tokens.version,
      isAnew: isAnew,
      hasMore: found.count > Self.revocationsPerReply,
      ended: tokens.ended(at: time),
      revocations: Array(found.prefix(Self.revocationsPerReply))
    )
    return shard.reply(request, tokenReplyTiming(request.lane)) { list.write(into: &$0) }
  }
}
