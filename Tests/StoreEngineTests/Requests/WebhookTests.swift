import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine
import TestSupport
import Testing

/// Webhooks that a shard remembers, so that none is accepted twice (Proto/frames.md, 0x2E and 0x42).
@Suite("Remembered webhooks", .computing)
struct WebhookTests {
  private static let minute: Int64 = 60_000

  /// The first key that belongs to a shard, out of two shards.
  private static func key(of shard: UInt16, _ key: (Int) -> String) -> String {
    var number = 0
    while true {
      let bytes = Array(key(number).utf8)
      if ShardID.owning(bytes.span.bytes, count: 2) == ShardID(shard) { return key(number) }
      number += 1
    }
  }

  private func nextReplies(_ harness: EngineHarness, _ gateway: Gateway) throws -> [String] {
    harness.loop.endTurn()
    try harness.persistAll()
    return gateway.take().map { String($0.drop { $0 != " " }.dropFirst()) }
  }

  private func harness(
    _ storage: MemoryStorage = MemoryStorage(),
    clock: Int64 = 1_000_000,
    session: UInt64 = 1
  ) throws -> (harness: EngineHarness, gateway: Gateway) {
    let harness = try EngineHarness(storage)
    harness.advance(clock - harness.clock)
    return (harness, harness.connect(session: session))
  }

  @Test("a recorded webhook is reported as known once that is durable")
  func recordedWebhookIsReportedAsKnownOnceThatIsDurable() throws {
    let (harness, gateway) = try harness()
    gateway.queryWebhook("relay/1")
    gateway.recordWebhook("relay/1", until: 1_000_000 + Self.minute)
    gateway.queryWebhook("relay/1")
    gateway.recordWebhook("relay/1", until: 1_000_000 + Self.minute)
    gateway.queryWebhook("relay/2")
    harness.loop.endTurn()
    #expect(gateway.take() == ["1 not known", "5 not known"])
    try harness.persistAll()
    #expect(gateway.take() == ["2 recorded", "3 known", "4 was known"])
  }

  @Test("a resent webhook is reported as recorded; another command with its key, as known")
  func resentWebhookIsReportedAsRecorded() throws {
    let (harness, gateway) = try harness()
    gateway.recordWebhook("relay/1", until: 1_000_000 + Self.minute)
    gateway.recordWebhook("relay/1", until: 1_000_000 + Self.minute)
    #expect(try nextReplies(harness, gateway) == ["recorded", "was known"])
    gateway.recordWebhook("relay/1", until: 1_000_000 + Self.minute, counter: 1)
    gateway.recordWebhook("relay/1", until: 1_000_000 + Self.minute, counter: 2)
    #expect(try nextReplies(harness, gateway) == ["recorded", "was known"])
    let (again, _) = try self.harness(harness.storage)
    let same = again.connect()
    same.recordWebhook("relay/1", until: 1_000_000 + Self.minute, counter: 1)
    same.recordWebhook("relay/1", until: 1_000_000 + Self.minute, counter: 2)
    #expect(try nextReplies(again, same) == ["recorded", "was known"])
  }

  @Test("a webhook is remembered as long as requested, up to an hour of the shard's time")
  func webhookIsRememberedAsLongAsRequested() throws {
    let (harness, gateway) = try harness()
    gateway.recordWebhook("short", until: 1_000_000 + Self.minute)
    gateway.recordWebhook("long", until: 1_000_000 + 600 * Self.minute)
    gateway.recordWebhook("over", until: 999_999)
    gateway.queryWebhook("over")
    #expect(try nextReplies(harness, gateway) == ["not known", "recorded", "recorded", "recorded"])
    harness.advance(Self.minute)
    gateway.queryWebhook("short")
    #expect(try nextReplies(harness, gateway) == ["known"])
    harness.advance(1)
    gateway.queryWebhook("short")
    harness.loop.endTurn()
    // The expiry is reported once a later time is logged, so that it cannot be undone.
    #expect(gateway.take() == [])
    try harness.persistAll()
    #expect(gateway.take().count == 1)
    let (again, other) = try self.harness(harness.storage, session: 2)
    other.queryWebhook("short")
    other.queryWebhook("long")
    #expect(try nextReplies(again, other) == ["not known", "known"])
    again.advance(60 * Self.minute)
    other.queryWebhook("long")
    again.advance(1)
    other.queryWebhook("long")
    other.recordWebhook("long", until: again.clock)
    #expect(try nextReplies(again, other) == ["known", "not known", "recorded"])
  }

  @Test("remembered webhooks survive recovery from the log and from pages")
  func rememberedWebhooksSurviveRecoveryFromLogAndFromPages() throws {
    let (harness, gateway) = try harness()
    for number in 0..<300 { gateway.recordWebhook("relay/\(number)", until: 1_000_000 + 30 * Self.minute) }
    gateway.recordWebhook("soon", until: 1_000_000 + Self.minute)
    #expect(try nextReplies(harness, gateway).allSatisfy { $0 == "recorded" })
    for hasWrittenPages in [false, true] {
      if hasWrittenPages {
        try harness.writePages()
        #expect(harness.storage.log[ShardID(0)]!.isEmpty)
        #expect(harness.storage.pages.keys.contains { if case .webhooks = $0.page { true } else { false } })
      }
      let (again, other) = try self.harness(harness.storage, session: 2)
      for number in 0..<300 { other.queryWebhook("relay/\(number)") }
      other.recordWebhook("relay/7", until: again.clock + 1)
      other.queryWebhook("relay/300")
      let replies = try nextReplies(again, other)
      #expect(Array(replies.suffix(3)) == ["known", "was known", "not known"])
      #expect(replies.count { $0 == "known" } == 300)
    }
    // Pages omit expired webhooks.
    harness.advance(2 * Self.minute)
    gateway.recordWebhook("relay/new", until: harness.clock + Self.minute)
    _ = try nextReplies(harness, gateway)
    try harness.writePages()
    let (again, other) = try self.harness(harness.storage, clock: harness.clock, session: 2)
    other.recordWebhook("soon", until: again.clock)
    other.queryWebhook("relay/299")
    #expect(try nextReplies(again, other) == ["recorded", "known"])
  }

  @Test("with a full table the next webhook is busy until one expires, and none expires early")
  func withFullTableNextWebhookIsBusyUntilOneExpires() throws {
    let (harness, gateway) = try harness()
    gateway.recordWebhook("first", until: 1_000_000 + Self.minute)
    for number in 1..<WebhookTable.countMax {
      gateway.recordWebhook("\(number)", until: 1_000_000 + 2 * Self.minute)
    }
    #expect(try nextReplies(harness, gateway).count { $0 == "recorded" } == WebhookTable.countMax)
    harness.advance(Self.minute - 500)
    gateway.recordWebhook("more", until: harness.clock + Self.minute)
    let counter = gateway.counter
    gateway.queryWebhook("first")
    #expect(try nextReplies(harness, gateway) == ["busy", "known"])
    gateway.recordWebhook("more", until: harness.clock + Self.minute)
    harness.loop.endTurn()
    let error = try ErrorFrame(gateway.lastPayload.readableBytesSpan)
    #expect(error.retryAfterMilliseconds == 501)
    _ = gateway.take()
    harness.advance(501)
    gateway.recordWebhook("more", until: harness.clock + Self.minute, counter: counter)
    gateway.recordWebhook("even more", until: harness.clock + Self.minute)
    gateway.queryWebhook("first")
    gateway.queryWebhook("1")
    #expect(try nextReplies(harness, gateway) == ["busy", "not known", "recorded", "known"])
  }

  @Test("keys of another shard or of invalid length are refused by name")
  func keysOfAnotherShardOrOfInvalidLengthAreRefusedByName() throws {
    let harness = try EngineHarness(shards: [0, 1], of: 2)
    let gateway = harness.connect()
    let key = Self.key(of: 1) { "relay/\($0)" }
    for shard in [UInt16(0), 1] {
      gateway.recordWebhook(key, until: 5_000, shard: shard)
      gateway.queryWebhook(key, shard: shard)
    }
    gateway.recordWebhook("", until: 5_000)
    gateway.queryWebhook(String(repeating: "k", count: 257))
    gateway.queryWebhook(Self.key(of: 0) { String(repeating: "k", count: 250) + "\(100_000 + $0)" })
    let replies = try nextReplies(harness, gateway)
    #expect(
      replies.sorted() == [
        "invalid_field", "invalid_field", "known", "not known", "recorded", "wrong_shard", "wrong_shard",
      ]
    )
  }
}

extension Gateway {
  fileprivate func recordWebhook(_ key: String, until time: Int64, counter: UInt64? = nil, shard: UInt16 = 0) {
    send(.noteWebhook, key, counter: counter, shard: shard) { $0.writeTime(Timestamp(milliseconds: time)) }
  }

  fileprivate func queryWebhook(_ key: String, shard: UInt16 = 0) { send(.webhookKnown, key, shard: shard) }
}
