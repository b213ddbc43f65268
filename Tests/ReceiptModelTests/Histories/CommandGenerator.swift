import TestSupport

@testable import NaiveReceiptModel

/// The size and command mix of one random history.
struct HistoryShape: Sendable {
  var channels: Int
  var users: Int
  /// The percentage of commands that register messages, and of those that change members.
  var posts: Int
  var memberChanges: Int
  /// The percentage of commands that register replies.
  var replies: Int
  /// The number of commands in a thousand that delete more than one message, or mark all channels.
  var removals: Int
  var shards = 1

  /// In order: small and hot; wide, with segments; many rows with an index; several shards; a direct channel; frequent
  /// joins and leaves; busy threads.
  static let all = [
    HistoryShape(channels: 2, users: 6, posts: 15, memberChanges: 6, replies: 8, removals: 12),
    HistoryShape(channels: 1, users: 12, posts: 30, memberChanges: 4, replies: 0, removals: 0),
    HistoryShape(channels: 1, users: 40, posts: 12, memberChanges: 30, replies: 5, removals: 4),
    HistoryShape(channels: 4, users: 20, posts: 20, memberChanges: 12, replies: 8, removals: 12, shards: 3),
    HistoryShape(channels: 1, users: 3, posts: 10, memberChanges: 2, replies: 8, removals: 6),
    HistoryShape(channels: 6, users: 8, posts: 15, memberChanges: 10, replies: 12, removals: 50, shards: 4),
    HistoryShape(channels: 1, users: 9, posts: 4, memberChanges: 3, replies: 25, removals: 2),
  ]
}

/// Random commands. They depend only on the seed and on the naive model's state, so a seed replays its history.
struct CommandGenerator: Sendable {
  var random: SplitMix64
  /// For push acks only: a separate stream keeps the other commands of older seeds unchanged.
  private var pushes: SplitMix64
  /// For a registration's positions and mentions, for the same reason.
  private var terms: SplitMix64
  let shape: HistoryShape
  let cids: [String]
  let users: [String]
  /// Starts ten seconds before midnight (UTC), so that daily limits reset.
  private(set) var clock = 3 * 86_400_000 - 10_000
  private var nextMessage: [String: Int] = [:]
  private var nextReply: [String: Int] = [:]
  /// Users being erased; the first is erased first.
  private var usersBeingErased: [String] = []

  init(seed: UInt64) {
    random = SplitMix64(seed: seed)
    pushes = SplitMix64(seed: seed &* 0x9E6C_63D0_876A_68DE &+ 1)
    terms = SplitMix64(seed: seed &* 0xD6E8_FEB8_6659_FD93 &+ 3)
    shape = HistoryShape.all[Int(seed % UInt64(HistoryShape.all.count))]
    cids = (0..<shape.channels).map { "\($0 % 2 == 0 ? "team" : "dm"):c\($0)" }
    // Some users have ids like cids, some have ids in the style of other systems.
    users = (0..<shape.users).map { number in
      switch number {
      case 1: "team:c0"
      case 2: "auth0|2"
      case 3: "@user:3/é"
      default: "user\(number)"
      }
    }
  }

  /// Advance the clock: mostly a little, sometimes not at all, sometimes back (R20), sometimes beyond the expiry of
  /// acknowledgement requests or into another day.
  mutating func tick() -> Int {
    switch random.below(1000) {
    case 0..<20: clock -= random.below(2000)
    case 20..<26: clock += random.below(4000)
    case 26..<28: clock += 20_000_000 + random.below(90_000_000)
    default: clock += random.below(30)
    }
    return clock
  }

  mutating func next(_ model: NaiveModel) -> Command {
    // Now and then a cid that was never created.
    let cid = random.oneIn(500) ? "team:none" : random.pick(cids)
    var roll = random.below(100)
    func isWithin(_ share: Int) -> Bool {
      roll -= share
      return roll < 0
    }
    if model.channels[cid] == nil, random.oneIn(2) {
      return .put(cid: cid, settings: settings(isNew: true), members: seats(shape.users))
    }
    if isWithin(2) {
      return .put(cid: cid, settings: settings(isNew: model.channels[cid] == nil), members: seats(3))
    }
    if isWithin(shape.memberChanges) {
      let add = random.oneIn(2) ? seats(3) : []
      let remove = random.oneIn(2) ? seats(2).map(\.user) : []
      return .change(cid: cid, add: add, remove: remove)
    }
    if isWithin(shape.posts) { return post(cid, model) }
    if isWithin(shape.replies) { return reply(cid, model) }
    if random.below(1000) < shape.removals { return removal(cid, model) }
    if !usersBeingErased.isEmpty, random.oneIn(6) { return erase(model) }
    if isWithin(3) {
      return .delete(cid: cid, id: random.oneIn(4) ? reply(cid, in: parent(cid, model), model) : message(cid))
    }
    if isWithin(1) { return type() }
    if isWithin(3) { return settingsOf(random.oneIn(30) ? "nobody" : random.pick(users + ["robot"]), model) }
    // The other commands are marks, most of them reads.
    let user = user()
    if terms.oneIn(16) { return member(cid, user, model) }
    if shape.replies > 0, random.oneIn(3) { return markInThread(cid, user, model) }
    switch random.below(12) {
    case 0..<4:
      return .read(
        cid: cid,
        user: user,
        message: random.oneIn(4) ? "" : message(cid),
        epoch: epoch(cid, user, model)
      )
    case 4..<7:
      let message = random.oneIn(4) ? "" : message(cid)
      return pushed(cid, user, message, model) ?? .delivered(cid: cid, user: user, message: message)
    case 7..<9:
      let count = random.oneIn(3) ? 1 + random.below(8) : 1
      let ids = (0..<count).map { _ in message(cid) }
      let note = random.oneIn(2) ? "note \(random.below(1000))" : ""
      return .acknowledge(cid: cid, user: user, messages: ids, note: note)
    default: return .unread(cid: cid, user: user, message: message(cid), epoch: epoch(cid, user, model))
    }
  }

  /// Flag a channel unread, mute it, or change a role.
  private mutating func member(_ cid: String, _ user: String, _ model: NaiveModel) -> Command {
    if terms.oneIn(2) { return .unread(cid: cid, user: user, message: "", epoch: epoch(cid, user, model)) }
    return .member(
      cid: cid,
      user: user,
      role: terms.oneIn(3) ? terms.pick(["admin", "guest"]) : "",
      isMuted: terms.oneIn(4) ? nil : terms.oneIn(2),
      joins: terms.oneIn(2)
    )
  }

  private mutating func post(_ cid: String, _ model: NaiveModel) -> Command {
    var id = message(cid)
    // A repeat, identical or with other fields.
    if random.oneIn(12), let known = model.channels[cid]?.main.messages.first(where: { $0.id == id }) {
      return .post(
        cid: cid,
        id: id,
        sender: known.sender,
        created: 0,
        isSilent: known.isSilent,
        requestsAcknowledgement: known.hasAcknowledgementRequest || !known.acknowledgementRequestRefusal.isEmpty,
        movesPosition: known.moves
      )
    }
    if !random.oneIn(6) {
      id = "m\(nextMessage[cid, default: 1])"
      nextMessage[cid, default: 1] += 1
    }
    let sender = random.oneIn(12) ? "" : random.oneIn(12) ? "robot" : user()
    return .post(
      cid: cid,
      id: id,
      sender: sender,
      created: random.oneIn(4) ? 1 + random.below(clock) : 0,
      isSilent: random.oneIn(10),
      requestsAcknowledgement: random.oneIn(2),
      movesPosition: !terms.oneIn(5),
      mentions: mentions()
    )
  }

  /// No mentions half of the time; otherwise everybody, or some users, members or not, with duplicates.
  private mutating func mentions() -> [String] {
    if terms.oneIn(2) { return [] }
    if terms.oneIn(3) { return [everybody] }
    return (0...terms.below(4)).map { _ in terms.oneIn(20) ? "nobody" : terms.pick(users) }
  }

  // MARK: Push acks

  /// Replace half of the marks by a push ack: by names, or by a ticket, mostly a new one, sometimes the
  /// very first. Its time is now, a moment ago, long ago, or in the future.
  private mutating func pushed(
    _ cid: String,
    _ user: String,
    _ message: String,
    _ model: NaiveModel
  ) -> Command? {
    guard pushes.oneIn(2), !message.isEmpty else { return nil }
    var acked = 0
    switch pushes.below(8) {
    case 0..<4: acked = clock - pushes.below(200)
    case 4: acked = clock - pushes.below(200_000)
    case 5: acked = pushes.oneIn(2) ? 1 : clock + pushes.below(3_000)
    default: break
    }
    let tickets = model.tickets[cid, default: []].count
    if tickets > 0, pushes.oneIn(2) {
      let ticket = pushes.oneIn(8) ? 0 : tickets - 1 - pushes.below(min(tickets, 12))
      return .redeem(cid: cid, ticket: ticket, acked: acked)
    }
    if pushes.oneIn(2) { return .ticket(cid: cid, user: user, message: message) }
    return .push(cid: cid, user: user, message: message, acked: acked)
  }

  // MARK: Threads

  /// Mostly a message with replies, sometimes any message, now and then a reply.
  private mutating func parent(_ cid: String, _ model: NaiveModel) -> String {
    guard let channel = model.channels[cid], !channel.threads.isEmpty, !random.oneIn(6) else {
      return message(cid)
    }
    if random.oneIn(30) { return "r\(random.below(nextReply[cid, default: 1] + 1))" }
    let newest = channel.threads.suffix(random.oneIn(4) ? channel.threads.count : 3)
    return channel.main.messages[random.pick(Array(newest)).parent!].id
  }

  /// Mostly one of the newest replies of that thread, sometimes any reply, now and then none.
  private mutating func reply(_ cid: String, in parent: String, _ model: NaiveModel) -> String {
    guard let channel = model.channels[cid], let place = channel.main.places[parent],
      let thread = channel.threads.first(where: { $0.parent == place }), !random.oneIn(20)
    else { return "r\(random.below(nextReply[cid, default: 1] + 1))" }
    return random.pick(Array(thread.messages.suffix(random.oneIn(4) ? 1000 : 5))).id
  }

  private mutating func reply(_ cid: String, _ model: NaiveModel) -> Command {
    let parent = parent(cid, model)
    var id = random.oneIn(3) ? message(cid) : reply(cid, in: parent, model)
    if random.oneIn(12), let known = model.find(cid, reply: id) {
      let post = Command.post(
        cid: cid,
        id: id,
        sender: known.message.sender,
        created: 0,
        isSilent: known.message.isSilent,
        requestsAcknowledgement: !known.message.acknowledgementRequestRefusal.isEmpty,
        movesPosition: known.message.moves
      )
      return .inThread(known.parent, post)
    }
    if !random.oneIn(8) {
      id = "r\(nextReply[cid, default: 1])"
      nextReply[cid, default: 1] += 1
    }
    let sender = random.oneIn(15) ? "" : random.oneIn(15) ? "robot" : user()
    return .inThread(
      parent,
      .post(
        cid: cid,
        id: id,
        sender: sender,
        created: 0,
        isSilent: random.oneIn(10),
        requestsAcknowledgement: random.oneIn(8),
        movesPosition: !terms.oneIn(5),
        mentions: mentions()
      )
    )
  }

  /// Names the thread, or a reply's id alone.
  private mutating func markInThread(_ cid: String, _ user: String, _ model: NaiveModel) -> Command {
    let parent = parent(cid, model)
    let isNamed = !random.oneIn(4)
    var message = reply(cid, in: parent, model)
    if isNamed, random.oneIn(3) { message = "" }
    if random.oneIn(40) { message = self.message(cid) }
    let epoch = random.oneIn(3) ? random.below(3) : nil
    let mark: Command
    switch random.below(8) {
    case 0..<3: mark = .read(cid: cid, user: user, message: message, epoch: epoch)
    case 3..<5:
      if let push = pushed(cid, user, message, model) { return push }
      mark = .delivered(cid: cid, user: user, message: message)
    default: mark = .unread(cid: cid, user: user, message: message, epoch: epoch)
    }
    return isNamed ? .inThread(parent, mark) : mark
  }

  // MARK: Removal

  private mutating func removal(_ cid: String, _ model: NaiveModel) -> Command {
    let user = random.oneIn(8) ? random.pick(["robot", "nobody"]) : random.pick(users)
    switch random.below(12) {
    case 0..<3: return .truncate(cid: cid, before: random.oneIn(3) ? "" : message(cid))
    case 3: return .deleteChannel(cid: cid)
    case 4..<7: return .eraseMember(cid: cid, user: user)
    case 7..<9:
      if !usersBeingErased.contains(user) { usersBeingErased.append(user) }
      return .eraseUser(user)
    default: return .readAll(user)
    }
  }

  /// One step of erasing a user, as a gateway does it: first out of every channel that knows them, then the settings.
  private mutating func erase(_ model: NaiveModel) -> Command {
    let user = usersBeingErased[0]
    let left = model.index(of: user)
    if !left.isEmpty { return .eraseMember(cid: random.pick(left).cid, user: user) }
    usersBeingErased.removeFirst()
    return .assignErased(user, version: model.settings(of: user).version + 1)
  }

  private mutating func type() -> Command {
    let name = random.pick(["team", "dm", "other"])
    if random.oneIn(3) {
      return .assignType(name: name, version: 1 + random.below(40), settings: settings(isNew: false))
    }
    return .patchType(name: name, settings: settings(isNew: false))
  }

  /// Change a user's acknowledgement request settings or the time of their token revocation.
  private mutating func settingsOf(_ user: String, _ model: NaiveModel) -> Command {
    if random.oneIn(5) {
      // Copies a version from the user's home shard: late, twice, or not at all.
      var record = model.settings(of: user)
      record.version = max(1, model.settings(of: user).version - 1 + random.below(4))
      // For a user being erased, delayed updates are older than the erasure.
      if record.isErasing { record.version = max(1, min(record.version, model.settings(of: user).version)) }
      record.isErasing = false
      record.isErased = false
      let (hidRead, hidDelivered) = (record.hidesRead, record.hidesDelivered)
      record.hidesRead = random.oneIn(2)
      record.hidesDelivered = random.oneIn(2)
      if hidRead, !record.hidesRead { record.readShownSince = model.now + random.below(20) }
      if hidDelivered, !record.hidesDelivered { record.deliveredShownSince = model.now + random.below(20) }
      if random.oneIn(6) { record.revokedBefore = random.below(clock) }
      return .assignUser(record)
    }
    return .patchUser(
      user,
      showsRead: random.oneIn(3) ? nil : random.oneIn(2),
      showsDelivered: random.oneIn(3) ? nil : random.oneIn(2),
      revoked: random.oneIn(6) ? random.below(clock) : nil
    )
  }

  private mutating func user() -> String { random.oneIn(60) ? "nobody" : random.pick(users) }

  /// Mostly one of the last twenty messages, sometimes any, sometimes one that may not exist.
  private mutating func message(_ cid: String) -> String {
    let newest = nextMessage[cid, default: 1]
    if random.oneIn(30) { return "odd\(random.below(4))" }
    let reach = random.oneIn(4) ? newest : min(newest, 20)
    return "m\(newest - random.below(reach + 1))"
  }

  /// No epoch, the current one, an older or a newer one.
  private mutating func epoch(_ cid: String, _ user: String, _ model: NaiveModel) -> Int? {
    if random.oneIn(3) { return nil }
    let current = model.epoch(cid, user)
    switch random.below(6) {
    case 0: return max(0, current - 1)
    case 1: return random.below(current + 1)
    case 2: return current + 1
    default: return current
    }
  }

  private mutating func seats(_ most: Int) -> [MemberSpec] {
    (0..<random.below(most + 1)).map { _ in
      MemberSpec(user: random.pick(users), role: random.oneIn(3) ? random.pick(["admin", "guest"]) : "")
    }
  }

  /// - Parameter isNew: whether the channel is being created. Only then `kept_steps` is drawn: after it is raised
  ///   again, earlier steps may or may not be left. That depends on storage and is no rule.
  private mutating func settings(isNew: Bool) -> Settings {
    var settings: Settings = [:]
    func draw(_ name: String, _ random: inout SplitMix64, _ values: [String]) {
      if random.oneIn(isNew ? 2 : 6) { settings[name] = random.pick(values) }
    }
    draw("read_events", &random, ["true", "true", "true", "false"])
    draw("delivery_events", &random, ["true", "true", "true", "false"])
    draw("mark_unread", &random, ["private", "private", "public", "public", "off"])
    draw("history", &random, ["visible", "hidden"])
    draw("read_acks_receipts", &random, ["direct", "always", "never"])
    draw("receipt_ttl", &random, ["null", "1", "2", "3", "60"])
    draw("receipt_max_members", &random, ["null", "0", "1", "2", "3"])
    draw("receipt_daily_limit", &random, ["null", "null", "0", "5", "50"])
    draw("receipt_request_roles", &random, ["null", "null", "", "admin", "admin,guest"])
    draw("counts_visible_to", &random, ["members", "members", "sender"])
    draw("status_rule", &random, ["any", "all", "1", "2", "5", "1%", "34%", "50%", "100%"])
    if isNew { draw("kept_steps", &random, ["0", "1", "2", "3", "7", "4096"]) }
    return settings
  }
}
