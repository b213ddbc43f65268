package import NIOCore
package import ReceiptModel

/// JSON of a user's settings (Proto/openapi.yaml).
package enum UserJSON {
  /// Parse `{"privacy_settings"?: {"read_receipts"?: {"enabled"}, "delivery_receipts"?: {"enabled"}},
  /// "revoke_tokens_before"?}`.
  ///
  /// - Throws: `invalid_field`.
  package static func patch(_ body: JSONValue) throws(Problem) -> UserSettingsPatch {
    var patch = UserSettingsPatch()
    if let privacy = try body.optionalObject("privacy_settings") {
      patch.showsRead = try isEnabled(try privacy.optionalObject("read_receipts"))
      patch.showsDelivered = try isEnabled(try privacy.optionalObject("delivery_receipts"))
    }
    if let text = try body.optionalString("revoke_tokens_before") {
      guard let time = CivilTime.milliseconds(parsing: text) else {
        throw try body.required("revoke_tokens_before").error(
          "must be a time since 1970, as in 2026-01-31T12:00:00.000Z"
        )
      }
      patch.tokensRevokedBefore = Timestamp(milliseconds: time)
    }
    return patch
  }

  private static func isEnabled(_ kind: JSONValue?) throws(Problem) -> Bool? {
    guard let kind else { return nil }
    guard let isEnabled = try kind.optionalBool("enabled") else { throw kind.missing("enabled") }
    return isEnabled
  }

  /// Write `{"id", "privacy_settings": {both}, "revoke_tokens_before"?}`.
  package static func write(_ settings: UserSettings, into buffer: inout ByteBuffer) {
    let user = Array(settings.user.utf8)
    let byteMax = 160 + OutputRawSpan.jsonStringByteMax(user.count) + OutputRawSpan.timestampByteCount
    buffer.writeWithOutputRawSpan(minimumWritableBytes: byteMax) { out in
      out.literal("{\"id\":")
      out.jsonString(user.span.bytes)
      out.literal(",\"privacy_settings\":{\"read_receipts\":{\"enabled\":")
      out.bool(!settings.hidesRead)
      out.literal("},\"delivery_receipts\":{\"enabled\":")
      out.bool(!settings.hidesDelivered)
      out.literal("}}")
      if settings.tokensRevokedBefore != .none {
        out.literal(",\"revoke_tokens_before\":")
        out.timestamp(milliseconds: settings.tokensRevokedBefore.milliseconds)
      }
      out.literal("}")
    }
  }
}
