import Foundation
import NIOCore
import ReceiptModel
import ReceiptWire

/// Revoked tokens, kept in a ``ShardState`` with the wall clock.
extension FakeModel {
  func token(_ kind: FrameKind, _ reader: inout FieldReader, fields: inout ByteBuffer) throws {
    let time = tokens.advance(clock: Timestamp(milliseconds: Int64(Date().timeIntervalSince1970 * 1_000)))
    if kind == .listRevokedTokens {
      let known = try reader.varint()
      let after = try reader.varint()
      try reader.end()
      let table = tokens.revokedTokens
      let isAnew = known == 0 || known < table.liftedVersion
      RevokedTokensReply(
        version: table.version,
        isAnew: isAnew,
        hasMore: false,
        ended: table.ended(at: time),
        revocations: table.revocations(after: isAnew ? 0 : after, at: time, limit: .max)
      )
      .write(into: &fields)
      return
    }
    let id = try reader.text()
    var effects: [Effect] = []
    if kind == .revokeToken {
      _ = try reader.varint()
      let isRevoked = try reader.byte() == 1
      let until = try reader.time()
      if isRevoked {
        do {
          try tokens.revokedTokens.decideRevoke(id, until: until, at: tokens.time, into: &effects)
        } catch {
          let code = error == .limitReached ? ErrorCode.limitReached : .invalidField
          throw Refused(code: code, detail: "detail from the store")
        }
      } else {
        tokens.revokedTokens.decideLift(id, at: tokens.time, into: &effects)
      }
    }
    try reader.end()
    for case .shard(let effect) in effects { tokens.assign(effect) }
    let until = tokens.revokedTokens.revocation(of: id, at: time)?.until ?? .none
    TokenReply(until: until, version: tokens.revokedTokens.version).write(into: &fields)
  }
}
