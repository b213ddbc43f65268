package import NIOCore
package import ReceiptModel

/// JSON of the options of a channel type (Proto/openapi.yaml).
package enum OptionsJSON {
  /// Parse `{option: value…}`.
  ///
  /// - Throws: `unknown_field`, `not_implemented`, `invalid_option`.
  package static func patch(_ options: JSONValue) throws(Problem) -> OptionPatch {
    try options.check(.options)
    var patch = OptionPatch()
    var members = options.members
    while let member = members.next() { try read(member.name, member.value, into: &patch) }
    return patch
  }

  private static func read(_ name: RawSpan, _ value: JSONValue, into patch: inout OptionPatch) throws(Problem) {
    if name.equals("read_events") {
      patch.readEvents = try bool(value)
    } else if name.equals("delivery_events") {
      patch.deliveryEvents = try bool(value)
    } else if name.equals("mark_unread") {
      patch.markUnread = try word(value, markUnreadWords)
    } else if name.equals("history") {
      patch.history = try word(value, historyWords)
    } else if name.equals("read_acks_receipts") {
      patch.readAcksReceipts = try word(value, readAcksWords)
    } else if name.equals("receipt_ttl") {
      patch.receiptTTL = Nullable(try number(value, from: 1, "number of seconds"))
    } else if name.equals("receipt_max_members") {
      patch.receiptMembersMax = Nullable(try number(value, from: 0, "count"))
    } else if name.equals("receipt_daily_limit") {
      patch.receiptDailyLimit = Nullable(try number(value, from: 0, "count"))
    } else if name.equals("receipt_request_roles") {
      patch.receiptRequestRoles = Nullable(try roles(value))
    } else if name.equals("counts_visible_to") {
      patch.countsVisibleTo = try word(value, countsVisibleWords)
    } else if name.equals("status_rule") {
      patch.statusRule = try statusRule(value)
    } else if name.equals("kept_steps") {
      patch.keptSteps = try keptSteps(value)
    } else if name.equals("reminders") {
      patch.reminders = try RemindersJSON.rules(value, .invalidOption)
    } else {
      // The table of known options has a name that this function does not handle.
      throw value.error("is not read", .internalError)
    }
  }

  // MARK: Values

  private typealias Words<Choice> = [(word: StaticString, choice: Choice)]

  private static let markUnreadWords: Words<MarkUnreadOption> = [
    ("private", .private), ("public", .public), ("off", .off),
  ]
  private static let historyWords: Words<HistoryOption> = [("visible", .visible), ("hidden", .hidden)]
  private static let readAcksWords: Words<ReadAcksOption> = [
    ("direct", .direct), ("always", .always), ("never", .never),
  ]
  private static let countsVisibleWords: Words<CountsVisibleOption> = [
    ("members", .members), ("sender", .sender),
  ]

  /// The maximum of a number encoded as value + 1 in 32 bits (Proto/frames.md, "Fields").
  private static let numberMax = Int64(UInt32.max) - 1

  private static func bool(_ value: JSONValue) throws(Problem) -> Bool {
    guard let bool = value.bool else { throw value.error("must be true or false", .invalidOption) }
    return bool
  }

  private static func word<Choice>(_ value: JSONValue, _ words: Words<Choice>) throws(Problem) -> Choice {
    if let text = value.string {
      for entry in words where text.equals(entry.word) { return entry.choice }
    }
    let names = words.map { "\"\($0.word)\"" }
    let list = names.dropLast().joined(separator: ", ") + " or " + (names.last ?? "")
    throw value.error("must be \(list)", .invalidOption)
  }

  private static func number(_ value: JSONValue, from least: Int64, _ what: String) throws(Problem) -> UInt32? {
    if value.isNull { return nil }
    guard let integer = value.integer, (least...numberMax).contains(integer) else {
      throw value.error("must be null or a \(what) from \(least) to \(numberMax)", .invalidOption)
    }
    return UInt32(integer)
  }

  private static func roles(_ value: JSONValue) throws(Problem) -> [String]? {
    if value.isNull { return nil }
    let countMax = ChannelTypeOptions.requestRolesMax
    guard value.kind == .array, value.count <= countMax else {
      throw value.error("must be null or a list of at most \(countMax) roles", .invalidOption)
    }
    var roles: [String] = []
    var elements = value.elements
    while let element = elements.next() {
      guard let role = element.string, Identifier.isRole(role) else {
        throw element.error("must be a \(Identifier.roleRange)", .invalidOption)
      }
      roles.append(role.withUnsafeBytes { String(decoding: $0, as: UTF8.self) })
    }
    return roles
  }

  private static func statusRule(_ value: JSONValue) throws(Problem) -> StatusRule {
    if let integer = value.integer, let count = UInt32(exactly: integer), count >= 1 { return .count(count) }
    if let text = value.string {
      if text.equals("any") { return .any }
      if text.equals("all") { return .all }
      if let percentage = percentage(text) { return .percentage(percentage) }
    }
    throw value.error(
      "must be \"any\", \"all\", a whole number from 1 to \(UInt32.max), or a percentage from \"1%\" to \"100%\"",
      .invalidOption
    )
  }

  /// Parse `50%`, without sign, fraction or leading zero, so that it is shown as it was given.
  private static func percentage(_ text: RawSpan) -> UInt8? {
    guard (2...4).contains(text.byteCount),
      text.unsafeLoad(fromByteOffset: text.byteCount - 1, as: UInt8.self) == UInt8(ascii: "%"),
      text.unsafeLoad(fromByteOffset: 0, as: UInt8.self) != UInt8(ascii: "0"),
      let number = text.extracting(0..<(text.byteCount - 1)).decimal, (1...100).contains(number)
    else { return nil }
    return UInt8(number)
  }

  private static func keptSteps(_ value: JSONValue) throws(Problem) -> UInt16 {
    let most = ChannelTypeOptions.keptStepsMax
    guard let integer = value.integer, (0...Int64(most)).contains(integer) else {
      throw value.error("must be a whole number from 0 to \(most)", .invalidOption)
    }
    return UInt16(integer)
  }

  // MARK: Writing

  /// Write the options that are set.
  package static func write(_ patch: OptionPatch, into buffer: inout ByteBuffer) {
    var separator: StaticString = "{"
    func name(_ name: StaticString, _ out: inout OutputRawSpan) {
      out.literal(separator)
      separator = ","
      out.literal("\"")
      out.literal(name)
      out.literal("\":")
    }
    let roleBytes = (patch.receiptRequestRoles?.value?.count ?? 0) * (Identifier.roleLengthMax + 3)
    buffer.writeWithOutputRawSpan(minimumWritableBytes: 1_024 + roleBytes) { out in
      if let value = patch.readEvents {
        name("read_events", &out)
        out.bool(value)
      }
      if let value = patch.deliveryEvents {
        name("delivery_events", &out)
        out.bool(value)
      }
      if let value = patch.markUnread {
        name("mark_unread", &out)
        out.word(value, of: markUnreadWords)
      }
      if let value = patch.history {
        name("history", &out)
        out.word(value, of: historyWords)
      }
      if let value = patch.readAcksReceipts {
        name("read_acks_receipts", &out)
        out.word(value, of: readAcksWords)
      }
      if let value = patch.receiptTTL {
        name("receipt_ttl", &out)
        out.number(value.value)
      }
      if let value = patch.receiptMembersMax {
        name("receipt_max_members", &out)
        out.number(value.value)
      }
      if let value = patch.receiptDailyLimit {
        name("receipt_daily_limit", &out)
        out.number(value.value)
      }
      if let value = patch.receiptRequestRoles {
        name("receipt_request_roles", &out)
        out.roles(value.value)
      }
      if let value = patch.countsVisibleTo {
        name("counts_visible_to", &out)
        out.word(value, of: countsVisibleWords)
      }
      if let value = patch.statusRule {
        name("status_rule", &out)
        out.statusRule(value)
      }
      if let value = patch.keptSteps {
        name("kept_steps", &out)
        out.decimal(UInt64(value))
      }
      if let value = patch.reminders {
        name("reminders", &out)
        RemindersJSON.write(value, into: &out)
      }
      out.literal(patch == OptionPatch() ? "{}" : "}")
    }
  }

  /// Write all options.
  package static func write(_ options: ChannelTypeOptions, into buffer: inout ByteBuffer) {
    // A role has at most 64 bytes, none of which is escaped.
    let roleBytes = (options.receiptRequestRoles?.count ?? 0) * (Identifier.roleLengthMax + 3)
    buffer.writeWithOutputRawSpan(minimumWritableBytes: 1_024 + roleBytes) { out in
      out.literal("{\"read_events\":")
      out.bool(options.readEvents)
      out.literal(",\"delivery_events\":")
      out.bool(options.deliveryEvents)
      out.literal(",\"mark_unread\":")
      out.word(options.markUnread, of: markUnreadWords)
      out.literal(",\"history\":")
      out.word(options.history, of: historyWords)
      out.literal(",\"read_acks_receipts\":")
      out.word(options.readAcksReceipts, of: readAcksWords)
      out.literal(",\"receipt_ttl\":")
      out.number(options.receiptTTL)
      out.literal(",\"receipt_max_members\":")
      out.number(options.receiptMembersMax)
      out.literal(",\"receipt_daily_limit\":")
      out.number(options.receiptDailyLimit)
      out.literal(",\"receipt_request_roles\":")
      out.roles(options.receiptRequestRoles)
      out.literal(",\"counts_visible_to\":")
      out.word(options.countsVisibleTo, of: countsVisibleWords)
      out.literal(",\"status_rule\":")
      out.statusRule(options.statusRule)
      out.literal(",\"kept_steps\":")
      out.decimal(UInt64(options.keptSteps))
      out.literal(",\"reminders\":")
      RemindersJSON.write(options.reminders ?? [], into: &out)
      out.literal("}")
    }
  }
}

extension OutputRawSpan {
  @_lifetime(self: copy self)
  fileprivate mutating func word<Choice: Equatable>(
    _ choice: Choice,
    of words: [(word: StaticString, choice: Choice)]
  ) {
    for entry in words where entry.choice == choice {
      literal("\"")
      literal(entry.word)
      literal("\"")
    }
  }

  @_lifetime(self: copy self)
  fileprivate mutating func statusRule(_ rule: StatusRule) {
    switch rule {
    case .any: literal("\"any\"")
    case .all: literal("\"all\"")
    case .count(let count): decimal(UInt64(count))
    case .percentage(let percentage):
      literal("\"")
      decimal(UInt64(percentage))
      literal("%\"")
    }
  }

  @_lifetime(self: copy self)
  fileprivate mutating func number(_ value: UInt32?) {
    if let value { decimal(UInt64(value)) } else { literal("null") }
  }

  @_lifetime(self: copy self)
  fileprivate mutating func roles(_ roles: [String]?) {
    guard let roles else { return literal("null") }
    literal("[")
    for (index, role) in roles.enumerated() {
      if index > 0 { literal(",") }
      let bytes = Array(role.utf8)
      jsonString(bytes.span.bytes)
    }
    literal("]")
  }
}

extension KnownFields {
  static let options: KnownFields = [
    "read_events", "delivery_events", "mark_unread", "history", "read_acks_receipts", "receipt_ttl",
    "receipt_max_members", "receipt_daily_limit", "receipt_request_roles", "counts_visible_to", "status_rule",
    "kept_steps", .objects("reminders", RemindersJSON.fields),
  ]
}
