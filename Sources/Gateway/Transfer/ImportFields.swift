internal import ReceiptModel
internal import ReceiptWire

/// A line of an import (docs/api/import-export.md).
enum ImportLine {
  case channelType(name: String, OptionPatch)
  case user(UserSettings)
  case channel(cid: String, TransferredChannel)
  case message(cid: String, TransferredMessage)
  case member(cid: String, TransferredMember)
  case acknowledgement(cid: String, TransferredAcknowledgement)

  /// Maximum size of a line in bytes, without its line feed.
  static let byteCountMax = 48 << 10
  /// Maximum number of moves in a member's line.
  static let movesMax = 1_024

  /// Parse a line: an object with one member, which names its kind.
  ///
  /// - Throws: `unknown_field` and the problem of an invalid value.
  init(_ line: JSONValue) throws(Problem) {
    guard line.kind == .object else { throw Problem(.invalidField, "a line must be an object") }
    try line.check(.importLine)
    var members = line.members
    guard line.count == 1, let value = members.next() else {
      throw Problem(
        .invalidField,
        "a line must have one of channel_type, channel, user, message, member and acknowledged"
      )
    }
    let fields = try value.value.object()
    if value.name.equals("message") {
      self = .message(cid: try fields.cid(), try TransferredMessage(fields))
    } else if value.name.equals("member") {
      self = .member(cid: try fields.cid(), try TransferredMember(fields))
    } else if value.name.equals("acknowledged") {
      self = .acknowledgement(cid: try fields.cid(), try TransferredAcknowledgement(fields))
    } else if value.name.equals("channel") {
      var channel = TransferredChannel(created: try fields.time("created_at"), options: OptionPatch())
      if let options = try fields.optionalObject("options") { channel.options = try OptionsJSON.patch(options) }
      self = .channel(cid: try fields.cid(), channel)
    } else if value.name.equals("user") {
      self = .user(try UserSettings(fields))
    } else {
      let name = try fields.requiredString("type")
      guard Identifier.isType(name) else { throw Problem(.invalidChannelType) }
      self = .channelType(name: name.text, try OptionsJSON.patch(try fields.required("options").object()))
    }
  }
}

extension TransferredMessage {
  fileprivate init(_ fields: JSONValue) throws(Problem) {
    guard let id = try fields.message("id") else { throw fields.missing("id") }
    self.init(id: id)
    sender = try fields.user("user_id") ?? ""
    parent = try fields.message("parent_id") ?? ""
    if let given = try fields.sequence("seq", from: 1) { sequence = given }
    let created = try fields.time("created_at")
    let registered = try fields.time("registered_at")
    registeredAt = registered.or(created)
    if registered != .none { createdAt = created }
    expiresAt = try fields.time("expires_at")
    deletedAt = try fields.time("deleted_at")
    var flags = Flags().setting(.silent, try fields.optionalBool("silent") ?? false)
      .setting(.requestsAcknowledgement, try fields.optionalBool("receipt") ?? false)
      .setting(.deleted, try fields.optionalBool("deleted") ?? false)
      .setting(.keepsSenderPosition, try !(fields.optionalBool("moves_position") ?? false))
    if let refused = try fields.optionalString("receipt_refused") {
      if refused.equals("receipt_not_allowed") {
        flags.insert(.requestNotAllowed)
      } else if refused.equals("receipt_limit_reached") {
        flags.insert(.requestOverLimit)
      } else {
        throw Problem(.invalidField, "receipt_refused must be receipt_not_allowed or receipt_limit_reached")
      }
    }
    if let mentions = fields.optional("mentions") {
      if let text = mentions.string {
        guard text.equals("all") else { throw mentions.error("must be \"all\", or a list of users") }
        flags.insert(.mentionsAll)
      } else {
        var elements = try mentions.asArray(countMax: WireLimits.mentionsMax).elements
        while let user = elements.next() {
          guard let id = user.string, Identifier.isUser(id) else { throw Problem(.invalidUserID) }
          self.mentions.append(id.text)
        }
      }
    }
    self.flags = flags
  }
}

extension TransferredMember {
  fileprivate init(_ fields: JSONValue) throws(Problem) {
    guard let user = try fields.user("user_id") else { throw fields.missing("user_id") }
    self.init(user: user)
    if let role = try fields.optionalString("role") {
      guard Identifier.isRole(role) else {
        throw try fields.required("role").error("must be 1 to 64 of A-Z a-z 0-9 _ . -")
      }
      self.role = role.text
    }
    thread = try fields.message("thread_id") ?? ""
    joined = try fields.sequence("joined_seq")
    joinedAt = try fields.time("joined_at")
    leftAt = try fields.time("left_at")
    read = try fields.message("last_read_message_id") ?? ""
    readAt = try fields.time("last_read_at")
    delivered = try fields.message("last_delivered_message_id") ?? ""
    deliveredAt = try fields.time("last_delivered_at")
    unreadFrom = try fields.message("unread_from_message_id") ?? ""
    unreadEpoch = try fields.number("unread_epoch")
    readMoves = try fields.number("read_moves")
    deliveredMoves = try fields.number("delivered_moves")
    acknowledgedThrough = try fields.sequence("acknowledged_through_seq") ?? .zero
    countedAfter = try fields.sequence("counted_after_seq")
    unreadAfter = try fields.sequence("unread_after_seq")
    var flags = Flags().setting(.muted, try fields.optionalBool("muted") ?? false)
      .setting(.flaggedUnread, try fields.optionalBool("marked_unread") ?? false)
      .setting(.readIsHidden, try fields.optionalBool("last_read_hidden") ?? false)
      .setting(.deliveredIsHidden, try fields.optionalBool("last_delivered_hidden") ?? false)
      .setting(.joinedByReading, try fields.optionalBool("joined_by_reading") ?? false)
    if let history = try fields.optionalString("history") {
      guard history.equals("hidden") || history.equals("visible") else {
        throw Problem(.invalidField, "history must be visible or hidden")
      }
      flags.insert(history.equals("hidden") ? .hidesHistory : .showsHistory)
    }
    self.flags = flags
    guard let steps = try fields.optionalArray("steps", countMax: ImportLine.movesMax) else { return }
    var elements = steps.elements
    while let step = elements.next() {
      let step = try step.object()
      let kind = try step.requiredString("kind")
      guard kind.equals("read") || kind.equals("delivered") else {
        throw Problem(.invalidField, "kind must be read or delivered")
      }
      guard let sequence = try step.sequence("seq", from: 1) else { throw step.missing("seq") }
      let at = try step.time("at")
      guard at != .none else { throw step.missing("at") }
      moves.append(
        Move(
          kind.equals("read") ? .read : .delivered,
          to: sequence,
          at: at,
          isHidden: try step.optionalBool("hidden") ?? false
        )
      )
    }
  }
}

extension TransferredAcknowledgement {
  fileprivate init(_ fields: JSONValue) throws(Problem) {
    guard let message = try fields.message("message_id") else { throw fields.missing("message_id") }
    guard let user = try fields.user("user_id") else { throw fields.missing("user_id") }
    self.init(message: message, user: user, at: try fields.time("at"))
    isHidden = try fields.optionalBool("hidden") ?? false
    guard let note = try fields.optionalString("note") else { return }
    guard note.byteCount <= Acknowledgement.noteLengthMax else {
      throw try fields.required("note").error("may have at most \(Acknowledgement.noteLengthMax) bytes")
    }
    self.note = note.text
  }
}

extension UserSettings {
  /// Settings as the first ones of a user.
  fileprivate init(_ fields: JSONValue) throws(Problem) {
    guard let user = try fields.user("id") else { throw fields.missing("id") }
    let patch = try UserJSON.patch(fields)
    self.init(
      user: user,
      version: 1,
      hidesRead: patch.showsRead == false,
      hidesDelivered: patch.showsDelivered == false,
      tokensRevokedBefore: patch.tokensRevokedBefore ?? .none
    )
    guard let since = try fields.optionalObject("shown_since") else { return }
    readShownSince = try since.time("read_receipts")
    deliveredShownSince = try since.time("delivery_receipts")
  }
}

extension RawSpan {
  fileprivate var text: String { withUnsafeBytes { String(decoding: $0, as: UTF8.self) } }
}

extension JSONValue {
  fileprivate func cid() throws(Problem) -> String {
    let cid = try requiredString("cid")
    guard Identifier.isCID(cid) else { throw Problem(.invalidCID) }
    return cid.text
  }

  fileprivate func user(_ name: StaticString) throws(Problem) -> String? {
    guard let id = try optionalString(name) else { return nil }
    guard Identifier.isUser(id) else { throw Problem(.invalidUserID) }
    return id.text
  }

  fileprivate func message(_ name: StaticString) throws(Problem) -> String? {
    guard let id = try optionalString(name) else { return nil }
    guard Identifier.isMessage(id) else { throw Problem(.invalidMessageID) }
    return id.text
  }

  /// Return a time; none where it is absent.
  fileprivate func time(_ name: StaticString) throws(Problem) -> Timestamp {
    guard let text = try optionalString(name) else { return .none }
    guard let time = CivilTime.milliseconds(parsing: text) else {
      throw try required(name).error("must be a time since 1970, as in 2026-01-31T12:00:00.000Z")
    }
    // Zero stands for none.
    return Timestamp(milliseconds: max(1, time))
  }

  fileprivate func sequence(_ name: StaticString, from least: Int64 = 0) throws(Problem) -> SequenceNumber? {
    try optionalInteger(name, in: least...Int64(UInt32.max) - 1).map { SequenceNumber(UInt32($0)) }
  }

  fileprivate func number(_ name: StaticString) throws(Problem) -> UInt32 {
    UInt32(try optionalInteger(name, in: 0...Int64(UInt32.max) - 1) ?? 0)
  }
}

extension KnownFields {
  private static let channelType: KnownFields = ["type", .object("options", options)]
  private static let channel: KnownFields = ["cid", .object("options", options), "created_at"]
  private static let shownSince: KnownFields = ["read_receipts", "delivery_receipts"]
  private static let message: KnownFields = [
    "cid", "id", "seq", "user_id", "created_at", "registered_at", "parent_id", "silent", "receipt", "receipt_refused",
    "expires_at", "mentions", "moves_position", "deleted", "deleted_at",
  ]
  private static let step: KnownFields = ["kind", "seq", "at", "hidden"]
  private static let member: KnownFields = [
    "cid", "user_id", "role", "joined_at", "joined_seq", "left_at", "history", "muted", "marked_unread",
    "unread_epoch", "thread_id", "last_read_message_id", "last_read_at", "last_read_hidden",
    "last_delivered_message_id", "last_delivered_at", "last_delivered_hidden", "unread_from_message_id",
    "read_moves", "delivered_moves", "acknowledged_through_seq", "counted_after_seq", "unread_after_seq",
    "joined_by_reading", .objects("steps", step),
  ]
  private static let acknowledged: KnownFields = ["cid", "message_id", "user_id", "at", "note", "hidden"]

  /// A line of an import.
  static let importLine: KnownFields = [
    .object("channel_type", channelType), .object("channel", channel),
    .object("user", ["id", .object("shown_since", shownSince)] + putUser), .object("message", message),
    .object("member", member), .object("acknowledged", acknowledged),
  ]
}
