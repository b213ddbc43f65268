import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine
import StoreTestSupport
import Synchronization
import TestSupport
import Testing

/// Random histories of followers. `TIDEMARK_SEED=n` runs the history of that seed, `TIDEMARK_SEEDS=n` the histories 1
/// to n. `TIDEMARK_STEPS=n` sets the number of steps in each.
@Suite("Following, random histories", .computing)
struct FollowingHistoryTests {
  static let seeds = TestRun.seeds(5, long: 2_000)
  static let steps = TestRun.number("TIDEMARK_STEPS") ?? 1_200

  private static let all = Mutex<[String: Int]>([:])

  /// Run a history, and add what it covered. Any error carries the seed.
  private static func run(_ seed: UInt64, _ body: (FollowingHistory) throws -> Void) throws {
    TestRun.printSeed(seed, steps: steps, of: "history of followers")
    do {
      let history = try FollowingHistory(seed: seed)
      try body(history)
      all.withLock { $0.merge(history.tally) { $0 + $1 } }
    } catch let fault as HistoryFault {
      throw fault
    } catch {
      throw HistoryFault(seed: seed, text: "\(error)")
    }
  }

  @Test("an owner and its followers write the same pages and give the same answers (C8)")
  func ownerAndFollowersWriteTheSamePages() throws {
    for seed in Self.seeds {
      try Self.run(seed) { history in
        try history.steps(Self.steps)
        try history.compare()
      }
    }
    report([
      "drops", "crashes within a commit", "followers' evictions", "followers' loads", "postponed requests",
    ])
  }

  @Test("a follower promoted at a random moment goes on like an owner that recovers the whole log")
  func promotedFollowerContinuesLikeOwner() throws {
    for seed in Self.seeds {
      try Self.run(seed) { history in
        var random = SplitMix64(seed: seed)
        try history.steps(100 + random.below(Self.steps))
        try history.promote()
      }
    }
    report([
      "promotions", "promotions within a commit", "promotions with a tail", "resent commands",
      "unclear groups",
    ])
  }

  /// Print what the histories covered, and check that they covered these.
  private func report(_ names: [String]) {
    let all = Self.all.withLock { $0 }
    let words = all.sorted { $0.key < $1.key }.map { "\($0.value) \($0.key)" }.joined(separator: ", ")
    print("\(Self.seeds.count) histories: \(words)")
    guard Self.seeds.count >= 8, Self.steps >= 1_200 else { return }
    for name in names { #expect(all[name, default: 0] > 0, "never \(name)") }
  }

  /// Shows that the comparison can fail.
  @Test("control: a broken follower is detected", arguments: Follower.Defect.allCases)
  func brokenFollowerIsDetected(defect: Follower.Defect) throws {
    let isNoticed = try (1...UInt64(8)).contains { seed in
      let history = try FollowingHistory(seed: seed)
      history.followers[1].defect = defect
      do {
        try history.steps(1_000)
        try history.compare()
        return false
      } catch {
        print("\(defect), seed \(seed): \(error)")
        return true
      }
    }
    #expect(isNoticed)
  }
}

/// A failed history, with the seed that reproduces it.
struct HistoryFault: Error, CustomStringConvertible {
  var seed: UInt64
  var text: String
  var description: String { "\(text)\nreplay with TIDEMARK_SEED=\(seed)" }
}

/// A random history of an owner and two followers of its log, with different settings of page writes, eviction and
/// memory. Commits and loads take random times, and the followers crash.
final class FollowingHistory {
  static let shards: [UInt16] = [0, 1]

  let seed: UInt64
  private var random: SplitMix64
  private var requests: RandomRequests
  private let owner: EngineHarness
  private let gateway: Gateway
  private(set) var log: SharedLog = []
  let followers: [Follower]
  /// Commands by the correlation under which the owner got them, as long as it has not answered.
  private var unanswered: [UInt32: RecordedRequest] = [:]
  /// The last commands that the owner has answered.
  private var answered: [RecordedRequest] = []
  private(set) var tally: [String: Int] = [:]

  init(seed: UInt64) throws {
    self.seed = seed
    random = SplitMix64(seed: seed)
    requests = RandomRequests(seed: seed, shardCount: Self.shards.count)
    var shape = SplitMix64(seed: seed ^ 0x5A5A)
    let (configure, setBudget) = (Self.configure(&shape), Self.setBudget(&shape))
    owner = try EngineHarness(shards: Self.shards, of: Self.shards.count) {
      configure(&$0)
      setBudget(&$0)
    }
    gateway = owner.connect()
    followers = try [
      Follower(shards: Self.shards, configure: Self.configure(&shape)),
      Follower(shards: Self.shards, configure: Self.configure(&shape)),
    ]
  }

  private static func configure(_ random: inout SplitMix64) -> (inout StoreLoopConfiguration) -> Void {
    let age = random.pick([0, 20, 300, 3_000] as [Int64])
    let logBytes = random.pick([400, 5_000, 16 << 20] as [UInt64])
    let sliceBytes = random.pick([1, 2_000, 256 << 10])
    let trimBatches = random.pick([1, 3, 50] as [UInt64])
    let tailLoads = random.pick([1, 2, 8])
    let resident = random.pick([.max, 1, 8_000, 40_000])
    let scans = random.pick([1, 16, 256])
    let waiting = random.pick([1, 20_000, 16 << 20])
    return { configuration in
      configuration.pageWriteAgeMilliseconds = age
      configuration.pageWriteLogBytes = logBytes
      configuration.pageWriteSliceBytes = sliceBytes
      configuration.trimBatchesMin = trimBatches
      configuration.tailLoadsMax = tailLoads
      configuration.tailRetryMilliseconds = 50
      configuration.residentBytesMax = resident
      configuration.evictionScanMax = scans
      configuration.followWaitingBytesMax = waiting
      configuration.changesPerTurn = 8
      configuration.changesLoggedMilliseconds = 200
    }
  }

  /// Budget of the owner's requests between two slices. Followers perform no requests. Budgets that slow deletions down
  /// stay as they are: the order in which unfinished ones go on is not in the log.
  private static func setBudget(_ random: inout SplitMix64) -> (inout StoreLoopConfiguration) -> Void {
    let entries = random.pick([1, 20, 1_024])
    return { $0.entriesPerTurn = entries }
  }

  private func count(_ name: String, _ more: Int = 1) { tally[name, default: 0] += more }

  // MARK: The owner

  /// Send commands, or let the owner do some of its pending work.
  private func ownerStep() throws {
    switch random.below(10) {
    case 0..<3:
      requests.clock = owner.clock
      for _ in 0...random.below(4) {
        let request = requests.next()
        request.send(by: gateway)
        unanswered[gateway.sent] = request
        count("commands")
      }
      owner.loop.endTurn()
    case 3..<6: try persistOwner()
    case 6:
      if !owner.loads.isEmpty {
        try owner.completeLoad(owner.loads[random.below(owner.loads.count)].reference)
      }
    case 7: if !owner.stepReads.isEmpty { try owner.completeSteps() } else { owner.deliverChanges() }
    case 8: if owner.slices > 0 { owner.slice() }
    default:
      owner.advance(Int64(random.below(60)))
      owner.loop.tick()
    }
    takeReplies()
  }

  /// The shared log commits a group, and then local storage writes it.
  private func persistOwner() throws {
    guard let group = owner.commits.first else { return }
    if !group.batches.isEmpty { log.append(group.batches) }
    count("trims", group.stepTrims.count)
    count("drops", group.drops.count)
    try owner.persist()
  }

  private func takeReplies() {
    for reply in gateway.take() {
      guard let number = UInt32(reply.prefix { $0 != " " }),
        let request = unanswered.removeValue(forKey: number)
      else { continue }
      answered = answered.suffix(20) + [request]
      count(reply.contains("row") ? "rows" : "other answers")
    }
  }

  private func runOwnerUntilIdle() throws {
    while !owner.commits.isEmpty || !owner.loads.isEmpty || !owner.stepReads.isEmpty || owner.slices > 0
      || !owner.deliveries.isEmpty || !owner.confirmations.isEmpty
    {
      while !owner.commits.isEmpty { try persistOwner() }
      try owner.completeLoads()
      while !owner.stepReads.isEmpty { try owner.completeSteps() }
      owner.deliverChanges()
      if owner.slices > 0 { owner.slice() }
      takeReplies()
    }
  }

  /// Writes all of the owner's pages and trims its log.
  private func finishOwner() throws {
    for _ in 0..<400 {
      try runOwnerUntilIdle()
      let gauges = owner.loop.gauges
      if gauges.dirtyPages == 0, gauges.changesPending == 0, owner.storage.log.values.allSatisfy(\.isEmpty) {
        return
      }
      owner.advance(20_000)
      owner.loop.tick()
    }
  }

  // MARK: Runs

  /// Takes random steps of the owner and the followers.
  func steps(_ count: Int, crashes: Bool = true) throws {
    for _ in 0..<count {
      if random.oneIn(2) {
        try ownerStep()
      } else {
        try random.pick(followers).step(log, &random, crashes: crashes)
      }
      for follower in followers {
        guard follower.harness.deliveries.isEmpty, follower.harness.confirmations.isEmpty else {
          throw HistoryFault(seed: seed, text: "a follower sent membership changes")
        }
        if let report = follower.harness.reports.first(where: { if case .failed = $0 { false } else { true } }
        ) {
          throw HistoryFault(seed: seed, text: "\(report)")
        }
      }
    }
  }

  /// Let the followers catch up and all loops write all pages, and compare these page by page (C8). Then compare their
  /// answers to the same queries.
  func compare() throws {
    try finishOwner()
    for follower in followers { try follower.finish(log) }
    try record()
    let end = owner.clock + 1_000_000_000
    let expected = try StoredState(owner.storage, at: end)
    var states: [StoredState] = []
    for (number, follower) in followers.enumerated() {
      let state = try StoredState(follower.storage, at: end)
      if let difference = state.differences(from: expected).first {
        throw HistoryFault(seed: seed, text: "follower \(number): \(difference)")
      }
      states.append(state)
    }
    guard states[0].sessions == states[1].sessions else {
      throw HistoryFault(seed: seed, text: "the followers' sessions differ")
    }
    count("pages compared", expected.pages.count)
    owner.loop.stop()
    try compareReplies()
  }

  private func record() throws {
    for follower in followers {
      count("crashes", follower.crashes)
      count("crashes within a commit", follower.crashesWithinCommit)
      count("followers' evictions", Int(follower.counters.channelsEvicted))
      count("followers' loads", Int(follower.counters.channelsLoaded))
    }
    count("groups", log.count)
    count("postponed requests", owner.postponed)
  }

  /// Promotes the followers, and compares their replies with those of an owner that has recovered the same pages.
  private func compareReplies() throws {
    let recovered = try EngineHarness(owner.storage, shards: Self.shards, of: Self.shards.count)
    requests.clock = owner.clock
    let audit = requests.audit()
    let expected = try nextReplies(audit, recovered)
    for (number, follower) in followers.enumerated() {
      follower.harness.loop.promote()
      let found = try nextReplies(audit, follower.harness)
      for (request, (found, expected)) in zip(audit, zip(found, expected)) where found != expected {
        throw HistoryFault(
          seed: seed,
          text: "follower \(number), \(request.kind) \(request.name ?? ""): \(found), not \(expected)"
        )
      }
    }
    count("queries compared", audit.count)
  }

  /// Sends requests one after the other, and returns the payloads of their replies.
  private func nextReplies(_ all: [RecordedRequest], _ harness: EngineHarness) throws -> [String] {
    harness.clock = max(harness.clock, owner.clock)
    harness.advance(0)
    let gateway = harness.connect(session: 99)
    return try all.map { try reply($0, harness, gateway) }
  }

  private func reply(_ request: RecordedRequest, _ harness: EngineHarness, _ gateway: Gateway) throws
    -> String
  {
    request.send(by: gateway)
    harness.loop.endTurn()
    try harness.runUntilIdle()
    let words = gateway.take().map { $0.drop { $0 != " " } }.joined(separator: ";")
    let isError = words.hasPrefix(" ") && gateway.lastPayload.readableBytes == 0
    return isError ? words : "\(words) \(Array(gateway.lastPayload.readableBytesView))"
  }

  // MARK: Promotion

  /// The owner dies at once. A follower is promoted while its commits and loads are still in progress, and continues
  /// beside an oracle: an owner that has recovered the whole shared log. Both get what the owner left unanswered,
  /// resent, and then further commands.
  func promote() throws {
    if let group = owner.commits.first, !group.batches.isEmpty, random.oneIn(2) {
      // The shared log has it, and the owner never learns.
      log.append(group.batches)
      count("unclear groups")
    }
    owner.loop.stop()
    let follower = random.pick(followers)
    if random.oneIn(4) { try follower.crash(&random) }
    try follower.followAll(log)
    let promoted = follower.harness
    if !promoted.commits.isEmpty { count("promotions within a commit") }
    if promoted.loop.gauges.tailChannels > 0 { count("promotions with a tail") }
    let storage = MemoryStorage()
    for batch in log.joined() { storage.data.apply(batch) }
    let oracle = try EngineHarness(storage, shards: Self.shards, of: Self.shards.count) {
      $0.changesPerTurn = 8
      $0.changesLoggedMilliseconds = 200
    }
    promoted.loop.promote()
    let clock = max(owner.clock, promoted.clock)
    for harness in [promoted, oracle] {
      harness.clock = clock
      harness.advance(0)
    }
    let gateways = [promoted.connect(serial: 1), oracle.connect(serial: 1)]
    guard durable(promoted) == durable(oracle) else {
      throw HistoryFault(seed: seed, text: "the promoted loop ends at another index")
    }
    // A deletion in slices may end earlier in one of them; until then it is `busy`.
    try runUntilIdle([promoted, oracle])
    let resent = answered + unanswered.sorted { $0.key < $1.key }.map(\.value)
    count("resent commands", resent.count)
    for request in resent { try compare(request, [promoted, oracle], gateways) }
    try runUntilIdle([promoted, oracle])
    requests.clock = clock
    for _ in 0..<60 {
      try compare(requests.next(), [promoted, oracle], gateways)
      if random.oneIn(8) { try runUntilIdle([promoted, oracle]) }
    }
    try runUntilIdle([promoted, oracle])
    for request in requests.audit() { try compare(request, [promoted, oracle], gateways) }
    try comparePages(promoted, oracle)
    count("promotions")
  }

  private func durable(_ harness: EngineHarness) -> [LogIndex] { harness.loop.durableIndexes.map(\.index) }

  private func compare(_ request: RecordedRequest, _ harnesses: [EngineHarness], _ gateways: [Gateway]) throws {
    var replies = try zip(harnesses, gateways).map { try reply(request, $0, $1) }
    if request.kind == .listChannels {
      // Changes from several shards may reach an index in another order.
      replies = replies.map { reply in
        reply.prefix { $0 != "[" }.split(separator: ",").map {
          $0.split(separator: " ").joined(separator: " ")
        }
        .sorted().joined(separator: ", ")
      }
    }
    guard replies[0] == replies[1] else {
      throw HistoryFault(
        seed: seed,
        text: "after the promotion, \(request.kind) \(request.name ?? ""): \(replies[0]), not \(replies[1])"
      )
    }
  }

  /// The same time passes for both, and all pending work ends.
  private func runUntilIdle(_ harnesses: [EngineHarness]) throws {
    for _ in 0..<4 {
      for harness in harnesses {
        harness.advance(1_100)
        harness.loop.tick()
        while !harness.stepReads.isEmpty { try harness.completeSteps() }
        try harness.runUntilIdle()
      }
    }
  }

  private func comparePages(_ promoted: EngineHarness, _ oracle: EngineHarness) throws {
    for harness in [promoted, oracle] {
      for _ in 0..<400 {
        harness.advance(20_000)
        harness.loop.tick()
        try harness.runUntilIdle()
        if harness.loop.gauges.dirtyPages == 0, harness.storage.log.values.allSatisfy(\.isEmpty) { break }
      }
    }
    let end = max(promoted.clock, oracle.clock) + 1_000_000_000
    let (found, expected) = (
      try StoredState(promoted.storage, at: end), try StoredState(oracle.storage, at: end)
    )
    let differences = found.differences(from: expected)
    if let difference = differences.first(where: { !$0.contains("page memberships") }) {
      throw HistoryFault(seed: seed, text: "after the promotion: \(difference)")
    }
    if promoted.halts.count + oracle.halts.count > 0 { throw HistoryFault(seed: seed, text: "a loop halted") }
  }
}
