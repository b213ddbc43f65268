import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine
import TestSupport
import Testing

@Suite("Unread counts: random histories", .computing)
struct UnreadHistoryTests {
  @Test("after any history a peek equals the own row", arguments: TestRun.seeds(6, long: 120))
  func afterAnyHistoryPeekEqualsOwnRow(_ seed: UInt64) throws {
    var random = SplitMix64(printing: seed, of: "peeks after random histories")
    let users = ["alice", "bob", "carol", "dave"]
    let channels = ["team:a", "team:b", "team:c"]
    let storage = MemoryStorage()
    var posted = [0, 0, 0]
    for round in 0..<8 {
      let budget = random.pick([1, 5, 1_024])
      let harness = try EngineHarness(storage) { $0.entriesPerTurn = budget }
      let gateway = harness.connect(session: UInt64(round) + 1)
      if round == 0 {
        gateway.put("team:a", ["alice", "bob"])
        gateway.put("team:b", users)
        gateway.put("team:c", [])
        gateway.hideHistory("team:b")
        try harness.completeSlices()
      }
      for _ in 0..<random.below(60) {
        let place = random.below(channels.count)
        let cid = channels[place]
        let user = users[random.below(users.count)]
        let known = "m\(1 + random.below(max(1, posted[place])))"
        switch random.below(12) {
        case 0...3:
          for _ in 0...(random.below(20) == 0 ? 200 : random.below(4)) {
            posted[place] += 1
            let sender = random.below(3) == 0 ? "" : user
            // Some are silent, and some leave the sender's positions unchanged.
            let flags: UInt64 = [0, 0, 0, 0, 1, 4, 5][random.below(7)]
            let mentions = random.below(4) == 0 ? users.filter { _ in random.below(2) == 0 } : []
            gateway.post(
              cid,
              "m\(posted[place])",
              by: sender,
              flags: flags | (random.below(6) == 0 ? 8 : mentions.isEmpty ? 0 : 16),
              mentions: mentions
            )
          }
        case 4, 5: gateway.read(cid, user, random.below(2) == 0 ? "" : known)
        case 6, 7: gateway.markUnread(cid, user, random.below(4) == 0 ? "" : known)
        case 8: gateway.deleteMessage(cid, known)
        case 9: gateway.change(cid, add: [user])
        case 10 where random.below(2) == 0: gateway.change(cid, remove: [user])
        case 11 where random.below(2) == 0: gateway.mute(cid, user, random.below(3) > 0)
        default: try harness.completeLoads()
        }
      }
      harness.loop.endTurn()
      try harness.completeSlices()
      try harness.persistAll()
      if random.below(3) > 0 { try harness.writePages() }
      try compare(storage, channels, users, &random)
      _ = gateway.take()
    }
  }

  /// Query a restarted store, first by a peek, then with the channels in memory.
  private func compare(
    _ storage: MemoryStorage,
    _ channels: [String],
    _ users: [String],
    _ random: inout SplitMix64
  ) throws {
    let budget = random.pick([1, 5, 1_024])
    let harness = try EngineHarness(storage) { $0.entriesPerTurn = budget }
    let gateway = harness.connect(session: 99)
    let entries = channels.flatMap { cid in
      users.map { CountsEntry(cid, $0, UInt32(random.below(10))) }
    }
    gateway.unreadCounts(entries)
    harness.loop.endTurn()
    if !harness.peeks.isEmpty { harness.completePeek() }
    try harness.completeSlices()
    let reply = gateway.last
    var expected: [String] = []
    for entry in entries {
      gateway.send(.readState, entry.cid) { payload in
        payload.writeVarint(0)
        payload.writeField(entry.user)
        payload.writeVarint(1)
        payload.writeVarint(0)
      }
      harness.loop.endTurn()
      try harness.completeSlices()
      guard gateway.last.hasSuffix("rows") else {
        expected.append(gateway.last)
        continue
      }
      let payload = gateway.lastPayload
      var reader = FieldReader(payload.readableBytesSpan)
      _ = try reader.count()
      let row = try RowFields(&reader)
      let mentions = row.unreadMentions == 0 ? "" : " mentions \(row.unreadMentions)"
      expected.append("\(row.unreadMessages)/0\(mentions)\(row.isFlaggedUnread ? " flagged" : "")")
    }
    #expect(reply.replacing(" muted", with: "") == "unread \(expected.joined(separator: " "))")
    // The replies with the channels in memory are the same.
    gateway.unreadCounts(entries)
    harness.loop.endTurn()
    try harness.completeSlices()
    #expect(gateway.last == reply)
    #expect(harness.reports == [])
  }
}

extension Gateway {
  fileprivate func mute(_ cid: String, _ user: String, _ isMuted: Bool) {
    send(.setMember, cid) { payload in
      payload.writeField(user)
      payload.writeField("")
      payload.writeVarint(UInt64(isMuted ? 3 : 1))
    }
  }
}
