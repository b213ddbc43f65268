/// Encoding of a field: the notations of Proto/frames.md, "Fields".
package indirect enum FieldType: Sendable {
  /// Some numbers may have names.
  case varint(names: [UInt64: String] = [:])
  case byte(names: [UInt64: String] = [:])
  /// Fixed number of raw bytes, written in hexadecimal.
  case bytes(Int)
  case string
  /// A `string` of binary data, written in hexadecimal.
  case blob
  /// All remaining bytes, written in hexadecimal.
  case rest
  /// `none` or a number.
  case optional
  case list([FieldSpec])
}

/// Field of a frame.
package struct FieldSpec: Sendable {
  package var name: String
  package var type: FieldType
  /// The field exists only if the masked number of this earlier field is in the range.
  package var condition: (field: String, values: ClosedRange<UInt64>, mask: UInt64)?
  /// Last field, which may be missing.
  package var isTail = false
  /// Value of a field that a line does not give; nil: 0, empty or none.
  package var preset: String?

  init(_ name: String, _ type: FieldType, if field: String? = nil, is value: UInt64 = 0) {
    self.name = name
    self.type = type
    condition = field.map { ($0, value...value, .max) }
  }
}
