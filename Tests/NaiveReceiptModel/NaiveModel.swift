/// An independent oracle, written from rules R1 to R20 (docs/api/semantics.md) and apart from the code
/// that it checks. It keeps whole histories in arrays and dictionaries, and answers by scanning them. It has no
/// columns, prefix sums, indexes or marker optimisations.
///
/// `NaiveShard` of SimulationTests states the same rules a second time; its doc comment has the reason.
///
/// This file has the data and the commands on channels, types and users. The other parts:
/// - `NaiveModel+Messages.swift`: messages, marks and push acks.
/// - `NaiveModel+Removal.swift`: deletion, truncation and erasure.
/// - `NaiveModel+Positions.swift`: the positions that follow from a history.
/// - `NaiveModel+Answers.swift`: the answers to queries, about a channel and about a user over all channels.
struct NaiveModel: Sendable {
  /// One action of a member, and whether the member hid it then. Positions are computed by replaying the actions.
  enum Act: Sendable {
    case read(to: Int, epoch: Int?, at: Int, isHidden: Bool)
    /// `at`: the shown time, which may be earlier than the time of the action (R20).
    case delivered(to: Int, at: Int, isHidden: Bool)
    case unread(from: Int, epoch: Int?)
    case flagged(epoch: Int?)
    /// A read or a send in a thread, as far as it affects the channel.
    case readOrSentInThread
    case posted(Int, at: Int, hidesRead: Bool, hidesDelivered: Bool)
  }

  /// One membership, from a join to the leave. Joining again makes another membership (R6).
  struct Membership: Sendable {
    /// Empty for an erased user.
    var user: String
    var role: String
    /// The number of messages at the join.
    let joinedAfter: Int
    let joinedAt: Int
    let hidesHistory: Bool
    /// Whether it is in a thread, where joining reads nothing.
    var isInThread = false
    /// The position in the global order of events.
    let order: Int
    /// For a thread: joined by marking it read. While the member hides reads, others do not see them in it (R7).
    var isByReading = false
    /// For a thread, where it differs from `joinedAfter`: replies after this number are unread for the member.
    var unreadAfter: Int?
    var isMuted = false
    var hasLeft = false
    var acts: [Act] = []
    /// The number of first acts whose times are dropped: threads keep only the newest moves (R15).
    var droppedActTimes = 0
  }

  /// A membership's acknowledgement of one message (R9).
  struct Acknowledgement: Sendable {
    let membership: Int
    let at: Int
    let isHidden: Bool
    let note: String
    /// Whether its time and note were evicted by newer ones.
    var isForgotten = false
  }

  struct Message: Sendable {
    let id: String
    /// Empty for the system or an erased user.
    var sender: String
    let isSilent: Bool
    let registeredAt: Int
    let createdAt: Int
    /// The position in the global order of events.
    let order: Int
    /// Whether it moved its sender's positions.
    var moves = true
    /// Whether it was registered with an acknowledgement request.
    var hasAcknowledgementRequest = false
    /// Why a requested acknowledgement was refused.
    var acknowledgementRequestRefusal = ""
    var expiresAt: Int?
    var isDeleted = false
    /// The memberships that the message mentions (R14).
    var mentioned: Set<Int> = []
    /// In the order of acknowledgement.
    var acknowledgements: [Acknowledgement] = []
  }

  /// An ordered list of messages with members' positions: a channel without its threads, or one thread (R15).
  struct Room: Sendable {
    /// For a thread: the index of its parent message in the channel.
    var parent: Int?
    var memberships: [Membership] = []
    var messages: [Message] = []
    /// The index in `messages` of each id.
    var places: [String: Int] = [:]

    /// The membership of a current member.
    func membership(_ user: String) -> Int? {
      memberships.firstIndex { $0.user == user && !$0.hasLeft }
    }
  }

  struct Channel: Sendable {
    /// Distinguishes channels that had the same cid.
    let incarnation: Int
    var own: Settings
    var main = Room()
    var threads: [Room] = []
  }

  /// Identifies a room: a channel without its threads, or one of its threads.
  struct RoomID: Hashable, Sendable {
    var cid: String
    /// The index among the channel's threads.
    var thread: Int?
  }

  struct ChannelType: Sendable {
    var version = 0
    var settings = NaiveModel.defaults
  }

  static let defaults: Settings = [
    "read_events": "true", "delivery_events": "true", "mark_unread": "private", "history": "visible",
    "read_acks_receipts": "direct", "receipt_ttl": "null", "receipt_max_members": "null",
    "receipt_daily_limit": "null", "receipt_request_roles": "null", "counts_visible_to": "members",
    "status_rule": "any", "kept_steps": "64",
  ]

  var channels: [String: Channel] = [:]
  private var incarnations = 0
  private var eventCount = 0
  /// By cid, in order of creation.
  var tickets: [String: [Ticket]] = [:]
  private(set) var types: [String: ChannelType] = [:]
  var users: [String: UserView] = [:]
  /// Erased users: their last version and the time of erasure.
  var erased: [String: (version: Int, at: Int)] = [:]
  /// The places of users with current or former settings.
  var places: [String: Int] = [:]
  private(set) var now = 0

  subscript(roomID: RoomID) -> Room {
    get { roomID.thread.map { channels[roomID.cid]!.threads[$0] } ?? channels[roomID.cid]!.main }
    set {
      if let thread = roomID.thread {
        channels[roomID.cid]!.threads[thread] = newValue
      } else {
        channels[roomID.cid]!.main = newValue
      }
    }
  }

  // MARK: Commands

  mutating func perform(_ command: Command, clock: Int) -> Outcome {
    pass(to: clock)
    switch command {
    case .put(let cid, let settings, let members): return put(cid, settings, members)
    case .change(let cid, let add, let remove): return change(cid, add, remove)
    case .member(let cid, let user, let role, let isMuted, let joins):
      return member(cid, user, role, isMuted, joins)
    case .post, .read, .delivered, .unread: return performRoomCommand(command, thread: nil)
    case .inThread(let parent, let command): return performRoomCommand(command, thread: parent)
    case .delete(let cid, let id): return delete(cid, id)
    case .acknowledge(let cid, let user, let messages, let note):
      guard channels[cid] != nil else { return .refused("channel_not_found") }
      guard let row = membership(cid, user) else { return .refused("not_a_member") }
      return .acknowledged(messages.map { acknowledge(cid, row, $0, note) })
    case .patchType(let name, let settings):
      var type = types[name] ?? ChannelType()
      let value = type.settings.merging(settings) { $1 }
      if value != type.settings || type.version == 0 {
        type.version += 1
        type.settings = value
      }
      types[name] = type
      return .type(version: type.version, settings: type.settings)
    case .assignType(let name, let version, let settings):
      if version > types[name]?.version ?? 0 {
        types[name] = ChannelType(version: version, settings: Self.defaults.merging(settings) { $1 })
      }
      let type = types[name] ?? ChannelType()
      return .type(version: type.version, settings: type.settings)
    case .patchUser(let user, let showsRead, let showsDelivered, let revoked):
      return patch(user, showsRead, showsDelivered, revoked)
    case .assignUser(let record):
      if record.version > settings(of: record.user).version { keep(record) }
      return .user(settings(of: record.user))
    case .push(let cid, let user, let message, let acked): return push(cid, user, message, acked: acked)
    case .ticket(let cid, let user, let message): return makeTicket(cid, user, message)
    case .redeem(let cid, let ticket, let acked): return redeem(cid, ticket, acked: acked)
    case .truncate(let cid, let before): return truncate(cid, before)
    case .deleteChannel(let cid): return .done(channels.removeValue(forKey: cid) != nil)
    case .eraseMember(let cid, let user): return eraseMember(cid, user)
    case .eraseUser(let user): return eraseUser(user)
    case .assignErased(let user, let version): return assignErased(user, version)
    case .readAll(let user): return readAll(user)
    }
  }

  /// R20: time never falls.
  mutating func pass(to clock: Int) { now = max(now, clock) }

  /// A join is later than every existing message, also by time.
  private mutating func advancePastMessages(_ cid: String) {
    let times = roomIDs(cid).flatMap { self[$0].messages.map(\.registeredAt) }
    now = max(now, (times.max() ?? -1) + 1)
  }

  mutating func nextOrder() -> Int {
    eventCount += 1
    return eventCount
  }

  private mutating func put(_ cid: String, _ settings: Settings, _ members: [MemberSpec]) -> Outcome {
    if channels[cid] != nil, !members.isEmpty { advancePastMessages(cid) }
    if members.contains(where: { isErasing($0.user) }) { return .refused("user_erased") }
    let isNew = channels[cid] == nil
    if isNew {
      incarnations += 1
      channels[cid] = Channel(incarnation: incarnations, own: [:])
    }
    channels[cid]!.own.merge(settings) { $1 }
    join(cid, members)
    return .channel(isNew: isNew, members: memberCount(cid), newest: channels[cid]!.main.messages.count)
  }

  private mutating func change(_ cid: String, _ add: [MemberSpec], _ remove: [String]) -> Outcome {
    guard channels[cid] != nil else { return .refused("channel_not_found") }
    if !add.isEmpty { advancePastMessages(cid) }
    if add.contains(where: { isErasing($0.user) }) { return .refused("user_erased") }
    for user in remove {
      // Leaving the channel leaves its threads (R15).
      for roomID in roomIDs(cid) {
        if let current = self[roomID].membership(user) { self[roomID].memberships[current].hasLeft = true }
      }
    }
    join(cid, add)
    return .channel(isNew: false, members: memberCount(cid), newest: channels[cid]!.main.messages.count)
  }

  private mutating func member(_ cid: String, _ user: String, _ role: String, _ isMuted: Bool?, _ joins: Bool)
    -> Outcome
  {
    guard channels[cid] != nil else { return .refused("channel_not_found") }
    let isNew = membership(cid, user) == nil
    if joins { advancePastMessages(cid) }
    if isNew, !joins { return .refused("not_a_member") }
    if isErasing(user) { return .refused("user_erased") }
    join(cid, [MemberSpec(user: user, role: role)])
    let row = membership(cid, user)!
    if let isMuted { channels[cid]!.main.memberships[row].isMuted = isMuted }
    let member = channels[cid]!.main.memberships[row]
    return .member(role: member.role, joinedAt: member.joinedAt, isMuted: member.isMuted, isNew: isNew)
  }

  private mutating func join(_ cid: String, _ members: [MemberSpec]) {
    let hidesHistory = settings(cid)["history"] == "hidden"
    for member in members {
      if let current = membership(cid, member.user) {
        if !member.role.isEmpty { channels[cid]!.main.memberships[current].role = member.role }
        continue
      }
      join(
        RoomID(cid: cid),
        member.user,
        role: member.role,
        after: channels[cid]!.main.messages.count,
        hidesHistory: hidesHistory
      )
    }
  }

  mutating func join(
    _ roomID: RoomID,
    _ user: String,
    role: String = "",
    after joinedAfter: Int,
    hidesHistory: Bool = false,
    byReading: Bool = false
  ) {
    self[roomID].memberships.append(
      Membership(
        user: user,
        role: role,
        joinedAfter: joinedAfter,
        joinedAt: now,
        hidesHistory: hidesHistory,
        isInThread: roomID.thread != nil,
        order: nextOrder(),
        isByReading: byReading
      )
    )
  }

  private mutating func patch(_ user: String, _ showsRead: Bool?, _ showsDelivered: Bool?, _ revoked: Int?)
    -> Outcome
  {
    if isErasing(user) { return .refused("user_erased") }
    let before = settings(of: user)
    var after = before
    if let showsRead { after.hidesRead = !showsRead }
    if let showsDelivered { after.hidesDelivered = !showsDelivered }
    if let revoked { after.revokedBefore = revoked }
    if before.hidesRead, !after.hidesRead { after.readShownSince = now }
    if before.hidesDelivered, !after.hidesDelivered { after.deliveredShownSince = now }
    if after != before {
      after.version += 1
      after.isErased = false
      keep(after)
    }
    return .user(after)
  }

  // MARK: Looking things up

  func hidesRead(_ user: String) -> Bool { users[user]?.hidesRead ?? false }
  func hidesDelivered(_ user: String) -> Bool { users[user]?.hidesDelivered ?? false }

  /// The settings of a user, or the defaults for an unknown or erased user. An erased user keeps the version, so that
  /// delayed updates are ignored. They also keep the second of erasure: no earlier token is valid.
  func settings(of user: String) -> UserView {
    if let record = users[user] { return record }
    guard let (version, at) = erased[user] else { return UserView(user: user) }
    return UserView(user: user, version: version, revokedBefore: at - at % 1000, isErased: true)
  }

  /// Whether the token was issued before the user's revocation time.
  func isRevoked(_ user: String, issuedSeconds: Int) -> Bool {
    issuedSeconds * 1000 < settings(of: user).revokedBefore
  }

  func settings(_ cid: String) -> Settings {
    let type = types[String(cid.split(separator: ":")[0])] ?? ChannelType()
    return type.settings.merging(channels[cid]!.own) { $1 }
  }

  /// The value of a numeric option; nil for `null`.
  func number(_ option: String, _ cid: String) -> Int? { Int(settings(cid)[option]!) }

  /// The value of an option that lists roles; nil for `null`.
  func roles(_ option: String, _ cid: String) -> [String]? {
    let value = settings(cid)[option]!
    return value == "null" ? nil : value.split(separator: ",").map(String.init)
  }

  /// The channel itself and all its threads.
  func roomIDs(_ cid: String) -> [RoomID] {
    [RoomID(cid: cid)] + channels[cid]!.threads.indices.map { RoomID(cid: cid, thread: $0) }
  }

  /// The place of a message: ids are unique in a channel and all its threads together.
  func find(_ cid: String, _ id: String) -> (roomID: RoomID, place: Int)? {
    for roomID in roomIDs(cid) {
      if let place = self[roomID].places[id] { return (roomID, place) }
    }
    return nil
  }

  /// The same for a member: messages from before a join under hidden history do not exist for them (R6).
  func find(_ cid: String, _ id: String, for member: Membership) -> (roomID: RoomID, place: Int)? {
    find(cid, id).flatMap { exists($0.roomID, $0.place, for: member) ? $0 : nil }
  }

  func exists(_ roomID: RoomID, _ place: Int, for member: Membership) -> Bool {
    !member.hidesHistory || self[roomID].messages[place].order > member.order
  }

  /// A message that can be named as a parent: the member can see it, or it has replies since the member's join.
  func findParent(_ cid: String, _ id: String, for member: Membership) -> (roomID: RoomID, place: Int)? {
    if let found = find(cid, id, for: member) { return found }
    guard let found = find(cid, id), found.roomID.thread == nil, let thread = thread(cid, of: found.place),
      self[thread].messages.indices.contains(where: { exists(thread, $0, for: member) })
    else { return nil }
    return found
  }

  /// A reply, and the id of the message that it replies to.
  func find(_ cid: String, reply id: String) -> (parent: String, message: Message)? {
    guard channels[cid] != nil, let (roomID, place) = find(cid, id), let parent = self[roomID].parent else {
      return nil
    }
    return (channels[cid]!.main.messages[parent].id, self[roomID].messages[place])
  }

  /// The thread of a parent message.
  func thread(_ cid: String, of parent: Int) -> RoomID? {
    roomIDs(cid).first { self[$0].parent == parent }
  }

  /// Whether the message is deleted, or a reply to a deleted message.
  func isGone(_ roomID: RoomID, _ place: Int) -> Bool {
    self[roomID].messages[place].isDeleted || isClosed(roomID)
  }

  /// A thread whose parent message is deleted.
  func isClosed(_ roomID: RoomID) -> Bool {
    self[roomID].parent.map { channels[roomID.cid]!.main.messages[$0].isDeleted } ?? false
  }

  /// The membership of a user who is a member of the channel now.
  func membership(_ cid: String, _ user: String) -> Int? { channels[cid]!.main.membership(user) }

  func memberCount(_ cid: String) -> Int { channels[cid]!.main.memberships.filter { !$0.hasLeft }.count }

  func messageCount(_ cid: String) -> Int { channels[cid]?.main.messages.count ?? 0 }
}

/// A refusal, as the error's wire name.
struct NamedRefusal: Error, Hashable, Sendable {
  var name: String
}
