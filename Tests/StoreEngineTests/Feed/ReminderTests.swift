import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine
import StoreTestSupport
import TestSupport
import Testing

/// Reminders (R22), and the expiry of acknowledgement requests as a record of the feed (R9).
@Suite("Reminders of a shard", .computing)
struct ReminderTests {
  private static let unread = [ReminderRule(after: 60, .unread)]

  /// Let time pass, and return the reminders and expiries that are in the feed from a record on.
  private static func due(
    after milliseconds: Int64,
    _ harness: EngineHarness,
    _ gateway: Gateway,
    from number: UInt64 = 1
  ) throws -> [String] {
    _ = try FeedTests.replies(harness, gateway)
    harness.advance(milliseconds)
    harness.loop.tick()
    return try told(harness, gateway, from: number)
  }

  private static func told(
    _ harness: EngineHarness,
    _ gateway: Gateway,
    from number: UInt64 = 1
  ) throws -> [String] {
    try FeedTests.records(harness, gateway, from: number)
      .filter { $0.hasPrefix("reminder.due") || $0.hasPrefix("receipt.expired") }
  }

  /// A consumer, and a channel of ann, bob and carl.
  private static func start(
    _ storage: MemoryStorage = MemoryStorage(),
    _ change: ((inout OptionPatch) -> Void)? = nil
  ) throws -> (harness: EngineHarness, gateway: Gateway) {
    let (harness, gateway) = try FeedTests.harness(storage)
    gateway.consumer("crm")
    if let change { gateway.patch("team", change) }
    gateway.put("team:a", ["ann", "bob", "carl"])
    return (harness, gateway)
  }

  @Test("those who still fall short are named once, when their time has come")
  func whoFallsShortIsNamed() throws {
    let (harness, gateway) = try Self.start { $0.reminders = [ReminderRule(after: 60, .unread)] }
    gateway.post("team:a", "m1", by: "ann")
    gateway.post("team:a", "quiet", by: "ann", flags: 1)
    gateway.post("team:a", "m2", by: "ann", reminders: [])
    gateway.read("team:a", "bob")
    #expect(try Self.due(after: 59_999, harness, gateway) == [])
    #expect(try Self.due(after: 1, harness, gateway) == ["reminder.due team:a m1 1 unread 1/1 [carl]"])
    #expect(try Self.due(after: 60_000, harness, gateway).count == 1)
    #expect(harness.loop.endsWithoutTimers)
  }

  @Test("a message brings its own reminders, each with its condition")
  func messageBringsItsOwn() throws {
    let (harness, gateway) = try Self.start { $0.reminders = Self.unread }
    let rules = [
      ReminderRule(after: 10, .undelivered), ReminderRule(after: 20, .unread), ReminderRule(after: 30, .unacknowledged),
    ]
    gateway.post("team:a", "m1", by: "ann", flags: 2, reminders: rules)
    gateway.post("team:a", "m2", by: "ann", reminders: [ReminderRule(after: 30, .unacknowledged)])
    gateway.push("team:a", "bob", "m1", acked: 0)
    #expect(try Self.due(after: 10_000, harness, gateway) == ["reminder.due team:a m1 1 undelivered 1/1 [carl]"])
    gateway.read("team:a", "bob", "m1")
    #expect(try Self.due(after: 10_000, harness, gateway).last == "reminder.due team:a m1 1 unread 1/1 [carl]")
    gateway.read("team:a", "carl", "m1")
    let last = try Self.due(after: 10_000, harness, gateway).last
    #expect(last == "reminder.due team:a m1 1 unacknowledged 1/1 [bob carl]")
    #expect(try Self.due(after: 90_000, harness, gateway).count == 3)
  }

  /// What happens before a reminder is due, so that it names nobody.
  enum Cancellation: CaseIterable {
    case messageDeleted, truncated, channelDeleted, everybodyLeft, everybodyHasRead, everybodyHides, channelShowsNoReads
  }

  @Test("what cancels a reminder", arguments: Cancellation.allCases)
  func whatCancels(_ cancellation: Cancellation) throws {
    let (harness, gateway) = try Self.start()
    gateway.post("team:a", "m1", by: "ann", reminders: Self.unread)
    let others = ["bob", "carl"]
    switch cancellation {
    case .messageDeleted: gateway.deleteMessage("team:a", "m1")
    case .truncated: gateway.truncate("team:a")
    case .channelDeleted: gateway.deleteChannel("team:a")
    case .everybodyLeft: gateway.change("team:a", remove: others)
    case .everybodyHasRead: for user in others { gateway.read("team:a", user) }
    case .everybodyHides: for user in others { gateway.assign(user: user, version: 1, flags: 1) }
    case .channelShowsNoReads: gateway.patch("team", readEvents: false)
    }
    #expect(try Self.due(after: 60_000, harness, gateway) == [])
    #expect(harness.loop.endsWithoutTimers)
  }

  @Test("somebody who hides or leaves between the reminder and its delivery is not named; a deletion ends it")
  func namesFollowPrivacy() throws {
    let (harness, gateway) = try Self.start()
    gateway.change("team:a", add: ["dora"])
    gateway.post("team:a", "m1", by: "ann", reminders: Self.unread)
    #expect(try Self.due(after: 60_000, harness, gateway) == ["reminder.due team:a m1 1 unread 1/1 [bob carl dora]"])
    gateway.assign(user: "bob", version: 1, flags: 1)
    gateway.change("team:a", remove: ["carl"])
    #expect(try Self.told(harness, gateway) == ["reminder.due team:a m1 1 unread 1/1 [dora]"])
    gateway.erase("team:a", "dora")
    #expect(try Self.told(harness, gateway) == [])
  }

  @Test("a reminder whose message is deleted before its delivery is not told")
  func deletionEndsTold() throws {
    let (harness, gateway) = try Self.start()
    gateway.post("team:a", "m1", by: "ann", reminders: Self.unread)
    #expect(try Self.due(after: 60_000, harness, gateway).count == 1)
    gateway.deleteMessage("team:a", "m1")
    #expect(try Self.told(harness, gateway) == [])
  }

  @Test("many members are named in parts of 100, up to the limit")
  func manyAreNamedInParts() throws {
    let (harness, gateway) = try FeedTests.harness()
    gateway.consumer("crm", kinds: [.reminderDue])
    gateway.put("team:a", ["ann"] + (0..<250).map { "u\($0)" })
    let rules = [
      ReminderRule(after: 1, .unread), ReminderRule(after: 2, .unread, membersMax: 120),
      ReminderRule(after: 3, .unread, membersMax: 250),
    ]
    gateway.post("team:a", "m1", by: "ann", reminders: rules)
    let told = try Self.due(after: 3_000, harness, gateway)
    let parts = told.map { $0.split(separator: " ")[5].description + ($0.contains("truncated") ? " truncated" : "") }
    #expect(parts == ["1/3", "2/3", "3/3", "1/2 truncated", "2/2 truncated", "1/3", "2/3", "3/3"])
    let counts = told.map { $0.split(separator: "[").last!.split(separator: " ").count }
    #expect(counts == [100, 100, 50, 100, 20, 100, 100, 50])
    #expect(told.contains { $0.contains("[u100 ") && $0.hasSuffix(" u199]") })
  }

  @Test("a reply's reminders name those who take part in its thread")
  func replyNamesItsParticipants() throws {
    let (harness, gateway) = try Self.start { $0.reminders = Self.unread }
    gateway.post("team:a", "m1", by: "ann", reminders: [])
    gateway.post("team:a", "r1", by: "bob", to: "m1")
    #expect(try Self.due(after: 60_000, harness, gateway) == ["reminder.due team:a r1 1 in m1 unread 1/1 [ann]"])
    // Of each kind, also for somebody who had no delivery in the thread.
    let rules = [ReminderRule(after: 1, .undelivered), ReminderRule(after: 1, .unread)]
    gateway.post("team:a", "r3", by: "bob", reminders: rules, to: "m1")
    #expect(
      try Self.due(after: 1_000, harness, gateway).suffix(2) == [
        "reminder.due team:a r3 2 in m1 undelivered 1/1 [ann]", "reminder.due team:a r3 2 in m1 unread 1/1 [ann]",
      ]
    )
    gateway.post("team:a", "r2", by: "bob", to: "m1")
    gateway.deleteMessage("team:a", "m1")
    #expect(try Self.due(after: 60_000, harness, gateway).count == 0)
  }

  @Test("an acknowledgement request that expires is told once, unless it is done or gone")
  func expiryIsTold() throws {
    let (harness, gateway) = try Self.start { $0.receiptTTL = .value(60) }
    for id in ["m1", "m2", "m3"] { gateway.post("team:a", id, by: "ann", flags: 2) }
    for user in ["bob", "carl"] { gateway.acknowledge("team:a", user, ["m2"]) }
    gateway.deleteMessage("team:a", "m3")
    #expect(try Self.due(after: 59_999, harness, gateway) == [])
    #expect(try Self.due(after: 1, harness, gateway) == ["receipt.expired team:a ann m1 1"])
    // A change of its members does not tell it again.
    gateway.change("team:a", remove: ["carl"])
    #expect(try Self.due(after: 60_000, harness, gateway).count == 1)
  }

  @Test("timers survive a restart, in the log and in pages, and are told once over it", arguments: [false, true])
  func timersSurviveRestart(writesPages: Bool) throws {
    let storage = MemoryStorage()
    var (harness, gateway) = try Self.start(storage)
    gateway.post("team:a", "m1", by: "ann", reminders: [ReminderRule(after: 3_600, .unread)])
    gateway.post("team:a", "m2", by: "ann", reminders: [ReminderRule(after: 7_200, .unread)])
    _ = try FeedTests.replies(harness, gateway)
    for round in 1...3 {
      if writesPages { try harness.writePages() }
      let clock = harness.clock
      (harness, gateway) = try FeedTests.harness(storage)
      harness.advance(clock + 3_600_000 - 1_000)
      harness.loop.tick()
      try harness.runUntilIdle()
      let told = try FeedTests.allRecords(harness, gateway).filter { $0.contains("reminder.due") }
      #expect(told.count == min(round, 2), "round \(round): \(told)")
      #expect(told.first?.hasSuffix("reminder.due team:a m1 1 unread 1/1 [bob carl]") == true)
    }
    #expect(harness.loop.endsWithoutTimers)
  }

  @Test("what was due while the feed was off is not told later; a gap tells that")
  func dueWhileFeedIsOff() throws {
    let storage = MemoryStorage()
    var (harness, gateway) = try Self.start(storage)
    gateway.post("team:a", "m1", by: "ann", reminders: Self.unread)
    gateway.post("team:a", "m2", by: "ann", reminders: [ReminderRule(after: 7_200, .unread)])
    _ = try FeedTests.replies(harness, gateway)
    (harness, gateway) = try FeedTests.harness(storage, retention: nil)
    harness.advance(3_600_000)
    harness.loop.tick()
    try harness.runUntilIdle()
    (harness, gateway) = try FeedTests.harness(storage)
    harness.advance(7_200_000)
    harness.loop.tick()
    try harness.runUntilIdle()
    let told = try FeedTests.allRecords(harness, gateway)
    #expect(told.filter { $0.contains("gap") }.count == 1)
    let reminders = told.filter { $0.contains("reminder.due") }
    #expect(reminders.count == 1 && reminders[0].contains("team:a m2 2"))
  }

  @Test("a channel that cannot be read is tried again")
  func unreadableChannelIsTriedAgain() throws {
    let storage = MemoryStorage()
    var (harness, gateway) = try Self.start(storage)
    gateway.post("team:a", "m1", by: "ann", reminders: [ReminderRule(after: 3_600, .unread)])
    _ = try FeedTests.replies(harness, gateway)
    try harness.writePages()
    for failures in 0...2 {
      (harness, gateway) = try FeedTests.harness(storage)
      harness.advance(7_200_000)
      harness.loop.tick()
      for load in 0..<failures {
        // The name first, then the channel.
        if load == 1 { try harness.completeLoad() }
        try harness.completeLoad(failing: true)
        harness.advance(10_000)
        harness.loop.tick()
      }
      guard failures == 2 else { continue }
      try harness.runUntilIdle()
      let told = try FeedTests.allRecords(harness, gateway).filter { $0.contains("reminder.due") }
      #expect(told.count == 1)
    }
  }

  @Test("many timers of one channel that is not in memory are told in slices")
  func manyTimersOfOneChannelAreSliced() throws {
    let storage = MemoryStorage()
    var (harness, gateway) = try FeedTests.harness(storage)
    gateway.consumer("crm", kinds: [.reminderDue])
    gateway.put("team:a", ["ann"] + (0..<400).map { "u\($0)" })
    for number in 0..<200 {
      gateway.post("team:a", "m\(number)", by: "ann", reminders: [ReminderRule(after: 3_600, .unread)])
    }
    _ = try FeedTests.replies(harness, gateway)
    try harness.writePages()
    (harness, gateway) = try FeedTests.harness(storage) { $0.sliceRows = 2_000 }
    harness.advance(7_200_000)
    harness.loop.tick()
    try harness.completeLoads()
    // 400 rows each: a turn has room for some of them.
    #expect((100..<200).contains(harness.loop.gauges.timers))
    try harness.runUntilIdle()
    #expect(harness.loop.endsWithoutTimers)
    #expect(try FeedTests.allRecords(harness, gateway).count == 800)
  }

  @Test("numbers and pages of timers that are told are used again")
  func pagesAreUsedAgain() throws {
    let storage = MemoryStorage()
    let (harness, gateway) = try Self.start(storage)
    for round in 0..<20 {
      for number in 0..<200 {
        gateway.post("team:a", "m\(round).\(number)", by: "ann", reminders: [ReminderRule(after: 60, .unread)])
      }
      _ = try Self.due(after: 60_000, harness, gateway, from: 1_000_000)
      try harness.writePages()
    }
    #expect(harness.loop.endsWithoutTimers)
    let pages = storage.data.recover(ShardID(0)).pages.filter { if case .timers = $0.page { true } else { false } }
    #expect(pages.count <= 3)
  }

  @Test("reminders of a thousand channels that are not in memory are all told")
  func manyChannelsAreLoaded() throws {
    let storage = MemoryStorage()
    var (harness, gateway) = try FeedTests.harness(storage)
    gateway.consumer("crm", kinds: [.reminderDue])
    for number in 0..<1_000 {
      gateway.put("team:c\(number)", ["ann", "bob"])
      gateway.post("team:c\(number)", "m", by: "ann", reminders: [ReminderRule(after: 3_600, .unread)])
      if number % 100 == 99 { _ = try FeedTests.replies(harness, gateway) }
    }
    try harness.writePages()
    (harness, gateway) = try FeedTests.harness(storage)
    harness.advance(7_200_000)
    for _ in 0..<40 where !harness.loop.endsWithoutTimers {
      harness.loop.tick()
      try harness.runUntilIdle()
    }
    #expect(harness.loop.endsWithoutTimers)
    #expect(try FeedTests.allRecords(harness, gateway).count == 1_000)
  }
}

extension StoreLoop {
  /// Whether no timer is pending or being told.
  fileprivate var endsWithoutTimers: Bool { gauges.timers == 0 }
}
