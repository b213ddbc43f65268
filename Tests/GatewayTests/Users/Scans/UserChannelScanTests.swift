import NIOCore
import ReceiptModel
import ReceiptWire
import Testing

@testable import Gateway

/// ``UserChannelScan`` without a store.
@Suite struct UserChannelScanTests {
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

  private func listed(_ scan: inout UserChannelScan, _ page: ByteBuffer, of user: Int = 0) throws
    -> [UserChannelScan.Action]
  {
    var reader = FieldReader(page.readableBytesSpan)
    return try scan.listed(user, &reader)
  }

  private func counted(_ scan: inout UserChannelScan, _ frame: Int, _ counts: ByteBuffer) throws
    -> [UserChannelScan.Action]
  {
    var reader = FieldReader(counts.readableBytesSpan)
    return try scan.counted(frame, &reader)
  }

  /// The entries of a count frame, as `cid user row`.
  private func entries(_ scan: inout UserChannelScan, _ frame: Int) throws -> [String] {
    var buffer = ByteBuffer()
    scan.writeCounts(frame, into: &buffer)
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

  private func threadsListed(_ scan: inout UserChannelScan, _ mark: Int, _ threads: ByteBuffer) throws
    -> [UserChannelScan
    .Action]
  {
    var reader = FieldReader(threads.readableBytesSpan)
    return try scan.threadsListed(mark, &reader)
  }

  @Test func threadsAreMarkedSequentiallyAfterTheirChannel() throws {
    var scan = UserChannelScan(.markRead, users: [Self.alice], shardCount: 1, includesThreads: true)
    _ = scan.begin()
    #expect(try listed(&scan, Self.page(0..<3)) == [.mark(0), .mark(1), .mark(2)])
    #expect(scan.marked(0, nil) == [.threads(0)])
    #expect(scan.threadCursor(of: 0) == nil)
    #expect(try threadsListed(&scan, 0, Self.threads([9, 7], next: 7)) == [.markThread(0)])
    #expect(scan.thread(of: 0) == Array("m9".utf8))
    #expect(scan.threadMarked(0) == [.markThread(0)])
    #expect(scan.thread(of: 0) == Array("m7".utf8))
    // The thread's parent was deleted meanwhile, so there is nothing to mark.
    #expect(scan.marked(0, .messageDeleted) == [.threads(0)])
    #expect(scan.threadCursor(of: 0) == 7)
    #expect(scan.markedCount == 0)
    #expect(try threadsListed(&scan, 0, Self.threads([])) == [])
    #expect(scan.markedCount == 1)
    // A failed thread fails its channel. The threads of a failed channel are not marked.
    #expect(scan.marked(1, nil) == [.threads(1)])
    #expect(try threadsListed(&scan, 1, Self.threads([3])) == [.markThread(1)])
    #expect(scan.marked(1, .storeUnavailable) == [])
    #expect(scan.marked(2, .storeUnavailable) == [])
    #expect(scan.isDone && scan.markedCount == 1 && scan.failedCount == 2)
  }

  @Test func countFramesAreFilledBeforeSending() throws {
    var scan = UserChannelScan(.count, users: [Self.alice], shardCount: 1)
    #expect(scan.begin() == [.list(user: 0)])
    #expect(try listed(&scan, Self.page(0..<1_000, next: 5_000)) == [.list(user: 0)])
    #expect(scan.cursor(of: 0) == 5_000)
    // A frame has 1,024 entries. The remaining listed channels wait for more.
    let actions = try listed(&scan, Self.page(1_000..<2_000, next: 9_000))
    #expect(actions == [.count(frame: 0), .list(user: 0)])
    #expect(try entries(&scan, 0).count == 1_024)
    #expect(try entries(&scan, 0).first == "messaging:c0 alice 7")
    let first = Array(repeating: UnreadCountFields.found(UnreadCounts(messages: 2, threads: 1)), count: 1_024)
    #expect(try counted(&scan, 0, Self.counts(first)) == [])
    #expect(try listed(&scan, Self.page(0..<0)) == [.count(frame: 1)])
    #expect(!scan.isDone)
    let last = Array(repeating: UnreadCountFields.found(UnreadCounts(messages: 0, threads: 3)), count: 976)
    #expect(try counted(&scan, 1, Self.counts(last)) == [])
    #expect(scan.isDone && scan.problem == nil)
    #expect(scan.users[0].totals == UnreadTotals(messages: 2_048, channels: 1_024, threads: 3_952))
  }

  @Test func listingPausesUntilCountsAreAnswered() throws {
    var scan = UserChannelScan(.count, users: [Self.alice], shardCount: 1)
    var actions = scan.begin()
    var lists = 0
    var frames = 0
    while let action = actions.popLast() {
      switch action {
      case .list:
        lists += 1
        let from = lists * 1_000
        actions += try listed(&scan, Self.page(from..<(from + 1_000), next: UInt64(from)))
      case .count: frames += 1
      default: Issue.record("\(action)")
      }
    }
    // No count was answered: the maximum of frames is in flight, and one more is full.
    #expect(frames == UserChannelScan.framesMax && lists == 18)
    #expect(!scan.isDone)
  }

  @Test func staleIndexEntriesAreNotCounted() throws {
    var scan = UserChannelScan(.count, users: [Self.alice], shardCount: 1)
    _ = scan.begin()
    #expect(try listed(&scan, Self.page(0..<4)) == [.count(frame: 0)])
    let counts: [UnreadCountFields] = [
      .refused(.channelNotFound), .found(UnreadCounts(messages: 5, threads: 0)), .refused(.notAMember),
      .found(UnreadCounts(messages: 1, threads: 2)),
    ]
    #expect(try counted(&scan, 0, Self.counts(counts)) == [])
    #expect(scan.isDone && scan.users[0].totals == UnreadTotals(messages: 6, channels: 2, threads: 2))
  }

  @Test func uncountableChannelFailsItsUser() throws {
    var scan = UserChannelScan(.count, users: [Self.alice, Array("bob".utf8)], shardCount: 1)
    #expect(scan.begin() == [.list(user: 0), .list(user: 1)])
    #expect(try listed(&scan, Self.page(0..<1)) == [])
    #expect(try listed(&scan, Self.page(0..<1), of: 1) == [.count(frame: 0)])
    #expect(try entries(&scan, 0) == ["messaging:c0 alice 7", "messaging:c0 bob 7"])
    let counts: [UnreadCountFields] = [.refused(.unavailable), .found(UnreadCounts(messages: 1, threads: 0))]
    #expect(try counted(&scan, 0, Self.counts(counts)) == [])
    #expect(scan.users.map(\.problem?.code) == [.storeUnavailable, nil])
    #expect(scan.isDone && scan.problem == nil && scan.users[1].totals.messages == 1)
    // If the only user has failed, the scan waits for nothing else.
    scan = UserChannelScan(.count, users: [Self.alice], shardCount: 64)
    _ = scan.begin()
    let actions = try listed(&scan, Self.page(0..<900))
    #expect(actions.count == UserChannelScan.framesMax)
    guard case .count(let frame)? = actions.first else { return }
    #expect(scan.countFailed(frame, Problem(.storeBusy)) == [])
    #expect(scan.isDone && scan.problem?.code == .storeBusy)
  }

  private static let few = UserChannelScan.Limits(countedMax: 2_500, failedMax: 3)

  @Test func countedChannelsAreLimited() throws {
    var scan = UserChannelScan(.count, users: [Self.alice], shardCount: 1, limits: Self.few)
    var actions = scan.begin()
    var lists = 0
    while !scan.isDone, let action = actions.popLast() {
      switch action {
      case .list:
        lists += 1
        actions += try listed(&scan, Self.page(0..<1_000, next: UInt64(lists)))
      case .count(let frame):
        let count = try entries(&scan, frame).count
        let none = Array(
          repeating: UnreadCountFields.found(UnreadCounts(messages: 0, threads: 0)),
          count: count
        )
        actions += try counted(&scan, frame, Self.counts(none))
      default: Issue.record("\(action)")
      }
    }
    #expect(scan.problem?.code == .limitReached && lists == 3)
  }

  @Test func markAllIsUnlimitedAndNamesSomeFailures() throws {
    var scan = UserChannelScan(.markRead, users: [Self.alice], shardCount: 4, limits: Self.few)
    var actions = scan.begin()
    var marks = 0
    var lists = 0
    var namesMax = 0
    while !scan.isDone, let action = actions.popLast() {
      switch action {
      case .list:
        lists += 1
        let from = (lists - 1) * 1_000
        let next = lists < 12 ? UInt64(lists) : nil
        actions += try listed(&scan, Self.page(from..<(from + 1_000), next: next))
      case .mark(let mark):
        marks += 1
        #expect(scan.channel(of: mark).count > 10)
        actions += scan.marked(mark, marks.isMultiple(of: 1_000) ? .storeBusy : nil)
        namesMax = max(namesMax, scan.failed.readableBytes)
      default: Issue.record("\(action)")
      }
    }
    #expect(scan.isDone && scan.problem == nil && lists == 12)
    #expect(marks == 12_000 && scan.markedCount == 11_988 && scan.failedCount == 12 && scan.hasMoreFailed)
    var reader = FieldReader(scan.failed.readableBytesSpan)
    var names = 0
    while reader.remaining > 0 {
      _ = try reader.string()
      names += 1
    }
    #expect(names == 3 && namesMax == scan.failed.readableBytes)
  }

  @Test func concurrentMarksAreLimited() throws {
    var scan = UserChannelScan(.markRead, users: [Self.alice], shardCount: 4)
    #expect(scan.begin() == [.list(user: 0)])
    var actions = try listed(&scan, Self.page(0..<1_000, next: 1_000))
    #expect(actions.count == UserChannelScan.marksMax)
    // The next page is requested when few channels of this one are left.
    var marked = 0
    while let action = actions.popLast() {
      switch action {
      case .mark(let mark):
        marked += 1
        #expect(scan.channel(of: mark).count > 11)
        actions += scan.marked(mark, marked.isMultiple(of: 400) ? .storeBusy : nil)
      case .list:
        #expect(marked > 400)
        actions += try listed(&scan, Self.page(1_000..<1_200))
      default: Issue.record("\(action)")
      }
    }
    #expect(scan.isDone && scan.markedCount == 1_197 && scan.failedCount == 3 && scan.hasMarked)
  }

  @Test func nonAdvancingCursorIsRefused() throws {
    for next in [UInt64(0), 4, 5] {
      var scan = UserChannelScan(.count, users: [Self.alice], shardCount: 1)
      _ = scan.begin()
      _ = try listed(&scan, Self.page(0..<1, next: 5))
      #expect(throws: WireError.badValue(.count)) { try listed(&scan, Self.page(1..<2, next: next)) }
    }
    var scan = UserChannelScan(.count, users: [Self.alice], shardCount: 1)
    _ = scan.begin()
    _ = try listed(&scan, Self.page(0..<2))
    #expect(throws: WireError.badValue(.count)) {
      try counted(&scan, 0, Self.counts([.found(UnreadCounts(messages: 1, threads: 0))]))
    }
  }

  @Test func formerMembershipsAreNotCounted() throws {
    var scan = UserChannelScan(.count, users: [Self.alice], shardCount: 1)
    _ = scan.begin()
    #expect(try listed(&scan, Self.page(0..<5, isMember: false)) == [])
    #expect(scan.isDone && scan.users[0].totals == UnreadTotals())
  }
}
