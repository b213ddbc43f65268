internal import StoreEngine
internal import TestSupport
internal import Testing

/// Requirements on every engine of the shared log. A case runs on an empty log without failures.
package enum GroupLogConformance: String, CaseIterable, Sendable {
  case appends, claims, resends, severalGroups, trims, delayedRecords, pages, follows, followsTrimmed, reports

  package func run(_ log: AsyncGroupLog) async throws {
    switch self {
    case .appends: try await Self.appends(log)
    case .claims: try await Self.claims(log)
    case .resends: try await Self.resends(log)
    case .severalGroups: try await Self.severalGroups(log)
    case .trims: try await Self.trims(log)
    case .delayedRecords: try await Self.delayedRecords(log)
    case .pages: try await Self.pages(log)
    case .follows: try await Self.follows(log)
    case .followsTrimmed: try await Self.followsTrimmed(log)
    case .reports: try await Self.reports(log)
    }
  }

  private static let group = GroupID(0)

  private static func end(_ owner: GroupOwner, _ first: UInt64, _ last: UInt64) -> GroupEnd {
    GroupEnd(owner: owner, first: RecordPosition(first), last: RecordPosition(last))
  }

  private static func appends(_ log: AsyncGroupLog) async throws {
    #expect(try await log.ends(of: [group, GroupID(255)]) == [end(.none, 1, 0), end(.none, 1, 0)])
    #expect(try await log.read(group, from: 1) == .records([], reachesEnd: true))
    var owner = TestOwner(log, group: 0, node: 1)
    try await owner.claim()
    #expect(owner.owner.node == NodeID(1))
    #expect(owner.owner.epoch == OwnerEpoch(1))
    #expect(owner.owner.fence != .none)
    #expect(try await log.ends(of: [group]) == [end(owner.owner, 1, 1)])
    for position in 2...5 {
      let append = owner.next([UInt8(position)])
      #expect(try await log.append([append]) == [.committed(owner.owner)])
      owner.committed(append.record)
    }
    // The other group is not touched.
    #expect(try await log.ends(of: [GroupID(255), group]) == [end(.none, 1, 0), end(owner.owner, 1, 5)])
    // A position that is taken, and one behind a gap.
    let taken = LogCursor.start.record(.alive, epoch: owner.owner.epoch)
    let fence = owner.owner.fence
    #expect(
      try await log.append([GroupAppend(group: group, record: taken, fence: fence)]) == [.fenced(owner.owner)]
    )
    var behindGap = owner.next([])
    behindGap.record.position = behindGap.record.position.next
    #expect(try await log.append([behindGap]) == [.unclear])
    #expect(try await log.ends(of: [group]) == [end(owner.owner, 1, 5)])
    let records = try await log.records(group)
    #expect(records.map(\.payload) == [[], [2], [3], [4], [5]])
    #expect(records.map(\.position.rawValue) == [1, 2, 3, 4, 5])
  }

  private static func claims(_ log: AsyncGroupLog) async throws {
    var first = TestOwner(log, group: 0, node: 1)
    try await first.claim()
    try await first.append([1])
    var second = TestOwner(log, group: 0, node: 2, after: first.cursor)
    try await second.claim(from: first.owner)
    #expect(second.owner.fence != first.owner.fence)
    #expect(second.owner.epoch == OwnerEpoch(2))
    // The old owner's append, at the claim's position and after it.
    #expect(try await log.append([first.next([2])]) == [.fenced(second.owner)])
    first.committed(try #require(try await log.records(group).last))
    #expect(try await log.append([first.next([2])]) == [.fenced(second.owner)])
    // A candidate that saw the old owner, and one that is not at the end.
    let late = second.cursor.record(.claim(by: NodeID(3)), epoch: OwnerEpoch(2))
    let lateClaim = GroupClaim(group: group, record: late, seen: first.owner.fence)
    #expect(try await log.claim(lateClaim) == .fenced(second.owner))
    let behind = LogCursor.start.record(.claim(by: NodeID(3)), epoch: OwnerEpoch(3))
    let claimBehind = GroupClaim(group: group, record: behind, seen: second.owner.fence)
    #expect(try await log.claim(claimBehind) == .fenced(second.owner))
    try await second.append([3])
    #expect(try await log.ends(of: [group]) == [end(second.owner, 1, 4)])
    // An owner may claim again; its fence changes.
    let before = second.owner
    try await second.claim(from: before)
    #expect(second.owner.fence != before.fence)
  }

  private static func resends(_ log: AsyncGroupLog) async throws {
    let claim = GroupClaim(
      group: group,
      record: LogCursor.start.record(.claim(by: NodeID(7)), epoch: OwnerEpoch(1)),
      seen: .none
    )
    let outcome = try await log.claim(claim)
    guard case .committed(let owner) = outcome else { throw Unexpected("\(outcome)") }
    #expect(try await log.claim(claim) == outcome)
    let cursor = LogCursor(after: claim.record)
    let record = cursor.record(.batches, epoch: OwnerEpoch(1), payload: [1, 2, 3])
    let append = GroupAppend(group: group, record: record, fence: owner.fence)
    for _ in 0..<3 { #expect(try await log.append([append]) == [.committed(owner)]) }
    var other = append
    other.record.payload = [1, 2, 4]
    #expect(try await log.append([other]) == [.fenced(owner)])
    // Also behind the owner's next record.
    let next = LogCursor(after: record).record(.alive, epoch: OwnerEpoch(1))
    let nextAppend = GroupAppend(group: group, record: next, fence: owner.fence)
    #expect(try await log.append([nextAppend]) == [.committed(owner)])
    #expect(try await log.append([append]) == [.committed(owner)])
    #expect(try await log.records(group) == [claim.record, record, next])
  }

  private static func severalGroups(_ log: AsyncGroupLog) async throws {
    var owners: [TestOwner] = []
    for group in 0..<40 as Range<UInt8> {
      var owner = TestOwner(log, group: group, node: 1)
      try await owner.claim()
      owners.append(owner)
    }
    let appends = owners.map { $0.next([$0.group.rawValue]) }
    #expect(try await log.append(appends) == owners.map { .committed($0.owner) })
    for (index, append) in appends.enumerated() { owners[index].committed(append.record) }
    // One group gets another owner: nothing is appended to any.
    var taker = TestOwner(log, group: 5, node: 2, after: owners[5].cursor)
    try await taker.claim(from: owners[5].owner)
    var next = owners.map { $0.next([100]) }
    var outcomes: [AppendOutcome] = owners.map { _ in .unclear }
    outcomes[5] = .fenced(taker.owner)
    #expect(try await log.append(next) == outcomes)
    let groups = owners.map(\.group)
    let ends = try #require(try await log.ends(of: groups))
    #expect(ends.map(\.last.rawValue) == groups.map { $0 == GroupID(5) ? 3 : 2 })
    // Without that group the others are appended.
    next.remove(at: 5)
    owners.remove(at: 5)
    #expect(try await log.append(next) == owners.map { .committed($0.owner) })
    // More groups than one transaction reads.
    let all = (0...255).map { GroupID($0) }
    let allEnds = try #require(try await log.ends(of: all))
    #expect(allEnds.count == 256)
    #expect(allEnds[39].last == RecordPosition(3))
    #expect(allEnds[40] == end(.none, 1, 0))
  }

  private static func trims(_ log: AsyncGroupLog) async throws {
    var owner = TestOwner(log, group: 0, node: 1)
    try await owner.claim()
    for value in 2...10 as ClosedRange<UInt8> { try await owner.append([value]) }
    /// A trim has no answer. One append follows each, so that a refused one has had its time.
    func trim(before: UInt64, by fence: OwnerFence, first: UInt64) async throws {
      log.trim(GroupTrim(group: group, before: RecordPosition(before), fence: fence))
      try await owner.append([])
      try await eventually("the first position is \(first)") {
        try await log.ends(of: [group])?[0].first == RecordPosition(first)
      }
    }
    let fence = owner.owner.fence
    try await trim(before: 5, by: .none, first: 1)
    try await trim(before: 5, by: fence, first: 5)
    try await trim(before: 3, by: fence, first: 5)
    try await trim(before: 5, by: fence, first: 5)
    try await trim(before: 9, by: fence, first: 9)
    #expect(try await log.ends(of: [group]) == [end(owner.owner, 9, 15)])
    for position in [1, 8] as [UInt64] {
      #expect(try await log.read(group, from: position) == .trimmed(first: RecordPosition(9)))
    }
    #expect(try await log.records(group, from: 9).map(\.position.rawValue) == Array(9...15))
    #expect(try await log.read(group, from: 16) == .records([], reachesEnd: true))
    #expect(try await log.read(group, from: 20) == .records([], reachesEnd: true))
    // All but the last.
    try await trim(before: 15, by: fence, first: 15)
    #expect(try await log.ends(of: [group]) == [end(owner.owner, 15, 16)])
  }

  /// C1's third compare: a delayed copy of an old transaction has no effect below the trim.
  private static func delayedRecords(_ log: AsyncGroupLog) async throws {
    var owner = TestOwner(log, group: 0, node: 1)
    try await owner.claim()
    var appends: [GroupAppend] = []
    for value in 2...8 as ClosedRange<UInt8> {
      appends.append(owner.next([value]))
      try await owner.append([value])
    }
    log.trim(GroupTrim(group: group, before: RecordPosition(6), fence: owner.owner.fence))
    try await eventually("the trim is applied") {
      try await log.ends(of: [group])?[0].first == RecordPosition(6)
    }
    // Positions 2 to 5 are free again.
    for append in appends.prefix(4) { #expect(try await log.append([append]) == [.unclear]) }
    for append in appends.dropFirst(4) {
      #expect(try await log.append([append]) == [.committed(owner.owner)])
    }
    #expect(try await log.ends(of: [group]) == [end(owner.owner, 6, 8)])
    #expect(try await log.read(group, from: 5) == .trimmed(first: RecordPosition(6)))
    // The first claim, whose position is free and has none before it.
    let first = LogCursor.start.record(.claim(by: NodeID(1)), epoch: OwnerEpoch(1))
    let claim = GroupClaim(group: group, record: first, seen: .none)
    guard case .fenced = try await log.claim(claim) else { throw Unexpected("a claim below the trim") }
  }

  private static func pages(_ log: AsyncGroupLog) async throws {
    var owner = TestOwner(log, group: 3, node: 1)
    try await owner.claim()
    // Records of 1 MiB between small ones: a page of 256 of them would be too large.
    for value in 0..<300 {
      let count = value % 60 == 59 ? GroupRecord.payloadBytesMax : value % 7
      try await owner.append(Array(repeating: UInt8(truncatingIfNeeded: value), count: count))
    }
    for max in [256, 100, 7] {
      let records = try await log.records(GroupID(3), max: max)
      #expect(records.count == 301)
      var cursor = LogCursor.start
      for record in records {
        #expect(record.position == cursor.position.next)
        #expect(record.previous == cursor.hash)
        cursor = LogCursor(after: record)
      }
      #expect(cursor == owner.cursor)
    }
    // Large records are followed like others.
    let followed = log.follow(GroupID(3), from: 290)
    for _ in 0..<3 {
      try await owner.append(Array(repeating: 7, count: GroupRecord.payloadBytesMax))
    }
    try await followed.waitForRecords(15)
    #expect(followed.records == (try await log.records(GroupID(3), from: 290)))
    guard case .records(let page, reachesEnd: false) = try await log.read(GroupID(3), from: 1, max: 3) else {
      throw Unexpected("the end after 3 records")
    }
    #expect(page.count == 3)
  }

  private static func reports(_ log: AsyncGroupLog) async throws {
    let (one, two) = (NodeID(1), NodeID(0x2A))
    func report(_ position: UInt64, _ phase: MemberReport.Phase = .following) -> MemberReport {
      MemberReport(position: RecordPosition(position), phase)
    }
    func positions(_ first: UInt64, _ second: UInt64) -> [NodeID: MemberReport] {
      [one: report(first), two: report(second)]
    }
    #expect(try await log.report(group, by: one, synced: 5) == [one: report(5)])
    #expect(try await log.report(group, by: two, synced: 300) == positions(5, 300))
    // A node whose storage was replaced may be behind its earlier report.
    #expect(try await log.report(group, by: two, synced: 7) == positions(5, 7))
    #expect(
      try await log.report(group, by: two, synced: 400, .joining)
        == [one: report(5), two: report(400, .joining)]
    )
    #expect(try await log.report(GroupID(1), by: one, synced: 9) == [one: report(9)])
  }

  private static func follows(_ log: AsyncGroupLog) async throws {
    var owner = TestOwner(log, group: 0, node: 1)
    var other = TestOwner(log, group: 1, node: 1)
    let early = log.follow(group, from: 1)
    try await owner.claim()
    try await other.claim()
    for value in 0..<20 as Range<UInt8> {
      try await owner.append([value])
      try await other.append([value])
    }
    try await early.waitForRecords(21)
    // A later call for the group replaces the first; one for another group does not.
    let late = log.follow(group, from: 11)
    let others = log.follow(GroupID(1), from: 22)
    try await late.waitForRecords(11)
    for value in 20..<60 as Range<UInt8> { try await owner.append([value]) }
    try await late.waitForRecords(51)
    #expect(early.records.count == 21)
    #expect(!early.isEnded && !late.isEnded && !others.isEnded)
    let records = try await log.records(group)
    #expect(early.records == Array(records.prefix(21)))
    #expect(late.records == Array(records.dropFirst(10)))
    #expect(others.records.isEmpty)
    let last = try await other.append([1])
    try await others.waitForRecords(1)
    #expect(others.records == [last])
  }

  private static func followsTrimmed(_ log: AsyncGroupLog) async throws {
    var owner = TestOwner(log, group: 0, node: 1)
    try await owner.claim()
    for value in 0..<20 as Range<UInt8> { try await owner.append([value]) }
    let followed = log.follow(group, from: 1)
    try await followed.waitForRecords(21)
    log.trim(GroupTrim(group: group, before: RecordPosition(15), fence: owner.owner.fence))
    try await eventually("the trim is applied") {
      try await log.ends(of: [group])?[0].first == RecordPosition(15)
    }
    // The trim is behind the follower.
    try await owner.append([])
    try await followed.waitForRecords(22)
    #expect(!followed.isEnded)
    let trimmed = log.follow(group, from: 14)
    try await trimmed.waitForEnd()
    #expect(trimmed.records.isEmpty)
    let there = log.follow(group, from: 15)
    try await there.waitForRecords(8)
    #expect(there.records == Array(followed.records.suffix(8)))
  }
}
