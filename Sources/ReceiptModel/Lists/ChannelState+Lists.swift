extension ChannelState {
  /// Maximum number of members of a channel whose lists can be ordered by time (R11).
  package static let timeOrderMembersMax = 1_000

  /// Continue a list.
  ///
  /// - Parameter budget: the number of rows that may be examined; reduced by those examined, and overdrawn by at most
  ///   one member.
  /// - Returns: whether the page is complete.
  func advance(
    _ scan: inout MemberListScan,
    budget: inout Int,
    _ options: ChannelTypeOptions,
    settings: borrowing UserSettingsTable
  ) -> Bool {
    let others = Viewpoint.others(options)
    // In order of time, the first page may contain any row.
    let wanted = scan.order == .joined ? scan.limit + 1 : .max
    let rowCost =
      messages.flags(scan.message).contains(.requestsAcknowledgement) ? MemberListScan.acknowledgementCost : 1
    while true {
      while scan.entries.count < wanted, let row = rowToLookAt(scan) {
        guard budget > 0 else { return false }
        budget -= rowCost
        scan.row += 1
        guard isListed(row, scan, others) else { continue }
        if scan.list.hasTimes { budget -= MemberListScan.timeCost }
        scan.entries.append(entry(row, &scan, others, settings: settings))
      }
      var found: [ListEntry] = []
      swap(&found, &scan.entries)
      let count = found.count
      found.removeAll { !isListed($0.row, scan, others) }
      swap(&found, &scan.entries)
      if scan.entries.count == count || rowToLookAt(scan) == nil { break }
    }
    if scan.order == .joined { cutAtRow(&scan) } else { cutAtTime(&scan) }
    // Only now, because entries without a time sort after all those with one.
    for index in scan.entries.indices { scan.entries[index].at = scan.times.latest(scan.entries[index].at) }
    return true
  }

  /// Return the next row to examine. Rows are in join order, so rows that joined after the message are not in the list.
  /// In a thread they may be, because they may have read it.
  private func rowToLookAt(_ scan: borrowing MemberListScan) -> MemberOrdinal? {
    guard Int(scan.row) < rows.rowCount, isThread || rows.joined(MemberOrdinal(scan.row)) < scan.message else {
      return nil
    }
    return MemberOrdinal(scan.row)
  }

  private func isListed(_ row: MemberOrdinal, _ scan: borrowing MemberListScan, _ others: Viewpoint) -> Bool {
    guard isExpected(row, scan.message, others.options) else { return false }
    let hasRead = hasRead(row, scan.message, others)
    switch scan.list {
    case .readers: return hasRead
    case .delivered: return !hasRead && shownDelivered(row, scan.message, others)
    case .unread: return !hasRead
    case .acknowledged: return showsAcknowledgement(row, scan.message)
    case .unacknowledged: return !showsAcknowledgement(row, scan.message)
    }
  }

  private func entry(
    _ row: MemberOrdinal,
    _ scan: inout MemberListScan,
    _ others: Viewpoint,
    settings: borrowing UserSettingsTable
  ) -> ListEntry {
    let message = scan.message
    let time: ShownTime?
    switch scan.list {
    case .readers: time = readTime(row, message, others, settings: settings, times: &scan.times)
    case .delivered: time = deliveredTime(row, message, others, settings: settings, times: &scan.times)
    case .acknowledged: time = acknowledgementTime(row, message, others, settings: settings)
    case .unread, .unacknowledged: return ListEntry(row: row)
    }
    return ListEntry(
      row: row,
      at: time?.at ?? .none,
      isExact: time?.isExact ?? false,
      note: scan.list == .delivered ? "" : note(row, message),
      sortTime: time?.sortTime
    )
  }

  private func cutAtRow(_ scan: inout MemberListScan) {
    guard scan.entries.count > scan.limit, let last = scan.entries.prefix(scan.limit).last else { return }
    if parent == .zero {
      scan.next = .row(scan.entries[scan.limit].row.rawValue)
    } else {
      let joined = rows.joinedAt(last.row)
      let time = max(joined, scan.historyStart)
      scan.next = .joined(time, user: users.id(rows.user(last.row)).withUnsafeBytes { Array($0) })
    }
    scan.entries.removeSubrange(scan.limit...)
  }

  /// Return the row after the one with which a user joined at a time. If there is no such row any more, the first row
  /// of that time, so that no row is skipped.
  ///
  /// - Parameter start: earlier joins count as made at this time for this viewer (R6).
  func row(behind user: RawSpan, joinedAt time: Timestamp, from start: Timestamp) -> UInt32 {
    let time = max(time, start)
    func joined(_ index: Int) -> Timestamp { max(rows.joinedAt(MemberOrdinal(UInt32(index))), start) }
    // Rows are in order of join times.
    var (low, high) = (0, rows.rowCount)
    while low < high {
      let middle = (low + high) / 2
      if joined(middle) < time { low = middle + 1 } else { high = middle }
    }
    var found = low
    while high < rows.rowCount, joined(high) == time {
      if users.id(rows.user(MemberOrdinal(UInt32(high)))).equals(user) { found = high + 1 }
      high += 1
    }
    return UInt32(found)
  }

  private func cutAtTime(_ scan: inout MemberListScan) {
    switch scan.cursor {
    case .entry(let time, let user):
      scan.entries.removeAll { entry in
        entry.sortTime < time
          || entry.sortTime == time && !Self.precedes(user.span.bytes, users.id(rows.user(entry.row)))
      }
    case .earlier(let time, let user):
      scan.entries.removeAll { entry in
        entry.sortTime > time
          || entry.sortTime == time && !Self.precedes(users.id(rows.user(entry.row)), user.span.bytes)
      }
    case .row, .joined, nil: break
    }
    let isDescending = scan.order == .timeDescending
    scan.entries.sort { first, second in
      let (a, b) = isDescending ? (second, first) : (first, second)
      if a.sortTime != b.sortTime { return a.sortTime < b.sortTime }
      return Self.precedes(users.id(rows.user(a.row)), users.id(rows.user(b.row)))
    }
    guard scan.entries.count > scan.limit, let last = scan.entries.prefix(scan.limit).last else { return }
    let user = users.id(rows.user(last.row)).withUnsafeBytes { Array($0) }
    scan.next = isDescending ? .earlier(last.sortTime, user: user) : .entry(last.sortTime, user: user)
    scan.entries.removeSubrange(scan.limit...)
  }

  /// Compare by bytes.
  private static func precedes(_ a: RawSpan, _ b: RawSpan) -> Bool {
    a.withUnsafeBytes { a in b.withUnsafeBytes { b in a.lexicographicallyPrecedes(b) } }
  }

  // MARK: Roster

  /// Return a page of the channel's members in join order. Rosters are not history (R6).
  ///
  /// - Parameters:
  ///   - limit: entries in the page, 1 to 100.
  ///   - cursor: the first row to examine.
  package func roster(limit: Int, cursor: UInt32?) -> (rows: [MemberOrdinal], next: UInt32?) {
    var found: [MemberOrdinal] = []
    var next = Int(cursor ?? 0)
    let end = rows.rowCount
    var scanBudget = ShardState.rosterScanLimit
    while next < end, found.count < limit, scanBudget > 0 {
      let row = MemberOrdinal(UInt32(next))
      if rows.isActive(row) { found.append(row) }
      next += 1
      scanBudget -= 1
    }
    while next < end, scanBudget > 0, !rows.isActive(MemberOrdinal(UInt32(next))) {
      next += 1
      scanBudget -= 1
    }
    return (found, next < end ? UInt32(next) : nil)
  }

  // MARK: Chosen members

  /// Return one recipient's status for a message, from others' viewpoint or their own.
  func memberStatus(
    _ row: MemberOrdinal,
    _ sequence: SequenceNumber,
    _ viewpoint: Viewpoint,
    settings: borrowing UserSettingsTable,
    times: inout MemberTimes
  ) -> MemberStatus {
    var read: ShownTime?
    if viewpoint.isOwn || hasRead(row, sequence, viewpoint) {
      read = readTime(row, sequence, viewpoint, settings: settings, times: &times)
    }
    // Reading implies delivery (R3).
    let delivered = ShownTime.earlier(read, deliveredTime(row, sequence, viewpoint, settings: settings, times: &times))
    var acknowledged: ShownTime?
    if viewpoint.isOwn || !rows.hidesRead(row) {
      acknowledged = acknowledgementTime(row, sequence, viewpoint, settings: settings)
    }
    return MemberStatus(
      status: read != nil ? .read : delivered != nil ? .delivered : .sent,
      readAt: times.latest(read?.at ?? .none),
      deliveredAt: times.latest(delivered?.at ?? .none),
      readIsExact: read?.isExact ?? true,
      deliveredIsExact: delivered?.isExact ?? true,
      acknowledgedAt: times.latest(acknowledged?.at ?? .none)
    )
  }
}

extension MemberList {
  /// Whether its entries have a time.
  var hasTimes: Bool { self != .unread && self != .unacknowledged }
}

/// A list page in progress (R11). The scan goes over the rows from its cursor on, in slices, and judges each row in its
/// state at that moment. At the end it checks the collected rows again, so that nobody who has left or hides by then is
/// named.
package struct MemberListScan: Sendable {
  package let message: SequenceNumber
  package let list: MemberList
  package let order: ListOrder
  /// Number of entries in the page, at least 1.
  package let limit: Int
  let cursor: ListCursor?
  package internal(set) var times: MemberTimes
  /// The next row to examine.
  var row: UInt32 = 0
  /// Earlier joins count as made at this time for this viewer (R6).
  var historyStart = Timestamp.none
  /// The entries found so far; in join order up to one more than the page has.
  var entries: [ListEntry] = []
  /// The cursor of the next page, if there is a further entry.
  package internal(set) var next: ListCursor?

  /// The page, once the scan is done.
  package var page: [ListEntry] { entries }

  /// The cost of looking up a time, in examined rows: it scans a tail of steps.
  static let timeCost = 64
  /// The cost of looking up an acknowledgement.
  static let acknowledgementCost = 8

  init(
    message: SequenceNumber,
    list: MemberList,
    order: ListOrder,
    limit: Int,
    cursor: ListCursor?,
    times: MemberTimes
  ) {
    self.message = message
    self.list = list
    self.order = order
    self.limit = limit
    self.cursor = cursor
    self.times = times
    if case .row(let first) = cursor { row = first }
  }
}
