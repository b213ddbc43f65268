import Testing

@testable import ReceiptModel

/// Users' settings in a shard: versions, settlement, and how channels copy changes.
@Suite("Users' settings")
struct UserSettingsTests {
  private static func time(_ milliseconds: Int64) -> Timestamp { Timestamp(milliseconds: milliseconds) }

  /// Apply a decision; return the number of its effects.
  private func applyEffects(
    _ state: inout ShardState,
    _ decide: (inout ShardState, inout [Effect]) -> Void
  ) -> Int {
    var effects: [Effect] = []
    decide(&state, &effects)
    for effect in effects { state.assign(effect) }
    return effects.count
  }

  private func patch(
    _ state: inout ShardState,
    _ user: String,
    at milliseconds: Int64,
    _ patch: UserSettingsPatch
  ) -> Int {
    applyEffects(&state) { $0.settings.decidePatch(user, patch, at: Self.time(milliseconds), into: &$1) }
  }

  @Test(
    "a patch sets only the given fields, raises the version on a change, and records when a user shows again"
  )
  func patchSetsOnlyGivenFields() {
    var state = ShardState(id: ShardID(0))
    #expect(patch(&state, "bob", at: 10, UserSettingsPatch(showsRead: true)) == 0)
    #expect(state.settings["bob"] == UserSettings(user: "bob"))
    #expect(patch(&state, "bob", at: 20, UserSettingsPatch(showsRead: false)) == 1)
    #expect(patch(&state, "bob", at: 30, UserSettingsPatch(showsRead: false)) == 0)
    #expect(
      state.settings["bob"]
        == UserSettings(user: "bob", version: 1, hidesRead: true, appliedAt: Self.time(20))
    )
    #expect(patch(&state, "bob", at: 40, UserSettingsPatch(showsRead: true, showsDelivered: false)) == 1)
    #expect(
      state.settings["bob"]
        == UserSettings(
          user: "bob",
          version: 2,
          hidesDelivered: true,
          readShownSince: Self.time(40),
          appliedAt: Self.time(40)
        )
    )
    #expect(patch(&state, "bob", at: 50, UserSettingsPatch(tokensRevokedBefore: Self.time(45))) == 1)
    #expect(patch(&state, "bob", at: 60, UserSettingsPatch(showsDelivered: true)) == 1)
    #expect(
      state.settings["bob"]
        == UserSettings(
          user: "bob",
          version: 4,
          readShownSince: Self.time(40),
          deliveredShownSince: Self.time(60),
          tokensRevokedBefore: Self.time(45),
          appliedAt: Self.time(60)
        )
    )
    #expect(state.settings.count == 1)
  }

  @Test("the newer version wins; users have consecutive numbers")
  func newerVersionWins() {
    var state = ShardState(id: ShardID(0))
    func assign(_ settings: UserSettings) -> Int {
      applyEffects(&state) { $0.settings.decideAssign(settings, at: $0.time, into: &$1) }
    }
    #expect(assign(UserSettings(user: "bob", version: 3, hidesRead: true, isSettled: true)) == 1)
    #expect(!state.settings["bob"].isSettled)
    #expect(assign(UserSettings(user: "bob", version: 3)) == 0)
    #expect(assign(UserSettings(user: "bob", version: 2)) == 0)
    #expect(state.settings["bob"].hidesRead)
    #expect(assign(UserSettings(user: "zoe", version: 1)) == 1)
    #expect(assign(UserSettings(user: "bob", version: 4)) == 1)
    #expect(state.settings.find("bob") == 0 && state.settings.find("zoe") == 1 && state.settings.count == 2)
    #expect(assign(UserSettings(user: "amy", version: 0)) == 0)
  }

  @Test("settling a version works while it is the newest, until the next change")
  func settlingVersionWorksWhileItIsNewest() {
    var state = ShardState(id: ShardID(0))
    var isSettled = false
    func settle(_ version: UInt64) -> Int {
      applyEffects(&state) {
        isSettled = $0.settings.decideSettle("bob", version: version, into: &$1)
      }
    }
    #expect(settle(0) == 0 && isSettled, "a user without settings has nothing to settle")
    #expect(settle(1) == 0 && !isSettled)
    #expect(patch(&state, "bob", at: 10, UserSettingsPatch(showsRead: false)) == 1)
    #expect(settle(0) == 0 && !isSettled)
    #expect(settle(1) == 1 && isSettled)
    #expect(settle(1) == 0 && isSettled)
    #expect(state.settings["bob"].isSettled)
    #expect(patch(&state, "bob", at: 20, UserSettingsPatch(showsRead: true)) == 1)
    #expect(!state.settings["bob"].isSettled)
    // Decided before the change and assigned after it: it settles nothing.
    state.assign(.userSettled(0, version: 1))
    #expect(!state.settings["bob"].isSettled)
  }

  @Test("a channel type is settled in the same way")
  func channelTypeIsSettledInSameWay() {
    var state = ShardState(id: ShardID(0))
    var isSettled = false
    func settle(_ version: UInt64) -> Int {
      applyEffects(&state) {
        isSettled = $0.types.decideSettle("team", version: version, into: &$1)
      }
    }
    var off = OptionPatch()
    off.readEvents = false
    #expect(settle(0) == 0 && isSettled)
    #expect(applyEffects(&state) { $0.types.decidePatch("team", off, at: $0.time, into: &$1) } == 1)
    #expect(!state.types.record("team").isSettled)
    #expect(settle(2) == 0 && !isSettled)
    #expect(settle(1) == 1 && isSettled)
    #expect(state.types.record("team").isSettled)
    #expect(applyEffects(&state) { $0.types.decidePatch("team", off, at: $0.time, into: &$1) } == 0)
    #expect(state.types.record("team").isSettled)
    off.readEvents = true
    #expect(applyEffects(&state) { $0.types.decidePatch("team", off, at: $0.time, into: &$1) } == 1)
    #expect(!state.types.record("team").isSettled)
  }

  @Test("a page holds 256 users, and restores the same table")
  func pageHolds256Users() {
    var state = ShardState(id: ShardID(0))
    for number in 0..<600 {
      _ = patch(
        &state,
        "user\(number)",
        at: 10,
        UserSettingsPatch(
          showsRead: number % 2 == 0 ? false : nil,
          showsDelivered: number % 3 == 0 ? false : nil,
          tokensRevokedBefore: Self.time(Int64(number + 1))
        )
      )
      if number % 5 == 0 {
        _ = applyEffects(&state) { _ = $0.settings.decideSettle("user\(number)", version: 1, into: &$1) }
      }
    }
    var copy = ShardState(id: ShardID(0))
    for page in 0..<4 as Range<UInt32> {
      let effects = state.effects(ofOwn: .users(page))
      let assigned = effects.count { if case .shard(.userAssigned) = $0 { true } else { false } }
      #expect(assigned == [256, 256, 88, 0][Int(page)])
      for effect in effects {
        #expect(effect.page == .users(page))
        copy.assign(effect)
      }
    }
    #expect(copy.settings.count == 600)
    for number in 0..<600 {
      #expect(copy.settings["user\(number)"] == state.settings["user\(number)"])
      #expect(copy.settings["user\(number)"].isSettled == (number % 5 == 0))
    }
    #expect(copy.settings.byteCount > 600 * 32)
  }

  @Test(
    "a token issued before its user's revocation time is refused, in whole seconds; others are not"
  )
  func tokenIssuedBeforeUserRevocationTimeIsRefused() {
    var state = ShardState(id: ShardID(0))
    func isRevoked(_ user: String, _ issued: UInt32) -> Bool {
      let user = Array(user.utf8)
      return state.settings.isRevoked(user.span.bytes, issued: issued)
    }
    #expect(!isRevoked("bob", 0))
    _ = patch(&state, "bob", at: 10, UserSettingsPatch(tokensRevokedBefore: Self.time(5_001)))
    #expect(isRevoked("bob", 0) && isRevoked("bob", 5) && !isRevoked("bob", 6) && !isRevoked("bob", .max))
    #expect(!isRevoked("zoe", 0))
    _ = patch(&state, "bob", at: 10, UserSettingsPatch(tokensRevokedBefore: Self.time(5_000)))
    #expect(!isRevoked("bob", 5) && isRevoked("bob", 4))
    _ = patch(&state, "bob", at: 10, UserSettingsPatch(tokensRevokedBefore: Timestamp.none))
    #expect(!isRevoked("bob", 0) && !state.settings.hasRevoked)
  }

  @Test(
    "tokens from before an erasure are refused until the user's number is reused; a new user keeps the time"
  )
  func tokensFromBeforeErasureAreRefused() {
    var state = ShardState(id: ShardID(0))
    func isRevoked(_ user: String, _ issued: UInt32) -> Bool {
      let user = Array(user.utf8)
      return state.settings.isRevoked(user.span.bytes, issued: issued)
    }
    func erase(_ user: String, at milliseconds: Int64) {
      _ = applyEffects(&state) {
        $0.settings.decideFinishErasure(
          user,
          version: $0.settings[user].version + 1,
          at: Self.time(milliseconds),
          into: &$1
        )
      }
    }
    // The erasure revokes more tokens than the user had, and no other user's.
    _ = patch(&state, "bob", at: 10, UserSettingsPatch(tokensRevokedBefore: Self.time(3_000)))
    erase("bob", at: 5_999)
    #expect(state.settings.hasRevoked == true)
    #expect(isRevoked("bob", 0) && isRevoked("bob", 4) && !isRevoked("bob", 5) && !isRevoked("bob", 6))
    #expect(!isRevoked("zoe", 0))
    // A page restores it.
    var copy = ShardState(id: ShardID(0))
    for effect in state.effects(ofOwn: .users(0)) { copy.assign(effect) }
    #expect(copy.settings["bob"].tokensRevokedBefore == Self.time(5_000) && copy.settings.hasRevoked)
    // Erased again: the later time is in force, also for settings changed in between.
    erase("bob", at: 7_000)
    #expect(isRevoked("bob", 6) && !isRevoked("bob", 7))
    // A delayed older update changes nothing, and a patch without a change is no new version.
    #expect(
      applyEffects(&state) { $0.settings.decideAssign(UserSettings(user: "bob", version: 1), at: $0.time, into: &$1) }
        == 0
    )
    #expect(patch(&state, "bob", at: 7_100, UserSettingsPatch(showsRead: true)) == 0)
    #expect(patch(&state, "bob", at: 7_100, UserSettingsPatch(showsRead: false)) == 1)
    #expect(
      state.settings["bob"]
        == UserSettings(
          user: "bob",
          version: 4,
          hidesRead: true,
          tokensRevokedBefore: Self.time(7_000),
          appliedAt: Self.time(7_100)
        )
    )
    #expect(isRevoked("bob", 6) && !isRevoked("bob", 7))
    // Erased again while only the number is left: tokens stay refused in between.
    erase("bob", at: 9_500)
    #expect(applyEffects(&state) { $0.settings.decideBeginErasure("bob", at: $0.time, into: &$1) } == 1)
    #expect(isRevoked("bob", 8) && !isRevoked("bob", 9))
    erase("bob", at: 9_600)
    // A server can override it, also for an erased user: without a revocation of their own.
    #expect(patch(&state, "bob", at: 9_700, UserSettingsPatch(tokensRevokedBefore: Timestamp.none)) == 1)
    #expect(!isRevoked("bob", 0) && !state.settings.hasRevoked)
    // After a day the number is reused, and nothing of the erased user is known.
    erase("bob", at: 10_000)
    _ = state.advance(clock: Self.time(10_000 + UserSettingsTable.tombstoneMilliseconds))
    #expect(isRevoked("bob", 9))
    #expect(patch(&state, "zoe", at: 86_420_000, UserSettingsPatch(showsRead: false)) == 1)
    #expect(state.settings.find("zoe") == 0)
    #expect(!isRevoked("bob", 0) && !isRevoked("zoe", 0) && !state.settings.hasRevoked)
  }

  @Test(
    "a channel copies changes that it has missed: from the journal, or by looking up every member",
    arguments: [
      1, 5, 40, UserSettingsTable.journalKeptMin, 3 * UserSettingsTable.journalKeptMin,
    ]
  )
  func channelCopiesMissedChanges(others: Int) throws {
    let members = (0..<20).map { "member\($0)" }
    var state = ShardState(id: ShardID(0))
    let slot = state.insert(ChannelNumber(1), cid: "team:room", created: Self.time(1), own: OptionPatch())
    for (row, user) in members.enumerated() {
      let record = RowRecord(user: user, joined: .zero, joinedAt: Self.time(1))
      state.assign(.rowAssigned(MemberOrdinal(UInt32(row)), record), to: slot)
    }
    // Three rounds: changes of members among those of users who are no members, then a check.
    for round in 0..<3 {
      for number in 0..<others {
        _ = patch(&state, "other\(number)", at: 10, UserSettingsPatch(showsRead: round % 2 == 1))
        if number % 7 == 0 {
          let member = members[(number / 7 + round) % members.count]
          let hides = state.settings[member]
          _ = patch(
            &state,
            member,
            at: 10,
            UserSettingsPatch(showsRead: hides.hidesRead, showsDelivered: (number + round) % 2 == 0)
          )
        }
      }
      state.refresh(slot)
      for (row, user) in members.enumerated() {
        let set = state.settings[user]
        #expect(state[slot].rows.hidesRead(MemberOrdinal(UInt32(row))) == set.hidesRead)
        #expect(state[slot].rows.hidesDelivered(MemberOrdinal(UInt32(row))) == set.hidesDelivered)
      }
    }
    #expect(members.contains { state.settings[$0].version > 0 })
  }
}
