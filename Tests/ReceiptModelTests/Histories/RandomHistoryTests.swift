import Synchronization
import TestSupport
import Testing

@testable import NaiveReceiptModel

/// Random histories against the naive model.
///
/// `TIDEMARK_SEED=n` runs the history of that seed, `TIDEMARK_SEEDS=n` the histories 1 to n. `TIDEMARK_STEPS=n` sets
/// the number of commands in each: with 500 seeds they are a million. A failure reports both, and reproduces at the
/// same step.
@Suite("Random histories", .computing)
struct RandomHistoryTests {
  /// 25 histories of 2,000 commands: 50,000 in all. They are short, because the oracle scans each history many times.
  static let seeds = TestRun.seeds(25, long: 500)
  static let steps = TestRun.number("TIDEMARK_STEPS") ?? 2000

  /// Counts over the finished histories.
  private static let all = Mutex<(done: Int, tally: [String: Int])>((0, [:]))

  @Test("random histories agree with the naive model, and replay", arguments: seeds)
  func randomHistoriesAgreeWithNaiveModel(seed: UInt64) {
    TestRun.printSeed(seed, steps: Self.steps, of: "random history")
    var history = RandomHistory<ShardHarness>(seed: seed)
    do throws(HistoryFault) {
      try history.run(steps: Self.steps)
    } catch {
      Issue.record("\(error)")
      return
    }
    let all = Self.all.withLock { all in
      all.done += 1
      all.tally.merge(history.tally) { $0 + $1 }
      return all
    }
    if all.done == Self.seeds.count, all.done >= 20, Self.steps >= 2000 {
      Self.expectFullCoverage(in: all.tally)
    }
  }

  /// Check that the histories covered every operation; otherwise they would prove too little.
  private static func expectFullCoverage(in tally: [String: Int]) {
    for name in [
      "moved", "same", "created", "acknowledge ok", "acknowledge receipt_expired", "acknowledge own_message",
      "acknowledge receipt_not_requested", "acknowledge message_deleted", "receipt_not_allowed",
      "receipt_limit_reached", "list of readers", "list of delivered", "list of unread", "notes",
      "times not exact", "known", "message_not_found", "message_deleted", "not_a_member",
      "channel_not_found", "mark_unread_off", "page writes", "evictions", "crashes", "trims", "comparisons",
      "exact times", "latest times", "in thread: created", "in thread: known", "in thread: moved",
      "in thread: no row", "in thread: invalid_field", "in thread: message_deleted",
      "in thread: message_not_found", "in thread: receipt_not_allowed", "unread threads", "truncate",
      "deleteChannel true", "deleteChannel false", "eraseMember true", "eraseMember false", "eraseUser",
      "assignErased", "user_erased", "push moved", "push same", "ticket", "redeem moved", "redeem same",
      "redeem channel_not_found", "redeem not_a_member", "redeem message_deleted", "marked all",
      "totals of several", "known, no member", "message_conflict", "in thread: message_conflict",
      "in thread: not_in_thread",
    ] {
      #expect(tally[name, default: 0] > 0, "never \(name)")
    }
  }

  @Test("control: the naive model agrees with itself, and every faulty shard is noticed")
  func everyFaultyShardIsNoticed() {
    // Seven seeds in a row have one history of each shape (``HistoryShape/all``). They are fixed, because not every
    // history notices every fault.
    func isNoticed<Shards: Subject>(_: Shards.Type) -> Bool {
      (UInt64(2)...8)
        .contains { seed in
          var history = RandomHistory<Shards>(seed: seed)
          do throws(HistoryFault) {
            try history.run(steps: 500)
            return false
          } catch {
            return true
          }
        }
    }
    #expect(!isNoticed(NaiveSubject.self))
    #expect(isNoticed(IgnoresTruncation.self))
    #expect(isNoticed(LeavesInsteadOfErasing.self))
    #expect(isNoticed(OmitsFormerMembers.self))
    #expect(isNoticed(StoresDeliveryOnRead.self))
    #expect(isNoticed(CountsThreadsAsMessages.self))
  }

  /// Seed 259506: a member leaves two threads, whose order in memory depends on evictions.
  @Test("random histories are the same for the same seed", arguments: [nil, 259_506] as [UInt64?])
  func randomHistoriesAreSameForSameSeed(fixedSeed: UInt64?) throws {
    let seed = fixedSeed ?? UInt64(TestRun.printedSeed(of: "repeated history"))
    var first = RandomHistory<ShardHarness>(seed: seed)
    var second = RandomHistory<ShardHarness>(seed: seed)
    try first.run(steps: 500)
    try second.run(steps: 500)
    #expect(
      first.shard.shards.map { $0.log.map(\.effects) } == second.shard.shards.map { $0.log.map(\.effects) }
    )
    #expect(first.shard.shards.map { $0.digest() } == second.shard.shards.map { $0.digest() })
  }
}

/// A failure in a random history, with the seed and step that reproduce it.
struct HistoryFault: Error, CustomStringConvertible {
  var seed: UInt64
  var step: Int
  var text: String

  var description: String {
    "step \(step): \(text)\nreplay with TIDEMARK_SEED=\(seed) TIDEMARK_STEPS=\(step)"
  }
}

/// One history: random commands on the real shard and on the naive model. The two must agree on every result, and on
/// every query at random moments. Meanwhile pages are written, channels are evicted and loaded, and the shard crashes
/// and recovers.
struct RandomHistory<Shards: Subject> {
  let seed: UInt64
  let shard: Shards
  private(set) var model = NaiveModel()
  private(set) var step = 0
  /// The number of times each operation ran, to check that a history covers everything.
  private(set) var tally: [String: Int] = [:]
  private var generator: CommandGenerator
  private var random: SplitMix64

  init(seed: UInt64) {
    self.seed = seed
    generator = CommandGenerator(seed: seed)
    shard = Shards(shards: generator.shape.shards)
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
    let real = shard.perform(command, clock: clock)
    // The rules bound a thread's steps only roughly (R15: "about one per member, at least 64"), so the model is told
    // which times are dropped. This hides a shard that drops them too early, too late or of too many rows;
    // `ThreadStoryTests.threadKeepsTailOfSteps` has one such thread. A time that is lost without a report is noticed.
    for forgotten in shard.takeDroppedTimes() {
      model.dropTimes(forgotten.cid, thread: forgotten.parent, rows: forgotten.rows)
    }
    let expected = model.perform(command, clock: clock)
    if real != expected { throw fault("\(command): the model says \(expected), the shard \(real)") }
    count(command, real)
    if random.oneIn(2) { shard.seal() }
    if random.oneIn(4) { shard.deliver(&random) }
    if random.oneIn(25) { try compareOneChannel() }
    if random.oneIn(100) { shard.checkAll() }
    if random.oneIn(120) { try compareUsers() }
    for (name, times) in shard.runMaintenance(&random) { tally[name, default: 0] += times }
    if let text = shard.faults.first { throw fault("after \(command): \(text)") }
  }

  private mutating func count(_ command: Command, _ outcome: Outcome) {
    var place = ""
    if case .inThread = command { place = "in thread: " }
    func add(_ name: String, to tally: inout [String: Int]) { tally[place + name, default: 0] += 1 }
    switch outcome {
    case .refused(let name):
      add(name, to: &tally)
      if case .redeem = command { add("redeem \(name)", to: &tally) }
    case .row(let row) where row == .zeros(row.user): add("no row", to: &tally)
    case .row: add(shard.lastEffectCount > 0 ? "moved" : "same", to: &tally)
    case .message(_, let isNew, let refusal):
      add(isNew ? "created" : "known", to: &tally)
      if !refusal.isEmpty { add(refusal, to: &tally) }
    case .acknowledged(let codes): for code in codes { add("acknowledge \(code)", to: &tally) }
    case .done(let isDone): add("\(command.name) \(isDone)", to: &tally)
    case .marked(let cids): add(cids.isEmpty ? "marked none" : "marked all", to: &tally)
    case .delivery(let isMoved, _, _): add("\(command.name) \(isMoved ? "moved" : "same")", to: &tally)
    case .position, .channel, .type, .user, .member, .ticket: add(command.name, to: &tally)
    }
  }

  private func fault(_ text: String) -> HistoryFault { HistoryFault(seed: seed, step: step, text: text) }

  // MARK: Comparing with the model

  /// Any kind of caller; now and then a user who is no member.
  private mutating func viewer() -> Viewer {
    let user = random.oneIn(20) ? "nobody" : random.pick(generator.users)
    return random.pick([.server, .member(user), .member(user), .serverFor(user)])
  }

  /// Compare one channel: a few members, messages, lists and pages.
  private mutating func compareOneChannel() throws(HistoryFault) {
    let cid = random.pick(generator.cids)
    guard model.channels[cid] != nil else { return }
    let answers = model.answers(cid)
    for _ in 0..<3 {
      try compareRows(cid, answers, random.pick(generator.users))
      try compareSteps(cid, answers, random.pick(generator.users))
    }
    for _ in 0..<6 { try compareMessage(cid, answers, pickMessage(cid)) }
    for _ in 0..<3 { try compareThreadRow(cid, random.pick(generator.users)) }
    try compareMessage(cid, answers, "odd\(random.below(4))")
    try compareStatuses(cid, answers, viewer())
    try comparePages(cid, answers, viewer(), limit: 1 + random.below(12))
    tally["comparisons", default: 0] += 1
  }

  /// Any message of the channel or its threads, mostly a new one.
  private mutating func pickMessage(_ cid: String) -> String {
    let channel = model.channels[cid]!
    let room =
      !channel.threads.isEmpty && random.oneIn(2)
      ? random.pick(Array(channel.threads.suffix(random.oneIn(2) ? 1000 : 2))) : channel.main
    let messages = room.messages.suffix(random.oneIn(2) ? 1_000_000 : 20)
    return messages.isEmpty ? "m1" : random.pick(Array(messages)).id
  }

  /// Compare one message: its status, a list, and some members.
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
    for cid in generator.cids where (model.channels[cid] != nil) != shard.has(cid) {
      throw fault("\(cid): only one of model and shard has it")
    }
    for cid in generator.cids where model.channels[cid] != nil {
      let answers = model.answers(cid)
      for user in generator.users { try compareRows(cid, answers, user) }
      for room in [model.channels[cid]!.main] + model.channels[cid]!.threads {
        for message in room.messages.map(\.id) {
          try compareStatus(cid, answers, message, .server)
          try compareMessage(cid, answers, message)
        }
      }
      for thread in model.channels[cid]!.threads {
        for user in generator.users { try compareThreadRow(cid, thread, user) }
      }
      for limit in [1, 2, 3, 5, 16, 17, 99, 100] {
        let user = random.pick(generator.users)
        for viewer in [Viewer.server, .member(user), .serverFor(user)] {
          try comparePages(cid, answers, viewer, limit: limit)
        }
        try compareRosters(cid, limit: limit)
      }
    }
    try compareUsers()
    for user in generator.users + ["robot", "nobody"] {
      let erased = model.erased[user].map { $0.at / 1000 } ?? 0
      for seconds in [0, 1, generator.clock / 2000, generator.clock / 1000, max(1, erased) - 1, erased]
      where shard.isRevoked(user, issuedSeconds: seconds) != model.isRevoked(user, issuedSeconds: seconds) {
        throw fault("whether a token of \(user) from \(seconds) s is revoked: the model says otherwise")
      }
      let (real, expected) = (shard.settings(of: user), model.settings(of: user))
      if real != expected {
        throw fault("settings of \(user): the model says \(expected), the shard \(real)")
      }
    }
  }

  /// Compare the channel's members and registered messages, page by page.
  private func compareRosters(_ cid: String, limit: Int) throws(HistoryFault) {
    let (members, expectedMembers) = (shard.roster(cid, limit: limit), model.roster(cid))
    guard members == expectedMembers else {
      throw fault("roster of \(cid), limit \(limit): the model says \(expectedMembers), the shard \(members)")
    }
    let (messages, expected) = (shard.registered(cid, limit: limit), model.registered(cid))
    guard messages == expected else {
      throw fault("messages of \(cid), limit \(limit): the model says \(expected), the shard \(messages)")
    }
  }

  private func compareRows(_ cid: String, _ answers: NaiveModel.Answers, _ user: String) throws(HistoryFault) {
    let (real, expected) = (shard.ownRow(cid, user), answers.ownRow(user))
    guard real == expected else {
      throw fault("own row of \(user) in \(cid): the model says \(expected as Any), the shard \(real as Any)")
    }
  }

  /// Compare a member's row in a thread, and their unread counts in the channel.
  private mutating func compareThreadRow(_ cid: String, _ user: String) throws(HistoryFault) {
    let threads = model.channels[cid]!.threads
    if !threads.isEmpty { try compareThreadRow(cid, random.pick(threads), user) }
    let (real, expected) = (shard.unread(cid, user), model.unread(cid, user))
    guard real == expected else {
      throw fault("unread of \(user) in \(cid): the model says \(expected as Any), the shard \(real as Any)")
    }
    if expected?.threads ?? 0 > 0 { tally["unread threads", default: 0] += 1 }
    let (lists, expectedLists) = (shard.ownLists(cid, user), model.ownLists(cid, user))
    guard lists == expectedLists else {
      throw fault(
        "lists of \(user) in \(cid): the model says \(expectedLists as Any), the shard \(lists as Any)"
      )
    }
    tally["own lists", default: 0] += expectedLists?.count ?? 0
  }

  private func compareThreadRow(_ cid: String, _ thread: NaiveModel.Room, _ user: String)
    throws(HistoryFault)
  {
    let parent = model.channels[cid]!.main.messages[thread.parent!].id
    // The rows of a closed thread are not visible.
    guard !model.channels[cid]!.main.messages[thread.parent!].isDeleted else { return }
    let expected = model.answers(model.thread(cid, of: thread.parent!)!).ownRow(user)
    let real = shard.threadRow(cid, parent, user)
    guard real == expected else {
      throw fault(
        "own row of \(user) in thread \(parent) of \(cid): the model says \(expected as Any), the shard \(real as Any)"
      )
    }
  }

  /// Compare every user over all channels, once all changes are delivered. The index must equal what the channels know
  /// of the user, and the totals the sum over all channels.
  private mutating func compareUsers() throws(HistoryFault) {
    shard.deliverAllChanges()
    for user in generator.users + ["robot", "nobody"] {
      let (index, expectedIndex) = (shard.index(of: user), model.index(of: user))
      guard index == expectedIndex else {
        throw fault("index of \(user): the model says \(expectedIndex), the shard \(index)")
      }
      let (totals, expected) = (shard.totals(user), model.totals(user))
      guard totals == expected else {
        throw fault("totals of \(user): the model says \(expected), the shard \(totals)")
      }
      if expected.channels > 1 { tally["totals of several", default: 0] += 1 }
      if index.contains(where: { !$0.isMember }) { tally["known, no member", default: 0] += 1 }
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

  /// Query several statuses at once: a few, or enough for them to be counted in one pass.
  private mutating func compareStatuses(
    _ cid: String,
    _ answers: NaiveModel.Answers,
    _ viewer: Viewer
  ) throws(HistoryFault) {
    var ids: [String] = []
    for _ in 0..<random.pick([2, 7, 8, 20, 100]) {
      ids.append(random.oneIn(10) ? "odd\(random.below(4))" : pickMessage(cid))
    }
    let (real, expected) = (shard.statuses(cid, ids, viewer), ids.map { answers.status($0, viewer) })
    guard let place = ids.indices.first(where: { real[$0] != expected[$0] }) else { return }
    throw fault(
      """
      statuses of \(ids) in \(cid) for \(viewer): of \(ids[place]) the model says \(expected[place]), the shard \
      \(real[place])
      """
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
      shard.list(cid, id, viewer, list, order, limit: limit),
      expected,
      name,
      limit
    )
    if case .success(let entries) = expected {
      let total = shard.listTotal(cid, id, viewer, list)
      guard case .success(entries.count) = total else {
        throw fault("total of the \(name): the model says \(entries.count), the shard \(total)")
      }
      tally["list of \(list)", default: 0] += entries.isEmpty ? 0 : 1
      if entries.contains(where: { !$0.isExact }) { tally["times not exact", default: 0] += 1 }
      if entries.contains(where: { !$0.note.isEmpty }) { tally["notes", default: 0] += 1 }
    }
  }

  /// Compare exact times alone (R17).
  private mutating func compareSteps(_ cid: String, _ answers: NaiveModel.Answers, _ user: String)
    throws(HistoryFault)
  {
    for _ in 0..<4 {
      let n = 1 + random.below(max(1, model.messageCount(cid)))
      let (isRead, seesHidden) = (random.oneIn(2), random.oneIn(3))
      guard let expected = answers.stepTime(user, isRead: isRead, n, seesHidden: seesHidden) else { continue }
      let real = shard.stepTime(cid, user, isRead: isRead, n, seesHidden: seesHidden)
      tally[expected.isExact ? "exact times" : "latest times", default: 0] += 1
      guard real == expected else {
        throw fault(
          """
          when \(user) \(isRead ? "read" : "received") \(n) of \(cid), own eyes \(seesHidden): the model says \
          \(expected), the shard \(real)
          """
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

  /// All pages together are complete and without duplicates. Only the last may be short, and it has no next page.
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

  /// Compare the log alone, and pages of different moments with the log's tail: they must give equal answers.
  private mutating func compareReplays() throws(HistoryFault) {
    if let text = shard.replayDifference(&random) { throw fault(text) }
    if let text = shard.faults.first { throw fault(text) }
  }
}
