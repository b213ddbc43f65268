package import NIOCore
package import ReceiptModel

/// The twelve options of a channel type (API.md, "Set-up"), of which this build has four. The others are
/// known by name and range, so that a default may be sent and anything else is refused rather than forgotten.
package enum OptionsJSON {
  /// Reads `{option: value…}`.
  ///
  /// - Throws: `unknown_option`, `invalid_option`, or `not_implemented` for a value that needs more than this
  ///   build has.
  package static func patch(_ options: JSONValue) throws(Problem) -> OptionPatch {
    var patch = OptionPatch()
    var members = options.members
    while let member = members.next() {
      if member.name.equals("read_events") {
        patch.readEvents = try bool(member.value)
      } else if member.name.equals("delivery_events") {
        patch.deliveryEvents = try bool(member.value)
      } else if member.name.equals("mark_unread") {
        patch.markUnread = try markUnread(member.value)
      } else if member.name.equals("history") {
        patch.history = try history(member.value)
      } else {
        try checkLater(member.name, member.value)
      }
    }
    return patch
  }

  private static func bool(_ value: JSONValue) throws(Problem) -> Bool {
    guard let bool = value.bool else { throw value.error("must be true or false", .invalidOption) }
    return bool
  }

  private static func markUnread(_ value: JSONValue) throws(Problem) -> MarkUnreadOption {
    guard let text = value.string else { throw value.error("must be private, public or off", .invalidOption) }
    if text.equals("private") { return .private }
    if text.equals("public") { return .public }
    if text.equals("off") { return .off }
    throw value.error("must be private, public or off", .invalidOption)
  }

  private static func history(_ value: JSONValue) throws(Problem) -> HistoryOption {
    guard let text = value.string else { throw value.error("must be visible or hidden", .invalidOption) }
    if text.equals("visible") { return .visible }
    if text.equals("hidden") { return .hidden }
    throw value.error("must be visible or hidden", .invalidOption)
  }

  // MARK: Options of later versions

  /// What a value of an option that is not built may be.
  private enum Later {
    case `default`, valid
    case invalid(String)
  }

  private static func checkLater(_ name: RawSpan, _ value: JSONValue) throws(Problem) {
    let verdict: Later
    if name.equals("read_acks_receipts") {
      verdict = word(value, "direct", "always", "never", "must be direct, always or never")
    } else if name.equals("receipt_ttl") {
      verdict = count(value, 1...Int64(UInt32.max), "must be null or a number of seconds")
    } else if name.equals("receipt_max_members") || name.equals("receipt_daily_limit") {
      verdict = count(value, 0...Int64(UInt32.max), "must be null or a count")
    } else if name.equals("receipt_request_roles") {
      verdict = roles(value)
    } else if name.equals("counts_visible_to") {
      verdict = word(value, "members", "sender", "sender", "must be members or sender")
    } else if name.equals("status_rule") {
      verdict = statusRule(value)
    } else if name.equals("kept_steps") {
      verdict = keptSteps(value)
    } else {
      let text = name.withUnsafeBytes { String(decoding: $0.prefix(64), as: UTF8.self) }
      throw Problem(.unknownOption, "there is no option \"\(text)\"")
    }
    switch verdict {
    case .default: return
    case .valid: throw value.error("has a value that is not built yet", .notImplemented)
    case .invalid(let complaint): throw value.error(complaint, .invalidOption)
    }
  }

  private static func word(
    _ value: JSONValue,
    _ standard: StaticString,
    _ second: StaticString,
    _ third: StaticString,
    _ complaint: String
  ) -> Later {
    guard let text = value.string else { return .invalid(complaint) }
    if text.equals(standard) { return .default }
    return text.equals(second) || text.equals(third) ? .valid : .invalid(complaint)
  }

  private static func count(_ value: JSONValue, _ range: ClosedRange<Int64>, _ complaint: String) -> Later {
    if value.isNull { return .default }
    guard let integer = value.integer, range.contains(integer) else { return .invalid(complaint) }
    return .valid
  }

  private static func roles(_ value: JSONValue) -> Later {
    let complaint = "must be null or a list of roles"
    if value.isNull { return .default }
    guard value.kind == .array else { return .invalid(complaint) }
    var elements = value.elements
    while let element = elements.next() {
      guard let role = element.string, Identifier.isRole(role) else { return .invalid(complaint) }
    }
    return .valid
  }

  private static func statusRule(_ value: JSONValue) -> Later {
    let complaint = "must be \"any\", \"all\", a whole number from 1 or a percentage as in \"50%\""
    if let integer = value.integer { return integer >= 1 ? .valid : .invalid(complaint) }
    guard let text = value.string else { return .invalid(complaint) }
    if text.equals("any") { return .default }
    if text.equals("all") { return .valid }
    guard text.byteCount > 1,
      text.unsafeLoad(fromByteOffset: text.byteCount - 1, as: UInt8.self) == UInt8(ascii: "%"),
      let percentage = text.extracting(0..<(text.byteCount - 1)).decimal, (1...100).contains(percentage)
    else { return .invalid(complaint) }
    return .valid
  }

  private static func keptSteps(_ value: JSONValue) -> Later {
    guard let integer = value.integer, (0...4_096).contains(integer) else {
      return .invalid("must be a whole number from 0 to 4096")
    }
    return integer == 64 ? .default : .valid
  }

  // MARK: Writing

  /// Writes all twelve.
  package static func write(_ options: ChannelTypeOptions, into buffer: inout ByteBuffer) {
    buffer.writeWithOutputRawSpan(minimumWritableBytes: 512) { out in
      out.literal("{\"read_events\":")
      out.bool(options.readEvents)
      out.literal(",\"delivery_events\":")
      out.bool(options.deliveryEvents)
      switch options.markUnread {
      case .private: out.literal(",\"mark_unread\":\"private\"")
      case .public: out.literal(",\"mark_unread\":\"public\"")
      case .off: out.literal(",\"mark_unread\":\"off\"")
      }
      switch options.history {
      case .visible: out.literal(",\"history\":\"visible\"")
      case .hidden: out.literal(",\"history\":\"hidden\"")
      }
      out.literal(",\"read_acks_receipts\":\"direct\",\"receipt_ttl\":null,\"receipt_max_members\":null")
      out.literal(",\"receipt_daily_limit\":null,\"receipt_request_roles\":null")
      out.literal(",\"counts_visible_to\":\"members\",\"status_rule\":\"any\",\"kept_steps\":64}")
    }
  }
}
