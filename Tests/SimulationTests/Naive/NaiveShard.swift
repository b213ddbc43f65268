/// The oracle: the expected content of one shard, in arrays and dictionaries. It is written from rules R1 to R20
/// (docs/api/semantics.md), apart from the code that it checks. Each command brings its time.
///
/// `NaiveModel` of ReceiptModelTests states the same rules a second time, and both stay: this one keeps positions and
/// decides what a resent command is answered, that one keeps histories and knows no sessions. They are written apart,
/// so that a mistake of one is noticed: both are compared with the code, and with the same answers that were worked out
/// by hand (`NaiveShardTests`, `NaiveModelTests`).
struct NaiveShard {
  struct Row {
    var user: String
    var role: String
    var hasLeft = false
    /// For a thread: joined by marking it read.
    var isByReading = false
    var hidesHistory: Bool
    var joined: Int
    /// For a thread, where it differs from `joined`.
    var unreadAfter: Int?
    var joinedAt: Int64
    var read: Int
    var readAt: Int64 = 0
    /// Whether the last move was made while the user hid reads (R7).
    var readIsHidden = false
    var deliveredIsHidden = false
    /// Mark-read has acknowledged the messages up to here. Recorded even if all acknowledgements were refused.
    var acknowledgedThrough = 0
    var delivered = 0
    var deliveredAt: Int64 = 0
    var marker: Int?
    var epoch = 0
    /// Whether the channel is flagged unread as a whole, and muted.
    var isFlagged = false
    var isMuted = false

    var own: Int { marker.map { min($0, read) } ?? read }
  }

  struct Message {
    var id: String
    var sender: String
    var isSilent: Bool
    var isDeleted = false
    var registered: Int64
    var created: Int64
    var hasAcknowledgementRequest: Bool
    var requestsAcknowledgement: Bool
    /// Whether it moved its sender's positions.
    var moves: Bool
    /// The rows that it mentions (R14).
    var mentioned: Set<Int> = []
    /// The rows that have acknowledged it.
    var acknowledged: Set<Int> = []
  }

  /// A channel, or one of its threads (R15), which has no options of its own.
  struct Channel {
    var created: Int64
    var own: OptionChange
    /// For a thread: the index of its parent message.
    var parent: Int?
    var threads: [Channel] = []
    var rows: [Row] = []
    /// The rows of current members.
    var memberRows: [String: Int] = [:]
    var messages: [Message] = []
    var messageIndexes: [String: Int] = [:]
    /// The number of truncated messages, from the first on.
    var truncated = 0
  }

  /// Identifies a channel without its threads, or one of its threads.
  struct RoomID {
    var cid: String
    var thread: Int?
  }

  var channels: [String: Channel] = [:]
  private(set) var types: [String: TypeView] = [:]
  private(set) var users: [String: SettingsView] = [:]
  /// The time until which each webhook is remembered.
  var webhooks: [String: Int64] = [:]
  var tokens = NaiveTokens()

  /// The result of a command.
  struct Outcome {
    var reply: Reply
    /// Whether the state has changed, so that the log must contain it.
    var hasChanged = false
    /// Whether it counts as refused: a resend is decided again.
    var isOpen = false
  }

  /// Codes of refusals (Proto/frames.md, "Errors"), written apart from the store's.
  enum Code {
    static let wrongShard: UInt64 = 20
    static let busy: UInt64 = 21
    static let unavailable: UInt64 = 22
    static let outcomeUnknown: UInt64 = 23
    static let notImplemented: UInt64 = 24
    static let invalidField: UInt64 = 30
    static let channelNotFound: UInt64 = 31
    static let notAMember: UInt64 = 32
    static let messageNotFound: UInt64 = 33
    static let messageDeleted: UInt64 = 34
    static let markUnreadOff: UInt64 = 35
    static let receiptNotRequested: UInt64 = 40
    static let ownMessage: UInt64 = 41
    static let notExpected: UInt64 = 43
    static let messageConflict: UInt64 = 48
    static let notInThread: UInt64 = 49
  }

  subscript(at: RoomID) -> Channel {
    get { at.thread.map { channels[at.cid]!.threads[$0] } ?? channels[at.cid]! }
    set {
      if let thread = at.thread {
        channels[at.cid]!.threads[thread] = newValue
      } else {
        channels[at.cid] = newValue
      }
    }
  }

  // MARK: Commands

  /// - Parameter isDuplicate: it was applied before, and is only answered.
  mutating func perform(_ content: RequestContent, at time: Int64, isDuplicate: Bool) -> Outcome {
    guard isDuplicate else { return perform(content, at: time) }
    // On a copy, so that the reply shows the current state.
    switch content {
    case .read(let cid, let user, let message, _):
      if isReply(cid, message) { return answerInThread(content, user, at: time) }
      if moves(cid, user, message, \.read) { return .refused(Code.outcomeUnknown) }
      return answer(cid, user, message, emptyIsNewest: true)
    case .inThread(let parent, .register(let cid, let id, _, _, _, _, _, _)):
      if channels[cid] != nil, find(cid, id) == nil {
        // The channel may have been recreated: refusals follow its current state.
        var copy = self
        let outcome = copy.perform(content, at: time)
        return outcome.isRefused ? outcome : .refused(Code.outcomeUnknown)
      }
      return repeatedDuplicate(content.withoutThread, parent: parent)
    case .inThread(_, .read(_, let user, _, _)), .inThread(_, .delivered(_, let user, _)),
      .inThread(_, .unread(_, let user, _, _)):
      return answerInThread(content, user, at: time)
    case .delivered(let cid, let user, let message):
      if isReply(cid, message) { return answerInThread(content, user, at: time) }
      if moves(cid, user, message, \.delivered) { return .refused(Code.outcomeUnknown) }
      return answer(cid, user, message, emptyIsNewest: true)
    case .unread(let cid, let user, let message, _):
      if isReply(cid, message) { return answerInThread(content, user, at: time) }
      return answer(cid, user, message, emptyIsNewest: true, isUnread: true)
    case .acknowledge(let cid, let user, _, let ids):
      // It is not applied again: where it would change something now, its original result is unknown.
      var copy = self
      let outcome = copy.acknowledge(cid, user, ids)
      return outcome.hasChanged ? .refused(Code.outcomeUnknown) : outcome
    case .register: return repeatedDuplicate(content, parent: nil)
    case .deleteMessage(let cid, let id):
      if channels[cid] == nil { return .refused(Code.channelNotFound) }
      guard let (_, index) = find(cid, id) else { return .refused(Code.messageNotFound) }
      return Outcome(reply: .sequence(index + 1))
    case .push: return push(content, at: time, isDuplicate: true)
    case .note(let key, let until): return note(key, until: until, at: time, isDuplicate: true)
    case .revoke(let token, _): return Outcome(reply: tokens.answer(token, at: time))
    case .truncate, .deleteChannel, .eraseMember: return answerRemoved(content)
    case .put(let cid, _, _):
      return Outcome(
        reply: channels[cid] == nil ? .refused(Code.channelNotFound) : channel(cid, isNew: false)
      )
    case .change(let cid, _, _):
      return Outcome(reply: channels[cid] == nil ? .refused(Code.channelNotFound) : channel(cid, isNew: nil))
    case .member(let cid, let user, let role, let isMuted, let joins):
      // It is not applied again: if the user is no longer a member, its original result is unknown.
      var copy = self
      let outcome =
        channels[cid] == nil
        ? .refused(Code.channelNotFound) : copy.member(cid, user, role, isMuted, joins, time)
      if case .member(_, _, _, true) = outcome.reply { return .refused(Code.outcomeUnknown) }
      guard case .member = outcome.reply else { return outcome }
      return Outcome(reply: memberReply(cid, user, isNew: false))
    case .patchType(let name, _), .assignType(let name, _, _):
      return Outcome(reply: .type(type(name)))
    case .patchUser, .assignUser:
      return Outcome(reply: .settings(settings(content.settingsUser!)))
    default:
      preconditionFailure("not a command")
    }
  }

  private func repeatedDuplicate(_ content: RequestContent, parent: String?) -> Outcome {
    if channels[content.cid!] == nil { return .refused(Code.channelNotFound) }
    let outcome = repeated(content, parent: parent) ?? .refused(Code.outcomeUnknown)
    // Its sender may have been erased since, so it may or may not be the same message.
    if case .refused(Code.messageConflict) = outcome.reply { return .refused(Code.outcomeUnknown) }
    return outcome
  }

  /// The result of registering a known id; nil for an unknown one.
  func repeated(_ content: RequestContent, parent: String?) -> Outcome? {
    guard
      case .register(
        let cid,
        let id,
        let sender,
        _,
        let isSilent,
        let requestsAcknowledgement,
        let moves,
        _
      ) = content,
      let (at, index) = find(cid, id)
    else { return nil }
    if isGone(at, index) { return .refused(Code.messageDeleted) }
    let message = self[at].messages[index]
    let knownParent = self[at].parent.map { channels[cid]!.messages[$0].id }
    guard knownParent == parent, message.sender == sender, message.isSilent == isSilent,
      message.requestsAcknowledgement == requestsAcknowledgement, message.moves == moves
    else { return .refused(Code.messageConflict) }
    return Outcome(reply: registered(at, index, isNew: false))
  }

  /// Whether a mark that names its message would move a watermark now: then the original result of a duplicate is
  /// unknown.
  private func moves(_ cid: String, _ user: String, _ message: String, _ watermark: KeyPath<Row, Int>)
    -> Bool
  {
    guard !message.isEmpty, let memberRow = channels[cid]?.memberRows[user],
      let (at, index) = find(cid, message, for: user)
    else {
      return false
    }
    return index + 1 > self[at].rows[memberRow][keyPath: watermark]
  }

  func settings(_ user: String) -> SettingsView { users[user] ?? SettingsView(user: user) }

  private mutating func patch(_ user: String, _ showsRead: Bool?, _ showsDelivered: Bool?, _ time: Int64)
    -> Outcome
  {
    let before = settings(user)
    var after = before
    if let showsRead { after.hidesRead = !showsRead }
    if let showsDelivered { after.hidesDelivered = !showsDelivered }
    guard after != before else { return Outcome(reply: .settings(before)) }
    if before.hidesRead, !after.hidesRead { after.readShownSince = time }
    if before.hidesDelivered, !after.hidesDelivered { after.deliveredShownSince = time }
    after.version += 1
    users[user] = after
    return Outcome(reply: .settings(after), hasChanged: true)
  }

  mutating func perform(_ content: RequestContent, at time: Int64) -> Outcome {
    if let cid = content.cid, channels[cid] == nil, !content.isPut {
      if content.isRemoval { return Outcome(reply: .removed(false)) }
      return .refused(Code.channelNotFound)
    }
    switch content {
    case .put(let cid, let options, let members): return put(cid, options, members, time)
    case .change(let cid, let add, let remove): return change(cid, add, remove, time)
    case .register(
      let cid,
      let id,
      let sender,
      let created,
      let isSilent,
      let requestsAcknowledgement,
      let moves,
      let mentions
    ):
      if let known = repeated(content, parent: nil) { return known }
      let roomID = RoomID(cid: cid)
      return register(
        roomID,
        id,
        sender,
        created,
        isSilent,
        requestsAcknowledgement,
        moves: moves,
        mentions,
        time
      )
    case .member(let cid, let user, let role, let isMuted, let joins):
      return member(cid, user, role, isMuted, joins, time)
    case .acknowledge(let cid, let user, _, let ids): return acknowledge(cid, user, ids)
    case .deleteMessage(let cid, let id):
      guard let (at, index) = find(cid, id) else { return .refused(Code.messageNotFound) }
      // A deleted parent deletes its replies: no further change of them is recorded.
      let hasChanged = !isGone(at, index)
      if hasChanged { self[at].messages[index].isDeleted = true }
      return Outcome(reply: .sequence(index + 1), hasChanged: hasChanged)
    case .truncate(let cid, let before): return truncate(cid, before)
    case .deleteChannel(let cid):
      channels[cid] = nil
      return Outcome(reply: .removed(true), hasChanged: true)
    case .eraseMember(let cid, let user): return erase(cid, user)
    case .read(let cid, let user, let message, let epoch):
      if let at = threadMarked(cid, user, message) { return markInThread(content, at, user, message, time) }
      return read(RoomID(cid: cid), user, message, epoch, time)
    case .delivered(let cid, let user, let message):
      if let at = threadMarked(cid, user, message) { return markInThread(content, at, user, message, time) }
      return delivered(RoomID(cid: cid), user, message, time)
    case .unread(let cid, let user, let message, let epoch):
      if let at = threadMarked(cid, user, message) { return markInThread(content, at, user, message, time) }
      return unread(RoomID(cid: cid), user, message, epoch)
    case .push: return push(content, at: time, isDuplicate: false)
    case .note(let key, let until): return note(key, until: until, at: time, isDuplicate: false)
    case .revoke(let token, let until): return tokens.revoke(token, until: until, at: time)
    case .inThread(let parent, let content): return inThread(parent, content, time)
    case .patchType(let name, let options):
      var type = type(name)
      let changed = type.options.changed(by: options)
      guard changed != type.options || type.version == 0 else { return Outcome(reply: .type(type)) }
      type.version += 1
      type.options = changed
      types[name] = type
      return Outcome(reply: .type(type), hasChanged: true)
    case .assignType(let name, let version, let options):
      guard version > type(name).version else { return Outcome(reply: .type(type(name))) }
      types[name] = TypeView(name: name, version: version, options: OptionView().changed(by: options))
      return Outcome(reply: .type(types[name]!), hasChanged: true)
    case .patchUser(let user, let showsRead, let showsDelivered):
      return patch(user, showsRead, showsDelivered, time)
    case .assignUser(let record):
      guard record.version > settings(record.user).version else {
        return Outcome(reply: .settings(settings(record.user)))
      }
      users[record.user] = record
      return Outcome(reply: .settings(record), hasChanged: true)
    default:
      preconditionFailure("not a command")
    }
  }

  private mutating func put(_ cid: String, _ change: OptionChange, _ members: [MemberSpec], _ time: Int64)
    -> Outcome
  {
    if members.contains(where: { $0.user.contains("\u{7}") }) { return .refused(Code.invalidField) }
    let isNew = channels[cid] == nil
    if isNew { channels[cid] = Channel(created: time, own: OptionChange()) }
    let before = channels[cid]!.own
    var own = before
    if let value = change.readEvents { own.readEvents = value }
    if let value = change.deliveryEvents { own.deliveryEvents = value }
    if let value = change.markUnread { own.markUnread = value }
    if let value = change.history { own.history = value }
    channels[cid]!.own = own
    let hasJoined = join(cid, members, time)
    return Outcome(reply: channel(cid, isNew: isNew), hasChanged: isNew || own != before || hasJoined)
  }

  private mutating func change(_ cid: String, _ add: [MemberSpec], _ remove: [String], _ time: Int64)
    -> Outcome
  {
    if add.contains(where: { $0.user.contains("\u{7}") }) { return .refused(Code.invalidField) }
    var hasChanged = false
    for user in remove {
      guard let row = channels[cid]!.memberRows.removeValue(forKey: user) else { continue }
      channels[cid]!.rows[row].hasLeft = true
      for thread in channels[cid]!.threads.indices {
        guard let row = channels[cid]!.threads[thread].memberRows.removeValue(forKey: user) else { continue }
        channels[cid]!.threads[thread].rows[row].hasLeft = true
      }
      hasChanged = true
    }
    if join(cid, add, time) { hasChanged = true }
    return Outcome(reply: channel(cid, isNew: nil), hasChanged: hasChanged)
  }

  /// The time of the newest message in a channel that members are added to. A join is later than it, also by time (R6).
  func newestMessageTimeBeforeJoin(_ content: RequestContent) -> Int64? {
    let members: [MemberSpec]
    switch content {
    case .put(_, _, let given), .change(_, let given, _): members = given
    case .member(_, let user, let role, _, true): members = [MemberSpec(user: user, role: role)]
    default: return nil
    }
    guard let channel = content.cid.flatMap({ channels[$0] }), !members.isEmpty,
      !members.contains(where: { $0.user.contains("\u{7}") })
    else { return nil }
    return ([channel] + channel.threads).compactMap(\.messages.last?.registered).max()
  }

  private mutating func member(
    _ cid: String,
    _ user: String,
    _ role: String,
    _ isMuted: Bool?,
    _ joins: Bool,
    _ time: Int64
  ) -> Outcome {
    if user.contains("\u{7}") { return .refused(Code.invalidField) }
    let isNew = channels[cid]!.memberRows[user] == nil
    if isNew, !joins { return .refused(Code.notAMember) }
    var hasChanged = join(cid, [MemberSpec(user: user, role: role)], time)
    let row = channels[cid]!.memberRows[user]!
    if let isMuted, channels[cid]!.rows[row].isMuted != isMuted {
      channels[cid]!.rows[row].isMuted = isMuted
      hasChanged = true
    }
    return Outcome(reply: memberReply(cid, user, isNew: isNew), hasChanged: hasChanged)
  }

  private func memberReply(_ cid: String, _ user: String, isNew: Bool) -> Reply {
    let row = channels[cid]!.rows[channels[cid]!.memberRows[user]!]
    return .member(role: row.role, joinedAt: row.joinedAt, isMuted: row.isMuted, isNew: isNew)
  }

  private mutating func join(_ cid: String, _ members: [MemberSpec], _ time: Int64) -> Bool {
    let hidesHistory = options(cid).history == 1
    let newest = channels[cid]!.messages.count
    var hasChanged = false
    for member in members {
      if let row = channels[cid]!.memberRows[member.user] {
        guard !member.role.isEmpty, channels[cid]!.rows[row].role != member.role else { continue }
        channels[cid]!.rows[row].role = member.role
      } else {
        channels[cid]!.memberRows[member.user] = channels[cid]!.rows.count
        channels[cid]!.rows.append(
          Row(
            user: member.user,
            role: member.role,
            hidesHistory: hidesHistory,
            joined: newest,
            joinedAt: time,
            read: hidesHistory ? 0 : newest
          )
        )
      }
      hasChanged = true
    }
    return hasChanged
  }

  mutating func register(
    _ at: RoomID,
    _ id: String,
    _ sender: String,
    _ created: Int64,
    _ isSilent: Bool,
    _ requestsAcknowledgement: Bool,
    moves: Bool,
    _ mentions: [String],
    _ time: Int64
  ) -> Outcome {
    if id.contains("\u{7}") { return .refused(Code.invalidField) }
    var mentioned = Set(
      mentions == [RequestContent.everybody]
        ? Array(self[at].memberRows.values) : mentions.compactMap { self[at].memberRows[$0] }
    )
    if let own = self[at].memberRows[sender] { mentioned.remove(own) }
    self[at].messageIndexes[id] = self[at].messages.count
    self[at].messages.append(
      Message(
        id: id,
        sender: sender,
        isSilent: isSilent,
        registered: time,
        created: created == 0 ? time : created,
        hasAcknowledgementRequest: requestsAcknowledgement && at.thread == nil,
        requestsAcknowledgement: requestsAcknowledgement,
        moves: moves,
        mentioned: mentioned
      )
    )
    let sequence = self[at].messages.count
    if moves, let row = self[at].memberRows[sender] {
      self[at].rows[row].read = sequence
      self[at].rows[row].readAt = time
      self[at].rows[row].delivered = sequence
      self[at].rows[row].deliveredAt = time
      self[at].rows[row].readIsHidden = settings(sender).hidesRead
      self[at].rows[row].deliveredIsHidden = settings(sender).hidesDelivered
      self[at].rows[row].marker = nil
      _ = clearFlag(at.cid, sender)
    }
    return Outcome(reply: registered(at, sequence - 1, isNew: true), hasChanged: true)
  }
}

extension NaiveShard.Outcome {
  static func refused(_ code: UInt64) -> Self { Self(reply: .refused(code)) }

  var isRefused: Bool { if case .refused = reply { true } else { isOpen } }
}
