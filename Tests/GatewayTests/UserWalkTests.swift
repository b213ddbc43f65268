import NIOCore
import ReceiptModel
import ReceiptWire
import Testing

@testable import Gateway

/// ``UserWalk`` without a store.
@Suite struct UserWalkTests {
  private static let alice = Array("alice".utf8)

  private static func page(
    _ numbers: Range<Int>,
    next: UInt64? = nil,
    isMember: Bool = true
  ) -> ByteBuffer {
    var buffer = ByteBuffer()
    buffer.writeVarint(numbers.count)
    for number in numbers {
      ChannelEntryFields(cid: "messaging:c\(number)", row: 7, isMember: isMember, joinedAt: .none)
        .write(into: &buffer)
    }
    buffer.writeOptional(next)
    return buffer
  }

  private static func counts(_ counts: [UnreadCountFields]) -> ByteBuffer {
    var buffer = ByteBuffer()
    buffer.writeVarint(counts.count)
    for count in counts { count.write(into: &buffer) }
    return buffer
  }

  private func listed(_ walk: inout UserWalk, _ page: ByteBuffer, of user: Int = 0) throws -> [UserWalk.Step]
  {
    var reader = FieldReader(page.readableBytesSpan)
    return try walk.listed(user, &reader)
  }

  private func counted(_ walk: inout UserWalk, _ frame: Int, _ counts: ByteBuffer) throws
    -> [UserWalk.Step]
  {
    var reader = FieldReader(counts.readableBytesSpan)
    return try walk.counted(frame, &reader)
  }

  /// Cids, users and rows of a frame.
  private func entries(_ walk: inout UserWalk, _ frame: Int) throws -> [String] {
    var buffer = ByteBuffer()
    walk.writeCounts(frame, into: &buffer)
    var reader = FieldReader(buffer.readableBytesSpan)
    var entries: [String] = []
    for _ in 0..<(try reader.count()) {
      entries.append("\(try reader.text()) \(try reader.text()) \(try reader.varint())")
    }
    try reader.end()
    return entries
  }

  /// The reply to user_threads.
  private static func threads(_ parents: [UInt32], next: UInt64? = nil) -> ByteBuffer {
    var buffer = ByteBuffer()
    buffer.writeVarint(parents.count)
    for parent in parents {
      buffer.writeVarint(parent)
      buffer.writeField("m\(parent)")
      buffer.writeVarint(UInt32(1))
      for _ in 0..<3 { buffer.writeField("r1") }
    }
    buffer.writeOptional(next)
    return buffer
  }

  private func threadsListed(_ walk: inout UserWalk, _ mark: Int, _ threads: ByteBuffer) throws -> [UserWalk
    .Step]
  {
    var reader = FieldReader(threads.readableBytesSpan)
    return try walk.threadsListed(mark, &reader)
  }

  @Test func marksThreadsOneAfterTheOtherBehindTheirChannel() throws {
    var walk = UserWalk(.markRead, users: [Self.alice], shardCount: 1, includesThreads: true)
    _ = walk.begin()
    #expect(try listed(&walk, Self.page(0..<3)) == [.mark(0), .mark(1), .mark(2)])
    #expect(walk.marked(0, nil) == [.threads(0)])
    #expect(walk.threadCursor(of: 0) == nil)
    #expect(try threadsListed(&walk, 0, Self.threads([9, 7], next: 7)) == [.markThread(0)])
    #expect(walk.thread(of: 0) == Array("m9".utf8))
    #expect(walk.threadMarked(0) == [.markThread(0)])
    #expect(walk.thread(of: 0) == Array("m7".utf8))
    // Its parent was deleted meanwhile: there is nothing to mark any more.
    #expect(walk.marked(0, .messageDeleted) == [.threads(0)])
    #expect(walk.threadCursor(of: 0) == 7)
    #expect(walk.markedCount == 0)
    #expect(try threadsListed(&walk, 0, Self.threads([])) == [])
    #expect(walk.markedCount == 1)
    // A thread that cannot be marked fails its channel; a channel that cannot be has its threads left alone.
    #expect(walk.marked(1, nil) == [.threads(1)])
    #expect(try threadsListed(&walk, 1, Self.threads([3])) == [.markThread(1)])
    #expect(walk.marked(1, .storeUnavailable) == [])
    #expect(walk.marked(2, .storeUnavailable) == [])
    #expect(walk.isDone && walk.markedCount == 1 && walk.failedCount == 2)
  }

  @Test func fillsFramesBeforeTheyLeave() throws {
    var walk = UserWalk(.count, users: [Self.alice], shardCount: 1)
    #expect(walk.begin() == [.list(user: 0)])
    #expect(try listed(&walk, Self.page(0..<1_000, next: 5_000)) == [.list(user: 0)])
    #expect(walk.cursor(of: 0) == 5_000)
    // 1,024 are one frame; the rest of what is listed waits for more.
    let steps = try listed(&walk, Self.page(1_000..<2_000, next: 9_000))
    #expect(steps == [.count(frame: 0), .list(user: 0)])
    #expect(try entries(&walk, 0).count == 1_024)
    #expect(try entries(&walk, 0).first == "messaging:c0 alice 7")
    let first = Array(repeating: UnreadCountFields.found(UnreadCounts(messages: 2, threads: 1)), count: 1_024)
    #expect(try counted(&walk, 0, Self.counts(first)) == [])
    #expect(try listed(&walk, Self.page(0..<0)) == [.count(frame: 1)])
    #expect(!walk.isDone)
    let last = Array(repeating: UnreadCountFields.found(UnreadCounts(messages: 0, threads: 3)), count: 976)
    #expect(try counted(&walk, 1, Self.counts(last)) == [])
    #expect(walk.isDone && walk.problem == nil)
    #expect(walk.users[0].totals == UnreadTotals(messages: 2_048, channels: 1_024, threads: 3_952))
  }

  @Test func listsNoFurtherThanItCounts() throws {
    var walk = UserWalk(.count, users: [Self.alice], shardCount: 1)
    var steps = walk.begin()
    var lists = 0
    var frames = 0
    while let step = steps.popLast() {
      switch step {
      case .list:
        lists += 1
        let from = lists * 1_000
        steps += try listed(&walk, Self.page(from..<(from + 1_000), next: UInt64(from)))
      case .count: frames += 1
      default: Issue.record("\(step)")
      }
    }
    // Nothing was counted: so many frames are under way, and one is full behind them.
    #expect(frames == UserWalk.framesMax && lists == 18)
    #expect(!walk.isDone)
  }

  @Test func anIndexThatIsBehindCountsNothing() throws {
    var walk = UserWalk(.count, users: [Self.alice], shardCount: 1)
    _ = walk.begin()
    #expect(try listed(&walk, Self.page(0..<4)) == [.count(frame: 0)])
    let counts: [UnreadCountFields] = [
      .refused(.channelNotFound), .found(UnreadCounts(messages: 5, threads: 0)), .refused(.notAMember),
      .found(UnreadCounts(messages: 1, threads: 2)),
    ]
    #expect(try counted(&walk, 0, Self.counts(counts)) == [])
    #expect(walk.isDone && walk.users[0].totals == UnreadTotals(messages: 6, channels: 2, threads: 2))
  }

  @Test func aChannelThatCannotBeCountedFailsItsUser() throws {
    var walk = UserWalk(.count, users: [Self.alice, Array("bob".utf8)], shardCount: 1)
    #expect(walk.begin() == [.list(user: 0), .list(user: 1)])
    #expect(try listed(&walk, Self.page(0..<1)) == [])
    #expect(try listed(&walk, Self.page(0..<1), of: 1) == [.count(frame: 0)])
    #expect(try entries(&walk, 0) == ["messaging:c0 alice 7", "messaging:c0 bob 7"])
    let counts: [UnreadCountFields] = [.refused(.unavailable), .found(UnreadCounts(messages: 1, threads: 0))]
    #expect(try counted(&walk, 0, Self.counts(counts)) == [])
    #expect(walk.users.map(\.problem?.code) == [.storeUnavailable, nil])
    #expect(walk.isDone && walk.problem == nil && walk.users[1].totals.messages == 1)
    // The only user has no answer: nothing else is waited for.
    walk = UserWalk(.count, users: [Self.alice], shardCount: 64)
    _ = walk.begin()
    let steps = try listed(&walk, Self.page(0..<900))
    #expect(steps.count == UserWalk.framesMax)
    guard case .count(let frame)? = steps.first else { return }
    #expect(walk.countFailed(frame, Problem(.storeBusy)) == [])
    #expect(walk.isDone && walk.problem?.code == .storeBusy)
  }

  private static let few = UserWalk.Limits(countedMax: 2_500, failedMax: 3)

  @Test func countsOnlySoManyChannels() throws {
    var walk = UserWalk(.count, users: [Self.alice], shardCount: 1, limits: Self.few)
    var steps = walk.begin()
    var lists = 0
    while !walk.isDone, let step = steps.popLast() {
      switch step {
      case .list:
        lists += 1
        steps += try listed(&walk, Self.page(0..<1_000, next: UInt64(lists)))
      case .count(let frame):
        let count = try entries(&walk, frame).count
        let none = Array(
          repeating: UnreadCountFields.found(UnreadCounts(messages: 0, threads: 0)),
          count: count
        )
        steps += try counted(&walk, frame, Self.counts(none))
      default: Issue.record("\(step)")
      }
    }
    #expect(walk.problem?.code == .limitReached && lists == 3)
  }

  @Test func marksHoweverManyThereAreAndNamesAFewThatFailed() throws {
    var walk = UserWalk(.markRead, users: [Self.alice], shardCount: 4, limits: Self.few)
    var steps = walk.begin()
    var marks = 0
    var lists = 0
    var namesMax = 0
    while !walk.isDone, let step = steps.popLast() {
      switch step {
      case .list:
        lists += 1
        let from = (lists - 1) * 1_000
        let next = lists < 12 ? UInt64(lists) : nil
        steps += try listed(&walk, Self.page(from..<(from + 1_000), next: next))
      case .mark(let mark):
        marks += 1
        #expect(walk.channel(of: mark).count > 10)
        steps += walk.marked(mark, marks.isMultiple(of: 1_000) ? .storeBusy : nil)
        namesMax = max(namesMax, walk.failed.readableBytes)
      default: Issue.record("\(step)")
      }
    }
    #expect(walk.isDone && walk.problem == nil && lists == 12)
    #expect(marks == 12_000 && walk.markedCount == 11_988 && walk.failedCount == 12 && walk.hasMoreFailed)
    var reader = FieldReader(walk.failed.readableBytesSpan)
    var names = 0
    while reader.remaining > 0 {
      _ = try reader.string()
      names += 1
    }
    #expect(names == 3 && namesMax == walk.failed.readableBytes)
  }

  @Test func marksAFewAtOnce() throws {
    var walk = UserWalk(.markRead, users: [Self.alice], shardCount: 4)
    #expect(walk.begin() == [.list(user: 0)])
    var steps = try listed(&walk, Self.page(0..<1_000, next: 1_000))
    #expect(steps.count == UserWalk.marksMax)
    // The next page is asked for when little of this one is left.
    var marked = 0
    while let step = steps.popLast() {
      switch step {
      case .mark(let mark):
        marked += 1
        #expect(walk.channel(of: mark).count > 11)
        steps += walk.marked(mark, marked.isMultiple(of: 400) ? .storeBusy : nil)
      case .list:
        #expect(marked > 400)
        steps += try listed(&walk, Self.page(1_000..<1_200))
      default: Issue.record("\(step)")
      }
    }
    #expect(walk.isDone && walk.markedCount == 1_197 && walk.failedCount == 3 && walk.hasMarked)
  }

  @Test func aListThatDoesNotGoOnIsRefused() throws {
    for next in [UInt64(0), 4, 5] {
      var walk = UserWalk(.count, users: [Self.alice], shardCount: 1)
      _ = walk.begin()
      _ = try listed(&walk, Self.page(0..<1, next: 5))
      #expect(throws: WireError.badValue(.count)) { try listed(&walk, Self.page(1..<2, next: next)) }
    }
    var walk = UserWalk(.count, users: [Self.alice], shardCount: 1)
    _ = walk.begin()
    _ = try listed(&walk, Self.page(0..<2))
    #expect(throws: WireError.badValue(.count)) {
      try counted(&walk, 0, Self.counts([.found(UnreadCounts(messages: 1, threads: 0))]))
    }
  }

  @Test func whoIsNoMemberIsNotCounted() throws {
    var walk = UserWalk(.count, users: [Self.alice], shardCount: 1)
    _ = walk.begin()
    #expect(try listed(&walk, Self.page(0..<5, isMember: false)) == [])
    #expect(walk.isDone && walk.users[0].totals == UnreadTotals())
  }
}
