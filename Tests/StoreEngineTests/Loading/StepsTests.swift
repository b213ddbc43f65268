import NIOCore
import ReceiptModel
import ReceiptWire
import StoreTestSupport
import Testing

@testable import StoreEngine

/// Steps in a store: segments are written and leave memory, are read for a query, and are merged (R17).
@Suite("Steps on storage")
struct StepsTests {
  private let cid = "team:a"

  /// A harness with `team:a` of alice and bob, and this number of kept steps.
  private func harness(
    kept: UInt16 = 64,
    configure: (inout StoreLoopConfiguration) -> Void = { _ in }
  ) throws -> (harness: EngineHarness, gateway: Gateway) {
    let harness = try EngineHarness(configure: configure)
    let gateway = harness.connect()
    gateway.send(.patchChannelType, "team") { payload in
      var patch = OptionPatch()
      patch.keptSteps = kept
      payload.writeOptionPatch(patch)
    }
    gateway.put(cid, ["alice", "bob"])
    harness.loop.endTurn()
    try harness.completeLoads()
    try harness.persistAll()
    _ = gateway.take()
    return (harness, gateway)
  }

  /// Register this many messages of alice, each of which moves her two watermarks, and commit them.
  private func post(_ count: Int, from first: Int = 1, _ harness: EngineHarness, _ gateway: Gateway) throws {
    for number in first..<first + count {
      harness.advance(1)
      gateway.post(cid, "m\(number)", by: "alice")
      harness.loop.endTurn()
      try harness.completeLoads()
      try harness.persistAll()
    }
    _ = gateway.take()
  }

  private func slot(_ harness: EngineHarness) throws -> ChannelSlot {
    let cid = Array(cid.utf8)
    let slot = shard(harness).state.slot(of: cid.span.bytes)
    return try #require(slot)
  }

  private func shard(_ harness: EngineHarness) -> ShardEngine { harness.loop.shards[0] }

  /// Evict the channel, as a shard without memory does.
  private func evict(_ harness: EngineHarness) throws {
    let slot = try slot(harness)
    shard(harness).tickEviction()
    // The first round spares a channel that was used since the last one.
    for _ in 0..<2 {
      var scanBudget = Int.max
      _ = shard(harness).evict(bytes: .max, scanBudget: &scanBudget)
    }
    let isLoaded = shard(harness).state.isLoaded(slot)
    try #require(!isLoaded)
  }

  /// The segments in force, those in memory, and those in storage.
  private func segments(_ harness: EngineHarness) throws -> (
    range: Range<UInt32>, inMemory: [UInt32], stored: [UInt32]
  ) {
    let slot = try slot(harness)
    let range = shard(harness).state[slot].steps.segments(0)
    let stored = harness.storage.pages.keys.compactMap { key -> UInt32? in
      if case .steps(0, let segment) = key.page { segment } else { nil }
    }
    return (
      range, range.filter { shard(harness).state[slot].steps.segment(0, $0) != nil }, stored.sorted()
    )
  }

  /// Request segments as a query does. The query is a `get_channel`, answered when it runs again.
  private func need(
    _ range: Range<UInt32>,
    _ harness: EngineHarness,
    _ gateway: Gateway,
    correlation: UInt32 = 900,
    after attempt: RequestAttempt? = nil
  ) throws {
    var payload = ByteBuffer()
    payload.writeField(cid)
    let header = FrameHeader(.getChannel, shard: ShardID(0), correlation: correlation)
    try need(
      [StepTime.SegmentRange(rowPage: 0, segments: range)],
      harness,
      gateway,
      header,
      payload,
      after: attempt
    )
    harness.loop.endTurn()
  }

  private func need(
    _ ranges: [StepTime.SegmentRange],
    _ harness: EngineHarness,
    _ gateway: Gateway,
    _ header: FrameHeader,
    _ payload: ByteBuffer,
    after attempt: RequestAttempt? = nil
  ) throws {
    var request = try Request(header, payload.readableBytesSpan, gateway.lane)
    request.attempt = attempt
    let outcome = shard(harness).steps.wait(&request, try slot(harness), for: ranges)
    shard(harness).finish(outcome, &request)
  }

  @Test("a segment stays in memory until its page is on storage, and no longer")
  func segmentStaysInMemoryUntilPageIsOnStorage() throws {
    let (harness, gateway) = try harness()
    try post(40, harness, gateway)
    #expect(try segments(harness) == (0..<1, [0], []))
    harness.advance(10_000)
    harness.loop.tick()
    // In the commit in flight, which may fail.
    #expect(harness.commits.count == 1)
    #expect(try segments(harness).inMemory == [0])
    try harness.persistAll()
    #expect(try segments(harness) == (0..<1, [], [0]))
    #expect(harness.loop.gauges.residentBytes == shard(harness).state[try slot(harness)].byteCount)
  }

  @Test("a query waits for the segments it needs, and is then run again")
  func queryWaitsForSegmentsItNeeds() throws {
    let (harness, gateway) = try harness()
    try post(200, harness, gateway)
    try harness.writePages()
    try need(1..<3, harness, gateway)
    #expect(gateway.take() == [])
    #expect(harness.loop.isBusy)
    #expect(harness.stepReads.first?.ranges == [StepTime.SegmentRange(rowPage: 0, segments: 1..<3)])
    try harness.completeSteps()
    #expect(gateway.take() == ["900 channel of 2"])
    #expect(!harness.loop.isBusy)
    // A request in between is not blocked, and sees none of the read segments.
    try need(1..<3, harness, gateway)
    gateway.getChannel(cid)
    harness.loop.endTurn()
    #expect(gateway.take().count == 1)
    try harness.completeSteps()
    #expect(gateway.take() == ["900 channel of 2"])
  }

  @Test("a segment requested twice is read once, and a query's reads are limited")
  func segmentRequestedTwiceIsReadOnce() throws {
    let (harness, gateway) = try harness(configure: { $0.stepReadsMax = 1 })
    try post(200, harness, gateway)
    try harness.writePages()
    var payload = ByteBuffer()
    payload.writeField(cid)
    let header = FrameHeader(.getChannel, shard: ShardID(0), correlation: 7)
    let wanted = [2..<4, 0..<1, 3..<5, 2..<3].map { StepTime.SegmentRange(rowPage: 0, segments: $0) }
    try need(wanted, harness, gateway, header, payload)
    #expect(harness.stepReads.map(\.ranges) == [[0..<1, 2..<5].map { .init(rowPage: 0, segments: $0) }])
    try need(0..<1, harness, gateway)
    #expect(gateway.take() == ["900 busy"])
    try harness.completeSteps()
    #expect(gateway.take() == ["7 channel of 2"])
    // A row page of a huge channel: one part is read now, the rest on the next run.
    let all = [StepTime.SegmentRange(rowPage: 0, segments: 0..<1_000_000)]
    try need(all, harness, gateway, header, payload)
    #expect(harness.stepReads[0].ranges == [StepTime.SegmentRange(rowPage: 0, segments: 0..<512)])
  }

  @Test("the steps held by waiting queries are bounded together; a single query always proceeds")
  func stepsOfWaitingQueriesAreBoundedTogether() throws {
    let (harness, gateway) = try harness(configure: { $0.keptStepsMax = 150 })
    try post(200, harness, gateway)
    try harness.writePages()
    let steps = (1...100).map { number in
      let sequence = SequenceNumber(UInt32(number))
      return Step(row: 9, kind: .read, sequence: sequence, time: .none, number: UInt32(number))
    }
    var many = ReadSegments()
    many.add(0, 9, StepBytes.bytes(steps))
    for correlation in [1, 2] as [UInt32] {
      try need(0..<1, harness, gateway, correlation: correlation, after: RequestAttempt(segments: many))
    }
    try need(0..<1, harness, gateway, correlation: 3)
    #expect(gateway.take() == ["2 busy"])
    try harness.completeSteps()
    try harness.completeSteps()
    #expect(gateway.take() == ["1 channel of 2", "3 channel of 2"])
    #expect(!harness.loop.isBusy)
  }

  @Test("a query at its limit of reads is answered from the segments it has", arguments: [23, 24, 25])
  func queryAtLimitOfReadsIsAnsweredFromSegmentsItHas(count: Int) throws {
    let (harness, gateway) = try harness()
    try post(200, harness, gateway)
    try harness.writePages()
    try need(0..<1, harness, gateway, after: RequestAttempt(stepRounds: count))
    try harness.completeSteps()
    #expect(gateway.take() == ["900 channel of 2"])
    #expect(!harness.loop.isBusy)
  }

  @Test("a failed or mismatched read refuses its query only")
  func failedOrMismatchedReadRefusesQueryOnly() throws {
    let (harness, gateway) = try harness()
    try post(200, harness, gateway)
    try harness.writePages()
    try need(1..<2, harness, gateway)
    try harness.completeSteps(failing: true)
    #expect(gateway.take() == ["900 unavailable"])
    let key = PageKey(shard: ShardID(0), channel: ChannelNumber(1), page: .steps(0, 1))
    let whole = try #require(harness.storage.pages[key])
    let other = harness.storage.pages[
      PageKey(shard: ShardID(0), channel: ChannelNumber(1), page: .steps(0, 0))
    ]
    for damaged in [nil, other, ByteBuffer(bytes: Array(whole.readableBytesView.dropLast()))] {
      harness.storage.pages[key] = damaged
      try need(1..<2, harness, gateway)
      try harness.completeSteps()
      #expect(gateway.take() == ["900 unavailable"])
    }
    #expect(harness.reports.count == 4)
    harness.storage.pages[key] = whole
    try need(1..<2, harness, gateway)
    try harness.completeSteps()
    #expect(gateway.take() == ["900 channel of 2"])
  }

  @Test("a query whose connection has closed is dropped")
  func queryWhoseConnectionHasClosedIsDropped() throws {
    let (harness, gateway) = try harness()
    try post(200, harness, gateway)
    try harness.writePages()
    try need(0..<1, harness, gateway)
    harness.loop.close(gateway.lane)
    try harness.completeSteps()
    #expect(gateway.take() == [])
    #expect(!harness.loop.isBusy)
  }

  @Test("a channel evicted meanwhile is loaded again for the query")
  func channelEvictedMeanwhileIsLoadedAgainForQuery() throws {
    let (harness, gateway) = try harness()
    try post(200, harness, gateway)
    try harness.writePages()
    try need(0..<1, harness, gateway)
    try evict(harness)
    try harness.completeSteps()
    #expect(gateway.take() == [])
    #expect(harness.loads.count == 1)
    try harness.completeLoads()
    #expect(gateway.take() == ["900 channel of 2"])
  }

  @Test("a stale read is not taken for a new one, and not answered twice")
  func staleReadIsNotTakenForNewOne() throws {
    let (harness, gateway) = try harness()
    try post(200, harness, gateway)
    try harness.writePages()
    try need(0..<1, harness, gateway)
    let request = try #require(harness.stepReads.first)
    try harness.completeSteps()
    harness.loop.stepsRead(request, .success([]))
    #expect(gateway.take() == ["900 channel of 2"])
  }

  @Test("a row page with twice the needed segments is trimmed, and trimmed segments leave storage")
  func rowPageWithTwiceNeededSegmentsIsTrimmed() throws {
    let (harness, gateway, posted) = try beforeTrim()
    let before = try segments(harness)
    #expect(before.range == 0..<5)
    // Segments sealed meanwhile stay unchanged.
    try post(40, from: posted + 1, harness, gateway)
    try harness.completeSteps()
    #expect(try segments(harness).range == 4..<6)
    // The deletion follows the log.
    try #require(harness.commits.count == 1)
    #expect(harness.commits[0].stepTrims.isEmpty)
    try harness.persist()
    try #require(harness.commits.count == 1)
    #expect(harness.commits[0].stepTrims.map(\.segments) == [0..<4])
    try harness.persistAll()
    try harness.writePages()
    #expect(try segments(harness) == (4..<6, [], [4, 5]))
    #expect(!shard(harness).steps.isTrimming)
    // The log is trimmed, so recovery reads pages alone.
    let again = try EngineHarness(harness.storage)
    let other = again.connect()
    other.getChannel(cid)
    try again.completeLoads()
    #expect(other.take() == ["1 channel of 2"])
    #expect(try segments(again).range == 4..<6)
    try need(4..<6, again, other)
    try again.completeSteps()
    #expect(other.take() == ["900 channel of 2"])
  }

  /// A harness in which a trim has just read its segments, and the number of messages.
  private func beforeTrim() throws -> (harness: EngineHarness, gateway: Gateway, posted: Int) {
    let (harness, gateway) = try harness(kept: 4)
    var posted = 0
    while harness.stepReads.isEmpty {
      try post(10, from: posted + 1, harness, gateway)
      posted += 10
      // One step of bob remains after all of alice's reads.
      if posted == 10 { gateway.read(cid, "bob", "m1") }
      try #require(posted < 1_000)
      if posted == 100 { try harness.writePages() }
    }
    return (harness, gateway, posted)
  }

  /// The times of bob's first read and of alice's reads.
  private func times(_ harness: EngineHarness, _ posted: Int) throws -> [StepTime] {
    try [time(harness, 1, reaching: 1)] + (1...posted).map { try time(harness, 0, reaching: $0) }
  }

  private func time(_ harness: EngineHarness, _ row: UInt32, reaching sequence: Int) throws -> StepTime {
    let slot = try slot(harness)
    var read = ReadSegments()
    while true {
      let reply = shard(harness).state[slot].stepTime(
        .read,
        MemberOrdinal(row),
        reaching: SequenceNumber(UInt32(sequence)),
        kept: 4,
        in: read
      )
      guard case .stored(let range) = reply else { return reply }
      for stored in try harness.storage.readSteps(
        ShardID(0),
        ChannelNumber(1),
        rowPage: 0,
        segments: range.segments
      ) {
        guard
          case .channel(_, .stepsSealed(_, _, let bytes)) = try Page(stored.bytes.readableBytesSpan).effects[
            0
          ]
        else { continue }
        read.add(0, stored.segment, bytes)
      }
    }
  }

  @Test("a crash at any moment of a trim loses no kept step", arguments: 0...3)
  func crashAtAnyMomentOfTrimLosesNoKeptStep(commits: Int) throws {
    let (harness, _, posted) = try beforeTrim()
    let expected = try times(harness, posted)
    #expect(expected.last == .exact(Timestamp(milliseconds: harness.clock)))
    try harness.completeSteps()
    for _ in 0..<commits where !harness.commits.isEmpty { try harness.persist() }
    let again = try EngineHarness(harness.storage)
    let gateway = again.connect()
    gateway.getChannel(cid)
    try again.completeLoads()
    #expect(gateway.take() == ["1 channel of 2"])
    #expect(try segments(again).range == (commits == 0 ? 0..<5 : 4..<5))
    #expect(try times(again, posted) == expected)
    try again.writePages()
    #expect(try times(again, posted) == expected)
    #expect(try segments(again).inMemory == [])
  }

  @Test("a query that reads while its row page is trimmed runs again")
  func queryRunsAgainAfterTrim() throws {
    let (harness, gateway, _) = try beforeTrim()
    try need(0..<2, harness, gateway)
    try harness.completeSteps()
    try harness.persistAll()
    #expect(try segments(harness).range.lowerBound == 4)
    // Its segments are deleted by now, which is no fault.
    try harness.completeSteps()
    try harness.persistAll()
    #expect(gateway.take() == ["900 channel of 2"])
    #expect(harness.reports == [])
  }

  @Test("a trim whose read fails is cancelled, and its segments stay")
  func trimFails() throws {
    let (harness, gateway, posted) = try beforeTrim()
    try harness.completeSteps(failing: true)
    #expect(harness.reports.count == 1)
    #expect(try segments(harness).range == 0..<5)
    try post(100, from: posted + 1, harness, gateway)
    #expect(harness.stepReads.isEmpty)
    #expect(try segments(harness).range.lowerBound == 0)
  }

  @Test("damaged tails and segments are refused when their channel is loaded")
  func damagedTailsAndSegmentsAreRefusedWhenChannelIsLoaded() throws {
    let (harness, gateway) = try harness()
    try post(40, harness, gateway)
    let number = ChannelNumber(1)
    for isInLog in [false, true] {
      let storage = MemoryStorage()
      storage.log = harness.storage.log
      if isInLog {
        let last = try #require(storage.log[ShardID(0)]?.keys.max())
        let sealed = Effect.channel(number, .stepsSealed(rowPage: 0, segment: 1, bytes: [0x80]))
        var effects = ByteBuffer()
        effects.writeEffect(sealed)
        var bytes = ByteBuffer()
        LogBatch.write(
          index: LogIndex(last + 1),
          time: Timestamp(milliseconds: harness.clock),
          sessions: [],
          effectCount: 1,
          effects: effects,
          into: &bytes
        )
        storage.log[ShardID(0)]![last + 1] = bytes
      } else {
        var bytes = ByteBuffer()
        let row = RowRecord(user: "alice", joined: .zero, joinedAt: Timestamp(milliseconds: 1))
        Page(
          index: LogIndex(1),
          effects: [
            .channel(number, .rowAssigned(MemberOrdinal(0), row)),
            .channel(number, .stepTailAssigned(rowPage: 0, StepTailRecord(tail: [0xFF, 0xFF]))),
          ]
        ).write(into: &bytes)
        storage.pages[PageKey(shard: ShardID(0), channel: number, page: .rows(0))] = bytes
      }
      let again = try EngineHarness(storage)
      let other = again.connect()
      other.getChannel(cid)
      try again.completeLoads()
      #expect(other.take() == ["1 unavailable"])
      #expect(again.reports.count == 1)
    }
  }
}
