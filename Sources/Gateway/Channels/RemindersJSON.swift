internal import NIOCore
internal import ReceiptModel

/// JSON of reminders (R22): `[{"after": seconds, "when": "undelivered" | "unread" | "unacknowledged",
/// "limit_members"?: n}]`.
enum RemindersJSON {
  static let fields: KnownFields = ["after", "when", "limit_members"]

  /// Parse a list of reminders.
  ///
  /// - Parameter code: the code of a value out of range.
  static func rules(_ value: JSONValue, _ code: ProblemCode) throws(Problem) -> [ReminderRule] {
    let countMax = ReminderRule.countMax
    guard value.kind == .array, value.count <= countMax else {
      throw value.error("must be a list of at most \(countMax) reminders", code)
    }
    var rules: [ReminderRule] = []
    var elements = value.elements
    while let element = elements.next() { rules.append(try rule(element, code)) }
    return rules
  }

  private static func rule(_ value: JSONValue, _ code: ProblemCode) throws(Problem) -> ReminderRule {
    guard value.kind == .object else { throw value.error("must be an object with after and when", code) }
    let after = try number(try value.required("after"), most: Int64(ReminderRule.afterMax), "number of seconds", code)
    let when = try value.required("when")
    guard let text = when.string, let condition = ReminderCondition.allCases.first(where: { text.equals($0.name) })
    else { throw when.error("must be \"undelivered\", \"unread\" or \"unacknowledged\"", code) }
    guard let limit = value.optional("limit_members") else { return ReminderRule(after: after, condition) }
    let membersMax = try number(limit, most: Int64(ReminderRule.membersMaxMax), "number of members", code)
    return ReminderRule(after: after, condition, membersMax: membersMax)
  }

  private static func number(
    _ value: JSONValue,
    most: Int64,
    _ what: String,
    _ code: ProblemCode
  ) throws(Problem) -> UInt32 {
    guard let integer = value.integer, (1...most).contains(integer) else {
      throw value.error("must be a whole \(what) from 1 to \(most)", code)
    }
    return UInt32(integer)
  }

  /// Write a list of reminders, without the default of `limit_members`.
  @_lifetime(out: copy out)
  static func write(_ rules: [ReminderRule], into out: inout OutputRawSpan) {
    out.literal("[")
    for (index, rule) in rules.enumerated() {
      out.literal(index == 0 ? "{\"after\":" : ",{\"after\":")
      out.decimal(UInt64(rule.after))
      out.literal(",\"when\":\"")
      out.literal(rule.condition.name)
      out.literal("\"")
      if rule.membersMax != ReminderRule.membersMaxDefault {
        out.literal(",\"limit_members\":")
        out.decimal(UInt64(rule.membersMax))
      }
      out.literal("}")
    }
    out.literal("]")
  }
}
