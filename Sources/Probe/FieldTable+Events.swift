/// What events frames and the answers to subscriptions hold (Proto/frames.md, "Events"). A field's name has one type,
/// whatever kind of event it is in: what writes and compares fields finds them by their names.
extension FrameTable {
  static let channelEvents = FieldSpec("channels", .list([cid, FieldSpec("events", .list(channelEvent))]))
  static let userEvents = FieldSpec("users", .list([user, FieldSpec("events", .list(userEvent))]))

  /// The kind, then the fields of each kind, there where it is that one.
  private static let channelEvent = event([
    1: (
      "row",
      [thread, FieldSpec("own", .byte()), FieldSpec("shown", .byte()), time]
        + [FieldSpec("unread_in_channel", .optional)] + row + shownRow
    ),
    2: (
      "message_new",
      [
        thread, sequence, message, sender, FieldSpec("registered", .varint()),
        FieldSpec("created", .varint()), FieldSpec("message_flags", .byte()),
      ]
    ),
    3: ("message_deleted", [thread, sequence, message, time]),
    4: ("truncated", [sequence, time]),
    5: ("channel_updated", [time] + channel),
    6: ("channel_deleted", [time]),
    7: (
      "member_added",
      [
        user, FieldSpec("role", .string), time, memberCount, sequence, message,
        FieldSpec("joined_sequence", .varint()),
      ]
    ),
    8: ("member_removed", [user, time, memberCount]),
    9: (
      "status",
      [
        thread, sender, FieldSpec("from", .varint()), FieldSpec("to", .varint()), message,
        FieldSpec("status", .byte(names: statusNames)), time,
      ]
    ),
    10: (
      "receipt",
      [
        sequence, message, sender, FieldSpec("receipt_status", .byte(names: receiptStatusNames)),
        FieldSpec("read_count", .varint()), FieldSpec("unread_count", .varint()), user,
        FieldSpec("note", .string), time, FieldSpec("acknowledged_count", .varint()),
        FieldSpec("acknowledged_at", .varint()),
      ]
    ),
    32: (
      "limits",
      [
        FieldSpec(
          "limits",
          .list([
            FieldSpec("from", .varint()), FieldSpec("through", .varint()), FieldSpec("hidden", .byte()),
            FieldSpec("joined_sequence", .varint()),
          ])
        )
      ]
    ),
  ])

  private static let userEvent = event([
    1: ("membership", channelEntry + [time, FieldSpec("gone", .byte())]),
    2: ("tokens_revoked", [time]),
  ])

  /// The row as others see it, where anybody is told.
  private static let shownRow = row.map { field in
    var shown = field
    shown.name = "shown_" + field.name
    shown.condition = field.condition.map { ("shown_" + $0.field, $0.values) }
    return shown.condition == nil ? FieldSpec(shown.name, shown.type, ifSet: "shown") : shown
  }

  private static let thread = FieldSpec("thread", .string)
  private static let sequence = FieldSpec("sequence", .varint())
  private static let sender = FieldSpec("sender", .string)
  private static let time = FieldSpec("time", .varint())
  private static let memberCount = FieldSpec("member_count", .varint())

  /// The byte that says which kind an event is, and behind it the fields of each.
  private static func event(_ kinds: [UInt64: (name: String, fields: [FieldSpec])]) -> [FieldSpec] {
    let fields = kinds.sorted { $0.key < $1.key }.flatMap { number, kind in
      kind.fields.map { field in
        // What depends on another field of its kind is not there where that one is not.
        field.condition == nil ? FieldSpec(field.name, field.type, if: ("event", number)) : field
      }
    }
    return [FieldSpec("event", .byte(names: kinds.mapValues(\.name)))] + fields
  }
}
