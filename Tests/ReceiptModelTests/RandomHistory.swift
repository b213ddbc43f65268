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

  /// Small and hot, wide with segments, many rows with an index, one with everything.
  static let all = [
    HistoryShape(channels: 2, users: 6, posts: 15, memberChanges: 6),
    HistoryShape(channels: 1, users: 12, posts: 30, memberChanges: 4),
    HistoryShape(channels: 1, users: 40, posts: 12, memberChanges: 30),
    HistoryShape(channels: 4, users: 20, posts: 20, memberChanges: 12),
  ]
}

/// Random commands. They depend on the seed, and on what the naive model says there is, so a history replays from its seed.
struct CommandGenerator: Sendable {
  var random: SplitMix64
  let shape: HistoryShape
  let cids: [String]
  let users: [String]
  private(set) var clock = 1_000_000
  private var nextMessage: [String: Int] = [:]

  init(seed: UInt64) {
    random = SplitMix64(seed: seed)
    shape = HistoryShape.all[Int(seed % UInt64(HistoryShape.all.count))]
    cids = (0..<shape.channels).map { "\($0 % 2 == 0 ? "team" : "dm"):c\($0)" }
    users = (0..<shape.users).map { "user\($0)" }
  }

  /// Mostly forward, sometimes not at all, sometimes back (R20).
  mutating func tick() -> Int {
    if random.oneIn(50) { clock -= random.below(2000) } else { clock += random.below(30) }
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
    if isWithin(2) { return .put(cid: cid, settings: settings(), members: seats(3)) }
    if isWithin(shape.memberChanges) {
      let add = random.oneIn(2) ? seats(3) : []
      let remove = random.oneIn(2) ? seats(2).map(\.user) : []
      return .change(cid: cid, add: add, remove: remove)
    }
    if isWithin(shape.posts) { return post(cid, model) }
    if isWithin(3) { return .delete(cid: cid, id: message(cid)) }
    if isWithin(1) { return type() }
    // The rest are marks, reads before all.
    let user = user()
    switch random.below(10) {
    case 0..<4:
      return .read(
        cid: cid,
        user: user,
        message: random.oneIn(4) ? "" : message(cid),
        epoch: epoch(cid, user, model)
      )
    case 4..<7: return .delivered(cid: cid, user: user, message: random.oneIn(4) ? "" : message(cid))
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
      isSilent: random.oneIn(10)
    )
  }

  private mutating func type() -> Command {
    let name = random.pick(["team", "dm", "other"])
    if random.oneIn(3) {
      return .assignType(name: name, version: 1 + random.below(40), settings: settings())
    }
    return .patchType(name: name, settings: settings())
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

  private mutating func settings() -> Settings {
    var settings: Settings = [:]
    if random.oneIn(4) { settings["read_events"] = random.pick(["true", "true", "false"]) }
    if random.oneIn(4) { settings["delivery_events"] = random.pick(["true", "true", "false"]) }
    if random.oneIn(3) {
      settings["mark_unread"] = random.pick(["private", "private", "public", "public", "off"])
    }
    if random.oneIn(3) { settings["history"] = random.pick(["visible", "hidden"]) }
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
    if random.oneIn(40) { try compareSome() }
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
    case .message(_, let isNew): tally[isNew ? "created" : "known", default: 0] += 1
    case .position, .channel, .type: tally["other", default: 0] += 1
    }
  }

  private func fault(_ text: String) -> HistoryFault { HistoryFault(seed: seed, step: step, text: text) }

  // MARK: Pages, crashes

  /// Writes some pages, not all: each has an index of its own.
  private mutating func checkpoint() {
    shard.seal()
    if random.oneIn(3) { shard.checkpointTypes() }
    for number in shard.slots.keys.sorted() {
      for key in shard.pageKeys(number) where random.oneIn(3) { shard.checkpoint(key) }
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

  /// One channel: a few members, messages and pages.
  private mutating func compareSome() throws(HistoryFault) {
    let cid = random.pick(generator.cids)
    guard model.channels[cid] != nil else { return }
    let answers = model.answers(cid)
    for _ in 0..<3 { try compareRows(cid, answers, random.pick(generator.users)) }
    for _ in 0..<6 { try compareStatus(cid, answers, "m\(1 + random.below(model.messageCount(cid) + 1))") }
    try compareStatus(cid, answers, "odd\(random.below(4))")
    let user = random.pick(generator.users)
    let viewer = random.pick([.server, .member(user), .member(user), .serverFor(user)] as [Viewer])
    try comparePages(cid, answers, viewer, limit: 1 + random.below(12))
    tally["comparisons", default: 0] += 1
  }

  private mutating func compareEverything() throws(HistoryFault) {
    shard.checkAll()
    if let text = shard.faults.first { throw fault(text) }
    for cid in generator.cids where model.channels[cid] != nil {
      let answers = model.answers(cid)
      for user in generator.users { try compareRows(cid, answers, user) }
      for message in model.channels[cid]!.messages { try compareStatus(cid, answers, message.id) }
      let user = random.pick(generator.users)
      for limit in [1, 2, 3, 5, 16, 17, 99, 100] {
        for viewer in [Viewer.server, .member(user), .serverFor(user)] {
          try comparePages(cid, answers, viewer, limit: limit)
        }
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

  private func compareStatus(_ cid: String, _ answers: NaiveModel.Answers, _ id: String) throws(HistoryFault)
  {
    let (real, expected) = (shard.status(cid, id), answers.status(id))
    guard real == expected else {
      throw fault("status of \(id) in \(cid): the model says \(expected), the shard \(real)")
    }
  }

  /// All pages: complete, no row twice, none but the last short, and the last with nothing after it.
  private func comparePages(
    _ cid: String,
    _ answers: NaiveModel.Answers,
    _ viewer: Viewer,
    limit: Int
  ) throws(HistoryFault) {
    let name = "read state of \(cid) for \(viewer), limit \(limit)"
    switch (shard.readState(cid, viewer, limit: limit), answers.readState(viewer)) {
    case (.failure(let real), .failure(let expected)):
      if real != expected { throw fault("\(name): the model says \(expected), the shard \(real)") }
    case (.success(let pages), .success(let expected)):
      if Array(pages.joined()) != expected {
        throw fault("\(name): the model says \(expected), the shard \(pages)")
      }
      if pages.dropLast().contains(where: { $0.count != limit }) || pages.last!.count > limit {
        throw fault("\(name): pages of \(pages.map(\.count))")
      }
      if pages.count > 1, pages.last!.isEmpty { throw fault("\(name): a next page without a row") }
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
    try compare(digest, ShardDigest(replayed.state, replayed.slots), "replayed from the log")
    var random = random
    let recovered = shard.recovered { random.shuffled($0) }
    try compare(digest, ShardDigest(recovered.state, recovered.slots), "recovered from pages and log")
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

extension NaiveModel {
  func messageCount(_ cid: String) -> Int { channels[cid]?.messages.count ?? 0 }

  /// The unread epoch of a member, 0 of anybody else.
  func epoch(_ cid: String, _ user: String) -> Int {
    guard let member = channels[cid]?.memberships.first(where: { $0.user == user && !$0.hasLeft }) else {
      return 0
    }
    return positions(member).epoch
  }
}
