import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine
import TestSupport
import Testing

/// Revocation of single tokens (Proto/frames.md, 0x34, 0x35 and 0x46).
@Suite("Revoked tokens of a store", .computing)
struct RevokedTokenTests {
  private static let start: Int64 = 1_000_000
  private static let hour: Int64 = 3_600_000

  private func nextReplies(_ harness: EngineHarness, _ gateway: Gateway) throws -> [String] {
    harness.loop.endTurn()
    try harness.persistAll()
    return gateway.take().map { String($0.drop { $0 != " " }.dropFirst()) }
  }

  private func harness(
    _ storage: MemoryStorage = MemoryStorage(),
    clock: Int64 = start,
    session: UInt64 = 1
  ) throws -> (harness: EngineHarness, gateway: Gateway) {
    let harness = try EngineHarness(storage)
    harness.advance(clock - harness.clock)
    return (harness, harness.connect(session: session))
  }

  @Test("a revocation and the answers that show it leave once durable; repeating it changes nothing")
  func revocationAndAnswersThatShowItLeaveOnceDurable() throws {
    let (harness, gateway) = try harness()
    gateway.token("a")
    gateway.revoke("a", until: Self.start + Self.hour)
    gateway.token("a")
    gateway.tokens()
    harness.loop.endTurn()
    #expect(gateway.take() == ["1 not revoked"])
    let (until, batches) = (
      "revoked until \(Self.start + Self.hour)", harness.storage.log[ShardID(0)]?.count ?? 0
    )
    #expect(try nextReplies(harness, gateway) == [until, until, "tokens a of version 1 anew"])
    #expect(harness.storage.log[ShardID(0)]!.count == batches + 1)
    gateway.revoke("a", until: Self.start + Self.hour)
    gateway.takeBack("b")
    #expect(try nextReplies(harness, gateway) == [until, "not revoked"])
    #expect(harness.storage.log[ShardID(0)]!.count == batches + 1)
    gateway.revoke("a", until: Self.start + 2 * Self.hour)
    gateway.tokens(known: 1)
    gateway.takeBack("a")
    gateway.takeBack("a")
    gateway.tokens(known: 2)
    gateway.tokens(known: 3)
    #expect(
      try nextReplies(harness, gateway) == [
        "revoked until \(Self.start + 2 * Self.hour)", "tokens a of version 2", "not revoked", "not revoked",
        "tokens of version 3 anew", "tokens of version 3",
      ]
    )
  }

  @Test("a resent revocation is answered from the current state")
  func resentRevocationIsAnsweredFromCurrentState() throws {
    let (harness, gateway) = try harness()
    gateway.revoke("a", until: Self.start + Self.hour)
    gateway.takeBack("a")
    #expect(try nextReplies(harness, gateway) == ["revoked until \(Self.start + Self.hour)", "not revoked"])
    harness.advance(2 * Self.hour)
    gateway.revoke("a", until: Self.start + Self.hour, counter: 1)
    #expect(try nextReplies(harness, gateway) == ["not revoked"])
  }

  @Test("an end in the past or too far ahead, and an invalid id, are refused by name")
  func invalidEndAndIDAreRefused() throws {
    let (harness, gateway) = try harness()
    let most = Self.start + RevokedTokenTable.lifetimeMax
    for until in [0, 1, Self.start, Self.start + 1, most, most + 1, .max] {
      gateway.revoke("a", until: until)
    }
    gateway.revoke("", until: most)
    gateway.revoke(String(repeating: "j", count: 256), until: most)
    gateway.token("a\u{7}")
    gateway.send(.revokeToken, "a") {
      $0.writeInteger(UInt8(0))
      $0.writeTime(Timestamp(milliseconds: most))
    }
    let refused = "invalid_field"
    #expect(
      try nextReplies(harness, gateway).sorted()
        == [
          refused, refused, refused, refused, refused, refused, refused, refused, refused,
          "revoked until \(most)", "revoked until \(Self.start + 1)",
        ].sorted()
    )
    let other = try EngineHarness(shards: [0, 1], of: 2)
    let second = other.connect()
    second.revoke("a", until: other.clock + 1, shard: 1)
    second.send(.getToken, "a", shard: 1) { _ in }
    #expect(try nextReplies(other, second) == ["wrong_shard", "wrong_shard"])
  }

  @Test("a revocation ends by the shard's time, which is logged before it is reported")
  func revocationEndsByShardTime() throws {
    let (harness, gateway) = try harness()
    gateway.revoke("short", until: Self.start + 1_000)
    gateway.revoke("long", until: Self.start + Self.hour)
    _ = try nextReplies(harness, gateway)
    harness.advance(999)
    gateway.token("short")
    gateway.tokens(known: 2)
    #expect(
      try nextReplies(harness, gateway) == ["revoked until \(Self.start + 1_000)", "tokens of version 2"]
    )
    harness.advance(1)
    gateway.tokens(known: 2)
    gateway.token("short")
    gateway.tokens()
    harness.loop.endTurn()
    #expect(gateway.take() == [])
    #expect(
      try nextReplies(harness, gateway) == [
        "tokens of version 2", "not revoked", "tokens long of version 2 anew",
      ]
    )
    // With the clock set back the shard's time does not fall, so the revocation stays ended.
    let (again, other) = try self.harness(harness.storage, clock: Self.start, session: 2)
    other.token("short")
    other.token("long")
    #expect(try nextReplies(again, other) == ["not revoked", "revoked until \(Self.start + Self.hour)"])
  }

  @Test("the list and its version survive recovery from the log and from its page")
  func listAndVersionSurviveRecoveryFromLogAndFromPage() throws {
    let (harness, gateway) = try harness()
    for number in 0..<3 { gateway.revoke("t\(number)", until: Self.start + Self.hour) }
    gateway.revoke("last", until: Self.start + Self.hour)
    gateway.takeBack("t1")
    #expect(try nextReplies(harness, gateway).count == 5)
    for hasWrittenPages in [false, true] {
      if hasWrittenPages {
        try harness.writePages()
        #expect(harness.storage.log[ShardID(0)]!.isEmpty)
        #expect(harness.storage.pages.keys.contains { $0.page == .tokens })
      }
      let (again, other) = try self.harness(harness.storage, session: 2)
      other.tokens(known: 4)
      other.tokens(known: 5)
      #expect(
        try nextReplies(again, other) == ["tokens t0 t2 last of version 5 anew", "tokens of version 5"]
      )
    }
    let (again, other) = try self.harness(harness.storage, session: 2)
    other.revoke("t3", until: Self.start + Self.hour)
    other.tokens(known: 5)
    #expect(
      try nextReplies(again, other) == ["revoked until \(Self.start + Self.hour)", "tokens t3 of version 6"]
    )
  }

  @Test(
    "the list is sent in parts of 1,000 and restarts after a withdrawal; 10,000 is the limit"
  )
  func listIsSentInPartsAndLimited() throws {
    let (harness, gateway) = try harness()
    for number in 0..<RevokedTokenTable.countMax {
      gateway.revoke("t\(number)", until: Self.start + (number == 0 ? 1_000 : Self.hour))
    }
    #expect(try nextReplies(harness, gateway).allSatisfy { $0.hasPrefix("revoked until") })
    gateway.revoke("one more", until: Self.start + Self.hour)
    gateway.revoke("t7", until: Self.start + 2 * Self.hour)
    #expect(
      try nextReplies(harness, gateway) == ["limit_reached", "revoked until \(Self.start + 2 * Self.hour)"]
    )
    gateway.tokens()
    let first = try #require(try nextReplies(harness, gateway).first)
    #expect(first.hasPrefix("tokens t0 t1 ") && first.hasSuffix(" t1000 of version 10001 anew and more"))
    gateway.tokens(known: 10_001, after: 1_001)
    gateway.tokens(known: 10_001, after: 9_500)
    let (next, last) = (try nextReplies(harness, gateway), 10_001)
    #expect(next[0].hasPrefix("tokens t1001 ") && next[0].hasSuffix(" t2000 of version \(last) and more"))
    #expect(next[1].hasPrefix("tokens t9500 ") && next[1].hasSuffix(" t9999 t7 of version \(last)"))
    gateway.takeBack("t5")
    gateway.tokens(known: 10_001, after: 2_001)
    #expect(try nextReplies(harness, gateway)[1].hasPrefix("tokens t0 t1 t2 t3 t4 t6 t8 "))
    // An ended revocation frees its place.
    gateway.revoke("one more", until: Self.start + Self.hour)
    gateway.revoke("too many", until: Self.start + Self.hour)
    harness.advance(1_000)
    gateway.revoke("another", until: Self.start + Self.hour)
    gateway.revoke("too many", until: Self.start + Self.hour)
    #expect(
      try nextReplies(harness, gateway).map { $0.prefix(7) } == ["revoked", "limit_r", "revoked", "limit_r"]
    )
  }
}

extension Gateway {
  fileprivate func revoke(_ id: String, until time: Int64, counter: UInt64? = nil, shard: UInt16 = 0) {
    send(.revokeToken, id, counter: counter, shard: shard) {
      $0.writeInteger(UInt8(1))
      $0.writeTime(Timestamp(milliseconds: time))
    }
  }

  fileprivate func takeBack(_ id: String) {
    send(.revokeToken, id) {
      $0.writeInteger(UInt8(0))
      $0.writeTime(.none)
    }
  }

  fileprivate func token(_ id: String) { send(.getToken, id) { _ in } }

  /// - Parameter after: by default the same as `known`.
  fileprivate func tokens(known: UInt64 = 0, after: UInt64? = nil) {
    send(.listRevokedTokens, nil) {
      $0.writeVarint(known)
      $0.writeVarint(after ?? known)
    }
  }
}
