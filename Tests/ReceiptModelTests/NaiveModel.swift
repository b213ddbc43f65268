/// An independent oracle (STYLE.md, habit 12): written from the rules of DESIGN.md, apart from the code that it checks. It keeps
/// whole histories in arrays and dictionaries, and answers by going through them: no column, prefix, index or marker trick.
///
/// Here are the commands; what positions follow from a history is in `NaiveModel+Positions.swift`, what is answered in
/// `NaiveModel+Answers.swift`.
struct NaiveModel: Sendable {
  /// Something that a member did, and whether they hid it then; positions are worked out from the first to the last of these.
  enum Act: Sendable {
    case read(to: Int, epoch: Int?, at: Int, isHidden: Bool)
    case delivered(to: Int, at: Int, isHidden: Bool)
    case unread(from: Int, epoch: Int?)
    case posted(Int, at: Int, hidesRead: Bool, hidesDelivered: Bool)
  }

  /// From one join to its leave. Joining again is another membership (R6).
  struct Membership: Sendable {
    let user: String
    var role: String
    /// How many messages there were.
    let joinedAfter: Int
    let joinedAt: Int
    let hidesHistory: Bool
    var hasLeft = false
    var acts: [Act] = []
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
    let sender: String
    let isSilent: Bool
    let registeredAt: Int
    let createdAt: Int
    /// It was registered with a receipt.
    var hasReceipt = false
    /// Why it was not, where one was asked for.
    var receiptRefusal = ""
    var expiresAt: Int?
    var isDeleted = false
    /// In the order in which they were made.
    var acknowledgements: [Acknowledgement] = []
  }

  struct Channel: Sendable {
    var own: Settings
    var memberships: [Membership] = []
    var messages: [Message] = []
    /// Where in `messages` an id stands.
    var places: [String: Int] = [:]
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

  private(set) var channels: [String: Channel] = [:]
  private(set) var types: [String: ChannelType] = [:]
  private(set) var users: [String: UserView] = [:]
  private(set) var now = 0

  // MARK: Commands

  mutating func perform(_ command: Command, clock: Int) -> Outcome {
    pass(to: clock)
    switch command {
    case .put(let cid, let settings, let members): return put(cid, settings, members)
    case .change(let cid, let add, let remove): return change(cid, add, remove)
    case .post(let cid, let id, let sender, let created, let isSilent, let wantsReceipt):
      return post(cid, id, sender, created, isSilent, wantsReceipt)
    case .delete(let cid, let id): return delete(cid, id)
    case .read(let cid, let user, let message, let epoch):
      let isHidden = hidesRead(user)
      return act(cid, user, message, emptyIsNewest: true) {
        .read(to: $0, epoch: epoch, at: $1, isHidden: isHidden)
      }
    case .delivered(let cid, let user, let message):
      let isHidden = hidesDelivered(user)
      return act(cid, user, message, emptyIsNewest: true) { .delivered(to: $0, at: $1, isHidden: isHidden) }
    case .unread(let cid, let user, let message, let epoch):
      let isOff = channels[cid] != nil && settings(cid)["mark_unread"] == "off"
      return act(cid, user, message, isOff: isOff) { n, _ in .unread(from: n, epoch: epoch) }
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
      if record.version > users[record.user]?.version ?? 0 { users[record.user] = record }
      return .user(users[record.user] ?? UserView(user: record.user))
    }
  }

  /// R20: time never falls.
  mutating func pass(to clock: Int) { now = max(now, clock) }

  private mutating func put(_ cid: String, _ settings: Settings, _ members: [Seat]) -> Outcome {
    let isNew = channels[cid] == nil
    channels[cid, default: Channel(own: [:])].own.merge(settings) { $1 }
    join(cid, members)
    return .channel(isNew: isNew, members: memberCount(cid), newest: channels[cid]!.messages.count)
  }

  private mutating func change(_ cid: String, _ add: [Seat], _ remove: [String]) -> Outcome {
    guard channels[cid] != nil else { return .refused("channel_not_found") }
    for user in remove {
      if let current = membership(cid, user) { channels[cid]!.memberships[current].hasLeft = true }
    }
    join(cid, add)
    return .channel(isNew: false, members: memberCount(cid), newest: channels[cid]!.messages.count)
  }

  private mutating func join(_ cid: String, _ seats: [Seat]) {
    let hidesHistory = settings(cid)["history"] == "hidden"
    for seat in seats {
      if let current = membership(cid, seat.user) {
        if !seat.role.isEmpty { channels[cid]!.memberships[current].role = seat.role }
        continue
      }
      channels[cid]!.memberships.append(
        Membership(
          user: seat.user,
          role: seat.role,
          joinedAfter: channels[cid]!.messages.count,
          joinedAt: now,
          hidesHistory: hidesHistory
        )
      )
    }
  }

  private mutating func post(
    _ cid: String,
    _ id: String,
    _ sender: String,
    _ created: Int,
    _ isSilent: Bool,
    _ wantsReceipt: Bool
  ) -> Outcome {
    guard channels[cid] != nil else { return .refused("channel_not_found") }
    if let known = channels[cid]!.places[id] {
      let message = channels[cid]!.messages[known]
      if message.isDeleted { return .refused("message_deleted") }
      return .message(sequence: known + 1, isNew: false, refusal: message.receiptRefusal)
    }
    var message = Message(
      id: id,
      sender: sender,
      isSilent: isSilent,
      registeredAt: now,
      createdAt: created == 0 ? now : created
    )
    if wantsReceipt {
      message.receiptRefusal = receiptRefusal(cid, sender)
      message.hasReceipt = message.receiptRefusal.isEmpty
      if message.hasReceipt, let ttl = number("receipt_ttl", cid) { message.expiresAt = now + ttl * 1000 }
    }
    channels[cid]!.places[id] = channels[cid]!.messages.count
    channels[cid]!.messages.append(message)
    let sequence = channels[cid]!.messages.count
    if let row = membership(cid, sender) {
      channels[cid]!.memberships[row].acts.append(
        .posted(
          sequence,
          at: now,
          hidesRead: hidesRead(sender),
          hidesDelivered: hidesDelivered(sender)
        )
      )
    }
    return .message(sequence: sequence, isNew: true, refusal: message.receiptRefusal)
  }

  /// R9: why this sender may not ask for a receipt now.
  private func receiptRefusal(_ cid: String, _ sender: String) -> String {
    if let roles = roles("receipt_request_roles", cid) {
      let role = membership(cid, sender).map { channels[cid]!.memberships[$0].role } ?? ""
      if !roles.contains(role) { return "receipt_not_allowed" }
    }
    if let limit = number("receipt_daily_limit", cid) {
      let today = channels[cid]!.messages.filter {
        $0.hasReceipt && $0.registeredAt / 86_400_000 == now / 86_400_000
      }
      if today.count >= limit { return "receipt_limit_reached" }
    }
    return ""
  }

  private mutating func delete(_ cid: String, _ id: String) -> Outcome {
    guard channels[cid] != nil else { return .refused("channel_not_found") }
    guard let place = channels[cid]!.places[id] else { return .refused("message_not_found") }
    channels[cid]!.messages[place].isDeleted = true
    return .position(place + 1)
  }

  private mutating func act(
    _ cid: String,
    _ user: String,
    _ message: String,
    emptyIsNewest: Bool = false,
    isOff: Bool = false,
    _ make: (Int, Int) -> Act
  ) -> Outcome {
    guard channels[cid] != nil else { return .refused("channel_not_found") }
    guard let row = membership(cid, user) else { return .refused("not_a_member") }
    guard !isOff else { return .refused("mark_unread_off") }
    var sequence = channels[cid]!.messages.count
    if !(emptyIsNewest && message.isEmpty) {
      guard let place = channels[cid]!.places[message] else { return .refused("message_not_found") }
      sequence = place + 1
    }
    let act = make(sequence, now)
    channels[cid]!.memberships[row].acts.append(act)
    if case .read = act, readAcknowledges(cid) {
      // Each one as by hand; what may not be acknowledged is not.
      for message in channels[cid]!.messages[..<sequence] where message.hasReceipt {
        _ = acknowledge(cid, row, message.id, "")
      }
    }
    return .row(answers(cid).ownRow(user)!)
  }

  /// R9, `read_acks_receipts`.
  private func readAcknowledges(_ cid: String) -> Bool {
    switch settings(cid)["read_acks_receipts"]! {
    case "always": true
    case "direct": memberCount(cid) == 2
    default: false
    }
  }

  /// R9: `ok`, or why not.
  private mutating func acknowledge(_ cid: String, _ row: Int, _ id: String, _ note: String) -> String {
    let member = channels[cid]!.memberships[row]
    guard let place = channels[cid]!.places[id] else { return "message_not_found" }
    let message = channels[cid]!.messages[place]
    if message.isDeleted { return "message_deleted" }
    if !message.hasReceipt { return "receipt_not_requested" }
    if message.sender == member.user { return "own_message" }
    if message.acknowledgements.contains(where: { $0.membership == row }) { return "ok" }
    if let expires = message.expiresAt, now >= expires { return "receipt_expired" }
    // Neither expected nor a reader (R6).
    if member.joinedAfter > place { return "ok" }
    let isHidden = hidesRead(member.user)
    let most = number("receipt_max_members", cid)
    channels[cid]!.messages[place].acknowledgements.append(
      Acknowledgement(membership: row, at: now, isHidden: isHidden, note: most == 0 ? "" : note)
    )
    // Hidden ones do not count, do not displace, and do not give way: nobody can see from the others that somebody hidden acknowledged.
    guard let most, !isHidden else { return "ok" }
    while true {
      let kept = channels[cid]!.messages[place].acknowledgements.indices.filter {
        let other = channels[cid]!.messages[place].acknowledgements[$0]
        return !other.isHidden && !other.isForgotten
      }
      guard kept.count > most else { return "ok" }
      channels[cid]!.messages[place].acknowledgements[kept[0]].isForgotten = true
    }
  }

  private mutating func patch(_ user: String, _ showsRead: Bool?, _ showsDelivered: Bool?, _ revoked: Int?)
    -> Outcome
  {
    let before = users[user] ?? UserView(user: user)
    var after = before
    if let showsRead { after.hidesRead = !showsRead }
    if let showsDelivered { after.hidesDelivered = !showsDelivered }
    if let revoked { after.revokedBefore = revoked }
    if before.hidesRead, !after.hidesRead { after.readShownSince = now }
    if before.hidesDelivered, !after.hidesDelivered { after.deliveredShownSince = now }
    if after != before {
      after.version += 1
      users[user] = after
    }
    return .user(after)
  }

  // MARK: Looking things up

  func hidesRead(_ user: String) -> Bool { users[user]?.hidesRead ?? false }
  func hidesDelivered(_ user: String) -> Bool { users[user]?.hidesDelivered ?? false }

  /// R7: their token is older than the moment before which all of theirs were revoked.
  func isRevoked(_ user: String, issuedSeconds: Int) -> Bool {
    issuedSeconds * 1000 < users[user]?.revokedBefore ?? 0
  }

  func settings(_ cid: String) -> Settings {
    let type = types[String(cid.split(separator: ":")[0])] ?? ChannelType()
    return type.settings.merging(channels[cid]!.own) { $1 }
  }

  /// An option that is a number, or `null`.
  func number(_ option: String, _ cid: String) -> Int? { Int(settings(cid)[option]!) }

  /// An option that is a list of roles, or `null`.
  private func roles(_ option: String, _ cid: String) -> [String]? {
    let value = settings(cid)[option]!
    return value == "null" ? nil : value.split(separator: ",").map(String.init)
  }

  /// The membership of a user who is a member now.
  func membership(_ cid: String, _ user: String) -> Int? {
    channels[cid]!.memberships.firstIndex { $0.user == user && !$0.hasLeft }
  }

  func memberCount(_ cid: String) -> Int { channels[cid]!.memberships.filter { !$0.hasLeft }.count }

  func messageCount(_ cid: String) -> Int { channels[cid]?.messages.count ?? 0 }
}

/// A refusal by the wire's name of its error.
struct NamedRefusal: Error, Hashable, Sendable {
  var name: String
}
