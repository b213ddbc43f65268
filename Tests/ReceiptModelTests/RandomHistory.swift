@testable import ReceiptModel

/// The generator behind every random test: SplitMix64, the same on every machine and in every release.
struct SplitMix64: RandomNumberGenerator, Sendable {
  private var state: UInt64

  init(seed: UInt64) { state = seed }

  mutating func next() -> UInt64 {
    state &+= 0x9E37_79B9_7F4A_7C15
    var word = state
    word = (word ^ (word >> 30)) &* 0xBF58_476D_1CE4_E5B9
    word = (word ^ (word >> 27)) &* 0x94D0_49BB_1331_11EB
    return word ^ (word >> 31)
  }

  /// 0 up to, not including, `limit`.
  mutating func below(_ limit: Int) -> Int { Int(next() % UInt64(limit)) }

  /// True once in so many times.
  mutating func oneIn(_ times: Int) -> Bool { below(times) == 0 }

  mutating func pick<Element>(_ elements: [Element]) -> Element { elements[below(elements.count)] }

  /// Not the standard library's, whose way of shuffling may change between releases.
  mutating func shuffled<Element>(_ elements: [Element]) -> [Element] {
    var elements = elements
    for place in stride(from: elements.count - 1, to: 0, by: -1) { elements.swapAt(place, below(place + 1)) }
    return elements
  }
}

/// How large the world of one random history is.
struct HistoryShape: Sendable {
  var channels: Int
  var users: Int
  /// Of a hundred commands, how many register messages, and how many change members.
  var posts: Int
  var memberChanges: Int

  /// Small and hot, wide with segments, many rows with an index, one with everything, a direct channel.
  static let all = [
    HistoryShape(channels: 2, users: 6, posts: 15, memberChanges: 6),
    HistoryShape(channels: 1, users: 12, posts: 30, memberChanges: 4),
    HistoryShape(channels: 1, users: 40, posts: 12, memberChanges: 30),
    HistoryShape(channels: 4, users: 20, posts: 20, memberChanges: 12),
    HistoryShape(channels: 1, users: 3, posts: 10, memberChanges: 2),
  ]
}

/// Random commands. They depend on the seed, and on what the naive model says there is, so a history replays from its seed.
struct CommandGenerator: Sendable {
  var random: SplitMix64
  let shape: HistoryShape
  let cids: [String]
  let users: [String]
  /// Ten seconds before midnight (UTC): limits by the day come round.
  private(set) var clock = 3 * 86_400_000 - 10_000
  private var nextMessage: [String: Int] = [:]

  init(seed: UInt64) {
    random = SplitMix64(seed: seed)
    shape = HistoryShape.all[Int(seed % UInt64(HistoryShape.all.count))]
    cids = (0..<shape.channels).map { "\($0 % 2 == 0 ? "team" : "dm"):c\($0)" }
    users = (0..<shape.users).map { "user\($0)" }
  }

  /// Mostly a little forward, sometimes not at all, sometimes back (R20), sometimes over the expiry of receipts, or into another day.
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
    // Now and then one that was never put.
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
    if isWithin(3) { return .delete(cid: cid, id: message(cid)) }
    if isWithin(1) { return type() }
    if isWithin(3) { return settingsOf(random.oneIn(30) ? "nobody" : random.pick(users + ["robot"]), model) }
    // The rest are marks, reads before all.
    let user = user()
    switch random.below(12) {
    case 0..<4:
      return .read(
        cid: cid,
        user: user,
        message: random.oneIn(4) ? "" : message(cid),
        epoch: epoch(cid, user, model)
      )
    case 4..<7: return .delivered(cid: cid, user: user, message: random.oneIn(4) ? "" : message(cid))
    case 7..<9:
      let count = random.oneIn(3) ? 1 + random.below(8) : 1
      let ids = (0..<count).map { _ in message(cid) }
      let note = random.oneIn(2) ? "note \(random.below(1000))" : ""
      return .acknowledge(cid: cid, user: user, messages: ids, note: note)
    default: return .unread(cid: cid, user: user, message: message(cid), epoch: epoch(cid, user, model))
    }
  }

  private mutating func post(_ cid: String, _ model: NaiveModel) -> Command {
    var id = message(cid)
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
      wantsReceipt: random.oneIn(2)
    )
  }

  private mutating func type() -> Command {
    let name = random.pick(["team", "dm", "other"])
    if random.oneIn(3) {
      return .assignType(name: name, version: 1 + random.below(40), settings: settings(isNew: false))
    }
    return .patchType(name: name, settings: settings(isNew: false))
  }

  /// What a user hides, and when their tokens were revoked.
  private mutating func settingsOf(_ user: String, _ model: NaiveModel) -> Command {
    if random.oneIn(5) {
      // From the user's home shard: versions come late, twice, or not at all.
      var record = model.users[user] ?? UserView(user: user)
      record.version = max(1, record.version - 1 + random.below(4))
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

  /// Mostly one of the last twenty, sometimes any, sometimes one that may not be there.
  private mutating func message(_ cid: String) -> String {
    let newest = nextMessage[cid, default: 1]
    if random.oneIn(30) { return "odd\(random.below(4))" }
    let reach = random.oneIn(4) ? newest : min(newest, 20)
    return "m\(newest - random.below(reach + 1))"
  }

  /// None, the one in force, an older or a newer one.
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

  private mutating func seats(_ most: Int) -> [Seat] {
    (0..<random.below(most + 1)).map { _ in
      Seat(user: random.pick(users), role: random.oneIn(3) ? random.pick(["admin", "guest"]) : "")
    }
  }

  /// - Parameter isNew: for a channel that is to be created. Only there `kept_steps` is drawn: what was kept under a higher number may be gone
  ///   or not when it is raised again, which is no rule but a matter of storage.
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

/// What went wrong in a random history, and how to see it again.
struct HistoryFault: Error, CustomStringConvertible {
  var seed: UInt64
  var step: Int
  var text: String

  var description: String {
    "step \(step): \(text)\nreplay with TIDEMARK_SEED=\(seed) TIDEMARK_STEPS=\(step)"
  }
}

/// One history: random commands to the real shard and to the naive model, which have to agree on every result, and on every query at
/// random moments. Meanwhile pages are written, channels are let go and loaded, and the shard crashes and recovers.
struct RandomHistory {
  let seed: UInt64
  let shard = TestShard()
  private(set) var model = NaiveModel()
  private(set) var step = 0
  /// How often something was done, to see that a history does not run idle.
  private(set) var tally: [String: Int] = [:]
  private var generator: CommandGenerator
  private var random: SplitMix64

  init(seed: UInt64) {
    self.seed = seed
    generator = CommandGenerator(seed: seed)
    random = SplitMix64(seed: seed &* 0x5851_F42D_4C95_7F2D &+ 1)
  }

  mutating func run(steps: Int) throws(HistoryFault) {
    for _ in 0..<steps { try advance() }
    try compareEverything()
    try compareReplays()
  }

  private mutating func advance() throws(HistoryFault) {
    step += 1
    let command = generator.next(model)
    let clock = generator.tick()
    let expected = model.perform(command, clock: clock)
    let real = shard.perform(command, clock: clock)
    if real != expected { throw fault("\(command): the model says \(expected), the shard \(real)") }
    count(real)
    if random.oneIn(2) { shard.seal() }
    if random.oneIn(25) { try compareSome() }
    if random.oneIn(100) { shard.checkAll() }
    if random.oneIn(60) { checkpoint() }
    if random.oneIn(400) { evict() }
    if random.oneIn(800) { crash() }
    if let text = shard.faults.first { throw fault("after \(command): \(text)") }
  }

  private mutating func count(_ outcome: Outcome) {
    switch outcome {
    case .refused(let name): tally[name, default: 0] += 1
    case .row: tally[shard.lastEffectCount > 0 ? "moved" : "same", default: 0] += 1
    case .message(_, let isNew, let refusal):
      tally[isNew ? "created" : "known", default: 0] += 1
      if !refusal.isEmpty { tally[refusal, default: 0] += 1 }
    case .acknowledged(let codes): for code in codes { tally["acknowledge \(code)", default: 0] += 1 }
    case .position, .channel, .type, .user: tally["other", default: 0] += 1
    }
  }

  private func fault(_ text: String) -> HistoryFault { HistoryFault(seed: seed, step: step, text: text) }

  // MARK: Pages, crashes

  /// Writes some pages, not all: each has an index of its own.
  private mutating func checkpoint() {
    shard.seal()
    if random.oneIn(3) { shard.checkpointShard() }
    for number in shard.slots.keys.sorted() {
      for key in shard.pageKeys(number) + shard.stepKeys(number) where random.oneIn(3) {
        shard.checkpoint(key)
      }
      if random.oneIn(3), shard.trim(number) { tally["trims", default: 0] += 1 }
      shard.seal()
    }
    tally["checkpoints", default: 0] += 1
  }

  private mutating func evict() {
    guard !shard.slots.isEmpty else { return }
    shard.evictAndLoad(random.pick(shard.slots.keys.sorted()))
    tally["evictions", default: 0] += 1
  }

  private mutating func crash() {
    shard.seal()
    var random = random
    shard.crash { random.shuffled($0) }
    self.random = random
    tally["crashes", default: 0] += 1
  }

  // MARK: Comparing with the model

  /// Every kind of caller; somebody who is no member, now and then.
  private mutating func viewer() -> Viewer {
    let user = random.oneIn(20) ? "nobody" : random.pick(generator.users)
    return random.pick([.server, .member(user), .member(user), .serverFor(user)])
  }

  /// One channel: a few members, messages, lists and pages.
  private mutating func compareSome() throws(HistoryFault) {
    let cid = random.pick(generator.cids)
    guard model.channels[cid] != nil else { return }
    let answers = model.answers(cid)
    for _ in 0..<3 {
      try compareRows(cid, answers, random.pick(generator.users))
      try compareSteps(cid, answers, random.pick(generator.users))
    }
    let newest = model.messageCount(cid)
    for _ in 0..<6 {
      let number = random.oneIn(2) ? random.below(newest + 1) : max(0, newest - random.below(20))
      try compareMessage(cid, answers, "m\(1 + number)")
    }
    try compareMessage(cid, answers, "odd\(random.below(4))")
    try compareStatuses(cid, answers, viewer())
    try comparePages(cid, answers, viewer(), limit: 1 + random.below(12))
    tally["comparisons", default: 0] += 1
  }

  /// One message: its status, a list, and some members.
  private mutating func compareMessage(
    _ cid: String,
    _ answers: NaiveModel.Answers,
    _ id: String
  ) throws(HistoryFault) {
    try compareStatus(cid, answers, id, viewer())
    let (list, order) = (random.pick(ListName.allCases), random.pick(OrderName.allCases))
    try compareList(cid, answers, id, viewer(), list, order, limit: 1 + random.below(8))
    let users = (0..<(1 + random.below(4))).map { _ in
      random.oneIn(20) ? "nobody" : random.pick(generator.users)
    }
    try compareMembers(cid, answers, id, viewer(), users)
  }

  private mutating func compareEverything() throws(HistoryFault) {
    shard.checkAll()
    if let text = shard.faults.first { throw fault(text) }
    for cid in generator.cids where model.channels[cid] != nil {
      let answers = model.answers(cid)
      for user in generator.users { try compareRows(cid, answers, user) }
      for message in model.channels[cid]!.messages.map(\.id) {
        try compareStatus(cid, answers, message, .server)
        try compareMessage(cid, answers, message)
      }
      for limit in [1, 2, 3, 5, 16, 17, 99, 100] {
        let user = random.pick(generator.users)
        for viewer in [Viewer.server, .member(user), .serverFor(user)] {
          try comparePages(cid, answers, viewer, limit: limit)
        }
      }
    }
    for user in generator.users + ["robot", "nobody"] {
      for seconds in [0, 1, generator.clock / 2000, generator.clock / 1000]
      where shard.isRevoked(user, issuedSeconds: seconds) != model.isRevoked(user, issuedSeconds: seconds) {
        throw fault("whether a token of \(user) from \(seconds) s is revoked: the model says otherwise")
      }
      let (real, expected) = (shard.settings(of: user), model.users[user] ?? UserView(user: user))
      if real != expected {
        throw fault("settings of \(user): the model says \(expected), the shard \(real)")
      }
    }
  }

  private func compareRows(_ cid: String, _ answers: NaiveModel.Answers, _ user: String) throws(HistoryFault)
  {
    let (real, expected) = (shard.ownRow(cid, user), answers.ownRow(user))
    guard real == expected else {
      throw fault("own row of \(user) in \(cid): the model says \(expected as Any), the shard \(real as Any)")
    }
  }

  private func compareStatus(
    _ cid: String,
    _ answers: NaiveModel.Answers,
    _ id: String,
    _ viewer: Viewer
  ) throws(HistoryFault) {
    let (real, expected) = (shard.status(cid, id, viewer), answers.status(id, viewer))
    guard real == expected else {
      throw fault("status of \(id) in \(cid) for \(viewer): the model says \(expected), the shard \(real)")
    }
  }

  /// Several at once: few, or so many that they are counted together.
  private mutating func compareStatuses(
    _ cid: String,
    _ answers: NaiveModel.Answers,
    _ viewer: Viewer
  ) throws(HistoryFault) {
    let ids = (0..<random.pick([2, 7, 8, 20, 100])).map { _ in "m\(random.below(model.messageCount(cid) + 2))"
    }
    let (real, expected) = (shard.statuses(cid, ids, viewer), ids.map { answers.status($0, viewer) })
    guard let place = ids.indices.first(where: { real[$0] != expected[$0] }) else { return }
    throw fault(
      "statuses of \(ids) in \(cid) for \(viewer): of \(ids[place]) the model says \(expected[place]), the shard \(real[place])"
    )
  }

  private mutating func compareList(
    _ cid: String,
    _ answers: NaiveModel.Answers,
    _ id: String,
    _ viewer: Viewer,
    _ list: ListName,
    _ order: OrderName,
    limit: Int
  ) throws(HistoryFault) {
    let expected = answers.list(id, viewer, list, order)
    let name = "\(list) of \(id) in \(cid) by \(order) for \(viewer), limit \(limit)"
    try compare(
      shard.pages { shard.list(cid, id, viewer, list, order, limit: limit, cursor: $0) },
      expected,
      name,
      limit
    )
    if case .success(let entries) = expected {
      tally["list of \(list)", default: 0] += entries.isEmpty ? 0 : 1
      if entries.contains(where: { !$0.isExact }) { tally["times not exact", default: 0] += 1 }
      if entries.contains(where: { !$0.note.isEmpty }) { tally["notes", default: 0] += 1 }
    }
  }

  /// Exact times by themselves (R17).
  private mutating func compareSteps(_ cid: String, _ answers: NaiveModel.Answers, _ user: String)
    throws(HistoryFault)
  {
    for _ in 0..<4 {
      let n = 1 + random.below(max(1, model.messageCount(cid)))
      let (isRead, seesHidden) = (random.oneIn(2), random.oneIn(3))
      guard let expected = answers.stepTime(user, isRead: isRead, n, seesHidden: seesHidden) else { continue }
      let real = shard.stepTime(cid, user, isRead ? .read : .delivered, n, seesHidden: seesHidden)
      tally[expected.isExact ? "exact times" : "latest times", default: 0] += 1
      guard real == expected else {
        throw fault(
          "when \(user) \(isRead ? "read" : "received") \(n) of \(cid), own eyes \(seesHidden): the model says \(expected), the shard \(real)"
        )
      }
    }
  }

  private func compareMembers(
    _ cid: String,
    _ answers: NaiveModel.Answers,
    _ id: String,
    _ viewer: Viewer,
    _ users: [String]
  ) throws(HistoryFault) {
    let (real, expected) = (
      shard.memberStatuses(cid, id, viewer, users), answers.memberStatuses(id, viewer, users)
    )
    guard real == expected else {
      throw fault(
        "\(users) of \(id) in \(cid) for \(viewer): the model says \(expected), the shard \(real)"
      )
    }
  }

  private func comparePages(
    _ cid: String,
    _ answers: NaiveModel.Answers,
    _ viewer: Viewer,
    limit: Int
  ) throws(HistoryFault) {
    let name = "read state of \(cid) for \(viewer), limit \(limit)"
    try compare(shard.readState(cid, viewer, limit: limit), answers.readState(viewer), name, limit)
  }

  /// All pages: complete, nothing twice, none but the last short, and the last with nothing after it.
  private func compare<Entry: Equatable>(
    _ pages: Result<[[Entry]], NamedRefusal>,
    _ expected: Result<[Entry], NamedRefusal>,
    _ name: String,
    _ limit: Int
  ) throws(HistoryFault) {
    switch (pages, expected) {
    case (.failure(let real), .failure(let expected)):
      if real != expected { throw fault("\(name): the model says \(expected), the shard \(real)") }
    case (.success(let pages), .success(let expected)):
      if Array(pages.joined()) != expected {
        throw fault("\(name): the model says \(expected), the shard \(pages)")
      }
      if pages.dropLast().contains(where: { $0.count != limit }) || pages.last!.count > limit {
        throw fault("\(name): pages of \(pages.map(\.count))")
      }
      if pages.count > 1, pages.last!.isEmpty { throw fault("\(name): a next page with nothing in it") }
    case (let real, let expected):
      throw fault("\(name): the model says \(expected), the shard \(real)")
    }
  }

  // MARK: Replay

  /// The log alone, and pages of different moments with the log's tail, give equal answers.
  private mutating func compareReplays() throws(HistoryFault) {
    shard.seal()
    let digest = shard.digest()
    let replayed = shard.replayed()
    try compare(digest, replayed.digest(), "replayed from the log")
    var random = random
    let recovered = shard.recovered { random.shuffled($0) }
    try compare(digest, recovered.digest(), "recovered from pages and log")
    for number in shard.slots.keys.sorted() { shard.evictAndLoad(number) }
    try compare(digest, shard.digest(), "loaded from pages")
    if let text = shard.faults.first { throw fault(text) }
    #if DEBUG
      if let text = replayed.state.checkInvariants() { throw fault("replayed: \(text)") }
      if let text = recovered.state.checkInvariants() { throw fault("recovered: \(text)") }
    #endif
  }

  private func compare(_ a: ShardDigest, _ b: ShardDigest, _ name: String) throws(HistoryFault) {
    if let text = ShardDigest.difference(a, b) { throw fault("\(name): \(text)") }
  }
}
