/// Events of events frames and of replies to subscriptions (Proto/frames.md, "Events"). A field name has the same type
/// in all kinds of events, because fields are found by name.
extension FrameTable {
  /// Return the kind of a channel's event, and the fields of each kind.
  static func channelEvent(row: [FieldSpec], channel: [FieldSpec]) -> [FieldSpec] {
    event([
      1: (
        "row",
        fields("thread:string own:byte shown:byte time unread_in_channel:optional") + row + shown(row)
      ),
      2: (
        "message_new", fields("thread:string sequence message sender registered created message_flags:byte")
      ),
      3: ("message_deleted", fields("thread:string sequence message time")),
      4: ("truncated", fields("sequence time")),
      5: ("channel_updated", fields("time") + channel),
      6: ("channel_deleted", fields("time")),
      7: ("member_added", fields("user role time member_count sequence message joined_sequence")),
      8: ("member_removed", fields("user time member_count")),
      9: ("status", fields("thread:string sender from to message status:byte(status) time")),
      10: (
        "receipt",
        fields(
          """
          sequence message sender receipt_status:byte(receipt_status) read_count unread_count user note time \
          acknowledged_count acknowledged_at
          """
        )
      ),
      32: ("limits", fields("limits:[from through hidden:byte joined_sequence]")),
    ])
  }

  /// Return the row as others see it, if it is shown to them.
  private static func shown(_ row: [FieldSpec]) -> [FieldSpec] {
    row.map { field in
      var shown = FieldSpec("shown_" + field.name, field.type)
      shown.condition =
        field.condition.map { ("shown_" + $0.field, $0.values, $0.mask) } ?? ("shown", 1...UInt64.max, .max)
      return shown
    }
  }

  /// Return a byte with the kind of an event, followed by the fields of each kind.
  static func event(_ kinds: [UInt64: (name: String, fields: [FieldSpec])]) -> [FieldSpec] {
    let fields = kinds.sorted { $0.key < $1.key }.flatMap { number, kind in
      // A field with a condition on another field of its kind is missing with that field.
      kind.fields.map { $0.condition == nil ? FieldSpec($0.name, $0.type, if: "event", is: number) : $0 }
    }
    return [FieldSpec("event", .byte(names: kinds.mapValues(\.name)))] + fields
  }
}
