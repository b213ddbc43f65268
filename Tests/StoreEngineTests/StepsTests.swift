import NIOCore
import ReceiptModel
import ReceiptWire
import Testing

@testable import StoreEngine

/// Steps in a store: segments are written and leave memory, are read for a query, and are merged (R17).
@Suite("Steps on storage")
struct StepsTests {
  private let cid = "team:a"

  /// A world with `team:a` of alice and bob, and this number of kept steps.
  private func world(
    kept: UInt16 = 64,
    configure: (inout StoreLoopConfiguration) -> Void = { _ in }
  ) throws -> (world: EngineWorld, gateway: Gateway) {
    let world = try EngineWorld(configure: configure)
    let gateway = world.connect()
    gateway.send(.patchChannelType, "team") { payload in
      var patch = OptionPatch()
      patch.keptSteps = kept
      payload.writeOptionPatch(patch)
    }
    gateway.put(cid, ["alice", "bob"])
    world.loop.endTurn()
    try world.answerLoads()
    try world.persistAll()
    _ = gateway.take()
    return (world, gateway)
  }

  /// Register this many messages of alice, each of which moves her two watermarks, and commit them.
  private func post(_ count: Int, from first: Int = 1, _ world: EngineWorld, _ gateway: Gateway) throws {
    for number in first..<first + count {
      world.advance(1)
      gateway.post(cid, "m\(number)", by: "alice")
      world.loop.endTurn()
      try world.answerLoads()
      try world.persistAll()
    }
    _ = gateway.take()
  }

  private func slot(_ world: EngineWorld) throws -> ChannelSlot {
    let cid = Array(cid.utf8)
    let slot = shard(world).state.slot(of: cid.span.bytes)
    return try #require(slot)
  }

  private func shard(_ world: EngineWorld) -> ShardEngine { world.loop.shards[0] }

  /// The segments in force, those in memory, and those in storage.
  private func segments(_ world: EngineWorld) throws -> (
    range: Range<UInt32>, inMemory: [UInt32], stored: [UInt32]
  ) {
    let slot = try slot(world)
    let range = shard(world).state[slot].steps.segments(0)
    let stored = world.storage.pages.keys.compactMap { key -> UInt32? in
      if case .steps(0, let segment) = key.page { segment } else { nil }
    }
    return (
      range, range.filter { shard(world).state[slot].steps.segment(0, $0) != nil }, stored.sorted()
    )
  }

  /// Request segments as a query does. The query is a `get_channel`, answered when it runs again.
  private func need(
    _ range: Range<UInt32>,
    _ world: EngineWorld,
    _ gateway: Gateway,
    correlation: UInt32 = 900,
    after attempt: RequestAttempt? = nil
  ) throws {
    var payload = ByteBuffer()
    payload.writeField(cid)
    let header = FrameHeader(.getChannel, shard: ShardID(0), correlation: correlation)
    try need(
      [StepTime.SegmentRange(rowPage: 0, segments: range)],
      world,
      gateway,
      header,
      payload,
      after: attempt
    )
    world.loop.endTurn()
  }

  private func need(
    _ ranges: [StepTime.SegmentRange],
    _ world: EngineWorld,
    _ gateway: Gateway,
    _ header: FrameHeader,
    _ payload: ByteBuffer,
    after attempt: RequestAttempt? = nil
  ) throws {
    var request = try Request(header, payload.readableBytesSpan, gateway.lane)
    request.attempt = attempt
    let outcome = shard(world).steps.needSteps(&request, try slot(world), ranges)
    shard(world).finish(outcome, &request)
  }

  @Test("a segment stays in memory until its page is on storage, and no longer")
  func written() throws {
    let (world, gateway) = try world()
    try post(40, world, gateway)
    #expect(try segments(world) == (0..<1, [0], []))
    world.advance(10_000)
    world.loop.tick()
    // In the commit in flight, which may fail.
    #expect(world.commits.count == 1)
    #expect(try segments(world).inMemory == [0])
    try world.persistAll()
    #expect(try segments(world) == (0..<1, [], [0]))
    #expect(world.loop.gauges.residentBytes == shard(world).state[try slot(world)].byteCount)
  }

  @Test("a query waits for the segments it needs, and is then run again")
  func needed() throws {
    let (world, gateway) = try world()
    try post(200, world, gateway)
    try world.checkpoint()
    try need(1..<3, world, gateway)
    #expect(gateway.take() == [])
    #expect(world.loop.isBusy)
    #expect(world.stepReads.first?.ranges == [StepTime.SegmentRange(rowPage: 0, segments: 1..<3)])
    try world.answerSteps()
    #expect(gateway.take() == ["900 channel of 2"])
    #expect(!world.loop.isBusy)
    // A request in between is not blocked, and sees none of the read segments.
    try need(1..<3, world, gateway)
    gateway.getChannel(cid)
    world.loop.endTurn()
    #expect(gateway.take().count == 1)
    try world.answerSteps()
    #expect(gateway.take() == ["900 channel of 2"])
  }

  @Test("a segment requested twice is read once, and a query's reads are limited")
  func ranges() throws {
    let (world, gateway) = try world(configure: { $0.stepReadsMax = 1 })
    try post(200, world, gateway)
    try world.checkpoint()
    var payload = ByteBuffer()
    payload.writeField(cid)
    let header = FrameHeader(.getChannel, shard: ShardID(0), correlation: 7)
    let wanted = [2..<4, 0..<1, 3..<5, 2..<3].map { StepTime.SegmentRange(rowPage: 0, segments: $0) }
    try need(wanted, world, gateway, header, payload)
    #expect(world.stepReads.map(\.ranges) == [[0..<1, 2..<5].map { .init(rowPage: 0, segments: $0) }])
    try need(0..<1, world, gateway)
    #expect(gateway.take() == ["900 busy"])
    try world.answerSteps()
    #expect(gateway.take() == ["7 channel of 2"])
    // A row page of a huge channel: one part is read now, the rest on the next run.
    let all = [StepTime.SegmentRange(rowPage: 0, segments: 0..<1_000_000)]
    try need(all, world, gateway, header, payload)
    #expect(world.stepReads[0].ranges == [StepTime.SegmentRange(rowPage: 0, segments: 0..<512)])
  }

  @Test("the steps held by waiting queries are bounded together; a single query always proceeds")
  func held() throws {
    let (world, gateway) = try world(configure: { $0.heldStepsMax = 150 })
    try post(200, world, gateway)
    try world.checkpoint()
    let steps = (1...100).map { number in
      let sequence = SequenceNumber(UInt32(number))
      return Step(row: 9, kind: .read, sequence: sequence, time: .none, number: UInt32(number))
    }
    var many = ReadSegments()
    many.add(0, 9, StepBytes.bytes(steps))
    for correlation in [1, 2] as [UInt32] {
      try need(0..<1, world, gateway, correlation: correlation, after: RequestAttempt(segments: many))
    }
    try need(0..<1, world, gateway, correlation: 3)
    #expect(gateway.take() == ["2 busy"])
    try world.answerSteps()
    try world.answerSteps()
    #expect(gateway.take() == ["1 channel of 2", "3 channel of 2"])
    #expect(!world.loop.isBusy)
  }

  @Test("a query at its limit of reads is answered from the segments it has", arguments: [23, 24, 25])
  func rounds(count: Int) throws {
    let (world, gateway) = try world()
    try post(200, world, gateway)
    try world.checkpoint()
    try need(0..<1, world, gateway, after: RequestAttempt(stepRounds: count))
    try world.answerSteps()
    #expect(gateway.take() == ["900 channel of 2"])
    #expect(!world.loop.isBusy)
  }

  @Test("a failed or mismatched read refuses its query only")
  func failing() throws {
    let (world, gateway) = try world()
    try post(200, world, gateway)
    try world.checkpoint()
    try need(1..<2, world, gateway)
    try world.answerSteps(failing: true)
    #expect(gateway.take() == ["900 unavailable"])
    let key = PageKey(shard: ShardID(0), channel: ChannelNumber(1), page: .steps(0, 1))
    let whole = try #require(world.storage.pages[key])
    let other = world.storage.pages[PageKey(shard: ShardID(0), channel: ChannelNumber(1), page: .steps(0, 0))]
    for damaged in [nil, other, ByteBuffer(bytes: Array(whole.readableBytesView.dropLast()))] {
      world.storage.pages[key] = damaged
      try need(1..<2, world, gateway)
      try world.answerSteps()
      #expect(gateway.take() == ["900 unavailable"])
    }
    #expect(world.reports.count == 4)
    world.storage.pages[key] = whole
    try need(1..<2, world, gateway)
    try world.answerSteps()
    #expect(gateway.take() == ["900 channel of 2"])
  }

  @Test("a query whose connection has closed is dropped")
  func closed() throws {
    let (world, gateway) = try world()
    try post(200, world, gateway)
    try world.checkpoint()
    try need(0..<1, world, gateway)
    world.loop.close(gateway.lane)
    try world.answerSteps()
    #expect(gateway.take() == [])
    #expect(!world.loop.isBusy)
  }

  @Test("a channel evicted meanwhile is loaded again for the query")
  func evicted() throws {
    let (world, gateway) = try world()
    try post(200, world, gateway)
    try world.checkpoint()
    try need(0..<1, world, gateway)
    shard(world).state.remove(try slot(world))
    try world.answerSteps()
    #expect(gateway.take() == [])
    #expect(world.loads.count == 1)
    try world.answerLoads()
    #expect(gateway.take() == ["900 channel of 2"])
  }

  @Test("a stale read is not taken for a new one, and not answered twice")
  func stale() throws {
    let (world, gateway) = try world()
    try post(200, world, gateway)
    try world.checkpoint()
    try need(0..<1, world, gateway)
    let request = try #require(world.stepReads.first)
    try world.answerSteps()
    world.loop.stepsRead(request, .success([]))
    #expect(gateway.take() == ["900 channel of 2"])
  }

  @Test("a row page with twice the needed segments is trimmed, and trimmed segments leave storage")
  func trimmed() throws {
    let (world, gateway, posted) = try beforeTrim()
    let before = try segments(world)
    #expect(before.range == 0..<5)
    // Segments sealed meanwhile stay unchanged.
    try post(40, from: posted + 1, world, gateway)
    try world.answerSteps()
    #expect(try segments(world).range == 4..<6)
    // The deletion follows the log.
    try #require(world.commits.count == 1)
    #expect(world.commits[0].trims.isEmpty)
    try world.persist()
    try #require(world.commits.count == 1)
    #expect(world.commits[0].trims.map(\.before) == [4])
    try world.persistAll()
    try world.checkpoint()
    #expect(try segments(world) == (4..<6, [], [4, 5]))
    #expect(!shard(world).steps.isTrimming)
    // The log is cut, so recovery reads pages alone.
    let again = try EngineWorld(world.storage)
    let other = again.connect()
    other.getChannel(cid)
    try again.answerLoads()
    #expect(other.take() == ["1 channel of 2"])
    #expect(try segments(again).range == 4..<6)
    try need(4..<6, again, other)
    try again.answerSteps()
    #expect(other.take() == ["900 channel of 2"])
  }

  /// A world in which a trim has just read its segments, and the number of messages.
  private func beforeTrim() throws -> (world: EngineWorld, gateway: Gateway, posted: Int) {
    let (world, gateway) = try world(kept: 4)
    var posted = 0
    while world.stepReads.isEmpty {
      try post(10, from: posted + 1, world, gateway)
      posted += 10
      // One step of bob remains, whatever alice does.
      if posted == 10 { gateway.read(cid, "bob", "m1") }
      try #require(posted < 1_000)
      if posted == 100 { try world.checkpoint() }
    }
    return (world, gateway, posted)
  }

  /// The times of bob's first read and of alice's reads.
  private func times(_ world: EngineWorld, _ posted: Int) throws -> [StepTime] {
    try [time(world, 1, reaching: 1)] + (1...posted).map { try time(world, 0, reaching: $0) }
  }

  private func time(_ world: EngineWorld, _ row: UInt32, reaching sequence: Int) throws -> StepTime {
    let slot = try slot(world)
    var read = ReadSegments()
    while true {
      let answer = shard(world).state[slot].stepTime(
        .read,
        MemberOrdinal(row),
        reaching: SequenceNumber(UInt32(sequence)),
        kept: 4,
        in: read
      )
      guard case .stored(let range) = answer else { return answer }
      for stored in try world.storage.readSteps(
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
  func crash(commits: Int) throws {
    let (world, _, posted) = try beforeTrim()
    let expected = try times(world, posted)
    #expect(expected.last == .exact(Timestamp(milliseconds: world.clock)))
    try world.answerSteps()
    for _ in 0..<commits where !world.commits.isEmpty { try world.persist() }
    let again = try EngineWorld(world.storage)
    let gateway = again.connect()
    gateway.getChannel(cid)
    try again.answerLoads()
    #expect(gateway.take() == ["1 channel of 2"])
    #expect(try segments(again).range == (commits == 0 ? 0..<5 : 4..<5))
    #expect(try times(again, posted) == expected)
    try again.checkpoint()
    #expect(try times(again, posted) == expected)
    #expect(try segments(again).inMemory == [])
  }

  @Test("a query that reads while its row page is trimmed runs again")
  func trimmedMeanwhile() throws {
    let (world, gateway, _) = try beforeTrim()
    try need(0..<2, world, gateway)
    try world.answerSteps()
    try world.persistAll()
    #expect(try segments(world).range.lowerBound == 4)
    // Its segments are deleted by now, which is no fault.
    try world.answerSteps()
    try world.persistAll()
    #expect(gateway.take() == ["900 channel of 2"])
    #expect(world.reports == [])
  }

  @Test("a trim whose read fails is cancelled, and its segments stay")
  func trimFails() throws {
    let (world, gateway, posted) = try beforeTrim()
    try world.answerSteps(failing: true)
    #expect(world.reports.count == 1)
    #expect(try segments(world).range == 0..<5)
    try post(100, from: posted + 1, world, gateway)
    #expect(world.stepReads.isEmpty)
    #expect(try segments(world).range.lowerBound == 0)
  }

  @Test("damaged tails and segments are refused when their channel is loaded")
  func damaged() throws {
    let (world, gateway) = try world()
    try post(40, world, gateway)
    let number = ChannelNumber(1)
    for isInLog in [false, true] {
      let storage = MemoryStorage()
      storage.log = world.storage.log
      if isInLog {
        let last = try #require(storage.log[ShardID(0)]?.keys.max())
        let sealed = Effect.channel(number, .stepsSealed(rowPage: 0, segment: 1, bytes: [0x80]))
        var effects = ByteBuffer()
        effects.writeEffect(sealed)
        var bytes = ByteBuffer()
        LogBatch.write(
          index: LogIndex(last + 1),
          time: Timestamp(milliseconds: world.clock),
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
      let again = try EngineWorld(storage)
      let other = again.connect()
      other.getChannel(cid)
      try again.answerLoads()
      #expect(other.take() == ["1 unavailable"])
      #expect(again.reports.count == 1)
    }
  }
}
