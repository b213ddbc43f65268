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
  /// Name and range of the first field that is out of range; nil: all are in range.
  let invalid: StaticString?

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
    if !Identifier.isCID(cid) { check.refuse(Identifier.cidRange) }
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
      guard !thread.isEmpty else { throw .badValue(.text) }
      if !Identifier.isMessage(thread) { check.refuse(Identifier.threadRange) }
    } else {
      thread = payload.extracting(0..<0)
    }
    try reader.end()
    invalid = check.invalid
  }
}

/// Parser of fields, which checks their ranges.
private struct FieldCheck {
  private let entriesMax: Int
  private let membersMax: Int
  private let noteBytesMax: Int
  /// Members named so far, both added and removed.
  private var members = 0
  /// Name and range of the first field that is out of range.
  private(set) var invalid: StaticString?

  init(_ limits: GatewayLimits) {
    entriesMax = limits.entriesPerRequest
    membersMax = limits.membersPerRequest
    noteBytesMax = limits.noteBytes
  }

  mutating func refuse(_ range: StaticString) {
    if invalid == nil { invalid = range }
  }

  @inline(__always)
  private mutating func require(_ isInRange: Bool, _ range: StaticString) {
    if !isInRange { refuse(range) }
  }

  /// Parse one field. False where the rest of the payload cannot be parsed, although the field is complete.
  ///
  /// - Throws: where the field is malformed.
  @_lifetime(reader: copy reader)
  mutating func read(_ field: FrameRule.Field, _ reader: inout FieldReader) throws(WireError) -> Bool {
    switch field {
    case .user: require(Identifier.isUser(try reader.string()), Identifier.userRange)
    case .userOrNone:
      let user = try reader.string()
      require(user.isEmpty || Identifier.isUser(user), Identifier.userRange)
    case .message: require(Identifier.isMessage(try reader.string()), Identifier.messageRange)
    case .messageOrNone:
      let message = try reader.string()
      require(message.isEmpty || Identifier.isMessage(message), Identifier.messageRange)
    case .roleOrNone:
      let role = try reader.string()
      require(role.isEmpty || Identifier.isRole(role), Identifier.roleRange)
    case .memberFlags:
      let flags = try reader.varint()
      require(
        flags <= 7 && (flags & 1 != 0 || flags & 2 == 0),
        "flags: 1 (mute given), 2 (mute, with 1), 4 (joins) and their sums"
      )
    case .created:
      require(
        (1...FrameRule.timeMax).contains(try reader.time().milliseconds),
        "time created: given, up to the year 9999"
      )
    case .acked: require(try reader.time().milliseconds <= FrameRule.timeMax, FrameRule.ackedRange)
    case .optionalNumber: _ = try reader.optional32()
    case .registrationFlags:
      let flags = try reader.varint()
      require(
        flags <= 23,
        "flags: 1 (silent), 2 (receipt), 4 (moves no position), 8 (mentions all) or 16 (mentions follow)"
      )
      if flags & 24 == 16 {
        let count = try reader.count()
        require((1...WireLimits.mentionsMax).contains(count), "mentions: 1 to 100 users")
        for _ in 0..<count { require(Identifier.isUser(try reader.string()), Identifier.userRange) }
      }
    case .namesFlag: require(try reader.varint() <= 1, FrameRule.namesRange)
    case .viewer:
      require(try reader.varint() <= 1, "viewer flags: 0 or 1")
      let user = try reader.string()
      require(user.isEmpty || Identifier.isUser(user), Identifier.userRange)
    case .limit: require((1...UInt64(WireLimits.pageMax)).contains(try reader.varint()), "limit: 1 to 100")
    case .listCursor:
      let cursor = try reader.string()
      require(cursor.isEmpty || ListCursorText.isOne(cursor), "cursor: a cursor from an earlier page")
    case .memberList: require(try reader.byte() <= 4, "list: 0 to 4")
    case .listOrder: require(try reader.byte() <= 2, "order: 0 to 2")
    case .note: require(isNote(try reader.string()), "note: at most 1,024 bytes of UTF-8")
    case .messages: try messages(&reader)
    case .users: try users(&reader)
    case .members: try members(&reader)
    case .removedMembers: try removedMembers(&reader)
    case .options: return try options(&reader)
    }
    return true
  }

  private func isNote(_ note: RawSpan) -> Bool {
    note.byteCount <= noteBytesMax && note.withUnsafeBytes { String(validating: $0, as: UTF8.self) != nil }
  }

  @_lifetime(reader: copy reader)
  private mutating func messages(_ reader: inout FieldReader) throws(WireError) {
    let count = try reader.count()
    require((1...entriesMax).contains(count), "messages: 1 to 100")
    for _ in 0..<count { require(Identifier.isMessage(try reader.string()), Identifier.messageRange) }
  }

  @_lifetime(reader: copy reader)
  private mutating func users(_ reader: inout FieldReader) throws(WireError) {
    let count = try reader.count()
    require((1...entriesMax).contains(count), "users: 1 to 100")
    for _ in 0..<count { require(Identifier.isUser(try reader.string()), Identifier.userRange) }
  }

  @_lifetime(reader: copy reader)
  private mutating func members(_ reader: inout FieldReader) throws(WireError) {
    let count = try reader.count(elementBytesMin: 2)
    require(countMembers(count), Self.memberCount)
    for _ in 0..<count {
      require(Identifier.isUser(try reader.string()), Identifier.userRange)
      let role = try reader.string()
      require(role.isEmpty || Identifier.isRole(role), Identifier.roleRange)
    }
  }

  @_lifetime(reader: copy reader)
  private mutating func removedMembers(_ reader: inout FieldReader) throws(WireError) {
    let count = try reader.count()
    require(countMembers(count), Self.memberCount)
    for _ in 0..<count { require(Identifier.isUser(try reader.string()), Identifier.userRange) }
  }

  private static let memberCount: StaticString = "members: at most 1,000 in a request"

  private mutating func countMembers(_ count: Int) -> Bool {
    members += count
    return members <= membersMax
  }

  @_lifetime(reader: copy reader)
  private mutating func options(_ reader: inout FieldReader) throws(WireError) -> Bool {
    do throws(WireError) {
      _ = try reader.optionPatch()
      return true
    } catch .badValue(.option), .badValue(.optionValue) {
      refuse("options: in rising order of their numbers, each with a value that it takes")
      return false
    } catch {
      throw error
    }
  }
}
