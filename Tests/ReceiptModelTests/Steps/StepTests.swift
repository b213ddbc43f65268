import TestSupport
import Testing

@testable import NaiveReceiptModel
@testable import ReceiptModel

/// The time when a watermark first reached a message (R17).
@Suite("Steps", .computing)
struct StepTests {
  private func at(_ milliseconds: Int64) -> Timestamp { Timestamp(milliseconds: milliseconds) }

  // MARK: Bytes

  @Test("steps are encoded in five to seven bytes each, and decode to the same")
  func stepsAreEncodedInFiveToSevenBytesEach() throws {
    var random = SplitMix64(printingSeedOf: "encoded steps")
    var steps: [Step] = []
    var time: Int64 = 1_700_000_000_000
    for number in 1...2_000 {
      time += Int64(random.below(5_000))
      steps.append(
        Step(
          row: UInt8(random.below(256)),
          kind: random.oneIn(2) ? .read : .delivered,
          sequence: SequenceNumber(UInt32(100_000 + random.below(60))),
          time: at(time),
          number: UInt32(number / 20 + 1),
          isHidden: random.oneIn(5),
          isAfterDropped: random.oneIn(7)
        )
      )
    }
    let bytes = StepBytes.bytes(steps)
    #expect(StepBytes.steps(bytes) == steps)
    #expect(bytes.count < 7 * steps.count)
    // A step acknowledged with a time stores it beside the shard's time, which the next step's time is relative to.
    for place in steps.indices where random.oneIn(3) {
      steps[place].kind = .delivered
      steps[place].acked = at(steps[place].time.milliseconds - Int64(1 + random.below(3_000_000)))
    }
    let acked = StepBytes.bytes(steps)
    #expect(StepBytes.steps(acked) == steps && acked.count < 11 * steps.count)
    #expect(
      StepBytes.merge([acked]) { _ in true }?.compactMap { StepBytes.steps($0) }.joined().map(\.acked)
        == steps.map(\.acked)
    )
    // The largest encodings: both ends of every field, and falling times.
    let edges = [
      Step(row: 255, kind: .read, sequence: SequenceNumber(.max), time: at(.max), number: .max),
      Step(row: 0, kind: .delivered, sequence: SequenceNumber(1), time: at(0), number: 1, isHidden: true),
      Step(row: 255, kind: .delivered, sequence: SequenceNumber(.max), time: at(.max), number: .max),
      Step(row: 255, kind: .delivered, sequence: SequenceNumber(1), time: at(.max), acked: at(1), number: 1),
      Step(row: 0, kind: .delivered, sequence: SequenceNumber(1), time: at(2), acked: at(1), number: 2),
    ]
    #expect(StepBytes.steps(StepBytes.bytes(edges)) == edges)
    #expect(StepBytes.steps([]) == [])
    // Without a time, or before the shard's time.
    let one = [0x81, 0x10, 2, 20, 1] as [UInt8]
    #expect(StepBytes.steps(one + [9])?.map(\.acked) == [at(1)])
    for earlier in [[0], [10], [11], []] as [[UInt8]] { #expect(!StepBytes.areWhole(one + earlier)) }
  }

  @Test("damaged steps are refused or decode to others, and never trap")
  func damagedStepsAreRefusedOrDecodeToOthers() {
    var random = SplitMix64(printingSeedOf: "damaged steps")
    let steps = (1...100).map { number in
      Step(
        row: UInt8(number),
        kind: .read,
        sequence: SequenceNumber(UInt32(number)),
        time: at(Int64(number) * 1_000),
        number: UInt32(number)
      )
    }
    let whole = StepBytes.bytes(steps)
    var refused = 0
    for _ in 0..<5_000 {
      var bytes = whole
      for _ in 0...random.below(3) { bytes[random.below(bytes.count)] = UInt8(random.below(256)) }
      if random.oneIn(3) { bytes.removeLast(random.below(bytes.count)) }
      if !StepBytes.areWhole(bytes) { refused += 1 }
      _ = StepBytes.merge([whole, bytes]) { _ in true }
      var read = ReadSegments()
      #expect(read.add(0, 0, bytes) == StepBytes.areWhole(bytes))
    }
    #expect(refused > 500)
    #expect(!StepBytes.areWhole([UInt8](repeating: 0xFF, count: 40)))
    #expect(!StepBytes.areWhole(whole.dropLast()))
    #expect(StepBytes.merge([whole, [0x80]]) { _ in true } == nil)
    let far = [UInt8](repeating: 0, count: 4)
    #expect(!StepTailRecord(first: 0, ends: [], tail: far).isWhole)
    #expect(!StepTailRecord(first: 0, ends: [at(2), at(1)]).isWhole)
    #expect(!StepTailRecord(first: .max).isWhole)
    #expect(StepTailRecord(first: 3, ends: [at(1), at(1), at(2)], tail: whole).isWhole)
  }

  // MARK: Times

  @Test("the first step that reached the message gives the exact time, for each kind")
  func firstStepThatReachedMessageGivesExactTime() {
    let harness = StepHarness(rows: 2)
    for _ in 1...10 { harness.post() }
    harness.pass(1_000)
    harness.move(.delivered, 0, to: 4)
    harness.pass(1_000)
    harness.move(.read, 0, to: 3)
    harness.pass(1_000)
    harness.move(.read, 0, to: 7)
    #expect(harness.time(.read, 0, reaching: 1) == .exact(at(3_000)))
    #expect(harness.time(.read, 0, reaching: 3) == .exact(at(3_000)))
    #expect(harness.time(.read, 0, reaching: 4) == .exact(at(4_000)))
    #expect(harness.time(.read, 0, reaching: 7) == .exact(at(4_000)))
    #expect(harness.time(.delivered, 0, reaching: 4) == .exact(at(2_000)))
  }

  @Test(
    "beyond the kept steps the oldest gives an inexact time; raising the option uses steps still stored"
  )
  func beyondKeptStepsOldestGivesInexactTime() {
    let harness = StepHarness(rows: 1, kept: 2)
    for _ in 1...5 {
      harness.post()
      harness.pass(1_000)
      harness.move(.read, 0, to: harness.newest)
    }
    // Steps at 2, 3, 4, 5 and 6 seconds; the last two are kept.
    #expect(
      (1...5).map { harness.time(.read, 0, reaching: $0) } == [
        .latest(at(5_000)), .latest(at(5_000)), .latest(at(5_000)), .exact(at(5_000)), .exact(at(6_000)),
      ]
    )
    harness.keep(4_096)
    #expect(harness.time(.read, 0, reaching: 1) == .exact(at(2_000)))
    harness.keep(0)
    #expect(harness.time(.read, 0, reaching: 5) == .latest(at(6_000)))
    #expect(harness.time(.read, 0, reaching: 1) == .latest(at(6_000)))
  }

  @Test("a step made while hidden has no time for others, but has one for its user")
  func stepMadeWhileHiddenHasNoTimeForOthers() {
    let harness = StepHarness(rows: 1, kept: 2)
    for _ in 1...3 {
      harness.post()
      harness.pass(1_000)
      harness.move(.read, 0, to: harness.newest, isHidden: harness.newest == 2)
    }
    #expect(harness.time(.read, 0, reaching: 3) == .exact(at(4_000)))
    #expect(harness.time(.read, 0, reaching: 2) == .hidden(at(3_000)))
    #expect(harness.time(.read, 0, reaching: 2, seesHidden: true) == .exact(at(3_000)))
    // Not kept: the oldest kept step is hidden, and its time would reveal it.
    #expect(harness.time(.read, 0, reaching: 1) == .hidden(at(3_000)))
    #expect(harness.time(.read, 0, reaching: 1, seesHidden: true) == .latest(at(3_000)))
    harness.pass(1_000)
    harness.post()
    harness.move(.read, 0, to: 4, isHidden: true)
    harness.keep(0)
    #expect(harness.time(.read, 0, reaching: 1) == .hidden(at(5_000)))
    #expect(harness.time(.read, 0, reaching: 1, seesHidden: true) == .latest(at(5_000)))
  }

  @Test("sending moves the sender's watermarks, and adds a step to each")
  func sendingMovesSenderWatermarks() throws {
    let shard = TestShard()
    shard.checksEverything = true
    let cid = "team:a"
    _ = shard.perform(
      .put(cid: cid, settings: [:], members: [MemberSpec(user: "alice"), MemberSpec(user: "bob")]),
      clock: 1_000
    )
    for number in 1...200 {
      let post = Command.post(cid: cid, id: "m\(number)", sender: "alice", created: 0, isSilent: false)
      _ = shard.perform(post, clock: 1_000 + number)
    }
    let slot = try #require(shard.slot(cid))
    for kind in [StepKind.read, .delivered] {
      let time = shard.state[slot].stepTime(
        kind,
        MemberOrdinal(0),
        reaching: SequenceNumber(150),
        kept: 64,
        in: ReadSegments()
      )
      #expect(time == .exact(at(1_150)))
    }
    // 400 moves in tails of 64, or one more where one command moves both.
    #expect(shard.state[slot].steps.segments(0) == 0..<6)
    #expect(shard.faults == [])
    shard.seal()
    let replayed = shard.replayed()
    #expect(ShardDigest.difference(shard.digest(), replayed.digest()) == nil)
  }

  // MARK: Segments

  @Test("the next move seals a full tail; commands that move nothing do not")
  func nextMoveSealsFullTail() {
    let harness = StepHarness(rows: 2)
    for _ in 1...40 {
      harness.post()
      for row in 0..<2 { harness.move(.read, row, to: harness.newest) }
    }
    #expect(harness.segments() == 0..<1)
    for _ in 1...24 {
      harness.post()
      for row in 0..<2 { harness.move(.read, row, to: harness.newest) }
    }
    #expect(harness.segments() == 0..<1)
    // The tail is full: repeating the mark moves nothing, a further mark does.
    harness.move(.read, 0, to: harness.newest)
    #expect(harness.segments() == 0..<1)
    harness.post()
    harness.move(.read, 0, to: harness.newest)
    #expect(harness.segments() == 0..<2)
  }

  @Test("full pages of rows have tails of 256 steps")
  func fullPagesHaveLongTails() {
    let harness = StepHarness(rows: 300)
    harness.post()
    for row in 0..<300 { harness.move(.read, row, to: 1) }
    #expect(harness.segments(0) == 0..<0)
    harness.post()
    for row in 0..<300 { harness.move(.read, row, to: 2) }
    #expect(harness.segments(0) == 0..<1)
    // The second page has 44 rows, and so the smallest tail.
    #expect(harness.segments(1) == 0..<1)
  }

  @Test("with kept_steps=0 nothing is sealed, and sealed steps are dropped")
  func zeroKeptStepsSealNothing() {
    let harness = StepHarness(rows: 1, kept: 64)
    for _ in 1...70 {
      harness.post()
      harness.move(.read, 0, to: harness.newest)
    }
    #expect(harness.segments() == 0..<1)
    harness.keep(0)
    for _ in 1...300 {
      harness.post()
      harness.move(.read, 0, to: harness.newest)
    }
    #expect(harness.segments().isEmpty)
    #expect(harness.segments().lowerBound == 5)
    // Kept again from here on; dropped steps do not return.
    harness.keep(64)
    harness.pass(1_000)
    harness.post()
    harness.move(.read, 0, to: harness.newest)
    #expect(
      harness.time(.read, 0, reaching: harness.newest) == harness.expected(.read, 0, reaching: harness.newest)
    )
  }

  @Test("finding a step in stored segments reads few of them")
  func findingStepInStoredSegmentsReadsFewOfThem() {
    let harness = StepHarness(rows: 3, kept: 4_096)
    for number in 1...4_000 {
      harness.post()
      harness.pass(10)
      harness.move(.read, number % 3, to: harness.newest)
    }
    #expect(harness.segments().count == 62)
    harness.write()
    #expect(harness.time(.read, 0, reaching: 2_999) == harness.expected(.read, 0, reaching: 2_999))
    #expect(harness.lastRead <= 2)
    #expect(harness.time(.read, 0, reaching: 3_995) == harness.expected(.read, 0, reaching: 3_995))
    #expect(harness.lastRead == 0)
    // A member who reads it long after: each round of reads requests twice as many segments.
    let late = StepHarness(rows: 3, kept: 4_096)
    late.post()
    for _ in 1...4_000 {
      late.post()
      late.pass(10)
      late.move(.read, 1, to: late.newest)
    }
    late.move(.read, 0, to: 1)
    late.write()
    #expect(late.time(.read, 0, reaching: 1) == .exact(at(41_000)))
    // The step is the first of its row, so no earlier one can have reached the message.
    #expect(late.lastRead == 0)
    late.pass(10)
    late.move(.read, 2, to: 1)
    late.pass(10)
    for _ in 1...4_000 {
      late.post()
      late.pass(10)
      late.move(.read, 1, to: late.newest)
    }
    late.move(.read, 2, to: 5)
    late.write()
    #expect(late.time(.read, 2, reaching: 1) == late.expected(.read, 2, reaching: 1))
    #expect(late.lastRounds <= 8)
  }

  @Test("trimming drops steps beyond the limit, merges segments, and changes no answer")
  func trimmingDropsStepsBeyondLimit() {
    let harness = StepHarness(rows: 3, kept: 8)
    for _ in 1...40 {
      harness.post()
      harness.pass(10)
      harness.move(.read, 2, to: harness.newest)
    }
    for _ in 41...2_000 {
      harness.post()
      harness.pass(10)
      harness.move(.read, 0, to: harness.newest)
      harness.move(.delivered, 1, to: harness.newest)
    }
    harness.write()
    #expect(harness.segments() == 0..<61)
    let before = (1...2_000).map { harness.time(.read, 0, reaching: UInt32($0)) }
    let idle = (1...40).map { harness.time(.read, 2, reaching: UInt32($0)) }
    harness.trim()
    #expect(harness.trims == 1)
    #expect(harness.segments() == 60..<61)
    harness.write()
    #expect(harness.disk.count == 1)
    #expect((1...2_000).map { harness.time(.read, 0, reaching: UInt32($0)) } == before)
    #expect((1...40).map { harness.time(.read, 2, reaching: UInt32($0)) } == idle)
    #expect(before.contains(.exact(at(20_960))))
  }

  @Test("merged segments are not newer than the segments they replace")
  func mergedSegmentsAreNotNewerThanSegmentsTheyReplace() throws {
    var random = SplitMix64(printingSeedOf: "merged segments")
    for _ in 0..<50 {
      var number: UInt32 = 0
      var segments: [[UInt8]] = []
      var ends: [UInt32] = []
      for _ in 0...random.below(20) {
        let steps = (0...random.below(300)).map { _ in
          number += 1
          return Step(
            row: 0,
            kind: .read,
            sequence: SequenceNumber(number),
            time: at(Int64(number)),
            number: number
          )
        }
        segments.append(StepBytes.bytes(steps))
        ends.append(number)
      }
      let least = UInt32(random.below(Int(number) + 2))
      let merged = try #require(StepBytes.merge(segments) { $0.number >= least })
      let steps = merged.flatMap { StepBytes.steps($0)! }
      #expect(steps.map(\.number) == Array(max(least, 1)..<max(least, 1, number + 1)))
      #expect(steps.first?.isAfterDropped ?? false == (least > 1 && least <= number))
      #expect(!steps.dropFirst().contains { $0.isAfterDropped })
      for (bytes, end) in zip(merged.reversed(), ends.reversed()) {
        #expect(StepBytes.steps(bytes)!.last!.number <= end)
      }
    }
  }

  @Test("a step whose predecessor was dropped is inexact, since that one may have reached the message")
  func stepAfterDroppedOneIsInexact() {
    func time(isAfterDropped: Bool, first: UInt32, since: Int64) -> StepTime {
      var table = StepTable()
      table.assign(0, StepTailRecord(first: first, ends: [at(50), at(100)]))
      let old = Step(row: 1, kind: .read, sequence: SequenceNumber(1), time: at(50), number: 1)
      let step = Step(
        row: 0,
        kind: .read,
        sequence: SequenceNumber(9),
        time: at(100),
        number: 2,
        isAfterDropped: isAfterDropped
      )
      var read = ReadSegments()
      read.add(0, first, StepBytes.bytes([old]))
      read.add(0, first + 1, StepBytes.bytes([step]))
      return table.time(
        .read,
        MemberOrdinal(0),
        reaching: SequenceNumber(4),
        count: 2,
        last: at(100),
        since: at(since),
        kept: 64,
        in: read
      )
    }
    // The predecessor is among the skipped steps, from before the message.
    #expect(time(isAfterDropped: false, first: 8, since: 60) == .exact(at(100)))
    #expect(time(isAfterDropped: true, first: 8, since: 60) == .latest(at(100)))
    // All steps since the message are available, and the predecessor is not among them.
    #expect(time(isAfterDropped: false, first: 8, since: 40) == .latest(at(100)))
  }

  @Test("a query at its memory limit returns the latest possible time, and reads no more")
  func queryAtMemoryLimitReturnsLatestPossibleTime() {
    var table = StepTable()
    table.assign(0, StepTailRecord(first: 0, ends: [at(50), at(100), at(150)]))
    var read = ReadSegments()
    var many: [Step] = []
    for number in 1...UInt32(ReadSegments.stepsMax) {
      many.append(Step(row: 9, kind: .read, sequence: SequenceNumber(1), time: at(1), number: number))
    }
    func time(_ read: borrowing ReadSegments) -> StepTime {
      table.time(
        .read,
        MemberOrdinal(0),
        reaching: SequenceNumber(1),
        count: 1,
        last: at(120),
        since: at(1),
        kept: 64,
        in: read
      )
    }
    #expect(time(read) == .stored(StepTime.SegmentRange(rowPage: 0, segments: 0..<2)))
    var closed = read
    closed.close()
    #expect(time(closed) == .latest(at(120)))
    read.add(0, 0, StepBytes.bytes(many))
    #expect(read.isFull)
    #expect(time(read) == .latest(at(120)))
  }

  // MARK: Random moves

  @Test("random moves agree with a plain list of them", arguments: TestRun.seeds(6, long: 120))
  func randomMovesAgreeWithPlainListOfThem(seed: UInt64) {
    var random = SplitMix64(printing: seed, of: "random steps compared with a list")
    let rows = [1, 3, 40, 300][random.below(4)]
    let harness = StepHarness(rows: rows, kept: [1, 2, 8, 64, 4_096][random.below(5)])
    let busy = min(rows, 1 + random.below(6))
    var asked = 0
    for step in 1...6_000 {
      if random.oneIn(4) || harness.newest == 0 { harness.post() }
      harness.pass(Int64(random.below(50)))
      let row = random.oneIn(10) ? random.below(rows) : random.below(busy)
      let kind = random.oneIn(3) ? StepKind.delivered : .read
      harness.move(kind, row, to: UInt32(1 + random.below(Int(harness.newest))), isHidden: random.oneIn(20))
      if random.oneIn(8) { harness.move(kind, row, to: harness.newest) }
      if random.oneIn(50) { for page in 0..<UInt32((rows + 255) / 256) { harness.write(page) } }
      if random.oneIn(30) { for page in 0..<UInt32((rows + 255) / 256) { harness.trim(page) } }
      if random.oneIn(1_000) { harness.reload() }
      guard step % 20 == 0 else { continue }
      for _ in 0..<10 {
        let row = random.oneIn(3) ? random.below(rows) : random.below(busy)
        let kind = random.oneIn(2) ? StepKind.delivered : .read
        let sequence = UInt32(1 + random.below(Int(harness.newest)))
        guard let expected = harness.expected(kind, row, reaching: sequence) else { continue }
        asked += 1
        let answer = harness.time(kind, row, reaching: sequence)
        #expect(answer == expected, "seed \(seed), step \(step): \(kind) of row \(row) reaching \(sequence)")
        if answer != expected { return }
      }
    }
    #expect(asked > 500)
    #if DEBUG
      #expect(harness.state.checkInvariants() == nil)
    #endif
    #expect(harness.pages() == harness.replay().pages())
  }

  @Test(
    "an exact time is never wrong, while the option changes again and again",
    arguments: TestRun.seeds(4, long: 80)
  )
  func exactTimeIsNeverWrong(seed: UInt64) {
    var random = SplitMix64(printing: seed, of: "exact times while the option changes")
    let harness = StepHarness(rows: 4)
    for step in 1...6_000 {
      if random.oneIn(4) || harness.newest == 0 { harness.post() }
      harness.pass(Int64(random.below(50)))
      harness.move(random.oneIn(3) ? .delivered : .read, random.below(4), to: harness.newest)
      if random.oneIn(100) { harness.keep([0, 1, 5, 64, 4_096][random.below(5)]) }
      if random.oneIn(50) { harness.write() }
      if random.oneIn(40) { harness.trim() }
      guard step % 20 == 0 else { continue }
      for row in 0..<4 {
        for kind in [StepKind.read, .delivered] {
          let sequence = UInt32(1 + random.below(Int(harness.newest)))
          guard let truth = harness.truth(kind, row, reaching: sequence) else { continue }
          switch harness.time(kind, row, reaching: sequence) {
          case .exact(let time):
            #expect(time.milliseconds == truth, "seed \(seed), step \(step)")
          case .latest(let time):
            #expect(time.milliseconds >= truth, "seed \(seed), step \(step)")
          case .hidden, .stored: Issue.record("nobody hides")
          }
        }
      }
    }
    #expect(harness.trims > 0)
  }
}
