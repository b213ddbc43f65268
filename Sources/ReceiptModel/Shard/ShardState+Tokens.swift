/// Individually revoked tokens. The shard ``tokenShard`` keeps them for the whole store.
extension ShardState {
  package static let tokenShard = ShardID(0)

  /// Why a token's revocation is refused.
  package enum TokenRefusal: Error, Equatable {
    case endsInThePast
    case endsTooLate
    case limitReached
  }

  /// Revoke a token until a time. Does nothing if it is revoked until then already.
  package func decideRevoke(
    token id: String,
    until: Timestamp,
    into effects: inout [Effect]
  ) throws(TokenRefusal) {
    guard until > time else { throw .endsInThePast }
    guard until.milliseconds - time.milliseconds <= RevokedTokenTable.lifetimeMax else { throw .endsTooLate }
    let current = revokedTokens.revocation(of: id, at: time)
    guard current?.until != until else { return }
    guard current != nil || revokedTokens.hasRoom(at: time) else { throw .limitReached }
    effects.append(
      .shard(.tokenRevoked(TokenRevocation(id: id, until: until, version: revokedTokens.version + 1)))
    )
  }

  /// Lift a token's revocation. Do nothing if it is not revoked.
  package func decideLiftRevocation(token id: String, into effects: inout [Effect]) {
    guard revokedTokens.revocation(of: id, at: time) != nil else { return }
    effects.append(
      .shard(.tokenRevoked(TokenRevocation(id: id, until: .none, version: revokedTokens.version + 1)))
    )
  }
}
