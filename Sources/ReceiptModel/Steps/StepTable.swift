/// The time at which a member's watermark first reached a message (R17).
package enum StepTime: Hashable, Sendable {
  /// Exactly this time.
  case exact(Timestamp)
  /// This time or earlier: the step itself is no longer kept.
  case latest(Timestamp)
  /// The user hid the move: others see the time since which the user is visible again.
  case hidden(Timestamp)
  /// The step is in segments that must be read from storage: read these, then ask again.
  case stored(SegmentRange)

  /// A range of segments of one row page's steps.
  package struct SegmentRange: Hashable, Sendable {
    package var rowPage: UInt32
    package var segments: Range<UInt32>

    package init(rowPage: UInt32, segments: Range<UInt32>) {
      self.rowPage = rowPage
      self.segments = segments
    }
  }
}

/// The moves of a channel's watermarks with their times (R17). Each page of 256 rows has a tail in memory and segments
/// on storage.
///
/// Segments are numbered from 0 for each row page; the live ones form a range. The tail becomes the next segment once
/// it is sealed.
package struct StepTable: ~Copyable, Sendable {
  /// A tail is sealed once it holds as many steps as the page has rows, clamped to these bounds.
  static let tailStepsMin = 64
  static let tailStepsMax = 256
  /// Segment numbers stay below this, which no shard reaches in practice.
  package static let segmentsMax: UInt32 = 1 << 31

  private var pages: [Page] = []
  /// Size in bytes, updated with each change because every mark reads it.
  private(set) var byteCount = 0

  package init() {}

  /// The steps of 256 rows.
  private struct Page: Sendable {
    var tail = StepWriter()
    /// The latest time of all steps so far.
    var end = Timestamp.none
    /// The oldest segment kept.
    var first: UInt32 = 0
    /// For each segment from ``first`` on: an upper bound for the times in it and in those before it.
    var ends: [Timestamp] = []
    /// Sealed segments that are not on storage yet: few, in rising order.
    var unwritten: [Unwritten] = []

    struct Unwritten: Sendable {
      var segment: UInt32
      var bytes: [UInt8]
    }

    /// The number that the tail gets when it is sealed.
    var next: UInt32 { first &+ UInt32(truncatingIfNeeded: ends.count) }

    var byteCount: Int {
      heapBytes(tail.bytes) + heapBytes(ends) + heapBytes(unwritten) + unwritten.reduce(0) { $0 + heapBytes($1.bytes) }
    }

    func unwrittenBytes(_ segment: UInt32) -> [UInt8]? {
      let index = unwrittenIndex(segment)
      return index < unwritten.count && unwritten[index].segment == segment ? unwritten[index].bytes : nil
    }

    /// Return the index of the first unwritten segment not before `segment`.
    func unwrittenIndex(_ segment: UInt32) -> Int {
      var low = 0
      var high = unwritten.count
      while low < high {
        let middle = (low + high) / 2
        if unwritten[middle].segment < segment { low = middle + 1 } else { high = middle }
      }
      return low
    }
  }

  // MARK: Assignment

  /// Append a move. `number` counts the moves of this watermark of this row, from 1. Works in place: a few bytes at
  /// the end of an array.
  @inline(__always)
  mutating func append(
    _ kind: StepKind,
    _ row: MemberOrdinal,
    _ sequence: SequenceNumber,
    at time: Timestamp,
    acked: Timestamp = .none,
    isHidden: Bool,
    number: UInt32
  ) {
    let page = Int(row.rawValue / PageID.rowsPerPage)
    if page >= pages.count { makePage(page) }
    let held = heapBytes(pages[page].tail.bytes)
    pages[page].tail.append(
      Step(
        row: UInt8(truncatingIfNeeded: row.rawValue),
        kind: kind,
        sequence: sequence,
        time: time,
        acked: acked,
        number: number,
        isHidden: isHidden
      )
    )
    if time > pages[page].end { pages[page].end = time }
    byteCount += heapBytes(pages[page].tail.bytes) - held
  }

  /// Append imported moves, already encoded; damaged bytes end them.
  mutating func append(_ rowPage: UInt32, _ bytes: [UInt8]) {
    change(rowPage) { page in
      var cursor = StepCursor()
      while let step = cursor.next(bytes.span) {
        page.tail.append(step)
        page.end = max(page.end, step.time)
      }
    }
  }

  private mutating func makePage(_ page: Int) {
    byteCount -= heapBytes(pages)
    while pages.count <= page { pages.append(Page()) }
    byteCount += heapBytes(pages)
  }

  private mutating func change(_ rowPage: UInt32, _ body: (inout Page) -> Void) {
    let page = Int(rowPage)
    if page >= pages.count { makePage(page) }
    byteCount -= pages[page].byteCount
    body(&pages[page])
    byteCount += pages[page].byteCount
  }

  /// Assign a segment's bytes, kept until the segment is on storage (``drop(_:_:)``). The segment is the tail's, or
  /// replaces an older one.
  mutating func seal(_ rowPage: UInt32, _ segment: UInt32, _ bytes: [UInt8]) {
    change(rowPage) { page in
      // A segment read back from the log may have been trimmed since.
      guard segment >= page.first else { return }
      let index = page.unwrittenIndex(segment)
      let new = Page.Unwritten(segment: segment, bytes: bytes)
      if index < page.unwritten.count, page.unwritten[index].segment == segment {
        page.unwritten[index] = new
      } else {
        page.unwritten.insert(new, at: index)
      }
    }
  }

  /// Seal the tail: it becomes a segment.
  mutating func sealTail(_ rowPage: UInt32, end: Timestamp) {
    change(rowPage) { page in
      page.ends.append(max(end, page.ends.last ?? .none))
      page.tail.reset()
    }
  }

  /// Drop the segments before `first`, and the tail too if `first` lies after it.
  mutating func trim(_ rowPage: UInt32, before first: UInt32) {
    change(rowPage) { page in
      guard first > page.first else { return }
      let count = Int(first - page.first)
      if count > page.ends.count { page.tail.reset() }
      page.ends.removeFirst(min(count, page.ends.count))
      page.first = first
      page.unwritten.removeAll { $0.segment < first }
    }
  }

  /// Assign the step state of a row page. Damaged steps count as none; ``LoadedContent`` refuses them before.
  mutating func assign(_ rowPage: UInt32, _ record: StepTailRecord) {
    change(rowPage) { page in
      page.first = record.first
      page.ends = record.ends
      page.tail = StepWriter()
      let end = page.tail.resume(record.tail) ?? .none
      page.end = max(end, record.ends.last ?? .none)
    }
  }

  /// Drop a segment's bytes from memory, once they are on storage.
  mutating func drop(_ rowPage: UInt32, _ segment: UInt32) {
    change(rowPage) { page in page.unwritten.removeAll { $0.segment == segment } }
  }

  // MARK: Contents

  /// Return the step state for the row page; nil if it has none.
  func record(of rowPage: UInt32) -> StepTailRecord? {
    guard Int(rowPage) < pages.count else { return nil }
    let page = pages[Int(rowPage)]
    if page.first == 0, page.ends.isEmpty, page.tail.bytes.isEmpty { return nil }
    return StepTailRecord(first: page.first, ends: page.ends, tail: page.tail.bytes)
  }

  /// Return the bytes of a segment that is still in memory.
  package func segment(_ rowPage: UInt32, _ segment: UInt32) -> [UInt8]? {
    Int(rowPage) < pages.count ? pages[Int(rowPage)].unwrittenBytes(segment) : nil
  }

  /// Return the live segments.
  package func segments(_ rowPage: UInt32) -> Range<UInt32> {
    guard Int(rowPage) < pages.count, pages[Int(rowPage)].next >= pages[Int(rowPage)].first else {
      return 0..<0
    }
    return pages[Int(rowPage)].first..<pages[Int(rowPage)].next
  }

  /// Return the number of steps in the tail of a row's page.
  @inline(__always)
  func tailCount(_ row: MemberOrdinal) -> Int {
    let page = Int(row.rawValue / PageID.rowsPerPage)
    return page < pages.count ? Int(pages[page].tail.count) : 0
  }

  func tail(_ rowPage: UInt32) -> (bytes: [UInt8], end: Timestamp) {
    (pages[Int(rowPage)].tail.bytes, pages[Int(rowPage)].end)
  }

  /// Return the steps of a row page in the order in which they were made, as far as they are in memory or were read. A
  /// missing segment ends those before it.
  func steps(of rowPage: UInt32, in read: borrowing ReadSegments) -> [Step] {
    guard Int(rowPage) < pages.count else { return [] }
    var steps: [Step] = []
    for segment in segments(rowPage) {
      if let bytes = self.segment(rowPage, segment) {
        steps += StepBytes.steps(bytes) ?? []
      } else if let known = read.steps(rowPage, segment) {
        steps += known
      } else {
        steps = []
      }
    }
    return steps + (StepBytes.steps(pages[Int(rowPage)].tail.bytes) ?? [])
  }

  // MARK: Finding

  /// Lower bounds of the positions that a row page's watermarks had reached before a shard time (R20), by ``Step/key``.
  /// Derived from the steps in memory; zero where they say nothing.
  func reached(_ rowPage: UInt32, before time: Timestamp) -> [UInt32] {
    var reached = [UInt32](repeating: 0, count: 512)
    guard Int(rowPage) < pages.count else { return reached }
    let page = pages[Int(rowPage)]
    func scan(_ bytes: [UInt8]) {
      var cursor = StepCursor()
      while let step = cursor.next(bytes.span) {
        if step.time < time { reached[Int(step.key)] = max(reached[Int(step.key)], step.sequence.rawValue) }
      }
    }
    for segment in page.unwritten { scan(segment.bytes) }
    scan(page.tail.bytes)
    return reached
  }

  /// Return the time at which this row's watermark first reached a message. The watermark must have reached it by a
  /// move, not by joining.
  ///
  /// - Parameters:
  ///   - count: how often the watermark has moved.
  ///   - last: the shown time of its last move.
  ///   - since: the message's registration time; no earlier step can have reached it.
  ///   - isOfThread: earlier moves may be in a row that the member has left (R15).
  ///   - kept: the option `kept_steps`.
  ///   - seesHidden: the viewer is the user, for whom hidden moves look like others.
  ///   - read: the segments read for this query so far.
  package func time(
    _ kind: StepKind,
    _ row: MemberOrdinal,
    reaching sequence: SequenceNumber,
    count: UInt32,
    last: Timestamp,
    since: Timestamp,
    kept: UInt16,
    isOfThread: Bool = false,
    seesHidden: Bool = false,
    in read: borrowing ReadSegments
  ) -> StepTime {
    let rowPage = row.rawValue / PageID.rowsPerPage
    guard kept > 0, Int(rowPage) < pages.count else { return .latest(last) }
    let ends = pages[Int(rowPage)].ends
    let first = pages[Int(rowPage)].first
    // Segments before `start` cannot contain the step.
    let start = Self.firstIndex(ends, notBefore: since)
    var search = StepSearch(
      key: Step.key(UInt8(truncatingIfNeeded: row.rawValue), kind),
      sequence: sequence,
      unkept: count > UInt32(kept) ? count - UInt32(kept) : 0
    )
    /// Segments on storage that may contain the step: those after the last known step that has not reached the message.
    var gap: Range<Int>?
    var offset = start
    while offset <= ends.count, !search.isFound {
      let segment = first &+ UInt32(truncatingIfNeeded: offset)
      var hasPassed = false
      if offset == ends.count {
        hasPassed = search.scan(bytes: pages[Int(rowPage)].tail.bytes)
      } else if let bytes = pages[Int(rowPage)].unwrittenBytes(segment) {
        hasPassed = search.scan(bytes: bytes)
      } else if let steps = read.steps(rowPage, segment) {
        hasPassed = search.scan(steps)
      } else if let known = gap {
        if known.upperBound == offset { gap = known.lowerBound..<offset + 1 }
      } else {
        gap = offset..<offset + 1
      }
      // The missing segments up to here precede the step.
      if hasPassed { gap = nil }
      offset += 1
    }
    if search.isNext { gap = nil }
    if let gap, !read.isFull {
      // The more segments were read without result, the more are read at a time.
      let most = Int(max(2, min(read.count(of: rowPage), 256)))
      let end = min(gap.upperBound, gap.lowerBound + most)
      return .stored(
        StepTime.SegmentRange(rowPage: rowPage, segments: first + UInt32(gap.lowerBound)..<first + UInt32(end))
      )
    }
    guard let step = search.found else { return .latest(last) }
    if step.isHidden, !seesHidden { return .hidden(step.shownAt) }
    if gap != nil { return .latest(step.shownAt) }
    let isWhole = !isOfThread && (first == 0 || start > 0)
    return search.isExact(isWhole: isWhole) ? .exact(step.shownAt) : .latest(step.shownAt)
  }

  /// Return the index of the first of rising times not before `time`.
  private static func firstIndex(_ times: [Timestamp], notBefore time: Timestamp) -> Int {
    var low = 0
    var high = times.count
    while low < high {
      let middle = (low + high) / 2
      if times[middle] < time { low = middle + 1 } else { high = middle }
    }
    return low
  }

  #if DEBUG
    /// Return the value that ``byteCount`` must have.
    func countBytes() -> Int { heapBytes(pages) + pages.reduce(0) { $0 + $1.byteCount } }
  #endif
}

/// A search for the first kept step of a watermark that has reached a message.
private struct StepSearch {
  let key: UInt16
  let sequence: SequenceNumber
  /// Steps up to this number are not kept.
  let unkept: UInt32
  private(set) var found: Step?
  /// The last step seen before ``found``.
  private var before: Step?

  init(key: UInt16, sequence: SequenceNumber, unkept: UInt32) {
    self.key = key
    self.sequence = sequence
    self.unkept = unkept
  }

  var isFound: Bool { found != nil }

  /// Whether no step lies between ``found`` and the last one before it.
  var isNext: Bool { found.map { $0.number == (before?.number ?? 0) &+ 1 } ?? false }

  /// Return whether ``found`` is the step that reached the message, given that all relevant segments were searched.
  ///
  /// - Parameter isWhole: only steps from before the message were skipped, and steps were dropped only by merging.
  func isExact(isWhole: Bool) -> Bool {
    guard let found else { return false }
    if let before, before.number == found.number &- 1 { return before.sequence < sequence }
    return found.number == 1 || isWhole && before == nil && !found.isAfterDropped
  }

  /// - Returns: whether the bytes contain a step before the wanted one.
  mutating func scan(bytes: [UInt8]) -> Bool {
    var hasPassed = false
    var cursor = StepCursor()
    while found == nil, let step = cursor.next(bytes.span) {
      if step.key == key { hasPassed = record(step) || hasPassed }
    }
    return hasPassed
  }

  mutating func scan(_ steps: [Step]) -> Bool {
    var hasPassed = false
    for step in steps where step.key == key {
      hasPassed = record(step) || hasPassed
      if found != nil { break }
    }
    return hasPassed
  }

  private mutating func record(_ step: Step) -> Bool {
    if step.sequence >= sequence, step.number > unkept {
      found = step
      return false
    }
    before = step
    return true
  }
}

/// Step segments read from storage for one query.
package struct ReadSegments: Sendable {
  /// Maximum number of steps that one query may hold; 32 bytes each.
  package static let stepsMax = 1 << 19

  /// By row page and segment, each in the order in which the steps were made, so that the numbers of one watermark
  /// rise. Not sorted by watermark: a linear scan costs less for the few rows of a page that a query asks about.
  private var segments: [UInt64: [Step]] = [:]
  private var counts: [UInt32: UInt32] = [:]
  /// Number of steps held.
  package private(set) var stepCount = 0
  private var isClosed = false

  package init() {}

  /// Whether no more segments may be read. A step that is in none of them has only a latest possible time.
  package var isFull: Bool { isClosed || stepCount >= Self.stepsMax }

  /// Stop further reads for this query.
  package mutating func close() { isClosed = true }

  /// Add a segment's bytes.
  ///
  /// - Returns: false if the bytes are not valid steps.
  @discardableResult
  package mutating func add(_ rowPage: UInt32, _ segment: UInt32, _ bytes: [UInt8]) -> Bool {
    guard let steps = StepBytes.steps(bytes) else { return false }
    stepCount += steps.count
    counts[rowPage, default: 0] += 1
    segments[Self.key(rowPage, segment)] = steps
    return true
  }

  package func contains(_ rowPage: UInt32, _ segment: UInt32) -> Bool {
    segments[Self.key(rowPage, segment)] != nil
  }

  /// The row pages with segments here, unordered.
  package var rowPages: [UInt32] { Array(counts.keys) }

  /// Return the number of segments of this row page.
  func count(of rowPage: UInt32) -> UInt32 { counts[rowPage] ?? 0 }

  func steps(_ rowPage: UInt32, _ segment: UInt32) -> [Step]? {
    segments[Self.key(rowPage, segment)]
  }

  private static func key(_ rowPage: UInt32, _ segment: UInt32) -> UInt64 {
    UInt64(rowPage) << 32 | UInt64(segment)
  }
}
