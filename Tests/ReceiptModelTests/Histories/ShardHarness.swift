import TestSupport

@testable import NaiveReceiptModel
@testable import ReceiptModel

/// Several real shards, as in a store. As from a gateway, a command goes to the shard of its channel, or first to the
/// home shard of its user or type and then to the others.
final class ShardHarness: Subject {
  let shards: [TestShard]
  private(set) var lastEffectCount = 0

  required init(shards count: Int) {
    shards = (0..<count).map { TestShard(id: ShardID(UInt16($0)), shardCount: count) }
  }

  var faults: [String] { shards.flatMap(\.faults) }

  func shard(of name: String) -> TestShard {
    shards[Int(ShardID.owning(name, count: shards.count).rawValue)]
  }

  /// Advance all shards to one machine's clock.
  private func advanceAllClocks(to clock: Int) -> Int {
    let clock = max(clock, shards.map { Int($0.state.time.milliseconds) }.max() ?? 0)
    for shard in shards { shard.pass(to: clock) }
    return clock
  }

  func perform(_ command: Command, clock: Int) -> Outcome {
    let clock = advanceAllClocks(to: clock)
    // A join may advance one shard's clock beyond the others' (R6).
    defer { _ = advanceAllClocks(to: clock) }
    if case .readAll(let user) = command { return readAll(user, clock) }
    let home = shard(of: command.home)
    let outcome = home.perform(command, clock: clock)
    lastEffectCount = home.lastEffectCount
    if let copy = command.copy(of: outcome) {
      for other in shards where other !== home { _ = other.perform(copy, clock: clock) }
    }
    return outcome
  }

  /// Mark each channel in the user's index read up to its newest message.
  private func readAll(_ user: String, _ clock: Int) -> Outcome {
    deliverAllChanges()
    let cids = index(of: user).filter(\.isMember).map(\.cid)
    var count = 0
    for cid in cids {
      let shard = shard(of: cid)
      guard case .row = shard.perform(.read(cid: cid, user: user, message: "", epoch: nil), clock: clock)
      else {
        return .refused("\(cid) was not marked")
      }
      count += shard.lastEffectCount
    }
    lastEffectCount = count
    return .marked(cids)
  }

  // MARK: Queries

  func has(_ cid: String) -> Bool { shard(of: cid).slot(cid) != nil }
  func ownRow(_ cid: String, _ user: String) -> RowView? { shard(of: cid).ownRow(cid, user) }
  func threadRow(_ cid: String, _ parent: String, _ user: String) -> RowView? {
    shard(of: cid).threadRow(cid, user, under: parent)
  }
  func unread(_ cid: String, _ user: String) -> UnreadView? { shard(of: cid).unread(cid, user) }
  func ownLists(_ cid: String, _ user: String) -> [String]? { shard(of: cid).ownLists(cid, user) }
  func status(_ cid: String, _ id: String, _ viewer: Viewer) -> StatusResult {
    shard(of: cid).status(cid, id, viewer)
  }
  func statuses(_ cid: String, _ ids: [String], _ viewer: Viewer) -> [StatusResult] {
    shard(of: cid).statuses(cid, ids, viewer)
  }
  func list(
    _ cid: String,
    _ id: String,
    _ viewer: Viewer,
    _ list: ListName,
    _ order: OrderName,
    limit: Int
  ) -> Result<[[EntryView]], NamedRefusal> {
    let shard = shard(of: cid)
    return shard.pages { shard.list(cid, id, viewer, list, order, limit: limit, cursor: $0) }
  }
  func listTotal(_ cid: String, _ id: String, _ viewer: Viewer, _ list: ListName) -> Result<Int, NamedRefusal> {
    shard(of: cid).listTotal(cid, id, viewer, list)
  }
  func memberStatuses(_ cid: String, _ id: String, _ viewer: Viewer, _ users: [String])
    -> Result<[MemberStatusResult], NamedRefusal>
  {
    shard(of: cid).memberStatuses(cid, id, viewer, users)
  }
  func readState(_ cid: String, _ viewer: Viewer, limit: Int) -> Result<[[RowView]], NamedRefusal> {
    shard(of: cid).readState(cid, viewer, limit: limit)
  }
  func stepTime(_ cid: String, _ user: String, isRead: Bool, _ n: Int, seesHidden: Bool) -> NaiveModel.Moment {
    shard(of: cid).stepTime(cid, user, isRead ? .read : .delivered, n, seesHidden: seesHidden)
  }
  func roster(_ cid: String, limit: Int) -> [String] { shard(of: cid).roster(cid, limit: limit) }
  func registered(_ cid: String, limit: Int) -> [String] { shard(of: cid).registered(cid, limit: limit) }
  func settings(of user: String) -> UserView { shard(of: user).settings(of: user) }
  func isRevoked(_ user: String, issuedSeconds: Int) -> Bool {
    shard(of: user).isRevoked(user, issuedSeconds: issuedSeconds)
  }
  func index(of user: String) -> [MembershipView] {
    shard(of: user).index(of: user).sorted { $0.cid < $1.cid }
  }

  // MARK: Maintenance

  func takeDroppedTimes() -> [DroppedTimes] { shards.flatMap { $0.takeDroppedTimes() } }
  func seal() { for shard in shards { shard.seal() } }
  func checkAll() { for shard in shards { shard.checkAll() } }

  func runMaintenance(_ random: inout SplitMix64) -> [String: Int] {
    var done: [String: Int] = [:]
    let shard = random.pick(shards)
    if random.oneIn(60) { done["trims"] = writePages(shard, &random) }
    if done["trims"] != nil { done["page writes"] = 1 }
    if random.oneIn(400), !shard.slots.isEmpty {
      shard.evictAndLoad(random.pick(shard.slots.keys.sorted()))
      done["evictions"] = 1
    }
    if random.oneIn(800) {
      shard.seal()
      shard.crash { random.shuffled($0) }
      done["crashes"] = 1
    }
    return done
  }

  /// Write some pages, not all: each has its own log index. Return how often segments of steps were merged.
  private func writePages(_ shard: TestShard, _ random: inout SplitMix64) -> Int {
    var trims = 0
    shard.seal()
    if random.oneIn(3) { shard.writeShardPages() }
    for number in shard.slots.keys.sorted() {
      for key in shard.pageKeys(number) + shard.stepKeys(number) where random.oneIn(3) {
        shard.writePage(key)
      }
      if random.oneIn(3), shard.trim(number) { trims += 1 }
      shard.seal()
    }
    return trims
  }

  func replayDifference(_ random: inout SplitMix64) -> String? {
    for shard in shards {
      shard.seal()
      let digest = shard.digest()
      // At the same time: the advance of time is not logged, and acknowledgement requests expire by it.
      var replayed = shard.replayed()
      _ = replayed.state.advance(clock: shard.state.time)
      if let text = ShardDigest.difference(digest, replayed.digest()) {
        return "replayed from the log: \(text)"
      }
      var recovered = shard.recovered { random.shuffled($0) }
      _ = recovered.state.advance(clock: shard.state.time)
      if let text = ShardDigest.difference(digest, recovered.digest()) {
        return "recovered from pages and log: \(text)"
      }
      for number in shard.slots.keys.sorted() { shard.evictAndLoad(number) }
      if let text = ShardDigest.difference(digest, shard.digest()) { return "loaded from pages: \(text)" }
      #if DEBUG
        if let text = replayed.state.checkInvariants() { return "replayed: \(text)" }
        if let text = recovered.state.checkInvariants() { return "recovered: \(text)" }
      #endif
    }
    return nil
  }
}

extension Command {
  /// The key that selects the command's shard: a cid, a user id, or a type's name.
  var home: String {
    switch self {
    case .put(let cid, _, _), .change(let cid, _, _), .post(let cid, _, _, _, _, _, _, _),
      .member(let cid, _, _, _, _),
      .delete(let cid, _),
      .read(let cid, _, _, _), .delivered(let cid, _, _), .unread(let cid, _, _, _),
      .acknowledge(let cid, _, _, _), .truncate(let cid, _), .deleteChannel(let cid),
      .eraseMember(let cid, _), .push(let cid, _, _, _), .ticket(let cid, _, _), .redeem(let cid, _, _):
      cid
    case .inThread(_, let command): command.home
    case .patchType(let name, _), .assignType(let name, _, _): name
    case .patchUser(let user, _, _, _), .eraseUser(let user), .assignErased(let user, _), .readAll(let user):
      user
    case .assignUser(let record): record.user
    }
  }

  /// The command for the other shards, once the home shard has answered.
  func copy(of outcome: Outcome) -> Command? {
    switch (self, outcome) {
    case (.patchType(let name, _), .type(let version, let settings)),
      (.assignType(let name, _, _), .type(let version, let settings)):
      version == 0 ? nil : .assignType(name: name, version: version, settings: settings)
    case (.assignErased, _): self
    case (.patchUser, .user(let record)), (.assignUser, .user(let record)), (.eraseUser, .user(let record)):
      record.version == 0 ? nil : .assignUser(record)
    default: nil
    }
  }
}
