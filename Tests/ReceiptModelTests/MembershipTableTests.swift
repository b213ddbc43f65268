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

  @Test("an entry keeps its place; a place that came free is given again")
  func places() {
    var table = MembershipTable()
    #expect(table.nextPlace == 0 && table[0] == nil && table.byteCount == 0)
    for number in 0..<5 as Range<UInt32> { table.assign(number, Self.membership("team:\(number)")) }
    #expect(table.place(of: "team:3") == 3 && table.place(of: "team:9") == nil && table.nextPlace == 5)
    table.remove(1)
    table.remove(3)
    #expect(table[3] == nil && table.place(of: "team:3") == nil && table.count == 3 && table.nextPlace == 3)
    check(table)
    table.assign(3, Self.membership("team:new"))
    #expect(table.nextPlace == 1 && table[3] == Self.membership("team:new"))
    table.assign(3, Self.membership("team:new", epoch: 8, isMember: false))
    #expect(table[3] == Self.membership("team:new", epoch: 8, isMember: false) && table.count == 4)
    check(table)
  }

  @Test("pages make it again, with its free places, whatever was on them")
  func pages() {
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
        guard case .membershipAssigned(_, let place, let membership) = effect else { continue }
        again.assign(place, membership)
      }
    }
    check(again)
    #expect(again.count == 336 && again.placeCount == 600)
    for place in 0..<600 as Range<UInt32> { #expect(again[place] == table[place]) }
    // Effects of the log that come after the pages fill places in the order in which they did.
    again.assign(300, Self.membership("team:x"))
    again.assign(519, Self.membership("team:y"))
    check(again)
    var given: Set<UInt32> = []
    while let place = again.nextPlace, place < 600 {
      #expect(given.insert(place).inserted)
      again.assign(place, Self.membership("team:again\(place)"))
    }
    #expect(given.count == 262 && again.count == 600)
    check(again)
  }

  @Test("what is removed again and again leaves no bytes behind")
  func room() {
    var table = MembershipTable()
    table.assign(0, Self.membership("team:stays"))
    for round in 0..<20_000 {
      table.assign(1, Self.membership("team:round\(round)"))
      table.remove(1)
    }
    #expect(table.byteCount < 16_384 && table[0] == Self.membership("team:stays"))
    check(table)
  }

  @Test("an index in a shard: made by the first change, no channel, no channel type")
  func shard() {
    var state = ShardState(id: ShardID(0))
    var slot: ChannelSlot?
    func take(_ cid: String, isGone: Bool = false) -> Int {
      var effects: [Effect] = []
      let change = MembershipChange(user: "alice", Self.membership(cid), isGone: isGone)
      state.decideTake(change, slot, at: Timestamp(milliseconds: 5), into: &effects)
      for effect in effects {
        if case .channelAssigned(let number, let cid, let created, let own) = effect {
          slot = state.insert(number, cid: cid, created: created, own: own)
        } else if effect.channel == nil {
          state.assign(effect)
        } else {
          state.assign(effect, to: slot!)
        }
      }
      return effects.count
    }
    // One who is gone gets no index.
    #expect(take("team:a", isGone: true) == 0 && slot == nil)
    #expect(take("team:a") == 3 && take("team:b") == 1)
    // The same again changes nothing.
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
}
