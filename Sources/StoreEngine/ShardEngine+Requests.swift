import NIOCore
import ReceiptModel
import ReceiptWire

/// Requests: fields are read whole, then decided, carried out and answered from the state (Proto/frames.md,
/// "Requests").
extension ShardEngine {
  /// A request has come in. Throws where its payload does not parse: the connection ends.
  func receive(_ header: FrameHeader, _ payload: RawSpan, _ lane: ReplyLane) throws(WireError) {
    if let code = loop.commandRefusal, try refuses(header, payload, lane, code) { return }
    if try postpones(header, payload, lane) { return }
    try receiveNow(header, payload, lane)
  }

  /// How soon a command that is refused for the whole store may be sent again.
  private static let refusedRetryMilliseconds: UInt32 = 10_000

  /// Refuses a command; it stays open, and sent again it is decided. One that was applied before is answered as that.
  ///
  /// - Returns: false for what is no such command.
  private func refuses(
    _ header: FrameHeader,
    _ payload: RawSpan,
    _ lane: ReplyLane,
    _ code: ErrorCode
  ) throws(WireError) -> Bool {
    guard header.kind.isCommand else { return false }
    let counter = try Self.counter(of: header.kind, payload)
    // First: it takes in a session that is new here.
    let session = sessionPosition(lane)
    guard !sessions.covers(counter, at: session) else { return false }
    refuseUndecided(header, counter, code, Self.refusedRetryMilliseconds, "", lane)
    return true
  }

  /// A command's counter, where its fields begin: behind a name, but in a ticket's.
  private static func counter(of kind: FrameKind, _ payload: RawSpan) throws(WireError) -> UInt64 {
    var reader = FieldReader(payload)
    if kind != .redeemTicket, kind != .presentTicket { _ = try reader.string() }
    return try counter(&reader)
  }

  /// A request that is not postponed, or was.
  func receiveNow(_ header: FrameHeader, _ payload: RawSpan, _ lane: ReplyLane) throws(WireError) {
    let fields = try takeIssued(header, payload)
    guard !header.flags.contains(.thread) || header.kind.takesThread else {
      throw .badFlags(header.flags.rawValue)
    }
    switch header.kind {
    case .patchChannelType, .assignChannelType, .getChannelType, .listChannelTypes:
      try performType(header, payload.extracting(first: fields), lane)
    case .patchUser, .assignUser, .getUser, .settle, .listUnsettled:
      try performSettings(header, payload.extracting(first: fields), lane)
    case .purge:
      try performPurge(header, payload.extracting(first: fields), lane)
    case .listChannels:
      try listChannels(header, payload, lane)
    case .rebuildIndex:
      try rebuildIndex(header, payload.extracting(first: fields), lane)
    case .unreadCounts:
      try unreadCounts(header, payload.extracting(first: fields), lane)
    case .subscribe, .unsubscribe, .subscribeUser, .announceRow:
      try performEvents(header, payload.extracting(first: fields), lane)
    case .redeemTicket:
      try redeemTicket(header, payload, lane)
    case .webhookKnown, .noteWebhook, .presentTicket:
      try performPush(header, payload.extracting(first: fields), lane)
    case .getToken, .listRevokedTokens, .revokeToken:
      try performTokens(header, payload.extracting(first: fields), lane)
    default:
      var reader = FieldReader(payload.extracting(first: fields))
      let cid = try reader.string()
      if let slot = state.slot(of: cid) {
        try perform(header, &reader, slot, lane)
      } else if !Identifier.isCID(cid) {
        refuse(header, .invalidField, Self.cidRange, lane)
      } else if ShardID.owning(cid, count: shardCount) != state.id {
        refuse(header, .wrongShard, "the cid is of another shard", lane)
      } else if isDeleted(cid) {
        try perform(header, payload, lane)
      } else {
        try wait(header, payload, cid: cid, lane: lane)
      }
    }
  }

  static let cidRange =
    "cid: 1 to 64 of A-Z a-z 0-9 _ -, a colon, 1 to 255 bytes of UTF-8 without control characters"

  /// A request whose channel was looked for: it is in memory, or there is none.
  func perform(_ header: FrameHeader, _ payload: RawSpan, _ lane: ReplyLane) throws(WireError) {
    if header.kind == .listChannels { return try listChannels(header, payload, lane, isLookedFor: true) }
    if header.kind == .redeemTicket { return try redeemTicket(header, payload, lane, .lookedFor) }
    var reader = FieldReader(payload.extracting(first: try takeIssued(header, payload)))
    let cid = try reader.string()
    if let slot = state.slot(of: cid) {
      try perform(header, &reader, slot, lane)
    } else if header.kind == .putChannel {
      try putChannel(header, &reader, cid: cid, nil, lane)
    } else if header.kind == .deleteChannel || header.kind == .eraseMember {
      try performAbsent(header, &reader, departure(absent: cid), lane)
    } else {
      try refuseAbsent(header, &reader, lane, departure(absent: cid))
    }
  }

  /// Refuses a request about a channel that does not exist. A revoked token is refused first, as it is where the
  /// channel exists.
  func refuseAbsent(
    _ header: FrameHeader,
    _ reader: inout FieldReader,
    _ lane: ReplyLane,
    _ departure: ReplyLane.Departure
  ) throws(WireError) {
    if header.kind.isCommand { noteRefused(takeUp(try Self.counter(&reader), lane)) }
    var isRevoked = false
    switch header.kind {
    case .readState, .statuses, .listMembers, .memberStatuses, .listRoster, .threadReadState:
      _ = try reader.varint()
      isRevoked = self.isRevoked(try reader.string())
    case .markRead, .markUnread, .markDelivered, .acknowledge, .markUnreadSince, .setMember, .userReceipts,
      .userThreads:
      isRevoked = self.isRevoked(try reader.string())
    default: break
    }
    if isRevoked { return refuse(header, .tokenRevoked, nil, lane) }
    refuse(header, .channelNotFound, "", lane, departure)
  }

  private func perform(
    _ header: FrameHeader,
    _ reader: inout FieldReader,
    _ slot: ChannelSlot,
    _ lane: ReplyLane
  ) throws(WireError) {
    if state[slot].isEnding { return try performEnding(header, &reader, slot, lane) }
    clock.touch(slot)
    state.refresh(slot)
    switch header.kind {
    case .markRead, .markUnread, .markDelivered: try mark(header, &reader, slot, lane)
    case .markUnreadSince: try markUnreadSince(header, &reader, slot, lane)
    case .registerMessage: try register(header, &reader, slot, lane)
    case .acknowledgePush: try acknowledgePush(header, &reader, slot, lane)
    case .ticketPlace: try ticketPlace(header, &reader, slot, lane)
    case .acknowledge: try acknowledge(header, &reader, slot, lane)
    case .deleteMessage: try deleteMessage(header, &reader, slot, lane)
    case .truncateChannel: try truncateChannel(header, &reader, slot, lane)
    case .deleteChannel: try deleteChannel(header, &reader, slot, lane)
    case .eraseMember: try eraseMember(header, &reader, slot, lane)
    case .putChannel: try putChannel(header, &reader, cid: RawSpan(), slot, lane)
    case .changeMembers: try changeMembers(header, &reader, slot, lane)
    case .setMember: try setMember(header, &reader, slot, lane)
    case .getChannel:
      try reader.end()
      reply(header, departure(slot), lane) { $0.writeChannel(slot, in: state) }
    case .readState: try readState(header, &reader, slot, lane)
    case .threadReadState: try threadReadState(header, &reader, slot, lane)
    case .userReceipts: try userReceipts(header, &reader, slot, lane)
    case .userThreads: try userThreads(header, &reader, slot, lane)
    case .statuses: try statuses(header, &reader, slot, lane)
    case .listMembers: try listMembers(header, &reader, slot, lane)
    case .memberStatuses: try memberStatuses(header, &reader, slot, lane)
    case .listRoster: try listRoster(header, &reader, slot, lane)
    case .listMessages: try listMessages(header, &reader, slot, lane)
    default: throw .unknownKind(header.kind.rawValue)
    }
  }

  // MARK: Positions

  /// Mark-read, mark-unread and mark-delivered, in a channel or in one of its threads.
  private func mark(
    _ header: FrameHeader,
    _ reader: inout FieldReader,
    _ slot: ChannelSlot,
    _ lane: ReplyLane
  ) throws(WireError) {
    let counter = try Self.counter(&reader)
    let user = try reader.string()
    let message = try reader.string()
    let epoch = header.kind == .markDelivered ? nil : try reader.optional32()
    let thread = try Self.thread(header, &reader)
    try reader.end()
    let command = takeUp(counter, lane)
    guard admits(user, header, slot, lane, command) else { return }
    guard thread.isEmpty else {
      return mark(header, slot, lane, command, under: thread, user: user, message: message, epoch: epoch)
    }
    let marked: ShardState.MarkedPlace
    do throws(Refusal) {
      let time = state.advance(clock: loop.clock)
      switch header.kind {
      case .markRead:
        marked = try state.decideRead(
          slot,
          user: user,
          message: message,
          epoch: epoch,
          at: time,
          into: &effects
        )
      case .markDelivered:
        marked = try state.decideDelivered(slot, user: user, message: message, at: time, into: &effects)
      default:
        marked = ShardState.MarkedPlace(
          row: message.isEmpty
            ? try state.decideFlagUnread(slot, user: user, epoch: epoch, into: &effects)
            : try state.decideUnread(slot, user: user, message: message, epoch: epoch, into: &effects)
        )
      }
    } catch {
      // A reply's id says by itself which thread is meant.
      if error == .messageNotFound, let thread = state.thread(withReply: message, in: slot, for: user) {
        return mark(header, slot, lane, command, in: thread, user: user, message: message, epoch: epoch)
      }
      return refuse(header, error, slot, lane, command)
    }
    // Where it names its message, moving to it says that this was not done; the newest may be another by now, and a
    // marker may have been set again.
    guard !command.isCovered || message.isEmpty || !effects.contains(where: \.movesWatermark) else {
      return refuseApplied(header, lane)
    }
    finish(slot, command)
    reply(header, departure(slot), lane) { buffer in
      buffer.writeRow(state.ownRow(slot, marked.row), slot, in: state)
      if let uncounted = state.uncounted(marked, in: slot) { buffer.writeInteger(uncounted.rawValue) }
    }
  }

  // MARK: Messages

  private func register(
    _ header: FrameHeader,
    _ reader: inout FieldReader,
    _ slot: ChannelSlot,
    _ lane: ReplyLane
  ) throws(WireError) {
    let counter = try Self.counter(&reader)
    let id = try reader.string()
    let sender = try reader.string()
    let created = try reader.time()
    let flags = try reader.varint()
    let mentions = try Self.mentions(flags, &reader)
    let thread = try Self.thread(header, &reader)
    try reader.end()
    let command = takeUp(counter, lane)
    guard Identifier.isMessage(id) else {
      noteRefused(command)
      return refuse(
        header,
        .invalidField,
        "message: 1 to 255 bytes of UTF-8 without control characters",
        lane
      )
    }
    guard sender.isEmpty || Identifier.isUser(sender) else {
      noteRefused(command)
      return refuse(header, .invalidField, Self.userRange, lane)
    }
    guard flags <= 23 else {
      noteRefused(command)
      let range =
        "flags: 1 (silent), 2 (receipt), 4 (moves no position), 8 (mentions all) or 16 (mentions follow)"
      return refuse(header, .notImplemented, range, lane)
    }
    if case .users(let users) = mentions {
      guard (1...Self.mentionsMax).contains(users.count),
        users.allSatisfy({ Self.isValid($0, Identifier.isUser) })
      else {
        noteRefused(command)
        return refuse(header, .invalidField, "mentions: 1 to \(Self.mentionsMax) users", lane)
      }
    }
    if case .users(let users) = mentions, !command.isCovered, !slicedQueries.isEmpty,
      users.contains(where: { isBeingErased($0, in: slot) })
    {
      return refuseErasing(header, command, lane)
    }
    let registration: ShardState.Registration
    guard
      command.isCovered || !state.outbox.isFull || !state.isNew(sender, in: slot)
    else { return refuseFull(header, command, lane) }
    guard command.isCovered || !isBeingErased(sender, in: slot) else {
      return refuseErasing(header, command, lane)
    }
    let time = state.advance(clock: loop.clock)
    do throws(Refusal) {
      if thread.isEmpty {
        registration = try state.decideRegister(
          slot,
          id: id,
          sender: sender,
          created: created,
          isSilent: flags & 1 != 0,
          wantsReceipt: flags & 2 != 0,
          movesPosition: flags & 4 == 0,
          mentions: mentions,
          at: time,
          into: &effects
        )
      } else {
        registration = try state.decideReply(
          slot,
          to: thread,
          id: id,
          sender: sender,
          created: created,
          isSilent: flags & 1 != 0,
          wantsReceipt: flags & 2 != 0,
          movesPosition: flags & 4 == 0,
          mentions: mentions,
          at: time,
          into: &effects
        )
      }
    } catch {
      // It was applied, or refused so long ago that nobody knows: its sender may have been erased since.
      if command.isCovered, error == .messageConflict { return refuseApplied(header, lane) }
      return refuse(header, error, slot, lane, command)
    }
    finish(slot, command)
    var isNew = false
    if case .created = registration { isNew = true }
    guard !isNew || !command.isCovered else { return refuseApplied(header, lane) }
    let place = state.place(of: id, in: slot)
    // Nobody but its sender can have read or received a message that is new.
    let status =
      isNew
      ? .sent : state.status(place, registration.sequence, viewer: state.sender(sender, in: place)).status
    replyIndexed(header, slot, lane) { buffer in
      buffer.writeInteger(UInt8(isNew ? 1 : 0))
      buffer.writeSequence(registration.sequence)
      buffer.writeInteger(status.rawValue)
      buffer.writeInteger(state.receiptRefusal(place, registration.sequence).rawValue)
    }
  }

  /// Users that one message may mention by name.
  static let mentionsMax = 100

  /// Whom a message mentions, behind the flags that say so.
  private static func mentions(
    _ flags: UInt64,
    _ reader: inout FieldReader
  ) throws(WireError) -> ShardState.NewMentions {
    if flags & 8 != 0 { return .all }
    guard flags & 16 != 0 else { return .nobody }
    var users: [String] = []
    for _ in 0..<(try reader.count()) { users.append(try reader.text()) }
    return .users(users)
  }

  private func deleteMessage(
    _ header: FrameHeader,
    _ reader: inout FieldReader,
    _ slot: ChannelSlot,
    _ lane: ReplyLane
  ) throws(WireError) {
    let counter = try Self.counter(&reader)
    let id = try reader.string()
    try reader.end()
    let command = takeUp(counter, lane)
    let sequence: SequenceNumber
    do {
      sequence = try state.decideDelete(slot, id: id, at: state.advance(clock: loop.clock), into: &effects)
    } catch {
      return refuse(header, error, slot, lane, command)
    }
    finish(slot, command)
    reply(header, departure(slot), lane) { $0.writeSequence(sequence) }
  }

  // MARK: Channels

  private func putChannel(
    _ header: FrameHeader,
    _ reader: inout FieldReader,
    cid: RawSpan,
    _ slot: ChannelSlot?,
    _ lane: ReplyLane
  ) throws(WireError) {
    let counter = try Self.counter(&reader)
    let patch = try reader.optionPatch()
    let members = try newMembers(&reader)
    try reader.end()
    loop.entriesLeft -= members.count
    let command = takeUp(counter, lane)
    if let invalid = Self.invalid(members) {
      noteRefused(command)
      return refuse(header, .invalidField, invalid, lane)
    }
    guard command.isCovered || members.isEmpty || !state.outbox.isFull else {
      return refuseFull(header, command, lane)
    }
    guard command.isCovered || !areErased(members, in: slot) else {
      return refuseErasing(header, command, lane)
    }
    let time = state.advance(
      clock: loop.clock,
      forMembersOf: members.isEmpty || command.isCovered ? nil : slot
    )
    var slot = slot
    let isNew = slot == nil
    do throws(Refusal) {
      if let slot {
        try state.decideUpdate(slot, options: patch, members: members, at: time, into: &effects)
      } else if command.isCovered {
        // It was carried out, and the channel is gone since.
        throw Refusal.channelNotFound
      } else {
        let cid = cid.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
        try state.decideCreate(cid: cid, options: patch, members: members, at: time, into: &effects)
      }
    } catch {
      return refuse(header, error, slot, lane, command)
    }
    slot = finish(slot, command)
    guard let slot else { preconditionFailure("a created channel has a slot") }
    replyIndexed(header, slot, lane) { buffer in
      buffer.writeInteger(UInt8(isNew ? 1 : 0))
      buffer.writeChannel(slot, in: state)
    }
  }

  private func changeMembers(
    _ header: FrameHeader,
    _ reader: inout FieldReader,
    _ slot: ChannelSlot,
    _ lane: ReplyLane
  ) throws(WireError) {
    let counter = try Self.counter(&reader)
    let add = try newMembers(&reader)
    var remove: [String] = []
    for _ in 0..<(try reader.count()) { remove.append(try reader.text()) }
    try reader.end()
    loop.entriesLeft -= add.count + remove.count
    let command = takeUp(counter, lane)
    if let invalid = Self.invalid(add) {
      noteRefused(command)
      return refuse(header, .invalidField, invalid, lane)
    }
    guard command.isCovered || !state.outbox.isFull else { return refuseFull(header, command, lane) }
    guard command.isCovered || !areErased(add, in: slot) else { return refuseErasing(header, command, lane) }
    do {
      try state.decideMembers(
        slot,
        add: add,
        remove: remove,
        at: state.advance(clock: loop.clock, forMembersOf: add.isEmpty || command.isCovered ? nil : slot),
        into: &effects
      )
    } catch {
      return refuse(header, error, slot, lane, command)
    }
    finish(slot, command)
    replyIndexed(header, slot, lane) { $0.writeChannel(slot, in: state) }
  }

  /// One member's role, and whether they keep the channel out of their totals.
  private func setMember(
    _ header: FrameHeader,
    _ reader: inout FieldReader,
    _ slot: ChannelSlot,
    _ lane: ReplyLane
  ) throws(WireError) {
    let counter = try Self.counter(&reader)
    let member = ShardState.NewMember(user: try reader.text(), role: try reader.text())
    let flags = try reader.varint()
    try reader.end()
    let command = takeUp(counter, lane)
    var user = member.user
    guard user.withUTF8({ admits($0.span.bytes, header, slot, lane, command) }) else { return }
    guard flags <= 7, flags & 1 != 0 || flags & 2 == 0 else {
      noteRefused(command)
      return refuse(
        header,
        .invalidField,
        "flags: 1 (mute given), 2 (mute, with 1), 4 (joins) and their sums",
        lane
      )
    }
    if let invalid = Self.invalid([member]) {
      noteRefused(command)
      return refuse(header, .invalidField, invalid, lane)
    }
    guard command.isCovered || !state.outbox.isFull else { return refuseFull(header, command, lane) }
    guard command.isCovered || !areErased([member], in: slot) else {
      return refuseErasing(header, command, lane)
    }
    let decided: (row: MemberOrdinal, isNew: Bool)
    do throws(Refusal) {
      decided = try state.decideMember(
        slot,
        user: member.user,
        role: member.role,
        isMuted: flags & 1 == 0 ? nil : flags & 2 != 0,
        joins: flags & 4 != 0,
        at: state.advance(clock: loop.clock, forMembersOf: flags & 4 == 0 || command.isCovered ? nil : slot),
        into: &effects
      )
    } catch {
      return refuse(header, error, slot, lane, command)
    }
    // They are not there any more: nothing is left to answer from.
    guard !command.isCovered || !decided.isNew else { return refuseApplied(header, lane) }
    finish(slot, command)
    replyIndexed(header, slot, lane) { buffer in
      buffer.writeInteger(UInt8(decided.isNew ? 1 : 0))
      SetMemberFields(
        role: state.role(slot, decided.row),
        joinedAt: state.joinedAt(slot, decided.row),
        isMuted: state[slot].rows.isMuted(decided.row)
      )
      .write(into: &buffer)
    }
  }

  /// Whether one of them is being erased in this channel.
  private func areErased(_ members: [ShardState.NewMember], in slot: ChannelSlot?) -> Bool {
    guard let slot, !slicedQueries.isEmpty else { return false }
    return members.contains { isBeingErased($0.user, in: slot) }
  }

  private func newMembers(_ reader: inout FieldReader) throws(WireError) -> [ShardState.NewMember] {
    var members: [ShardState.NewMember] = []
    for _ in 0..<(try reader.count(elementBytesMin: 2)) {
      let user = try reader.text()
      members.append(ShardState.NewMember(user: user, role: try reader.text()))
    }
    return members
  }

  private static func invalid(_ members: [ShardState.NewMember]) -> String? {
    for member in members {
      if !isValid(member.user, Identifier.isUser) { return userRange }
      if !member.role.isEmpty, !isValid(member.role, Identifier.isRole) {
        return "role: 1 to 64 of A-Z a-z 0-9 _ . -"
      }
    }
    return nil
  }

  static func isValid(_ text: String, _ check: (RawSpan) -> Bool) -> Bool {
    var text = text
    return text.withUTF8 { check($0.span.bytes) }
  }

  // MARK: Queries

  private func readState(
    _ header: FrameHeader,
    _ reader: inout FieldReader,
    _ slot: ChannelSlot,
    _ lane: ReplyLane
  ) throws(WireError) {
    let viewerFlags = try reader.varint()
    let viewer = try reader.string()
    let limit = try reader.varint()
    let cursor = try reader.optional32()
    try reader.end()
    guard viewerFlags <= 1 else { return refuse(header, .invalidField, "viewer flags: 0 or 1", lane) }
    guard (1...100).contains(limit) else { return refuse(header, .invalidField, "limit: 1 to 100", lane) }
    guard !isRevoked(viewer) else { return refuse(header, .tokenRevoked, slot, lane) }
    let page: (rows: [RowAnswer], next: UInt32?)
    do {
      page = try state.readState(
        slot,
        viewer: viewer,
        isServer: viewerFlags == 1,
        limit: Int(limit),
        cursor: cursor
      )
    } catch {
      return refuse(header, error, slot, lane)
    }
    reply(header, departure(slot), lane) { buffer in
      buffer.writeVarint(page.rows.count)
      for row in page.rows { buffer.writeRow(row, slot, in: state) }
      buffer.writeOptional(page.next.map(UInt64.init))
    }
  }

  private func statuses(
    _ header: FrameHeader,
    _ reader: inout FieldReader,
    _ slot: ChannelSlot,
    _ lane: ReplyLane
  ) throws(WireError) {
    let viewerFlags = try reader.varint()
    let viewer = try reader.string()
    let count = try reader.count()
    guard viewerFlags <= 1 else { return refuse(header, .invalidField, "viewer flags: 0 or 1", lane) }
    guard (1...100).contains(count) else { return refuse(header, .invalidField, "messages: 1 to 100", lane) }
    // Read to the end before anything is looked up, then once more.
    var messages = reader
    for _ in 0..<count { _ = try reader.string() }
    try reader.end()
    guard !isRevoked(viewer) else { return refuse(header, .tokenRevoked, slot, lane) }
    var answers: [Result<StatusAnswer, Refusal>] = []
    answers.reserveCapacity(count)
    do {
      let viewer = try state.viewer(viewer, isServer: viewerFlags == 1, in: slot)
      for _ in 0..<count {
        guard let message = try? messages.string() else { break }
        answers.append(state.askedStatus(slot, message: message, viewer: viewer))
      }
      _ = state.advance(clock: loop.clock)
      guard fillStatuses(header, reader, slot, lane, viewer, &answers) else { return }
    } catch {
      return refuse(header, error, slot, lane)
    }
    reply(header, departure(slot, saying: answers, lane), lane) { buffer in
      buffer.writeVarint(count)
      for answer in answers {
        switch answer {
        case .success(let status):
          buffer.writeInteger(UInt8(0))
          buffer.writeStatus(status)
        case .failure(let refusal):
          buffer.writeInteger(UInt8(Self.code(refusal).rawValue))
        }
      }
    }
  }

  // MARK: Sessions

  func sessionPosition(_ lane: ReplyLane) -> Int32 {
    let known = lane.sessionPositions[position]
    if known >= 0 { return known }
    let found = sessions.position(of: lane.session)
    lane.sessionPositions[position] = found
    return found
  }

  /// A command's place in its session.
  struct CommandPlace {
    var counter: UInt64
    var session: Int32
    /// It was applied before.
    var isCovered: Bool
  }

  /// Counters begin at 1. With 0, which every record covers, a command would be answered as if it had been applied.
  static func counter(_ reader: inout FieldReader) throws(WireError) -> UInt64 {
    let counter = try reader.varint()
    guard counter > 0 else { throw .badValue(.session) }
    return counter
  }

  /// Looks a command's counter up in its session: a duplicate is covered, and must not be applied again.
  func takeUp(_ counter: UInt64, _ lane: ReplyLane) -> CommandPlace {
    if !effects.isEmpty { effects.removeAll(keepingCapacity: true) }
    outgoing.before = state.outbox.last
    let session = sessionPosition(lane)
    return CommandPlace(
      counter: counter,
      session: session,
      isCovered: sessions.covers(counter, at: session)
    )
  }

  /// Carries out what was decided, unless it had been before.
  @discardableResult
  func finish(_ slot: ChannelSlot?, _ command: CommandPlace) -> ChannelSlot? {
    guard !command.isCovered else { return slot }
    sessions.decided(command.counter, at: command.session)
    guard !effects.isEmpty else { return slot }
    return carryOut(slot, session: command.session)
  }

  /// Answers `outcome_unknown` to a duplicate that would change something now: either it was applied to something that
  /// is gone, or it was refused and the session no longer remembers that.
  func refuseApplied(_ header: FrameHeader, _ lane: ReplyLane) {
    refuse(header, .outcomeUnknown, "the command's counter was taken up before", lane)
  }

  func noteRefused(_ command: CommandPlace) {
    if !command.isCovered { sessions.refused(command.counter, at: command.session) }
  }

  // MARK: Replies

  @inline(__always)
  func reply(
    _ header: FrameHeader,
    _ departure: ReplyLane.Departure,
    _ lane: ReplyLane,
    _ fields: (inout ByteBuffer) -> Void
  ) {
    let isFirst = lane.add(departure) { buffer in
      let start = buffer.beginFrame(
        FrameHeader(header.kind.reply, shard: header.shard, correlation: header.correlation)
      )
      fields(&buffer)
      buffer.endFrame(start)
    }
    if isFirst { loop.note(lane, departure) }
  }

  func refuse(
    _ header: FrameHeader,
    _ code: ErrorCode,
    retryAfterMilliseconds: UInt32 = 0,
    _ detail: String,
    _ lane: ReplyLane,
    _ departure: ReplyLane.Departure = .now
  ) {
    let isFirst = lane.add(departure) { buffer in
      buffer.writeError(
        code,
        shard: header.shard,
        correlation: header.correlation,
        retryAfterMilliseconds: retryAfterMilliseconds,
        detail: detail
      )
    }
    if isFirst { loop.note(lane, departure) }
  }

  /// A refusal is an answer from the state too, and leaves when that state is durable.
  func refuse(
    _ header: FrameHeader,
    _ refusal: Refusal,
    _ slot: ChannelSlot?,
    _ lane: ReplyLane,
    _ command: CommandPlace? = nil
  ) {
    if let command { noteRefused(command) }
    var detail = ""
    if case .limitReached(let limit) = refusal { detail = limit.rawValue }
    if refusal == .nestedReply { detail = "the parent is a reply, and a reply has no replies" }
    let departure =
      slot.map { self.departure($0) } ?? departure(max(dirty.typesLast, dirty.usersLast, deletions.last))
    let isFirst = lane.add(departure) { buffer in
      buffer.writeError(
        Self.code(refusal),
        shard: header.shard,
        correlation: header.correlation,
        detail: detail
      )
    }
    if isFirst { loop.note(lane, departure) }
  }

  static func code(_ refusal: Refusal) -> ErrorCode {
    switch refusal {
    case .channelNotFound: .channelNotFound
    case .notAMember: .notAMember
    case .notInThread: .notInThread
    case .messageNotFound: .messageNotFound
    case .messageDeleted: .messageDeleted
    case .messageConflict: .messageConflict
    case .markUnreadOff: .markUnreadOff
    case .limitReached: .limitReached
    case .tokenRevoked: .tokenRevoked
    case .orderNotAvailable: .orderNotAvailable
    case .countsNotVisible: .countsNotVisible
    case .receiptNotRequested: .receiptNotRequested
    case .ownMessage: .ownMessage
    case .receiptExpired: .receiptExpired
    case .notExpected: .notExpected
    case .invalidCursor: .invalidCursor
    case .userErased: .userErased
    case .nestedReply: .invalidField
    case .checkDiffers: .ticketInvalid
    }
  }
}

extension ByteBuffer {
  /// *row* of Proto/frames.md, in one stretch: the answer to every mark is one of these.
  ///
  /// - Parameter tellsJoin: it says what the newest message was when the member joined.
  mutating func writeRow(
    _ row: RowAnswer,
    _ slot: ChannelSlot,
    in state: borrowing ShardState,
    tellsJoin: Bool = true
  ) {
    let (read, delivered) = (row.named(row.lastReadSequence), row.named(row.lastDeliveredSequence))
    writeFields(byteCountMax: RowFields.byteCountMax) { fields in
      state.withUser(slot, row.row) { fields.string($0) }
      fields.time(row.lastRead)
      state.withMessage(slot, read) { fields.string($0) }
      fields.varint(UInt64(row.lastReadSequence.rawValue))
      fields.time(row.lastDelivered)
      state.withMessage(slot, delivered) { fields.string($0) }
      fields.varint(UInt64(row.lastDeliveredSequence.rawValue))
      var flags = tellsJoin ? RowFlags.joined : 0
      if let own = row.own {
        flags |= RowFlags.details
        if own.isOwn { flags |= RowFlags.own }
        if own.isFlaggedUnread { flags |= RowFlags.flagged }
      }
      fields.varint(flags)
      if let own = row.own {
        fields.varint(UInt64(own.unreadMessages))
        state.withMessage(slot, own.firstUnread) { fields.string($0) }
        fields.varint(UInt64(own.unreadEpoch))
        if own.isOwn { fields.varint(UInt64(own.unreadMentions)) }
      }
      if tellsJoin { fields.varint(UInt64(row.joined.rawValue)) }
    }
  }

  /// *channel* of Proto/frames.md.
  mutating func writeChannel(_ slot: ChannelSlot, in state: borrowing ShardState) {
    let newest = state[slot].messages.newest
    ChannelFields(
      cid: String(decoding: state[slot].cid, as: UTF8.self),
      created: state[slot].created,
      options: state.options(slot),
      memberCount: UInt32(state[slot].rows.activeCount),
      newest: newest,
      newestMessage: state[slot].messages.text(newest),
      newestRegistered: newest == .zero ? .none : state[slot].messages.registeredAt(newest)
    )
    .write(into: &self)
  }
}
