/// The reason why bytes do not parse. All of these end the connection: the two ends no longer agree on the stream's
/// content (Proto/frames.md, "Frame").
@usableFromInline
package enum WireError: Error, Hashable, Sendable {
  /// The payload ends before its last field.
  case truncated
  /// Bytes are left after the last field.
  case trailingBytes
  /// A variable-length integer is longer than 10 bytes, above its field's range, or not in its shortest form.
  case badVarint
  /// A count or a value that its field does not allow, with the field's name.
  case badValue(StaticField)
  /// The frame's length field is below 8.
  case lengthTooSmall
  /// The frame's length field is above the limit.
  case lengthTooLarge(UInt32)
  case unknownKind(UInt8)
  case badFlags(UInt8)

  /// A field's name in Proto/frames.md.
  @usableFromInline
  package enum StaticField: String, Sendable {
    case magic, session, nonce, option, optionValue = "option value", status, count, effect, format, text,
      flags, ping, node, shards, address, change
  }
}
