/// An independent oracle (STYLE.md, habit 12): written from the rules of DESIGN.md, apart from the code that it checks.
/// It keeps whole histories in arrays and dictionaries, and answers by going through them: no column, prefix, index or
/// marker trick.
///
/// Here is what there is, and the commands on channels, types and users; messages and marks are in
/// `NaiveModel+Messages.swift`, removal in `NaiveModel+Removal.swift`, what positions follow from a history in
/// `NaiveModel+Positions.swift`, what is answered in `NaiveModel+Answers.swift` and, for a user over all channels, in
/// `NaiveModel+Users.swift`.
struct NaiveModel: Sendable {
  /// Something that a member did, and whether they hid it then; positions are worked out from the first to the last of
  /// these.
  enum Act: Sendable {
    case read(to: Int, epoch: Int?, at: Int, isHidden: Bool)
    /// `at`: as it is shown, which may be before it was done (R20).
    case delivered(to: Int, at: Int, isHidden: Bool)
    case unread(from: Int, epoch: Int?)
    case flagged(epoch: Int?)
    /// A read or a send in a thread, as far as it is about the channel.
    case cameByInThread
    case posted(Int, at: Int, hidesRead: Bool, hidesDelivered: Bool)
  }

  /// From one join to its leave. Joining again is another membership (R6).
  struct Membership: Sendable {
    /// Empty: erased.
    var user: String
    var role: String
    /// How many messages there were.
    let joinedAfter: Int
    let joinedAt: Int
    let hidesHistory: Bool
    /// In a thread, where nobody has read anything by joining.
    var isInThread = false
    /// Its place in the order of all that ever happened.
    let order: Int
    /// Of a thread: by marking it read. While they hide that they read, nobody else knows that they are in it (R7).
    var isByReading = false
    /// Of a thread, where it is not `joinedAfter`: since when replies are unread for them.
    var unreadAfter: Int?
    var isMuted = false
    var hasLeft = false
    var acts: [Act] = []
    /// The times of so many acts are kept no more: threads keep the newest moves only (R15).
    var actsForgotten = 0
  }

  /// That a membership acknowledged a message (R9).
  struct Acknowledgement: Sendable {
    let membership: Int
    let at: Int
    let isHidden: Bool
    let note: String
    /// Its time and note gave way to newer ones.
    var isForgotten = false
  }

  struct Message: Sendable {
    let id: String
    /// Empty: the system, or erased.
    var sender: String
    let isSilent: Bool
    let registeredAt: Int
    let createdAt: Int
    /// Its place in the order of all that ever happened.
    let order: Int
    /// It moved its sender's positions.
    var moves = true
    /// It was registered with a receipt.
    var hasReceipt = false
    /// Why it was not, where one was asked for.
    var receiptRefusal = ""
    var expiresAt: Int?
    var isDeleted = false
    /// The memberships of those whom it mentions (R14).
    var mentioned: Set<Int> = []
    /// In the order in which they were made.
    var acknowledgements: [Acknowledgement] = []
  }

  /// Where messages stand in order and members have positions: a channel by itself, or one of its threads (R15).
  struct Room: Sendable {
    /// Of a thread: where its parent message stands among the channel's.
    var parent: Int?
    var memberships: [Membership] = []
    var messages: [Message] = []
    /// Where in `messages` an id stands.
    var places: [String: Int] = [:]

    /// The membership of a user who is a member now.
    func membership(_ user: String) -> Int? {
      memberships.firstIndex { $0.user == user && !$0.hasLeft }
    }
  }

  struct Channel: Sendable {
    /// Tells one from another that had its name.
    let incarnation: Int
    var own: Settings
    var main = Room()
    var threads: [Room] = []
  }

  /// A room by its name: a channel's own, or one of its threads.
  struct Spot: Hashable, Sendable {
    var cid: String
    /// Among the channel's threads.
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
  private var happenings = 0
  /// By cid, in the order in which they were made.
  var tickets: [String: [Ticket]] = [:]
  private(set) var types: [String: ChannelType] = [:]
  var users: [String: UserView] = [:]
  /// The last version of users who were erased, and when they were.
  var erased: [String: (version: Int, at: Int)] = [:]
  /// The places of those who have settings, or had.
  var places: [String: Int] = [:]
  private(set) var now = 0

  subscript(spot: Spot) -> Room {
    get { spot.thread.map { channels[spot.cid]!.threads[$0] } ?? channels[spot.cid]!.main }
    set {
      if let thread = spot.thread {
        channels[spot.cid]!.threads[thread] = newValue
      } else {
        channels[spot.cid]!.main = newValue
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
    case .post, .read, .delivered, .unread: return performInRoom(command, thread: nil)
    case .inThread(let parent, let command): return performInRoom(command, thread: parent)
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

  /// Whoever joins does so after every message that is there, by the times too.
  private mutating func passMessages(_ cid: String) {
    let times = spots(cid).flatMap { self[$0].messages.map(\.registeredAt) }
    now = max(now, (times.max() ?? -1) + 1)
  }

  mutating func nextOrder() -> Int {
    happenings += 1
    return happenings
  }

  private mutating func put(_ cid: String, _ settings: Settings, _ members: [Seat]) -> Outcome {
    if channels[cid] != nil, !members.isEmpty { passMessages(cid) }
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

  private mutating func change(_ cid: String, _ add: [Seat], _ remove: [String]) -> Outcome {
    guard channels[cid] != nil else { return .refused("channel_not_found") }
    if !add.isEmpty { passMessages(cid) }
    if add.contains(where: { isErasing($0.user) }) { return .refused("user_erased") }
    for user in remove {
      // Leaving the channel leaves its threads (R15).
      for spot in spots(cid) {
        if let current = self[spot].membership(user) { self[spot].memberships[current].hasLeft = true }
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
    if joins { passMessages(cid) }
    if isNew, !joins { return .refused("not_a_member") }
    if isErasing(user) { return .refused("user_erased") }
    join(cid, [Seat(user: user, role: role)])
    let row = membership(cid, user)!
    if let isMuted { channels[cid]!.main.memberships[row].isMuted = isMuted }
    let member = channels[cid]!.main.memberships[row]
    return .member(role: member.role, joinedAt: member.joinedAt, isMuted: member.isMuted, isNew: isNew)
  }

  private mutating func join(_ cid: String, _ seats: [Seat]) {
    let hidesHistory = settings(cid)["history"] == "hidden"
    for seat in seats {
      if let current = membership(cid, seat.user) {
        if !seat.role.isEmpty { channels[cid]!.main.memberships[current].role = seat.role }
        continue
      }
      join(
        Spot(cid: cid),
        seat.user,
        role: seat.role,
        after: channels[cid]!.main.messages.count,
        hidesHistory: hidesHistory
      )
    }
  }

  mutating func join(
    _ spot: Spot,
    _ user: String,
    role: String = "",
    after joinedAfter: Int,
    hidesHistory: Bool = false,
    byReading: Bool = false
  ) {
    self[spot].memberships.append(
      Membership(
        user: user,
        role: role,
        joinedAfter: joinedAfter,
        joinedAt: now,
        hidesHistory: hidesHistory,
        isInThread: spot.thread != nil,
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

  /// What a user was given; of one who never was, or who is erased, the defaults. Of an erased one the version stays,
  /// so that what is still on its way is ignored, and the second in which they were erased: from before it no token is
  /// good.
  func settings(of user: String) -> UserView {
    if let record = users[user] { return record }
    guard let (version, at) = erased[user] else { return UserView(user: user) }
    return UserView(user: user, version: version, revokedBefore: at - at % 1000, isErased: true)
  }

  /// Their token is older than the moment before which all of theirs were revoked.
  func isRevoked(_ user: String, issuedSeconds: Int) -> Bool {
    issuedSeconds * 1000 < settings(of: user).revokedBefore
  }

  func settings(_ cid: String) -> Settings {
    let type = types[String(cid.split(separator: ":")[0])] ?? ChannelType()
    return type.settings.merging(channels[cid]!.own) { $1 }
  }

  /// An option that is a number, or `null`.
  func number(_ option: String, _ cid: String) -> Int? { Int(settings(cid)[option]!) }

  /// An option that is a list of roles, or `null`.
  func roles(_ option: String, _ cid: String) -> [String]? {
    let value = settings(cid)[option]!
    return value == "null" ? nil : value.split(separator: ",").map(String.init)
  }

  /// The channel's own room and all its threads.
  func spots(_ cid: String) -> [Spot] {
    [Spot(cid: cid)] + channels[cid]!.threads.indices.map { Spot(cid: cid, thread: $0) }
  }

  /// Where a message stands: ids are unique in a channel and all its threads together.
  func find(_ cid: String, _ id: String) -> (spot: Spot, place: Int)? {
    for spot in spots(cid) {
      if let place = self[spot].places[id] { return (spot, place) }
    }
    return nil
  }

  /// The same for a member: what was there before they joined under hidden history does not exist for them (R6).
  func find(_ cid: String, _ id: String, for member: Membership) -> (spot: Spot, place: Int)? {
    find(cid, id).flatMap { exists($0.spot, $0.place, for: member) ? $0 : nil }
  }

  func exists(_ spot: Spot, _ place: Int, for member: Membership) -> Bool {
    !member.hidesHistory || self[spot].messages[place].order > member.order
  }

  /// A message that may be named as a parent: by its own right, or by replies since the member's join.
  func findParent(_ cid: String, _ id: String, for member: Membership) -> (spot: Spot, place: Int)? {
    if let found = find(cid, id, for: member) { return found }
    guard let found = find(cid, id), found.spot.thread == nil, let thread = thread(cid, of: found.place),
      self[thread].messages.indices.contains(where: { exists(thread, $0, for: member) })
    else { return nil }
    return found
  }

  /// A reply, and the id of the message that it replies to.
  func find(_ cid: String, reply id: String) -> (parent: String, message: Message)? {
    guard channels[cid] != nil, let (spot, place) = find(cid, id), let parent = self[spot].parent else {
      return nil
    }
    return (channels[cid]!.main.messages[parent].id, self[spot].messages[place])
  }

  /// The thread of a parent message.
  func thread(_ cid: String, of parent: Int) -> Spot? {
    spots(cid).first { self[$0].parent == parent }
  }

  /// Deleted itself, or a reply to a message that is.
  func isGone(_ spot: Spot, _ place: Int) -> Bool { self[spot].messages[place].isDeleted || isClosed(spot) }

  /// A thread whose parent message is deleted.
  func isClosed(_ spot: Spot) -> Bool {
    self[spot].parent.map { channels[spot.cid]!.main.messages[$0].isDeleted } ?? false
  }

  /// The membership of a user who is a member of the channel now.
  func membership(_ cid: String, _ user: String) -> Int? { channels[cid]!.main.membership(user) }

  func memberCount(_ cid: String) -> Int { channels[cid]!.main.memberships.filter { !$0.hasLeft }.count }

  func messageCount(_ cid: String) -> Int { channels[cid]?.main.messages.count ?? 0 }
}

/// A refusal by the wire's name of its error.
struct NamedRefusal: Error, Hashable, Sendable {
  var name: String
}
