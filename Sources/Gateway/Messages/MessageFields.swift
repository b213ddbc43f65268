internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// The fields of a message to be registered.
struct MessageFields: ~Escapable {
  let id: RawSpan
  private let user: RawSpan?
  private let createdAt: Int64
  private let isSilent: Bool
  private let requestsAcknowledgement: Bool
  private let movesPosition: Bool
  /// Whether it mentions all members (R14).
  private let mentionsAll: Bool
  /// A non-empty array of user ids; nil: no user is mentioned by id.
  private let mentioned: JSONValue?
  /// Its own reminders; nil: those of its channel (R22).
  private let reminders: [ReminderRule]?
  /// The message that this one replies to (R15); nil: it is no reply.
  let thread: RawSpan?

  /// Check the fields' types. A batch with an entry of wrong types is refused before anything is sent.
  static func checkTypes(_ body: JSONValue) throws(Problem) {
    _ = try body.requiredString("id")
    _ = try body.optionalString("user_id")
    _ = try body.optionalString("created_at")
    _ = try body.optionalBool("silent")
    _ = try body.optionalBool("receipt")
    _ = try body.optionalBool("moves_position")
    _ = try body.optionalString("parent_id")
    if let reminders = body.optional("reminders") { _ = try RemindersJSON.rules(reminders, .invalidField) }
    if let mentions = body.optional("mentions") {
      if let text = mentions.string {
        guard text.equals("all") else { throw mentions.error("must be \"all\", or a list of users") }
        return
      }
      let users = try mentions.asArray(countMax: WireLimits.mentionsMax)
      var elements = users.elements
      while let user = elements.next() { _ = try user.asString() }
    }
  }

  /// - Parameter now: the creation time of a message without one, in milliseconds since 1970.
  /// - Throws: the problem of an invalid value.
  @_lifetime(copy body)
  init(_ body: JSONValue, now: Int64) throws(Problem) {
    id = try body.requiredString("id")
    guard Identifier.isMessage(id) else { throw Problem(.invalidMessageID) }
    user = try body.optionalString("user_id")
    if let user {
      guard Identifier.isUser(user) else { throw Problem(.invalidUserID) }
    }
    if let text = try body.optionalString("created_at") {
      guard let time = CivilTime.milliseconds(parsing: text) else {
        throw try body.required("created_at").error("must be a time since 1970, as in 2026-01-31T12:00:00.000Z")
      }
      createdAt = time
    } else {
      createdAt = now
    }
    isSilent = try body.optionalBool("silent") ?? false
    requestsAcknowledgement = try body.optionalBool("receipt") ?? false
    movesPosition = try body.optionalBool("moves_position") ?? true
    let given = body.optional("mentions")
    mentionsAll = given?.string != nil
    if let given, given.string == nil, given.count > 0 {
      var elements = given.elements
      while let user = elements.next() {
        guard let id = user.string, Identifier.isUser(id) else { throw Problem(.invalidUserID) }
      }
      mentioned = given
    } else {
      mentioned = nil
    }
    reminders = if let given = body.optional("reminders") { try RemindersJSON.rules(given, .invalidField) } else { nil }
    thread = try body.optionalString("parent_id")
    if let thread {
      guard Identifier.isMessage(thread) else { throw Problem(.invalidMessageID) }
    }
  }

  /// Write register_message of Proto/frames.md, after the counter.
  func write(into buffer: inout ByteBuffer) {
    var flags: UInt64 = 0
    if isSilent { flags |= RegisterMessageRequest.silent }
    if requestsAcknowledgement { flags |= RegisterMessageRequest.requestsAcknowledgement }
    if !movesPosition { flags |= RegisterMessageRequest.movesNoPosition }
    if mentioned != nil {
      flags |= RegisterMessageRequest.mentionsUsers
    } else if mentionsAll {
      flags |= RegisterMessageRequest.mentionsAll
    }
    if reminders != nil { flags |= RegisterMessageRequest.hasReminders }
    buffer.writeRegisterMessage(id, sender: user, created: Timestamp(milliseconds: createdAt), flags: flags)
    if let mentioned {
      buffer.writeVarint(mentioned.count)
      var elements = mentioned.elements
      while let user = elements.next() {
        if let id = user.string { buffer.writeField(id) }
      }
    }
    if let reminders { buffer.writeReminderRules(reminders) }
  }
}
