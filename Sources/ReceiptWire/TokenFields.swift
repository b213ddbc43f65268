package import NIOCore
package import ReceiptModel

/// Token revocations (Proto/frames.md, 0x34, 0x35 and 0x46).
extension ByteBuffer {
  /// Write *revocation* of Proto/frames.md, in the list and in the log.
  package mutating func writeTokenRevocation(_ revocation: TokenRevocation) {
    writeField(revocation.id)
    writeTime(revocation.until)
    writeVarint(revocation.version)
  }

  /// Write *token* of Proto/frames.md.
  package mutating func writeTokenState(_ state: TokenStateFields) {
    writeTime(state.until)
    writeVarint(state.version)
  }
}

extension FieldReader {
  @_lifetime(self: copy self)
  package mutating func tokenRevocation() throws(WireError) -> TokenRevocation {
    let id = try text()
    let until = try time()
    return TokenRevocation(id: id, until: until, version: try varint())
  }
}

/// The reply to get_token and revoke_token.
package struct TokenStateFields: Equatable, Sendable {
  /// None: the token is not revoked.
  package var until: Timestamp
  /// The version of the list at that time.
  package var version: UInt64

  package init(until: Timestamp, version: UInt64) {
    self.until = until
    self.version = version
  }

  package init(_ reader: inout FieldReader) throws(WireError) {
    until = try reader.time()
    version = try reader.varint()
  }
}

/// The reply to list_revoked_tokens: a part of the list.
package struct RevokedTokenListFields: Equatable, Sendable {
  /// The version of the list when it was requested.
  package var version: UInt64
  /// The client must discard the list that it has: this is the beginning of a new one.
  package var isAnew: Bool
  /// More revocations follow the last one here.
  package var hasMore: Bool
  /// Revocations up to this time have ended.
  package var ended: Timestamp
  package var revocations: [TokenRevocation]

  package init(
    version: UInt64,
    isAnew: Bool,
    hasMore: Bool,
    ended: Timestamp,
    revocations: [TokenRevocation]
  ) {
    self.version = version
    self.isAnew = isAnew
    self.hasMore = hasMore
    self.ended = ended
    self.revocations = revocations
  }

  package init(_ reader: inout FieldReader) throws(WireError) {
    version = try reader.varint()
    let flags = try reader.varint()
    guard flags <= 3 else { throw .badValue(.flags) }
    isAnew = flags & 1 != 0
    hasMore = flags & 2 != 0
    ended = try reader.time()
    revocations = []
    for _ in 0..<(try reader.count(elementBytesMin: 3)) {
      revocations.append(try reader.tokenRevocation())
    }
    // A client continues after the last revocation, so there must be one.
    guard !hasMore || !revocations.isEmpty else { throw .badValue(.count) }
  }

  package func write(into buffer: inout ByteBuffer) {
    buffer.writeVarint(version)
    buffer.writeVarint(UInt64((isAnew ? 1 : 0) | (hasMore ? 2 : 0)))
    buffer.writeTime(ended)
    buffer.writeVarint(revocations.count)
    for revocation in revocations { buffer.writeTokenRevocation(revocation) }
  }
}
