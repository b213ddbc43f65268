import Testing

@testable import ReceiptModel

/// A user's index of channels (R13, R14).
@Suite("Memberships")
struct MembershipTableTests {
  private static func membership(_ cid: String, epoch: UInt64 = 0, isMember: Bool = true) -> Membership {
    Membership(
      cid: cid,
      channel: ChannelNumber(9),
      row: MemberOrdinal(4),
      isMember: isMember,
      joinedAt: Timestamp(milliseconds: 77),
      epoch: epoch
    )
  }

  private func check(_ table: borrowing MembershipTable) {
    #if DEBUG
      let fault = table.checkInvariants()
      #expect(fault == nil)
    #endif
  }

  @Test("an entry keeps its place; freed places are reused")
  func entryKeepsPlace() {
    var table = MembershipTable()
    #expect(table.nextPosition == 0 && table[0] == nil && table.byteCount == 0)
    for number in 0..<5 as Range<UInt32> { table.assign(number, Self.membership("team:\(number)")) }
    #expect(
      table.position(of: "team:3") == 3 && table.position(of: "team:9") == nil && table.nextPosition == 5
    )
    table.remove(1)
    table.remove(3)
    #expect(
      table[3] == nil && table.position(of: "team:3") == nil && table.count == 3 && table.nextPosition == 3
    )
    check(table)
    table.assign(3, Self.membership("team:new"))
    #expect(table.nextPosition == 1 && table[3] == Self.membership("team:new"))
    table.assign(3, Self.membership("team:new", epoch: 8, isMember: false))
    #expect(table[3] == Self.membership("team:new", epoch: 8, isMember: false) && table.count == 4)
    check(table)
  }

  @Test("pages rebuild the table with its free places, whatever they held before")
  func pagesRebuildTableWithFreePlaces() {
    var table = MembershipTable()
    for number in 0..<600 as Range<UInt32> { table.assign(number, Self.membership("team:\(number)")) }
    for number in stride(from: 256, to: 520, by: 1) as StrideTo<UInt32> { table.remove(number) }
    check(table)
    var again = MembershipTable()
    let empty = table.effects(of: 1, number: ChannelNumber(2))
    #expect(empty.isEmpty)
    for page in 0..<3 as Range<UInt32> {
      for effect in table.effects(of: page, number: ChannelNumber(2)) {
        #expect(effect.page == .memberships(page))
        guard case .channel(_, .membershipAssigned(let place, let membership)) = effect else { continue }
        again.assign(place, membership)
      }
    }
    check(again)
    #expect(again.count == 336 && again.positionCount == 600)
    for place in 0..<600 as Range<UInt32> { #expect(again[place] == table[place]) }
    // Log effects after the pages fill the places in the same order as before.
    again.assign(300, Self.membership("team:x"))
    again.assign(519, Self.membership("team:y"))
    check(again)
    var given: Set<UInt32> = []
    while let place = again.nextPosition, place < 600 {
      #expect(given.insert(place).inserted)
      again.assign(place, Self.membership("team:again\(place)"))
    }
    #expect(given.count == 262 && again.count == 600)
    check(again)
  }

  @Test("deletions are kept in order of time, with tombstones and with new channels of the same cid")
  func deletionsAreKeptInOrderOfTime() {
    func membership(_ cid: String, deleted: Int64, isGone: Bool) -> Membership {
      var membership = Self.membership(cid, isMember: !isGone)
      membership.deletedAt = Timestamp(milliseconds: deleted)
      membership.isGone = isGone
      if isGone { membership.row = nil }
      return membership
    }
    func kept(_ table: borrowing MembershipTable) -> [Int64] { table.deletions.map(\.at.milliseconds) }
    var table = MembershipTable()
    table.assign(0, membership("team:a", deleted: 30, isGone: true))
    table.assign(1, membership("team:b", deleted: 10, isGone: false))
    table.assign(2, Self.membership("team:c"))
    table.assign(3, membership("team:d", deleted: 20, isGone: true))
    #expect(kept(table) == [10, 20, 30] && table.count == 4 && table.knownCount == 2)
    #expect(!table.isKnown(0) && table.isOccupied(0) && table.isKnown(1) && !table.isMember(3))
    #expect(table[3] == membership("team:d", deleted: 20, isGone: true))
    check(table)
    // Created again, deleted again, dropped.
    table.assign(3, membership("team:d", deleted: 20, isGone: false))
    table.assign(1, membership("team:b", deleted: 40, isGone: true))
    #expect(kept(table) == [20, 30, 40] && table.knownCount == 2)
    table.remove(0)
    table.assign(3, Self.membership("team:d"))
    #expect(kept(table) == [40] && table.knownCount == 2 && table.count == 3)
    check(table)
    let keepsAll = table.keepsDeletions(since: .none)
    #expect(keepsAll)
    for number in 1..<MembershipTable.deletionsMax {
      table.assign(
        UInt32(number + 9),
        membership("team:\(number)", deleted: 100 + Int64(number), isGone: true)
      )
    }
    let keeps = [40, 41].map { table.keepsDeletions(since: Timestamp(milliseconds: $0)) }
    #expect(keeps == [false, true])
    check(table)
  }

  @Test("an index keeps a bounded number of deletions, and evicts the oldest")
  func indexKeepsBoundedNumberOfDeletions() {
    var state = ShardState(id: ShardID(0))
    var slot: ChannelSlot?
    var time: Int64 = 1_000
    func take(_ cid: String, deletedAt: Int64? = nil) {
      var effects: [Effect] = []
      var membership = Self.membership(cid)
      membership.deletedAt = Timestamp(milliseconds: deletedAt ?? 0)
      let change = MembershipChange(user: "alice", membership, isGone: deletedAt != nil)
      state.decideApplyMembership(change, slot, at: Timestamp(milliseconds: time), into: &effects)
      #expect(effects.count <= 4)
      for effect in effects {
        if case .channel(let number, .channelAssigned(let cid, let created, let own)) = effect {
          slot = state.insert(number, cid: cid, created: created, own: own)
        } else {
          state.assign(effect, to: slot)
        }
      }
    }
    for number in 0..<1_200 {
      time += 1
      take("team:\(number)")
      take("team:\(number)", deletedAt: time)
    }
    #expect(state[slot!].memberships.deletions.count == MembershipTable.deletionsMax)
    #expect(state[slot!].memberships.count == MembershipTable.deletionsMax)
    let oldest = state[slot!].memberships.deletions[0].at
    #expect(oldest == Timestamp(milliseconds: 1_001 + 176))
    let keepsOldest = state[slot!].memberships.keepsDeletions(since: oldest)
    #expect(!keepsOldest)
    // Channels that exist again count like the others, and are evicted in turn.
    for number in 176..<1_200 { take("team:\(number)") }
    #expect(state[slot!].memberships.deletions.count == MembershipTable.deletionsMax)
    time += 1
    take("team:x")
    take("team:x", deletedAt: time)
    #expect(state[slot!].memberships.deletions.count == MembershipTable.deletionsMax)
    #expect(state[slot!].memberships.knownCount == 1_024 && state[slot!].memberships.count == 1_025)
    // After another deletion it is reported at that time.
    take("team:500", deletedAt: time)
    #expect(state[slot!].memberships.deletions.last?.at == Timestamp(milliseconds: time))
    // All of them are dropped in the end.
    time += 8 * 86_400_000
    for number in 0..<600 { take("team:new\(number)") }
    #expect(state[slot!].memberships.deletions.isEmpty && state[slot!].memberships.knownCount == 1_623)
    #if DEBUG
      #expect(state.checkInvariants() == nil)
    #endif
  }

  @Test("repeated removals free their bytes")
  func repeatedRemovalsFreeBytes() {
    var table = MembershipTable()
    table.assign(0, Self.membership("team:stays"))
    for round in 0..<20_000 {
      table.assign(1, Self.membership("team:round\(round)"))
      table.remove(1)
    }
    #expect(table.byteCount < 16_384 && table[0] == Self.membership("team:stays"))
    check(table)
  }

  @Test("a shard creates an index with the first change; it is no channel and has no channel type")
  func shardCreatesIndexWithFirstChange() {
    var state = ShardState(id: ShardID(0))
    var slot: ChannelSlot?
    func take(_ cid: String, isGone: Bool = false) -> Int {
      var effects: [Effect] = []
      let change = MembershipChange(user: "alice", Self.membership(cid), isGone: isGone)
      state.decideApplyMembership(change, slot, at: Timestamp(milliseconds: 5), into: &effects)
      for effect in effects {
        if case .channel(let number, .channelAssigned(let cid, let created, let own)) = effect {
          slot = state.insert(number, cid: cid, created: created, own: own)
        } else {
          state.assign(effect, to: slot)
        }
      }
      return effects.count
    }
    // An erased user gets no index.
    #expect(take("team:a", isGone: true) == 0 && slot == nil)
    #expect(take("team:a") == 3 && take("team:b") == 1)
    // The same change again has no effect.
    #expect(take("team:b") == 0)
    let alice = Array("alice".utf8)
    #expect(state.index(of: alice.span.bytes) == slot && state.slot(of: alice.span.bytes) == nil)
    #expect(state.types.isEmpty && state.loadedCount == 1)
    #expect(take("team:a", isGone: true) == 1 && take("team:a", isGone: true) == 0)
    #expect(state[slot!].memberships.count == 1)
    #if DEBUG
      #expect(state.checkInvariants() == nil)
    #endif
    state.remove(slot!)
    #expect(state.index(of: alice.span.bytes) == nil && state.residentBytes == 0)
  }

  @Test("the last change of an erased user deletes their index under its own name", arguments: ["alice", "team:a"])
  func lastChangeOfErasedUserDeletesIndexByName(_ user: String) {
    var state = ShardState(id: ShardID(0))
    func decide(_ body: (borrowing ShardState, inout [Effect]) -> Void, _ slot: ChannelSlot?) -> [Effect] {
      var effects: [Effect] = []
      body(state, &effects)
      return effects
    }
    func take(_ isGone: Bool, _ slot: ChannelSlot?) -> [Effect] {
      let change = MembershipChange(user: user, Self.membership("team:a"), isGone: isGone)
      return decide({ $0.decideApplyMembership(change, slot, at: Timestamp(milliseconds: 5), into: &$1) }, slot)
    }
    var slot: ChannelSlot?
    for effect in take(false, nil) {
      if case .channel(let number, .channelAssigned(let cid, let created, let own)) = effect {
        slot = state.insert(number, cid: cid, created: created, own: own)
      } else {
        state.assign(effect, to: slot)
      }
    }
    let time = Timestamp(milliseconds: 6)
    for effect in decide({ $0.settings.decideBeginErasure(user, at: time, into: &$1) }, nil) {
      state.assign(effect, to: nil)
    }
    let name = String(decoding: state[slot!].cid, as: UTF8.self)
    #expect(name == IndexName.text(of: user))
    #expect(take(true, slot).last == .channel(state[slot!].number, .channelDeleted(cid: name)))
  }
}
