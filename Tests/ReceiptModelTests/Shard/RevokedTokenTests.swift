import ReceiptModel
import TestSupport
import Testing

/// Tokens revoked one by one, by the shard's time.
@Suite("Revoked tokens in the model")
struct RevokedTokenTests {
  private static func at(_ milliseconds: Int64) -> Timestamp { Timestamp(milliseconds: milliseconds) }

  /// The result of a story about one shard, a line for each step: `revoke a 500`, `back a`, `time 300`, `list 2`.
  private static func words(_ story: String) -> [String] {
    var shard = ShardState(id: ShardID(0))
    _ = shard.advance(clock: at(100))
    var lines: [String] = []
    for line in story.split(separator: "\n") {
      let words = line.split(separator: " ").map(String.init)
      var effects: [Effect] = []
      switch words[0] {
      case "revoke":
        do {
          try shard.revokedTokens.decideRevoke(words[1], until: at(Int64(words[2])!), at: shard.time, into: &effects)
        } catch {
          lines.append("\(line): \(error)")
          continue
        }
      case "back": shard.revokedTokens.decideLift(words[1], at: shard.time, into: &effects)
      case "time": _ = shard.advance(clock: at(Int64(words[1])!))
      default:
        let found = shard.revokedTokens.revocations(after: UInt64(words[1])!, at: shard.time, limit: 3)
        lines.append("\(line): \(found.map(\.id).joined(separator: " "))")
        continue
      }
      for effect in effects { shard.assign(effect) }
      guard words[0] != "time" else { continue }
      let until = shard.revokedTokens.revocation(of: words[1], at: shard.time)?.until.milliseconds
      let state = until.map { "until \($0)" } ?? "not revoked"
      lines.append(
        "\(line): \(state), \(effects.isEmpty ? "nothing new" : "version \(shard.revokedTokens.version)")"
      )
    }
    // The page rebuilds the same table, also when assigned twice.
    let page = shard.effects(ofOwn: .tokens)
    var again = ShardState(id: ShardID(0))
    again.assign(time: shard.time)
    for effect in page { again.assign(effect) }
    #expect(again.effects(ofOwn: .tokens) == page && again.revokedTokens.version == shard.revokedTokens.version)
    #expect(again.revokedTokens.liftedVersion == shard.revokedTokens.liftedVersion)
    #expect(page.allSatisfy { $0.page == .tokens && $0.channel == nil })
    return lines
  }

  @Test("each change has its own version; a step without a change has none")
  func eachChangeHasOwnVersion() {
    #expect(
      Self.words(
        """
        revoke a 500
        revoke a 500
        revoke b 500
        revoke a 400
        back c
        back b
        back b
        revoke b 600
        list 0
        list 3
        list 5
        """
      ) == [
        "revoke a 500: until 500, version 1", "revoke a 500: until 500, nothing new",
        "revoke b 500: until 500, version 2", "revoke a 400: until 400, version 3",
        "back c: not revoked, nothing new", "back b: not revoked, version 4",
        "back b: not revoked, nothing new", "revoke b 600: until 600, version 5", "list 0: a b", "list 3: b",
        "list 5: ",
      ]
    )
  }

  @Test("a revocation ends at its expiry, and the token can be revoked again")
  func revocationEndsAtExpiry() {
    #expect(
      Self.words(
        """
        revoke a 100
        revoke a 101
        revoke b 300
        revoke c 300
        revoke d 300
        list 0
        time 101
        list 0
        back a
        revoke e 102
        time 300
        list 0
        revoke b 301
        list 0
        revoke b 316224000300
        revoke b 316224000301
        """
      ) == [
        "revoke a 100: endsInThePast", "revoke a 101: until 101, version 1",
        "revoke b 300: until 300, version 2",
        "revoke c 300: until 300, version 3", "revoke d 300: until 300, version 4", "list 0: a b c",
        "list 0: b c d", "back a: not revoked, nothing new", "revoke e 102: until 102, version 5", "list 0: ",
        "revoke b 301: until 301, version 6", "list 0: b",
        "revoke b 316224000300: until 316224000300, version 7",
        "revoke b 316224000301: endsTooLate",
      ]
    )
  }

  @Test("ids are compared byte by byte")
  func idsAreComparedByteByByte() {
    let lines = Self.words("revoke Zo\u{EB} 500\nrevoke Zoe\u{308} 600\nback Zo\u{EB}\nlist 0")
    #expect(lines.count == 4 && Array(lines[3].utf8) == Array("list 0: Zoe\u{308}".utf8))
  }

  @Test("repeated changes use no more memory than the current revocations")
  func repeatedChangesUseNoMoreMemoryThanCurrentRevocations() {
    var shard = ShardState(id: ShardID(0))
    for number in 0..<10_000 {
      var effects: [Effect] = []
      #expect(throws: Never.self) {
        try shard.revokedTokens.decideRevoke(
          "t\(number % 10)",
          until: Self.at(Int64(1_000 + number)),
          at: shard.time,
          into: &effects
        )
      }
      for effect in effects { shard.assign(effect) }
    }
    #expect(shard.revokedTokens.count == 10 && shard.revokedTokens.byteCount < 10_000)
    #expect(shard.revokedTokens.version == 10_000)
    #expect(
      shard.revokedTokens.revocations(after: 0, at: Self.at(1), limit: 100).map(\.version)
        == Array(9_991...10_000)
    )
  }

  @Test(
    "random histories agree with a plain list, and replay",
    arguments: TestRun.seeds(50, long: 500)
  )
  func randomHistoriesAgreeWithPlainList(seed: UInt64) throws {
    var random = SplitMix64(printing: seed, of: "histories of revoked tokens")
    var shard = ShardState(id: ShardID(0))
    var logged: [(effect: Effect, time: Timestamp)] = []
    var changes: [(id: String, until: Int64)] = []
    var time: Int64 = 1
    for step in 0..<400 {
      let place = "TIDEMARK_SEED=\(seed), step \(step)"
      time += random.number(in: -5...20)
      let now = shard.advance(clock: Self.at(max(1, time)))
      let id = "t\(random.below(12))"
      let until = random.oneIn(4) ? 0 : time + random.number(in: 1...300)
      let before = changes.last { $0.id == id }.map { $0.until > now.milliseconds ? $0.until : 0 } ?? 0
      var effects: [Effect] = []
      if until == 0 {
        shard.revokedTokens.decideLift(id, at: shard.time, into: &effects)
        if before != 0 { changes.append((id, 0)) }
      } else if until <= now.milliseconds {
        #expect(throws: RevokedTokenTable.Refusal.endsInThePast, "\(place)") {
          try shard.revokedTokens.decideRevoke(id, until: Self.at(until), at: shard.time, into: &effects)
        }
      } else {
        try shard.revokedTokens.decideRevoke(id, until: Self.at(until), at: shard.time, into: &effects)
        if before != until { changes.append((id, until)) }
      }
      for effect in effects {
        shard.assign(effect)
        logged.append((effect, now))
      }
      var expected: [UInt64] = []
      for (at, change) in changes.enumerated()
      where change.until > now.milliseconds && !changes[(at + 1)...].contains(where: { $0.id == change.id }) {
        expected.append(UInt64(at + 1))
      }
      let after = random.number(in: 0...UInt64(changes.count))
      let listed = shard.revokedTokens.revocations(after: after, at: now, limit: .max)
      #expect(listed.map(\.version) == expected.filter { $0 > after }, "\(place)")
      #expect(shard.revokedTokens.version == UInt64(changes.count), "\(place)")
      guard step % 50 == 49 else { continue }
      // From the page, and from the log as it was written.
      var paged = ShardState(id: ShardID(0))
      paged.assign(time: now)
      for effect in shard.effects(ofOwn: .tokens) { paged.assign(effect) }
      var replayed = ShardState(id: ShardID(0))
      for (effect, time) in logged {
        replayed.assign(time: time)
        replayed.assign(effect)
      }
      #expect(replayed.effects(ofOwn: .tokens) == shard.effects(ofOwn: .tokens), "\(place)")
      #expect(
        paged.revokedTokens.revocations(after: 0, at: now, limit: .max).map(\.version) == expected,
        "\(place)"
      )
      #expect(paged.revokedTokens.version == shard.revokedTokens.version, "\(place)")
      #expect(paged.revokedTokens.liftedVersion == shard.revokedTokens.liftedVersion, "\(place)")
    }
  }
}
