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
