/// Tokens that are revoked one by one. The shard ``tokenShard`` keeps them for the whole store.
extension ShardState {
  package static let tokenShard = ShardID(0)

  /// Why a token is not revoked.
  package enum TokenRefusal: Error, Equatable {
    case endsInThePast
    case endsTooLate
    case limitReached
  }

  /// Revokes a token until a time. Nothing is decided where it is revoked until then already.
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
      .tokenRevoked(TokenRevocation(id: id, until: until, version: revokedTokens.version + 1))
    )
  }

  /// Takes a token's revocation back. Nothing is decided where it is not revoked.
  package func decideTakeBack(token id: String, into effects: inout [Effect]) {
    guard revokedTokens.revocation(of: id, at: time) != nil else { return }
    effects.append(
      .tokenRevoked(TokenRevocation(id: id, until: .none, version: revokedTokens.version + 1))
    )
  }
}
