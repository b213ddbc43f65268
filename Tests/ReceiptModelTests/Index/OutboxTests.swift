import Testing

@testable import ReceiptModel

/// Queued changes of memberships (R13, R14).
@Suite("Outbox")
struct OutboxTests {
  private static func change(_ user: String, _ cid: String = "team:a") -> MembershipChange {
    let membership = Membership(
      cid: cid,
      channel: ChannelNumber(1),
      row: MemberOrdinal(0),
      isMember: true,
      joinedAt: Timestamp(milliseconds: 5),
      epoch: 0
    )
    return MembershipChange(user: user, membership)
  }

  /// Users by home shard: those of shard 0, those of shard 1.
  private static let users: [[String]] = {
    var users: [[String]] = [[], []]
    for number in 0..<40 {
      let user = "u\(number)"
      users[Int(ShardID.owning(Array(user.utf8).span.bytes, count: 2).rawValue)].append(user)
    }
    return users
  }()

  private func numbers(_ outbox: borrowing Outbox, _ shard: UInt16, after: UInt64 = 0, limit: Int = 100)
    -> [UInt64]
  {
    outbox.changes(for: ShardID(shard), after: after, through: .max, limit: limit).map(\.number)
  }

  @Test("each shard's changes stay in order until they are acknowledged")
  func eachShardChangesStayInOrderUntilTheyAreAcknowledged() {
    var outbox = Outbox(shardCount: 2)
    for number in 1...6 as ClosedRange<UInt64> {
      let isQueued = outbox.queue(number, Self.change(Self.users[Int(number % 2)][Int(number)]))
      #expect(isQueued)
    }
    #expect(numbers(outbox, 0) == [2, 4, 6] && numbers(outbox, 1) == [1, 3, 5])
    #expect(numbers(outbox, 0, after: 2) == [4, 6] && numbers(outbox, 0, limit: 2) == [2, 4])
    let (queued, again) = (outbox.takeQueued(), outbox.takeQueued())
    #expect(Set(queued) == [ShardID(0), ShardID(1)] && again == [])
    outbox.assignConfirmed(ShardID(0), through: 4)
    #expect(numbers(outbox, 0) == [6] && numbers(outbox, 1) == [1, 3, 5] && outbox.count == 4)
    // Sent again, or read back from a page: it is no longer queued.
    let isQueued = outbox.queue(2, Self.change(Self.users[0][2]))
    #expect(!isQueued)
    #expect(outbox.count == 4 && outbox.last == 6)
    #if DEBUG
      let fault = outbox.checkInvariants()
      #expect(fault == nil)
    #endif
  }

  @Test("pages can be read back in any order; the highest number is never assigned again")
  func pagesCanBeReadBackInAnyOrder() {
    var outbox = Outbox(shardCount: 2)
    // Beyond the last page, wrapping around: numbers 200,000 to 270,000 are in pages 781 to 1,023, then 0 to 30.
    for number in stride(from: 200_000, through: 270_000, by: 1_000) as StrideThrough<UInt64> {
      outbox.queue(number, Self.change(Self.users[Int(number / 1_000 % 2)][0], "team:\(number)"))
    }
    outbox.assignConfirmed(ShardID(0), through: 230_000)
    outbox.assignReceived(ShardID(1), through: 77)
    outbox.assign(epoch: 3)
    var again = Outbox(shardCount: 2)
    for page in 0..<UInt32(PageID.outboxPages) {
      for effect in outbox.effects(of: page) {
        #expect(effect.page == .outbox(page))
        guard case .shard(.membershipQueued(let number, let change)) = effect else {
          Issue.record("\(effect)")
          continue
        }
        again.queue(number, change)
      }
    }
    #expect(numbers(again, 0) == numbers(outbox, 0) && numbers(again, 1) == numbers(outbox, 1))
    #expect(again.count == outbox.count && again.last == 270_000)
    // Acknowledged changes are gone, and the numbers continue: the index page has the highest.
    outbox.assignConfirmed(ShardID(0), through: 270_000)
    outbox.assignConfirmed(ShardID(1), through: 269_000)
    for page in 0..<UInt32(PageID.outboxPages) {
      let effects = outbox.effects(of: page)
      #expect(effects.isEmpty)
    }
    var state = ShardState(id: ShardID(0), shardCount: 2)
    for effect in outbox.indexEffects { state.assign(effect) }
    #expect(state.outbox.last == 270_000 && state.outbox.epoch == 3)
    #expect(state.outbox.received(from: ShardID(1)) == 77 && state.outbox.confirmed(by: ShardID(1)) == 269_000)
  }

  @Test("joins, leaves, rejoins and first sends are queued in the same batch; known users are not")
  func joinsLeavesRejoinsAndFirstSendsAreQueuedInSameBatch() throws {
    let room = try Room("alice bob")
    #expect(Self.words(room.effects) == ["1 alice member 0", "2 bob member 1"])
    try room.change(remove: ["bob"])
    #expect(Self.words(room.effects) == ["3 bob left 1"])
    try room.change(add: ["bob", "carol", "bob"], remove: ["alice", "alice"])
    #expect(Self.words(room.effects) == ["4 alice left 0", "5 bob member 2", "6 carol member 3"])
    try room.post("m1", by: "bob")
    try room.post("m2", by: "")
    #expect(Self.words(room.effects) == [])
    try room.post("m3", by: "zoe")
    #expect(Self.words(room.effects) == ["7 zoe sent"])
    try room.post("m4", by: "zoe")
    #expect(Self.words(room.effects) == [])
    // A former member is known already.
    try room.post("m5", by: "alice")
    #expect(Self.words(room.effects) == [])
  }

  private static func words(_ effects: [Effect]) -> [String] {
    effects.compactMap { effect in
      guard case .shard(.membershipQueued(let number, let change)) = effect else { return nil }
      let row = change.membership.row.map { " \($0.rawValue)" }
      let what = change.membership.isMember ? "member" : row == nil ? "sent" : "left"
      return "\(number) \(change.user) \(what)\(row ?? "")"
    }
  }
}
