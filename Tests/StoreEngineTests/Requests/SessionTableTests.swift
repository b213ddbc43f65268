import ReceiptModel
import Testing

@testable import StoreEngine

/// Counters of one session in one shard (Proto/frames.md, "Sessions and resending").
@Suite("Session table")
struct SessionTableTests {
  enum Act {
    case decided(UInt64)
    case recordWaiting(UInt64)
    case refused(UInt64)
  }

  struct Story: CustomTestStringConvertible {
    var testDescription: String
    var acts: [Act]
    var applied: [UInt64]
    var notApplied: [UInt64]
  }

  static let stories = [
    Story(testDescription: "nothing yet", acts: [], applied: [], notApplied: [1, 2, .max]),
    Story(
      testDescription: "counters rise, with gaps for other shards",
      acts: [.decided(1), .decided(4)],
      applied: [1, 2, 3, 4],
      notApplied: [5]
    ),
    Story(
      testDescription: "a later command is decided while one waits",
      acts: [.recordWaiting(5), .decided(6)],
      applied: [6],
      notApplied: [5, 7]
    ),
    Story(
      testDescription: "a waiting command is decided",
      acts: [.recordWaiting(5), .decided(6), .decided(5)],
      applied: [5, 6],
      notApplied: [7]
    ),
    Story(
      testDescription: "a refused command stays unapplied",
      acts: [.refused(5), .decided(6)],
      applied: [4, 6],
      notApplied: [5, 7]
    ),
    Story(
      testDescription: "a waiting command is refused",
      acts: [.recordWaiting(5), .decided(6), .refused(5)],
      applied: [6],
      notApplied: [5]
    ),
    Story(
      testDescription: "a refused command is decided when resent",
      acts: [.refused(5), .decided(6), .decided(5)],
      applied: [5, 6],
      notApplied: []
    ),
    Story(
      testDescription: "refusing a decided command changes nothing",
      acts: [.decided(5), .refused(5), .recordWaiting(5)],
      applied: [5],
      notApplied: [6]
    ),
    Story(
      testDescription: "the largest counter",
      acts: [.decided(.max), .recordWaiting(.max), .refused(.max)],
      applied: [1, .max],
      notApplied: []
    ),
  ]

  @Test("an applied command is known", arguments: stories)
  func appliedCommandIsKnown(_ story: Story) {
    var table = SessionTable()
    let index = table.index(of: SessionID(high: 1, low: 1))
    for act in story.acts {
      switch act {
      case .decided(let counter): table.recordDecided(counter, at: index)
      case .recordWaiting(let counter): table.recordWaiting(counter, at: index)
      case .refused(let counter): table.recordRefused(counter, at: index)
      }
    }
    #expect(story.applied.filter { !table.hasApplied($0, at: index) } == [])
    #expect(story.notApplied.filter { table.hasApplied($0, at: index) } == [])
    // The logged record equals the table.
    table.markChanged(index)
    let record = table.takeChanged(at: Timestamp(milliseconds: 7), elapsed: 0)[0]
    #expect(story.applied.allSatisfy(record.hasApplied) && !story.notApplied.contains(where: record.hasApplied))
    #expect(record.notApplied == record.notApplied.sorted())
    #expect(record.lastWritten == Timestamp(milliseconds: 7))
  }

  @Test("sessions are independent, and are logged only when they have an effect")
  func sessionsAreIndependent() {
    var table = SessionTable()
    let first = table.index(of: SessionID(high: 1, low: 1))
    let second = table.index(of: SessionID(high: 1, low: 2))
    #expect(first != second && table.index(of: SessionID(high: 1, low: 1)) == first)
    table.recordDecided(9, at: first)
    #expect(!table.hasApplied(9, at: second))
    #expect(table.takeChanged(at: .none, elapsed: 0).isEmpty)
    table.markChanged(first)
    table.markChanged(first)
    #expect(table.takeChanged(at: .none, elapsed: 0).map(\.highest) == [9])
    #expect(table.takeChanged(at: .none, elapsed: 0).isEmpty)
  }

  @Test("refused commands are bounded: the oldest are evicted, waiting ones are not")
  func refusedCommandsAreBounded() {
    var table = SessionTable()
    let index = table.index(of: SessionID(high: 1, low: 1))
    table.recordWaiting(1, at: index)
    let most = UInt64(SessionTable.refusedMax)
    for counter in 2...(most + 3) { table.recordRefused(counter, at: index) }
    #expect(!table.hasApplied(1, at: index))
    #expect(
      table.hasApplied(2, at: index) && table.hasApplied(3, at: index) && !table.hasApplied(4, at: index)
    )
    table.markChanged(index)
    #expect(table.takeChanged(at: .none, elapsed: 0)[0].notApplied.count == Int(most) + 1)
  }

  @Test("commands that are refused or dropped several times count once")
  func commandsRefusedSeveralTimesCountOnce() {
    var table = SessionTable()
    let index = table.index(of: SessionID(high: 1, low: 1))
    let counters = 1...UInt64(SessionTable.refusedMax)
    for round in 0..<3 {
      for counter in counters {
        if round == 1 { table.recordDropped(counter, at: index) }
        table.recordRefused(counter, at: index)
      }
    }
    #expect(counters.filter { table.hasApplied($0, at: index) } == [])
    for _ in 0..<20 { for counter in counters { table.recordDropped(counter, at: index) } }
    #expect(counters.filter { table.hasApplied($0, at: index) } == [])
  }

  @Test("dropped commands have a bound of their own, also after a restart")
  func droppedCommandsAreBounded() {
    var table = SessionTable()
    let session = SessionID(high: 1, low: 1)
    let index = table.index(of: session)
    let most = UInt64(SessionTable.droppedMax)
    for counter in 1...(most + 2) { table.recordWaiting(counter, at: index) }
    for counter in 1...(most + 2) { table.recordDropped(counter, at: index) }
    #expect(
      table.hasApplied(1, at: index) && table.hasApplied(2, at: index) && !table.hasApplied(3, at: index)
    )
    for counter in (most + 3)...(most + 203) { table.recordRefused(counter, at: index) }
    #expect(!table.hasApplied(3, at: index))
    table.markChanged(index)
    var restarted = SessionTable()
    restarted.assign(table.takeChanged(at: .none, elapsed: 0)[0])
    let restored = restarted.index(of: session)
    restarted.recordRefused(most + 204, at: restored)
    #expect(!restarted.hasApplied(3, at: restored) && !restarted.hasApplied(most + 2, at: restored))
  }

  @Test("a session table round-trips, counters that are not applied included")
  func sessionTableRoundTrips() {
    var table = SessionTable()
    let session = SessionID(high: 3, low: 4)
    table.assign(SessionRecord(session: session, highest: 8, notApplied: [5, 6]))
    let index = table.index(of: session)
    #expect([5, 6, 9].allSatisfy { !table.hasApplied($0, at: index) } && table.hasApplied(8, at: index))
    table.recordDecided(5, at: index)
    #expect(table.hasApplied(5, at: index))
  }

  @Test("of 10,000 sessions that end one after the other, the table holds those within the lifetime")
  func endedSessionsAreForgotten() {
    var table = SessionTable()
    let open = table.index(of: SessionID(high: 1, low: 0))
    table.laneOpened(at: open)
    table.recordDecided(1, at: open)
    for number in 1...10_000 as ClosedRange<Int64> {
      let session = SessionID(high: 0, low: UInt64(number))
      let index = table.index(of: session)
      table.laneOpened(at: index)
      table.recordDecided(7, at: index)
      table.markChanged(index)
      _ = table.takeChanged(at: .none, elapsed: number)
      table.recordUse(at: index, elapsed: number)
      table.laneClosed(at: index)
      table.forgetEnded(elapsed: number, lifetimeMilliseconds: 500, examinedMax: 16)
      // None within the lifetime is forgotten: its index would be new.
      let recent = table.index(of: SessionID(high: 0, low: UInt64(max(1, number - 500))))
      #expect(table.hasApplied(7, at: recent))
    }
    #expect(table.indexCount < 700 && table.count <= table.indexCount)
    #expect(table.index(of: SessionID(high: 1, low: 0)) == open && table.hasApplied(1, at: open))
  }

  @Test("a session with an effect in the open batch is not forgotten")
  func changedSessionIsNotForgotten() {
    var table = SessionTable()
    let index = table.index(of: SessionID(high: 1, low: 1))
    table.recordDecided(3, at: index)
    table.markChanged(index)
    table.forgetEnded(elapsed: 1_000, lifetimeMilliseconds: 500, examinedMax: 16)
    #expect(table.takeChanged(at: .none, elapsed: 1_000).map(\.highest) == [3])
    table.forgetEnded(elapsed: 1_500, lifetimeMilliseconds: 500, examinedMax: 16)
    #expect(table.count == 1)
    table.forgetEnded(elapsed: 1_501, lifetimeMilliseconds: 500, examinedMax: 16)
    #expect(table.count == 0 && table.indexCount == 1)
    let other = table.index(of: SessionID(high: 1, low: 2))
    #expect(other == index && !table.hasApplied(1, at: other))
  }

  @Test("a shard forgets sessions without a connection, and still applies commands of the others once")
  func shardForgetsEndedSessions() throws {
    let (harness, gateway) = try harnessWithChannel()
    gateway.read("team:a", "bob")
    let counter = gateway.counter
    for number in 2...5_000 as ClosedRange<UInt64> {
      let other = harness.connect(session: number)
      other.read("team:a", "bob", counter: 1)
      harness.loop.endTurn()
      try harness.persistAll()
      harness.loop.close(other.lane)
      harness.advance(1_000)
      harness.loop.tick()
      try harness.persistAll()
    }
    #expect(harness.loop.shards[0].sessions.table.indexCount < 1_600)
    _ = gateway.take()
    gateway.post("team:a", "m1", by: "alice")
    gateway.read("team:a", "bob", counter: counter)
    harness.loop.endTurn()
    try harness.persistAll()
    // The resent mark reads nothing, although there is a new message.
    #expect(gateway.take().last?.hasSuffix("unread 1") == true)
  }

  @Test("the head page keeps sessions by elapsed time")
  func headPageKeepsSessionsByElapsedTime() {
    var table = SessionTable()
    for low in [2, 1, 3] as [UInt64] {
      let index = table.index(of: SessionID(high: 0, low: low))
      if low == 3 { continue }
      table.recordDecided(1, at: index)
      table.markChanged(index)
      _ = table.takeChanged(at: Timestamp(milliseconds: 5), elapsed: Int64(low) * 100)
    }
    #expect(table.records(elapsed: 300, lifetimeMilliseconds: 1000).map(\.session.low) == [1, 2])
    #expect(table.records(elapsed: 1150, lifetimeMilliseconds: 1000).map(\.session.low) == [2])
    #expect(table.records(elapsed: 1201, lifetimeMilliseconds: 1000).isEmpty)
  }
}
