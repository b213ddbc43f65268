internal import ReceiptModel
internal import ReceiptWire

/// Frame kind and its fields.
struct FrameSpec: Sendable {
  var number: UInt8
  var name: String
  var fields: [FieldSpec]

  init(_ number: UInt8, _ name: String, _ fields: [FieldSpec]) {
    self.number = number
    self.name = name
    self.fields = fields
  }
}

/// Proto/frames.md as a table: the requests of ``RequestSpec``, and what is no request.
///
/// A line is a number, a name and fields. A field is `name:type`; without a type, that of its name in ``types``, else a
/// varint. `byte(x)` and `varint(x)` have names for numbers, ``numbers``. A list is `name:[fields]`, `@x` stands for
/// the fields of ``groups``, `=x` presets a value, and `~` marks a last field that may be missing. `?x=1...2` behind a
/// field or behind `(fields)` is a condition on an earlier field; `?x&4` requires a bit, and `?x` a number other than
/// 0.
enum FrameTable {
  static func spec(named name: String) -> FrameSpec? { byName[name] }
  static func spec(numbered number: UInt8) -> FrameSpec? { byNumber[number] }

  private static let byName = Dictionary(uniqueKeysWithValues: all.map { ($0.name, $0) })
  private static let byNumber = Dictionary(uniqueKeysWithValues: all.map { ($0.number, $0) })

  static let all: [FrameSpec] =
    lines(of: connection)
    + RequestSpec.all.map { spec in
      FrameSpec(spec.kind.rawValue, spec.name, withPresets(fields(spec.fields[...])))
    }
    + RequestSpec.all.map { spec in
      FrameSpec(spec.kind.rawValue | FrameHeader.replyBit, spec.name + "_reply", fields(spec.reply[...]))
    }

  /// Values of fields that a request's line does not give.
  private static let presets = ["limit": "100", "on": "1"]

  private static func withPresets(_ fields: [FieldSpec]) -> [FieldSpec] {
    fields.map { field in
      var field = field
      field.preset = presets[field.name]
      return field
    }
  }

  private static func lines(of table: String) -> [FrameSpec] {
    table.split(separator: "\n").filter { $0.hasPrefix("0x") }.map { line in
      let words = line.split(separator: " ", maxSplits: 2)
      guard let number = UInt8(words[0].dropFirst(2), radix: 16) else { preconditionFailure("\(line)") }
      return FrameSpec(number, String(words[1]), words.count > 2 ? fields(words[2]) : [])
    }
  }

  /// Kinds that are no requests: of the connection, and between nodes.
  private static let connection = """
    0x01 hello magic:bytes(4)=54444d4b version_lowest=1 version_highest=1 session:bytes(16) session_age:optional \
      nonce:bytes(32) frame_length_max=1048576 name=probe
    0x02 challenge version=1 nonce:bytes(32) proof:blob frame_length_max=1048576 window=1024 shard_count=16 \
      store:bytes(16)
    0x03 proof proof:blob
    0x04 ready session:byte(session) session_lifetime=600000 shards:[first count address]
    0x05 ping bytes:bytes(8)
    0x06 pong bytes:bytes(8)
    0x07 drain
    0x08 events through lost:byte channels:[cid events:[@channel_event]] users:[user events:[@user_event]]
    0x09 shard_map owned:[first count epoch] node peers:[node host port]
    0x0F error code:varint(error) retry_after detail:string
    0x50 deliver_changes from after changes:[number user gone:byte cid channel row:optional member:byte joined epoch \
      deleted?member&2]
    0x51 confirm_changes from through
    """

  /// Fields that several kinds share.
  private static let groups: [String: [FieldSpec]] = {
    var groups = [
      "option": "option:varint(option) value:blob",
      "consumer": """
      kinds channel_types:[type] since number position_time committed_at index partitions epoch
      """,
      "record": """
      kind:byte(record) number at cid user message sequence thread:string first second text:string detail:string \
      users:[user]?kind=19
      """,
      "place": "channel row parent:optional sequence check:bytes(8)",
      "delivery": "moved:byte(moved) sent delivered cid user message",
      "viewer": "viewer_flags viewer",
      "channel": """
      cid created options:[option:varint(option) value:blob] member_count newest_sequence newest_message:string \
      newest_registered
      """, "entry": "cid row:optional member:byte joined deleted?member=2...3",
      "row": """
      user last_read last_read_message:string last_read_sequence last_delivered last_delivered_message:string \
      last_delivered_sequence flags (unread_messages first_unread_message:string unread_epoch)?flags&1 \
      unread_mentions?flags&2 joined_sequence?flags&64
      """,
      "receipt": """
      sequence message sender created receipt_status:byte(receipt_status) expires acknowledged exact:byte note
      """,
      "thread": """
      parent_sequence parent unread_messages last_read_message:string first_unread_message:string newest_message:string
      """, "uncounted": "uncounted:byte(uncounted)~",
      "status": """
      (sequence status:byte(status) receipt_status:byte(receipt_status) read_count delivered_count unread_count \
      member_count flags created)?found=0 acknowledged_count?flags=4...7
      """,
      "member_status": """
      user found:varint(error) (status:byte(status) read delivered flags:byte)?found=0 acknowledged?flags=4...7
      """, "settings": "version flags read_shown_since delivered_shown_since tokens_revoked_before",
      "type": "type version options:[option:varint(option) value:blob]",
    ].mapValues { fields($0[...]) }
    groups["channel_event"] = channelEvent(row: groups["row"] ?? [], channel: groups["channel"] ?? [])
    groups["user_event"] = event([
      1: ("membership", (groups["entry"] ?? []) + fields("time gone:byte")), 2: ("tokens_revoked", fields("time")),
    ])
    return groups
  }()

  /// Types of field names that are not varints.
  private static let types: [Substring: FieldType] = Dictionary(
    uniqueKeysWithValues: [
      "address", "cid", "consumer", "first_unread_message", "host", "jti", "key", "last_delivered_message",
      "last_read_message", "message", "name", "note", "parent", "role", "sender",
      "ticket", "type",
      "user", "viewer", "worker",
    ].map { ($0, .string) }
  )

  /// Names of numbers.
  private static let numbers: [Substring: [UInt64: String]] = [
    "session": [0: "new", 1: "resumed"], "settled": [0: "channel_type", 1: "user"],
    "list": [0: "readers", 1: "delivered", 2: "unread", 3: "acknowledged", 4: "unacknowledged"],
    "order": [0: "joined", 1: "time", 2: "time_desc"],
    "asked_phase": [0: "ask", 1: "send_again", 2: "sweep"],
    "done_phase": [0: "none", 1: "send_again", 2: "sweep"],
    "receipt_state": [0: "pending", 1: "acknowledged"],
    "threads": [0: "all", 1: "unread", 2: "read"],
    "receipt_refusal": [0: "none", 1: "receipt_limit_reached", 2: "receipt_not_allowed"],
    "moved": [2: "not_in_thread", 4: "registered_before"],
    "uncounted": [1: "not_in_thread", 2: "no_replies", 3: "registered_before"],
    "status": [0: "sent", 1: "delivered", 2: "read"],
    "receipt_status": [0: "none", 1: "processing", 2: "done", 3: "expired"],
    "option": Dictionary(uniqueKeysWithValues: OptionNumber.allCases.map { (UInt64($0.rawValue), $0.name) }),
    "when": Dictionary(
      uniqueKeysWithValues: ReminderCondition.allCases.map { (UInt64($0.rawValue), "\($0.name)") }
    ),
    "start": [0: "now", 1: "earliest", 2: "time"],
    "record": Dictionary(uniqueKeysWithValues: FeedRecordKind.allCases.map { (UInt64($0.rawValue), "\($0.name)") }),
    "error": Dictionary(uniqueKeysWithValues: ErrorCode.allCases.map { (UInt64($0.rawValue), $0.name) }),
  ]

  // MARK: Parsing

  /// Return the fields of a line. Errors in the table trap.
  static func fields(_ text: Substring) -> [FieldSpec] { words(text).flatMap(parse) }

  /// Return the words of a text that spaces separate, except within brackets.
  private static func words(_ text: Substring) -> [Substring] {
    var words: [Substring] = []
    var depth = 0
    var start = text.startIndex
    for index in text.indices {
      switch text[index] {
      case "[", "(": depth += 1
      case "]", ")": depth -= 1
      case " " where depth == 0:
        words.append(text[start..<index])
        start = text.index(after: index)
      default: break
      }
    }
    return (words + [text[start...]]).filter { !$0.isEmpty }
  }

  private static func parse(_ word: Substring) -> [FieldSpec] {
    if word.first == "@" {
      guard let group = groups[String(word.dropFirst())] else { preconditionFailure("\(word)") }
      return group
    }
    var word = word
    var condition: (field: String, values: ClosedRange<UInt64>, mask: UInt64)?
    if let mark = word.lastIndex(of: "?"), !word[mark...].contains(where: { "])".contains($0) }) {
      condition = parseCondition(word[mark...].dropFirst())
      word = word[..<mark]
    }
    var specs = word.first == "(" ? fields(word.dropFirst().dropLast()) : [parseField(word)]
    if let condition { for index in specs.indices { specs[index].condition = condition } }
    return specs
  }

  private static func parseField(_ word: Substring) -> FieldSpec {
    let name = word.prefix { $0 != ":" && $0 != "=" && $0 != "~" }
    var rest = word[name.endIndex...]
    var spec = FieldSpec(String(name), types[name] ?? .varint())
    if rest.first == ":" {
      rest.removeFirst()
      let type = rest.first == "[" ? rest : rest.prefix { $0 != "=" && $0 != "~" }
      rest = rest[type.endIndex...]
      spec.type = parseType(type)
    }
    spec.isTail = rest == "~"
    if rest.first == "=" { spec.preset = String(rest.dropFirst()) }
    return spec
  }

  private static func parseType(_ text: Substring) -> FieldType {
    if text.first == "[" { return .list(fields(text.dropFirst().dropLast())) }
    let name = text.prefix { $0 != "(" }
    let argument = text[name.endIndex...].dropFirst().dropLast()
    switch name {
    case "varint": return .varint(names: numbers[argument] ?? [:])
    case "byte": return .byte(names: numbers[argument] ?? [:])
    case "bytes": return .bytes(Int(argument) ?? 0)
    case "string": return .string
    case "blob": return .blob
    case "rest": return .rest
    case "optional": return .optional
    default: preconditionFailure("\(text)")
    }
  }

  private static func parseCondition(_ text: Substring) -> (field: String, values: ClosedRange<UInt64>, mask: UInt64) {
    let field = text.prefix { $0 != "=" && $0 != "&" }
    let bounds = text[field.endIndex...].dropFirst().split(separator: "...").compactMap { UInt64($0) }
    guard let first = bounds.first, let last = bounds.last else { return (String(field), 1...UInt64.max, .max) }
    return (String(field), first...last, text.contains("&") ? first : .max)
  }
}

/// Encoding of a field: the notations of Proto/frames.md, "Fields".
indirect enum FieldType: Sendable {
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
struct FieldSpec: Sendable {
  var name: String
  var type: FieldType
  /// The field exists only if the masked number of this earlier field is in the range.
  var condition: (field: String, values: ClosedRange<UInt64>, mask: UInt64)?
  /// Last field, which may be missing.
  var isTail = false
  /// Value of a field that a line does not give; nil: 0, empty or none.
  var preset: String?

  init(_ name: String, _ type: FieldType, if field: String? = nil, is value: UInt64 = 0) {
    self.name = name
    self.type = type
    condition = field.map { ($0, value...value, .max) }
  }
}

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
      ), 32: ("limits", fields("limits:[from through hidden:byte joined_sequence]")),
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
