import NIOCore
import ReceiptModel
import ReceiptWire

/// Requests about channel types and about users' settings: state that every shard has, versioned by a home shard
/// (Proto/frames.md, "Requests").
extension ShardEngine {
  /// Versions rise by one; the largest may not be handed in, or the next change would have none.
  private static let versionMax = UInt64(1) << 62

  // MARK: Channel types

  /// A request about channel types.
  func performType(_ header: FrameHeader, _ payload: RawSpan, _ lane: ReplyLane) throws(WireError) {
    var reader = FieldReader(payload)
    if header.kind == .listChannelTypes {
      try reader.end()
      let records = state.typesSet.sorted { $0.name < $1.name }
      reply(header, departure(dirty.typesLast), lane) { buffer in
        buffer.writeVarint(records.count)
        for record in records { buffer.writeChannelTypeRecord(record) }
      }
      return
    }
    let name = try reader.text()
    guard Self.isValid(name, Identifier.isType) else {
      return refuse(header, .invalidField, "type: 1 to 64 of A-Z a-z 0-9 _ -", lane)
    }
    if header.kind.isCommand {
      let counter = try Self.counter(&reader)
      if header.kind == .patchChannelType {
        let patch = try reader.optionPatch()
        try reader.end()
        let command = takeUp(counter, lane)
        guard state.channelType(name).version > 0 || state.hasRoomForType else {
          return refuse(header, .limitReached(.channelTypes), nil, lane, command)
        }
        _ = state.advance(clock: loop.clock)
        state.decidePatch(type: name, patch, into: &effects)
        finish(nil, command)
      } else {
        let version = try reader.varint()
        let options = try reader.options()
        try reader.end()
        let command = takeUp(counter, lane)
        guard version <= Self.versionMax else {
          noteRefused(command)
          return refuse(header, .invalidField, "version: at most \(Self.versionMax)", lane)
        }
        _ = state.advance(clock: loop.clock)
        state.decideAssign(
          type: ChannelTypeRecord(name: name, version: version, options: options),
          into: &effects
        )
        finish(nil, command)
      }
    } else {
      try reader.end()
    }
    reply(header, departure(dirty.typesLast), lane) { $0.writeChannelTypeRecord(state.channelType(name)) }
  }

  // MARK: Tokens

  /// Notes when the token was issued of the user for whom the request at hand is made, which stands behind its fields.
  ///
  /// - Returns: how many bytes the fields have.
  @inline(__always)
  func takeIssued(_ header: FrameHeader, _ payload: RawSpan) throws(WireError) -> Int {
    guard header.flags.contains(.issued) else {
      issued = nil
      return payload.byteCount
    }
    let count = payload.byteCount - FrameHeader.issuedByteCount
    guard count >= 0 else { throw .truncated }
    issued = UInt32(bigEndian: payload.unsafeLoadUnaligned(fromByteOffset: count, as: UInt32.self))
    return count
  }

  /// Whether the request at hand is made for this user with a token that they have revoked.
  @inline(__always)
  func isRevoked(_ user: RawSpan) -> Bool {
    guard let issued else { return false }
    return state.isRevoked(user, issued: issued)
  }

  // MARK: Users' settings

  /// A request about users' settings, or about what is settled.
  func performSettings(_ header: FrameHeader, _ payload: RawSpan, _ lane: ReplyLane) throws(WireError) {
    var reader = FieldReader(payload)
    switch header.kind {
    case .patchUser: try patchUser(header, &reader, lane)
    case .assignUser: try assignUser(header, &reader, lane)
    case .getUser: try getUser(header, &reader, lane)
    case .settle: try settle(header, &reader, lane)
    case .listUnsettled: try listUnsettled(header, &reader, lane)
    default: throw .unknownKind(header.kind.rawValue)
    }
  }

  private func patchUser(
    _ header: FrameHeader,
    _ reader: inout FieldReader,
    _ lane: ReplyLane
  ) throws(WireError) {
    let name = try reader.string()
    let counter = try Self.counter(&reader)
    let given = try reader.varint()
    let values = try reader.varint()
    let revoked = try reader.time()
    try reader.end()
    let command = takeUp(counter, lane)
    var fault: String?
    if !Identifier.isUser(name) {
      fault = Self.userRange
    } else if given > 8 {
      fault =
        "given: 1 (read receipts), 2 (delivery receipts), 4 (tokens revoked before) and their sums, or 8 (erase)"
    } else if values & ~(given & 3) != 0 {
      fault = "values: 1 and 2, of what is given"
    } else if given & 4 == 0, revoked != .none {
      fault = "tokens revoked before: 0 where it is not given"
    }
    if let fault { return refuseField(header, fault, lane, command) }
    guard isHome(name) else { return refuseElsewhere(header, lane, command) }
    guard !isRevoked(name) else { return refuse(header, .tokenRevoked, nil, lane, command) }
    let user = Self.text(name)
    guard given != 8 else {
      if command.isCovered || !loop.driver.keepsErasureLedger {
        return beginErasing(header, user, command, lane)
      }
      return recordErasure(header, user, command, lane)
    }
    guard !state.isErasing(name) else { return refuse(header, .userErased, nil, lane, command) }
    let patch = UserSettingsPatch(
      showsRead: given & 1 == 0 ? nil : values & 1 != 0,
      showsDelivered: given & 2 == 0 ? nil : values & 2 != 0,
      tokensRevokedBefore: given & 4 == 0 ? nil : revoked
    )
    state.decidePatch(user: user, patch, at: state.advance(clock: loop.clock), into: &effects)
    finish(nil, command)
    noteUnsettled(user)
    replySettings(header, user, lane)
  }

  /// From here on the user is being erased.
  func beginErasing(_ header: FrameHeader, _ user: String, _ command: CommandPlace, _ lane: ReplyLane) {
    _ = state.advance(clock: loop.clock)
    state.decideErasing(user: user, into: &effects)
    finish(nil, command)
    noteUnsettled(user)
    replyErasing(header, user, lane)
  }

  private func assignUser(
    _ header: FrameHeader,
    _ reader: inout FieldReader,
    _ lane: ReplyLane
  ) throws(WireError) {
    let name = try reader.string()
    let counter = try Self.counter(&reader)
    let version = try reader.varint()
    let flags = try reader.varint()
    let readShownSince = try reader.time()
    let deliveredShownSince = try reader.time()
    let revoked = try reader.time()
    try reader.end()
    let command = takeUp(counter, lane)
    var fault: String?
    if !Identifier.isUser(name) {
      fault = Self.userRange
    } else if version > Self.versionMax {
      fault = "version: at most \(Self.versionMax)"
    } else if flags > 8 {
      fault =
        "flags: 1 (hides read receipts), 2 (hides delivery receipts), 4 (is being erased) and their sums, or 8 (is erased)"
    }
    if let fault { return refuseField(header, fault, lane, command) }
    let user = Self.text(name)
    let time = state.advance(clock: loop.clock)
    guard flags != 8 else {
      let number = state.settings.find(user)
      state.decideErased(user: user, version: version, at: time, into: &effects)
      finish(nil, command)
      if let number, state.settings.isNameless(number) { unsettledUsers.remove(number) }
      return replySettings(header, user, lane)
    }
    let settings = UserSettings(
      user: user,
      version: version,
      hidesRead: flags & 1 != 0,
      hidesDelivered: flags & 2 != 0,
      readShownSince: readShownSince,
      deliveredShownSince: deliveredShownSince,
      tokensRevokedBefore: revoked,
      isErasing: flags & 4 != 0
    )
    state.decideAssign(user: settings, into: &effects)
    finish(nil, command)
    if isHome(name) { noteUnsettled(user) }
    if state.isErasing(name) { replyErasing(header, user, lane) } else { replySettings(header, user, lane) }
  }

  private func getUser(
    _ header: FrameHeader,
    _ reader: inout FieldReader,
    _ lane: ReplyLane
  ) throws(WireError) {
    let name = try reader.string()
    try reader.end()
    guard Identifier.isUser(name) else { return refuse(header, .invalidField, Self.userRange, lane) }
    guard !isRevoked(name) else { return refuse(header, .tokenRevoked, nil, lane) }
    let user = Self.text(name)
    if state.isErasing(name) { replyErasing(header, user, lane) } else { replySettings(header, user, lane) }
  }

  /// That a user is being erased is told when their index has all channels that they came to know before: those are to
  /// forget them.
  private func replyErasing(_ header: FrameHeader, _ user: String, _ lane: ReplyLane) {
    replyWhenTaken(header, dirty.usersLast, lane) { $0.writeUserSettings(state.userSettings(user)) }
  }

  private func replySettings(_ header: FrameHeader, _ user: String, _ lane: ReplyLane) {
    reply(header, departure(dirty.usersLast), lane) { $0.writeUserSettings(state.userSettings(user)) }
  }

  // MARK: Settling

  private func settle(
    _ header: FrameHeader,
    _ reader: inout FieldReader,
    _ lane: ReplyLane
  ) throws(WireError) {
    let name = try reader.string()
    let counter = try Self.counter(&reader)
    let what = try reader.byte()
    let version = try reader.varint()
    try reader.end()
    let command = takeUp(counter, lane)
    let isUser = what == 1
    var fault: String?
    if what > 1 {
      fault = "what: 0 (channel type) or 1 (user)"
    } else if isUser, !Identifier.isUser(name) {
      fault = Self.userRange
    } else if !isUser, !Identifier.isType(name) {
      fault = "type: 1 to 64 of A-Z a-z 0-9 _ -"
    } else if version > Self.versionMax {
      fault = "version: at most \(Self.versionMax)"
    }
    if let fault { return refuseField(header, fault, lane, command) }
    guard isHome(name) else { return refuseElsewhere(header, lane, command) }
    let text = Self.text(name)
    let isSettled =
      isUser
      ? state.decideSettle(user: text, version: version, into: &effects)
      : state.decideSettle(type: text, version: version, into: &effects)
    finish(nil, command)
    if isUser, isSettled, let number = state.settings.find(text) { unsettledUsers.remove(number) }
    reply(header, departure(isUser ? dirty.usersLast : dirty.typesLast), lane) {
      $0.writeInteger(UInt8(isSettled ? 1 : 0))
    }
  }

  /// What this shard is home to and is not known to have reached all others: whoever asks goes on with it.
  private func listUnsettled(
    _ header: FrameHeader,
    _ reader: inout FieldReader,
    _ lane: ReplyLane
  ) throws(WireError) {
    try reader.end()
    let types = state.typesSet.filter { type in
      guard !type.isSettled else { return false }
      return Self.isValid(type.name) { isHome($0) }
    }
    .sorted { $0.name < $1.name }.prefix(Self.unsettledMax)
    let users = unsettledUsers.sorted().prefix(Self.unsettledMax)
    reply(header, departure(max(dirty.typesLast, dirty.usersLast)), lane) { buffer in
      buffer.writeVarint(types.count)
      for type in types { buffer.writeChannelTypeRecord(type) }
      buffer.writeVarint(users.count)
      for user in users { buffer.writeUserSettings(state.settings[user]) }
    }
  }

  /// Of each, in one answer.
  private static let unsettledMax = 256

  /// A change of a user's settings is not in all shards yet.
  private func noteUnsettled(_ user: String) {
    guard let number = state.settings.find(user), !state.settings.isSettled(number) else { return }
    unsettledUsers.insert(number)
  }

  /// The users whose home this shard is and whose settings are not settled, once at the start.
  func findUnsettled() {
    for number in 0..<UInt32(state.settings.count) where !state.settings.isSettled(number) {
      if state.settings.withUser(number, { isHome($0) }) { unsettledUsers.insert(number) }
    }
  }

  // MARK: Details

  func isHome(_ name: RawSpan) -> Bool { ShardID.owning(name, count: shardCount) == state.id }

  private func refuseField(
    _ header: FrameHeader,
    _ detail: String,
    _ lane: ReplyLane,
    _ command: CommandPlace
  ) {
    noteRefused(command)
    refuse(header, .invalidField, detail, lane)
  }

  private func refuseElsewhere(_ header: FrameHeader, _ lane: ReplyLane, _ command: CommandPlace) {
    noteRefused(command)
    refuse(header, .wrongShard, "another shard is the home", lane)
  }

  static let userRange = "user: 1 to 255 bytes of UTF-8 without control characters"

  /// Of an identifier that was checked.
  private static func text(_ name: RawSpan) -> String {
    name.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
  }
}
