import TestSupport
import Testing

@testable import NaiveReceiptModel
@testable import ReceiptModel

/// Random histories of threads. The log and the pages rebuild the same shard, and a thread's answers equal those of a
/// channel with the same history.
@Suite("Random histories of threads", .computing)
struct ThreadHistoryTests {
  private static let cid = "team:room"
  private static let users = (0..<6).map { "u\($0)" }

  @Test("log and pages rebuild the same threads", arguments: TestRun.seeds(8, long: 120))
  func threadsRoundTrip(seed: UInt64) {
    var random = SplitMix64(printing: seed, of: "threads rebuilt from log and pages")
    let shard = TestShard()
    _ = shard.perform(
      .put(cid: Self.cid, settings: [:], members: Self.users.map { MemberSpec(user: $0) }),
      clock: 1
    )
    var ids = 0
    for step in 1...500 {
      Self.perform(shard, &random, &ids, clock: step)
      if step.isMultiple(of: 3) {
        shard.seal()
        // Some pages are written now, others are older.
        for key in shard.allPageKeys where random.below(4) == 0 { shard.writePage(key) }
        shard.writeShardPages()
      }
      guard step.isMultiple(of: 25) else { continue }
      shard.seal()
      let digest = shard.digest()
      #expect(ShardDigest.difference(digest, shard.replayed().digest()) == nil, "step \(step)")
      #expect(ShardDigest.difference(digest, shard.recovered().digest()) == nil, "step \(step)")
      shard.checkAll()
      if random.below(2) == 0 { shard.crash() } else { shard.evictAndLoad(ChannelNumber(1)) }
      #expect(ShardDigest.difference(digest, shard.digest()) == nil, "step \(step)")
    }
    #expect(shard.faults == [])
    #expect(shard.state[shard.slot(Self.cid)!].threads.count > 3)
  }

  private static func perform(_ shard: TestShard, _ random: inout SplitMix64, _ ids: inout Int, clock: Int) {
    let user = random.pick(users)
    let parent = "m\(random.below(9) + 1)"
    let reply = ids == 0 ? "r1" : "r\(random.below(ids) + 1)"
    switch random.below(20) {
    case 0:
      _ = shard.perform(.post(cid: cid, id: parent, sender: user, created: 0, isSilent: false), clock: clock)
    case 1: _ = shard.perform(.change(cid: cid, add: [], remove: [user]), clock: clock)
    case 2, 3: _ = shard.perform(.change(cid: cid, add: [MemberSpec(user: user)], remove: []), clock: clock)
    case 4:
      let shows = random.below(2) == 0
      _ = shard.perform(
        .patchUser(user, showsRead: shows, showsDelivered: !shows, revoked: nil),
        clock: clock
      )
    case 5: _ = shard.perform(.delete(cid: cid, id: reply), clock: clock)
    case 6 where random.below(10) == 0: _ = shard.perform(.delete(cid: cid, id: parent), clock: clock)
    case 7, 8: _ = shard.mark("read", cid, user, under: nil, reply, clock: clock)
    case 9: _ = shard.mark("read", cid, user, under: parent, clock: clock)
    case 10: _ = shard.mark("delivered", cid, user, under: parent, reply, clock: clock)
    case 11:
      let isByReply = random.oneIn(2)
      _ = shard.mark(
        "delivered",
        cid,
        user,
        under: isByReply ? nil : parent,
        isByReply ? reply : "",
        clock: clock
      )
    case 12: _ = shard.mark("unread", cid, user, under: parent, clock: clock)
    case 13:
      let under = random.oneIn(2) ? nil : parent
      _ = shard.mark("unread", cid, user, under: under, reply, epoch: random.below(3), clock: clock)
    default:
      ids += 1
      let isSilent = random.below(5) == 0
      _ = shard.reply(cid, to: parent, "r\(ids)", by: user, isSilent: isSilent, clock: clock)
    }
  }

  @Test(
    "a thread gives the same answers as a channel with the same history",
    arguments: TestRun.seeds(4, long: 80)
  )
  func threadAnswersLikeChannel(seed: UInt64) {
    var random = SplitMix64(printing: seed, of: "threads compared with channels")
    let shard = TestShard()
    let (cid, twin) = (Self.cid, "team:twin")
    for name in [cid, twin] { _ = shard.perform(.put(cid: name, settings: [:], members: []), clock: 1) }
    _ = shard.perform(.change(cid: cid, add: Self.users.map { MemberSpec(user: $0) }, remove: []), clock: 1)
    _ = shard.perform(.post(cid: cid, id: "m1", sender: "", created: 0, isSilent: false), clock: 1)
    // Every user replies once, and so takes part: from then on the thread behaves like a channel that they joined.
    var count = 0
    for user in Self.users {
      count += 1
      _ = shard.perform(.change(cid: twin, add: [MemberSpec(user: user)], remove: []), clock: 1)
      _ = shard.reply(cid, to: "m1", "r\(count)", by: user, clock: 1)
      _ = shard.perform(
        .post(cid: twin, id: "r\(count)", sender: user, created: 0, isSilent: false),
        clock: 1
      )
    }
    for clock in 2...300 {
      let user = random.pick(Self.users)
      let message = random.pick(["", "r\(random.below(count) + 1)"])
      switch random.below(6) {
      case 0, 1:
        count += 1
        let isSilent = random.below(4) == 0
        _ = shard.reply(cid, to: "m1", "r\(count)", by: user, isSilent: isSilent, clock: clock)
        _ = shard.perform(
          .post(cid: twin, id: "r\(count)", sender: user, created: 0, isSilent: isSilent),
          clock: clock
        )
      case 2:
        _ = shard.mark("read", cid, user, under: "m1", message, clock: clock)
        _ = shard.perform(.read(cid: twin, user: user, message: message, epoch: nil), clock: clock)
      case 3:
        _ = shard.mark("delivered", cid, user, under: "m1", message, clock: clock)
        _ = shard.perform(.delivered(cid: twin, user: user, message: message), clock: clock)
      case 4 where !message.isEmpty:
        _ = shard.mark("unread", cid, user, under: "m1", message, clock: clock)
        _ = shard.perform(.unread(cid: twin, user: user, message: message, epoch: nil), clock: clock)
      case 5:
        let shows = random.below(2) == 0
        _ = shard.perform(
          .patchUser(user, showsRead: shows, showsDelivered: shows, revoked: nil),
          clock: clock
        )
      default: break
      }
      for user in Self.users {
        #expect(shard.threadRow(cid, user, under: "m1") == shard.ownRow(twin, user), "\(clock), \(user)")
      }
      guard clock.isMultiple(of: 10), count > Self.users.count else { continue }
      let ids = (Self.users.count + 1...count).map { "r\($0)" }
      #expect(
        shard.statuses(cid, ids, .server) == shard.statuses(twin, ids, .server),
        "\(clock)"
      )
    }
    #expect(shard.faults == [] && count > 50)
  }
}
