internal import ReceiptModel
internal import ReceiptWire

/// A fully parsed request frame. A malformed frame must not be forwarded: the store would close the gateway's
/// connection. A field out of range is recorded, and fails only this request.
struct FrameRequest: ~Escapable {
  let cid: RawSpan
  /// The bytes of the kind's fields after the cid and the counter.
  let fields: RawSpan
  /// The parent message of the thread; empty: the channel itself.
  let thread: RawSpan
  /// See Proto/frames.md, flag `issued`.
  let issued: UInt32?
  /// The first field that is out of range; nil: all are in range.
  let invalid: InvalidFrameField?

  /// Parse the payload of a frame by the rule of its kind.
  ///
  /// - Throws: where the payload is malformed.
  @_lifetime(copy payload)
  init(_ header: FrameHeader, _ payload: RawSpan, rule: FrameRule, limits: GatewayLimits) throws(WireError) {
    var end = payload.byteCount
    if header.flags.contains(.issued) {
      end -= FrameHeader.issuedByteCount
      guard end >= 0 else { throw .truncated }
      issued = UInt32(bigEndian: payload.unsafeLoadUnaligned(fromByteOffset: end, as: UInt32.self))
    } else {
      issued = nil
    }
    guard rule.takesThread || !header.flags.contains(.thread) else {
      throw .badFlags(header.flags.rawValue)
    }
    let payload = payload.extracting(first: end)
    var reader = FieldReader(payload)
    var check = FieldCheck(limits)
    cid = try reader.string()
    if !Identifier.isCID(cid) { check.refuse(.cid) }
    // The gateway's own session has its own counters.
    if header.kind.isCommand { _ = try reader.varint() }
    let start = reader.offset
    for field in rule.fields where try !check.read(field, &reader) {
      // The rest of this payload cannot be parsed; the next frame can.
      fields = payload.extracting(0..<0)
      thread = payload.extracting(0..<0)
      invalid = check.invalid
      return
    }
    fields = payload.extracting(start..<reader.offset)
    if header.flags.contains(.thread) {
      thread = try reader.string()
      guard !thread.isEmpty else { throw .badValue(.parent) }
      if !Identifier.isMessage(thread) { check.refuse(.thread) }
    } else {
      thread = payload.extracting(0..<0)
    }
    try reader.end()
    invalid = check.invalid
  }
}

/// A field of a request frame that may be out of range.
enum InvalidFrameField {
  case cid, thread, user, message, role
  case memberFlags, registrationFlags, namesFlag, pushFlags, viewerFlags
  /// Creation time of a message, delivery time of a push.
  case created, acked
  case limit, listCursor, memberList, listOrder
  case note, options
  /// The number of entries of a list.
  case messages, users, members, mentions, reminders

  /// Return the field's name and range.
  func detail(_ limits: GatewayLimits) -> String {
    switch self {
    case .cid: "\(Identifier.cidRange)"
    case .thread: "\(Identifier.threadRange)"
    case .user: "\(Identifier.userRange)"
    case .message: "\(Identifier.messageRange)"
    case .role: "\(Identifier.roleRange)"
    case .memberFlags:
      """
      flags: \(SetMemberRequest.muteGiven) (mute given), \(SetMemberRequest.isMuted) (mute, with \
      \(SetMemberRequest.muteGiven)), \(SetMemberRequest.joins) (joins) and their sums
      """
    case .registrationFlags:
      """
      flags: \(RegisterMessageRequest.silent) (silent), \(RegisterMessageRequest.requestsAcknowledgement) (receipt), \
      \(RegisterMessageRequest.movesNoPosition) (moves no position), \
      \(RegisterMessageRequest.mentionsAll) (mentions all) or \
      \(RegisterMessageRequest.mentionsUsers) (mentions follow), \
      \(RegisterMessageRequest.hasReminders) (reminders follow)
      """
    case .namesFlag: "flags: 0 or 1"
    case .pushFlags:
      """
      flags: \(PushFlags.names) (with names), \(PushFlags.source) (a provider and a device follow, each empty or 1 to \
      \(LabelNames.byteCountMax) of A-Za-z0-9_.-) or their sum
      """
    case .viewerFlags: "viewer flags: 0 or 1"
    case .created: "time created: given, up to the year 9999"
    case .acked: "time acked: up to the year 9999"
    case .limit: "limit: 1 to \(Self.grouped(limits.rowsPerPage))"
    case .listCursor: "cursor: a cursor from an earlier page"
    case .memberList: "list: 0 to \(MemberList.allCases.count - 1)"
    case .listOrder: "order: 0 to \(ListOrder.allCases.count - 1)"
    case .note: "note: at most \(Self.grouped(limits.noteBytes)) bytes of UTF-8"
    case .options: "options: in rising order of their numbers, each with a value that it takes"
    case .messages: "messages: 1 to \(Self.grouped(limits.entriesPerRequest))"
    case .users: "users: 1 to \(Self.grouped(limits.entriesPerRequest))"
    case .members: "members: at most \(Self.grouped(limits.membersPerRequest)) in a request"
    case .reminders:
      """
      reminders: at most \(ReminderRule.countMax), each after 1 second to 366 days, when 0 to \
      \(ReminderCondition.allCases.count - 1), of 1 to \(Self.grouped(Int(ReminderRule.membersMaxMax))) members
      """
    case .mentions: "mentions: 1 to \(Self.grouped(WireLimits.mentionsMax)) users"
    }
  }

  /// Return a number with commas between groups of three digits.
  private static func grouped(_ number: Int) -> String {
    guard number >= 1_000 else { return "\(number)" }
    let last = number % 1_000
    return "\(grouped(number / 1_000)),\(last < 10 ? "00" : last < 100 ? "0" : "")\(last)"
  }
}

/// Parser of fields, which checks their ranges.
private struct FieldCheck {
  private let entriesMax: Int
  private let membersMax: Int
  private let noteBytesMax: Int
  private let rowsMax: Int
  /// Members named so far, both added and removed.
  private var members = 0
  /// The first field that is out of range.
  private(set) var invalid: InvalidFrameField?

  init(_ limits: GatewayLimits) {
    entriesMax = limits.entriesPerRequest
    membersMax = limits.membersPerRequest
    noteBytesMax = limits.noteBytes
    rowsMax = limits.rowsPerPage
  }

  mutating func refuse(_ field: InvalidFrameField) {
    if invalid == nil { invalid = field }
  }

  @inline(__always)
  private mutating func require(_ isInRange: Bool, _ field: InvalidFrameField) {
    if !isInRange { refuse(field) }
  }

  /// Parse one field. False where the rest of the payload cannot be parsed, although the field is complete.
  ///
  /// - Throws: where the field is malformed.
  @_lifetime(reader: copy reader)
  mutating func read(_ field: FrameRule.Field, _ reader: inout FieldReader) throws(WireError) -> Bool {
    switch field {
    case .user: require(Identifier.isUser(try reader.string()), .user)
    case .userOrNone:
      let user = try reader.string()
      require(user.isEmpty || Identifier.isUser(user), .user)
    case .message: require(Identifier.isMessage(try reader.string()), .message)
    case .messageOrNone:
      let message = try reader.string()
      require(message.isEmpty || Identifier.isMessage(message), .message)
    case .roleOrNone:
      let role = try reader.string()
      require(role.isEmpty || Identifier.isRole(role), .role)
    case .memberFlags:
      let flags = try reader.varint()
      let hasMuteGiven = flags & SetMemberRequest.muteGiven != 0
      require(
        flags <= SetMemberRequest.flagsMax && (hasMuteGiven || flags & SetMemberRequest.isMuted == 0),
        .memberFlags
      )
    case .created: require((1...FrameRule.timeMax).contains(try reader.time().milliseconds), .created)
    case .acked: require(try reader.time().milliseconds <= FrameRule.timeMax, .acked)
    case .optionalNumber: _ = try reader.optional32()
    case .registrationFlags:
      let flags = try reader.varint()
      require(RegisterMessageRequest.areFlags(flags), .registrationFlags)
      if flags & RegisterMessageRequest.mentionsUsers != 0 {
        let count = try reader.count()
        require((1...WireLimits.mentionsMax).contains(count), .mentions)
        for _ in 0..<count { require(Identifier.isUser(try reader.string()), .user) }
      }
      if flags & RegisterMessageRequest.hasReminders != 0 {
        return try values(&reader, .reminders) { reader throws(WireError) in _ = try reader.reminderRules() }
      }
    case .pushFlags:
      let flags = try reader.varint()
      require(flags <= PushFlags.all, .pushFlags)
      guard flags & PushFlags.source != 0 else { break }
      for _ in 0..<2 {
        let label = try reader.string()
        require(label.isEmpty || LabelNames.isLabel(label), .pushFlags)
      }
    case .viewer:
      require(try reader.varint() <= 1, .viewerFlags)
      let user = try reader.string()
      require(user.isEmpty || Identifier.isUser(user), .user)
    case .limit: require((1...UInt64(rowsMax)).contains(try reader.varint()), .limit)
    case .listCursor:
      let cursor = try reader.string()
      require(cursor.isEmpty || ListCursorText.isOne(cursor), .listCursor)
    case .memberList: require(MemberList(rawValue: try reader.byte()) != nil, .memberList)
    case .listOrder: require(ListOrder(rawValue: try reader.byte()) != nil, .listOrder)
    case .note: require(isNote(try reader.string()), .note)
    case .messages: try messages(&reader)
    case .users: try users(&reader)
    case .members: try members(&reader)
    case .removedMembers: try removedMembers(&reader)
    case .options:
      return try values(&reader, .options) { reader throws(WireError) in _ = try reader.optionPatch() }
    }
    return true
  }

  private func isNote(_ note: RawSpan) -> Bool {
    note.byteCount <= noteBytesMax && note.withUnsafeBytes { String(validating: $0, as: UTF8.self) != nil }
  }

  @_lifetime(reader: copy reader)
  private mutating func messages(_ reader: inout FieldReader) throws(WireError) {
    let count = try reader.count()
    require((1...entriesMax).contains(count), .messages)
    for _ in 0..<count { require(Identifier.isMessage(try reader.string()), .message) }
  }

  @_lifetime(reader: copy reader)
  private mutating func users(_ reader: inout FieldReader) throws(WireError) {
    let count = try reader.count()
    require((1...entriesMax).contains(count), .users)
    for _ in 0..<count { require(Identifier.isUser(try reader.string()), .user) }
  }

  @_lifetime(reader: copy reader)
  private mutating func members(_ reader: inout FieldReader) throws(WireError) {
    let count = try reader.count(elementBytesMin: 2)
    require(countMembers(count), .members)
    for _ in 0..<count {
      require(Identifier.isUser(try reader.string()), .user)
      let role = try reader.string()
      require(role.isEmpty || Identifier.isRole(role), .role)
    }
  }

  @_lifetime(reader: copy reader)
  private mutating func removedMembers(_ reader: inout FieldReader) throws(WireError) {
    let count = try reader.count()
    require(countMembers(count), .members)
    for _ in 0..<count { require(Identifier.isUser(try reader.string()), .user) }
  }

  private mutating func countMembers(_ count: Int) -> Bool {
    members += count
    return members <= membersMax
  }

  /// Read values of options.
  ///
  /// - Returns: whether they are in range; else what follows them cannot be read.
  @_lifetime(reader: copy reader)
  private mutating func values(
    _ reader: inout FieldReader,
    _ field: InvalidFrameField,
    _ read: (inout FieldReader) throws(WireError) -> Void
  ) throws(WireError) -> Bool {
    do throws(WireError) {
      try read(&reader)
      return true
    } catch .badValue(.option), .badValue(.optionValue) {
      refuse(field)
      return false
    } catch {
      throw error
    }
  }
}
