internal import NIOCore
internal import ReceiptModel

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
