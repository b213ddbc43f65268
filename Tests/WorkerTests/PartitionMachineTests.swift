import TestSupport
import Testing

@testable import FeedClient
@testable import Worker

/// Stories of one stream: what happens, and what the machine does about it.
@Suite struct PartitionMachineTests {
  private static let failure = DeliveryOutcome.failed(DeliveryFailure(.status(500), "x"))

  private static func record(_ number: Int) -> FeedLine {
    .record(FeedRecord(cursor: "c\(number)", id: "r\(number)", json: Array("{}".utf8)))
  }

  private struct Story {
    var machine: PartitionMachine
    var now: Int64 = 1_000_000
    /// Without jitter, delays are the full ones.
    var jitter = 0.0

    init(records: Int = 2, state: PartitionState = PartitionState(), pausedUntil: Int64? = nil) throws {
      var task = try WebhookTask.test("http://127.0.0.1:1/")
      task.batchRecordsMax = records
      task.batchWaitMilliseconds = 500
      task.retryMilliseconds = 10_000
      machine = PartitionMachine(task, partition: "0/4", pausedUntil: pausedUntil)
      #expect(machine.start(now: now) == [.read])
      let actions = handle(.lines([.lease(FeedLease(epoch: 5, cursor: "c0", state: state.text))]))
      if !state.isAttemptDead { #expect(actions == [.read]) }
    }

    mutating func handle(_ event: PartitionMachine.Event, after: Int64 = 0) -> [PartitionMachine.Action] {
      now += after
      return machine.handle(event, now: now, jitter: jitter)
    }
  }

  private static func batches(_ actions: [PartitionMachine.Action]) -> [(String?, String, Int)] {
    actions.compactMap { if case .attempt(let batch) = $0 { (batch.from, batch.end, batch.count) } else { nil } }
  }

  private static func commits(_ actions: [PartitionMachine.Action]) -> [PartitionMachine.Commit] {
    actions.compactMap { if case .commit(let commit) = $0 { commit } else { nil } }
  }

  @Test func fullBatchIsDeliveredAndCommitted() throws {
    var story = try Story()
    var actions = story.handle(.lines([Self.record(1), Self.record(2), Self.record(3)]))
    #expect(Self.batches(actions).map(\.1) == ["c2"] && Self.batches(actions).first?.0 == "c0")
    // One batch is in flight and the next is not full: the stream is read on.
    #expect(actions.contains(.read))
    actions = story.handle(.attempted(.delivered))
    #expect(Self.commits(actions) == [.init(epoch: 5, cursor: "c2")])
    actions = story.handle(.woken, after: 500)
    #expect(Self.batches(actions).map(\.1) == ["c3"] && Self.batches(actions).first?.0 == "c2")
  }

  @Test func streamIsNotReadWhileTheNextBatchIsFull() throws {
    var story = try Story()
    var actions = story.handle(.lines((1...4).map(Self.record)))
    #expect(Self.batches(actions).count == 1 && !actions.contains(.read))
    actions = story.handle(.attempted(.delivered))
    #expect(Self.batches(actions).map(\.1) == ["c4"] && actions.contains(.read))
  }

  @Test func failedBatchIsRetriedWithItsState() throws {
    var story = try Story()
    let first = story.handle(.lines([Self.record(1), Self.record(2)]))
    guard case .attempt(let batch)? = first.first(where: { if case .attempt = $0 { true } else { false } }) else {
      throw Unexpected("no attempt")
    }
    var actions = story.handle(.attempted(Self.failure))
    let attempt = PartitionState.Attempt(
      from: "c0",
      end: "c2",
      count: 2,
      attempts: 1,
      firstAt: story.now,
      nextAt: story.now + 1_000
    )
    #expect(Self.commits(actions) == [.init(epoch: 5, change: .init(attempt: attempt))])
    #expect(actions.contains(.wake(at: story.now + 1_000)))
    #expect(Self.batches(story.handle(.committed(.done(deadLetters: 0)))).isEmpty)
    actions = story.handle(.woken, after: 1_000)
    #expect(actions == [.attempt(batch)])
    // The delivery clears the attempt together with its commit.
    actions = story.handle(.attempted(.delivered))
    #expect(Self.commits(actions) == [.init(epoch: 5, cursor: "c2", change: .init(attempt: nil))])
  }

  @Test func nextWorkerRepeatsTheSameBatch() throws {
    let attempt = PartitionState.Attempt(
      from: "c0",
      end: "c3",
      count: 3,
      attempts: 2,
      firstAt: 999_000,
      nextAt: 1_002_000
    )
    var story = try Story(state: PartitionState(attempt: attempt))
    // More records than a batch of today has, and time passes: the batch is that of the attempt.
    var actions = story.handle(.lines([Self.record(1), Self.record(2)]))
    #expect(Self.batches(actions).isEmpty)
    #expect(Self.batches(story.handle(.woken, after: 1_000)).isEmpty)
    actions = story.handle(.lines([Self.record(3), Self.record(4)]))
    #expect(Self.batches(actions).isEmpty && actions.contains(.wake(at: 1_002_000)))
    actions = story.handle(.woken, after: 1_000)
    #expect(Self.batches(actions).map(\.1) == ["c3"] && Self.batches(actions).map(\.2) == [3])
    actions = story.handle(.attempted(Self.failure))
    #expect(Self.commits(actions).first?.change?.attempt?.attempts == 3)
    #expect(Self.commits(actions).first?.change?.attempt?.firstAt == 999_000)
  }

  @Test func repeatedBatchEndsWhereItsRecordsAreGone() throws {
    let attempt = PartitionState.Attempt(from: "c0", end: "c9", count: 9, attempts: 1, firstAt: 0, nextAt: 0)
    var story = try Story(state: PartitionState(attempt: attempt))
    _ = story.handle(.lines([Self.record(1), .heartbeat(cursor: "c1")]))
    let actions = story.handle(.lines([.heartbeat(cursor: "c1")]))
    #expect(Self.batches(actions).map(\.1) == ["c1"])
    var other = try Story(state: PartitionState(attempt: attempt))
    _ = other.handle(.lines([.heartbeat(cursor: "c9")]))
    #expect(
      Self.commits(other.handle(.lines([.heartbeat(cursor: "c9")])))
        == [.init(epoch: 5, cursor: "c9", change: .init(attempt: nil))]
    )
  }

  @Test func deadLetterIsStoredBeforeItsPositionIsCommitted() throws {
    var story = try Story()
    _ = story.handle(.lines([Self.record(1), Self.record(2), Self.record(3)]))
    let start = story.now
    var actions = story.handle(.attempted(Self.failure), after: 10_000)
    let letter = DeadLetter(
      from: "c0",
      to: "c2",
      count: 2,
      firstErrorAt: start,
      lastErrorAt: start + 10_000,
      error: "500"
    )
    #expect(actions.contains(.report(.deadLetter(letter))))
    let commit = try #require(Self.commits(actions).first)
    #expect(commit.cursor == nil && commit.change?.deadLetter == letter)
    #expect(story.handle(.committed(.done(deadLetters: 1))) == [.end(.reopen)])
    // The next stream sees it stored, and commits the position.
    let change = try #require(commit.change)
    let stored = PartitionState().applying(change)
    var next = try Story(state: stored)
    _ = next
    var machine = PartitionMachine(try WebhookTask.test("http://127.0.0.1:1/"), partition: "0/4")
    _ = machine.start(now: 0)
    actions = machine.handle(
      .lines([.lease(FeedLease(epoch: 6, cursor: "c0", state: stored.text)), Self.record(1)]),
      now: 0,
      jitter: 0
    )
    #expect(actions == [.commit(.init(epoch: 6, cursor: "c2", change: .init(attempt: nil)))])
    #expect(machine.handle(.committed(.done(deadLetters: 1)), now: 0, jitter: 0) == [.end(.reopen)])
    // If a replay has overwritten it, the batch is attempted once more.
    next = try Story(state: PartitionState(attempt: change.attempt))
    #expect(Self.batches(next.handle(.lines([Self.record(1), Self.record(2)]), after: 60_000)).map(\.1) == ["c2"])
  }

  @Test func lostLeaseEndsWithoutAnotherCommit() throws {
    var story = try Story(records: 1)
    _ = story.handle(.lines([Self.record(1), Self.record(2)]))
    _ = story.handle(.attempted(.delivered))
    #expect(story.handle(.committed(.leaseLost)) == [.end(.leaseLost)])
    #expect(story.handle(.attempted(.delivered)).isEmpty)
    var other = try Story(records: 1)
    _ = other.handle(.lines([Self.record(1)]))
    #expect(other.handle(.lines([.leaseLost])) == [.end(.leaseLost)])
    #expect(other.handle(.attempted(.delivered)).isEmpty)
  }

  @Test func stopFinishesTheRequestInFlight() throws {
    var story = try Story(records: 1)
    _ = story.handle(.lines([Self.record(1), Self.record(2)]))
    #expect(story.handle(.stop).isEmpty)
    #expect(story.handle(.attempted(.delivered)) == [.commit(.init(epoch: 5, cursor: "c1"))])
    #expect(story.handle(.committed(.done(deadLetters: nil))) == [.end(.stopped)])
    var idle = try Story()
    _ = idle.handle(.lines([Self.record(1)]))
    #expect(idle.handle(.stop) == [.end(.stopped)])
  }

  @Test func abandonedRequestLeavesItsBatchToTheNextWorker() throws {
    var story = try Story(records: 1)
    _ = story.handle(.lines([Self.record(1)]))
    _ = story.handle(.stop)
    let actions = story.handle(.abandon)
    let attempt = Self.commits(actions).first?.change?.attempt
    #expect(attempt?.end == "c1" && attempt?.attempts == 0 && attempt?.nextAt == story.now)
    #expect(story.handle(.attempted(.delivered)).isEmpty)
    #expect(story.handle(.committed(.done(deadLetters: 0))) == [.end(.stopped)])
  }

  @Test func endedStreamIsOpenedAgainAfterTheRequest() throws {
    var story = try Story(records: 1)
    _ = story.handle(.lines([Self.record(1)]))
    #expect(story.handle(.streamEnded).isEmpty)
    #expect(Self.commits(story.handle(.attempted(Self.failure))).first?.change?.attempt?.attempts == 1)
    #expect(story.handle(.committed(.done(deadLetters: 0))) == [.end(.reopen)])
    // A stop meanwhile wins.
    var other = try Story(records: 1)
    _ = other.handle(.lines([Self.record(1)]))
    _ = other.handle(.streamEnded)
    _ = other.handle(.stop)
    _ = other.handle(.attempted(.delivered))
    #expect(other.handle(.committed(.done(deadLetters: nil))) == [.end(.stopped)])
  }

  @Test func failedCommitsAreRepeatedAndBounded() throws {
    var story = try Story(records: 1)
    var attempts = Self.batches(story.handle(.lines((1...40).map(Self.record)))).count
    var actions = story.handle(.attempted(.delivered))
    #expect(Self.commits(actions).map(\.cursor) == ["c1"])
    attempts += Self.batches(actions).count
    while !Self.batches(actions).isEmpty {
      actions = story.handle(.attempted(.delivered))
      attempts += Self.batches(actions).count
    }
    // Deliveries wait for the commit, which fails once.
    #expect(attempts == 16)
    actions = story.handle(.committed(.failed))
    #expect(Self.commits(actions).isEmpty && actions.contains(.wake(at: story.now + 1_000)))
    actions = story.handle(.woken, after: 1_000)
    #expect(Self.commits(actions).map(\.cursor) == ["c16"])
    #expect(Self.batches(story.handle(.committed(.done(deadLetters: nil)))).map(\.1) == ["c17"])
  }

  @Test func goneEndpointPausesNewBatches() throws {
    var story = try Story(records: 1)
    _ = story.handle(.lines([Self.record(1)]))
    let actions = story.handle(.attempted(.failed(DeliveryFailure(.status(410), ""))))
    #expect(actions.contains(.report(.gone(until: story.now + 600_000))))
    #expect(actions.contains(.wake(at: story.now + 600_000)))
    // Another partition, which has not tried yet, waits too, until the endpoint is back.
    var other = try Story(records: 1, pausedUntil: 5_000_000)
    #expect(Self.batches(other.handle(.lines([Self.record(1)]))).isEmpty)
    #expect(Self.batches(other.handle(.paused(until: nil))).map(\.1) == ["c1"])
  }

  @Test func idlePositionsAndGapsAreCommittedOnce() throws {
    var story = try Story()
    #expect(Self.commits(story.handle(.lines([.heartbeat(cursor: "c7")]))) == [.init(epoch: 5, cursor: "c7")])
    _ = story.handle(.committed(.done(deadLetters: nil)))
    #expect(Self.commits(story.handle(.lines([.heartbeat(cursor: "c7")]))).isEmpty)
    let actions = story.handle(.lines([.gap(cursor: "c9", from: "c7", to: "c9")]))
    #expect(actions.contains(.report(.gap(from: "c7", to: "c9"))))
    #expect(Self.commits(actions) == [.init(epoch: 5, cursor: "c9")])
    // Behind an undelivered record no heartbeat is committed.
    #expect(Self.commits(story.handle(.lines([Self.record(10), .heartbeat(cursor: "c11")]))).isEmpty)
  }

  @Test func unusableStreamsFail() throws {
    var machine = PartitionMachine(try WebhookTask.test("http://127.0.0.1:1/"), partition: "0/4")
    _ = machine.start(now: 0)
    var actions = machine.handle(.lines([Self.record(1)]), now: 0, jitter: 0)
    #expect(actions == [.end(.failed("the stream does not begin with a lease"))])
    machine = PartitionMachine(try WebhookTask.test("http://127.0.0.1:1/"), partition: "0/4")
    _ = machine.start(now: 0)
    actions = machine.handle(.lines([.lease(FeedLease(epoch: 1, state: "{}"))]), now: 0, jitter: 0)
    guard case .end(.failed)? = actions.first else { throw Unexpected("\(actions)") }
  }
}
