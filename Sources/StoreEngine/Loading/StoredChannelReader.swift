internal import NIOCore
package import ReceiptModel
internal import ReceiptWire

/// Counts what one user has not read in one channel, from pages on storage. Reads the head page (countable messages per
/// segment), the page of the user's row (their position) and the segment of that position. After an unread marker it
/// reads every segment, because the user's own messages do not count. It also reads segments with mentions or with
/// messages that left their sender's position alone.
struct StoredChannelReader {
  /// Maximum number of segments that are read for one user. With more, the channel is loaded and then serves all
  /// requests.
  static let segmentsMax: UInt32 = 17
  /// Maximum number of segments that are read only for their mentions.
  static let segmentsMentioningMax: UInt32 = 64
  /// Maximum number of thread pages that are read for one user.
  static let threadPagesMax = 256

  let storage: any StorageEngine
  let shard: ShardID
  let entry: StorageReadRequest.Entry
  private(set) var number = ChannelNumber(0)
  private(set) var index = LogIndex.zero
  private var head = Head()

  /// Contents of the head page.
  private struct Head {
    var newest = SequenceNumber.zero
    /// Countable messages of each segment.
    var counts: [UInt32] = []
    var truncatedThrough = SequenceNumber.zero
    /// Segments with messages that left their sender's position alone.
    var leaving: Set<UInt32> = []
    /// Segments with messages that mention a user.
    var mentioning: Set<UInt32> = []

    /// Return the number of messages in a segment.
    func messageCount(_ segment: UInt32) -> UInt32 {
      min(newest.rawValue - segment * PageID.messagesPerSegment, PageID.messagesPerSegment)
    }
  }

  init(storage: any StorageEngine, shard: ShardID, entry: StorageReadRequest.Entry) {
    self.storage = storage
    self.shard = shard
    self.entry = entry
  }

  mutating func outcome() throws(StorageError) -> StorageUnreadCounts.Outcome {
    let rowPage = PageID.rows(entry.row / PageID.rowsPerPage)
    guard let stored = try storage.readPages(shard, .cid(entry.cid), .pages([.head, rowPage])) else {
      return .absent
    }
    number = stored.number
    guard stored.pages.first?.page == .head else { throw corrupt(.head, "is missing") }
    try read(.head, stored.pages[0].bytes) { peek, scan throws(WireError) in try peek.readHead(&scan) }
    guard stored.pages.count == 2 else { return .unknown }
    var position = Position.elsewhere
    try read(rowPage, stored.pages[1].bytes) { peek, scan throws(WireError) in
      position = try peek.position(&scan)
    }
    switch position {
    case .elsewhere: return .unknown
    case .left: return .notAMember
    case .at(let row):
      // A head page of a version that kept no counts.
      if head.newest == .zero, try hasMessages() { return .unknown }
      guard let own = try unread(row), let inThreads = try unreadThreads() else { return .unknown }
      return .counts(
        UnreadCounts(
          messages: own.messages,
          threads: inThreads.threads,
          mentions: own.mentions &+ inThreads.mentions,
          isFlagged: row.isFlagged,
          isMuted: row.isMuted
        )
      )
    }
  }

  // MARK: The head

  private mutating func readHead(_ scan: inout PageScan) throws(WireError) {
    var isNamed = false
    while try scan.advance() {
      switch scan.kind {
      case .head:
        let found = try scan.head
        isNamed = found.channel == number && found.cid.equals(entry.cid.span.bytes)
      case .messageCounts: (head.newest, head.counts) = try scan.messageCounts
      case .segmentFlags:
        let flags = try scan.segmentFlags
        head.leaving = Set(flags.filter(\.hasUnmovedSender).map(\.segment))
        head.mentioning = Set(flags.filter(\.hasMentions).map(\.segment))
      case .truncation: head.truncatedThrough = try scan.truncatedThrough
      default: break
      }
    }
    let segments = (UInt64(head.newest.rawValue) + 255) / UInt64(PageID.messagesPerSegment)
    guard isNamed, UInt64(head.counts.count) == segments else { throw .badValue(.effect) }
  }

  private mutating func hasMessages() throws(StorageError) -> Bool {
    try storage.readPages(shard, .number(number), .pages([.segment(0)]))?.pages.isEmpty == false
  }

  // MARK: The row

  /// A user's row, in the channel or in a thread.
  private struct Row {
    var number: UInt32
    var joined: SequenceNumber
    /// Messages up to here are not unread for the user.
    var floor: SequenceNumber
    var hasMarker: Bool
    var isFlagged: Bool
    var isMuted: Bool

    init(_ row: borrowing ScannedRow, inThread isInThread: Bool = false) {
      number = row.row
      joined = isInThread ? row.unreadAfter : row.joined
      floor = isInThread ? row.unreadFloorInThread : row.unreadFloor
      hasMarker = row.hasMarker
      isFlagged = row.isFlaggedUnread
      isMuted = row.isMuted
    }
  }

  private enum Position {
    case at(Row)
    case left
    /// The user's row is not on this page, as far as the page shows.
    case elsewhere
  }

  private func position(_ scan: inout PageScan) throws(WireError) -> Position {
    var rows: UInt32 = 0
    var wasTheirs = false
    var position = Position.elsewhere
    while try scan.advance() {
      guard scan.kind == .row else { continue }
      rows += 1
      let row = try scan.row
      guard row.channel == number else { throw .badValue(.effect) }
      guard row.user.equals(entry.user.span.bytes) else { continue }
      if row.hasLeft {
        wasTheirs = wasTheirs || row.row == entry.row
      } else {
        position = .at(Row(row))
      }
    }
    // Row numbers only rise. If the user's row has left and no newer row follows up to the last one, the user is gone.
    if case .elsewhere = position, wasTheirs, rows < PageID.rowsPerPage { return .left }
    return position
  }

  // MARK: Messages

  /// Return nil if that would take too many segments.
  private mutating func unread(_ row: Row) throws(StorageError) -> (messages: UInt32, mentions: UInt32)? {
    let floor = row.floor
    guard floor <= head.newest else { throw corrupt(.head, "a row names message \(floor.rawValue)") }
    guard floor < head.newest else { return (0, 0) }
    let first = floor.rawValue / PageID.messagesPerSegment
    var unread: (messages: UInt32, mentions: UInt32) = (0, 0)
    // Segments that were read for the user's own messages, and those that were read for mentions.
    var (segmentsRead, segmentsMentioning) = (UInt32(0), UInt32(0))
    for segment in first..<UInt32(head.counts.count) where head.counts[Int(segment)] > 0 {
      // A segment counts as a whole if none of its messages can be the user's own and none mentions anybody.
      let isCut = segment == first && floor.rawValue % PageID.messagesPerSegment != 0
      if isCut || row.hasMarker || head.leaving.contains(segment) {
        segmentsRead += 1
      } else if head.mentioning.contains(segment) {
        segmentsMentioning += 1
      } else {
        unread.messages &+= head.counts[Int(segment)]
        continue
      }
      guard segmentsRead <= Self.segmentsMax, segmentsMentioning <= Self.segmentsMentioningMax else {
        return nil
      }
      let found = try countable(segment, for: row)
      unread.messages &+= found.messages
      unread.mentions &+= found.mentions
    }
    return unread
  }

  /// Count the unread countable messages of a segment by other users, and those among them that mention the user.
  private mutating func countable(
    _ segment: UInt32,
    for row: Row
  ) throws(StorageError) -> (messages: UInt32, mentions: UInt32) {
    let page = PageID.segment(segment)
    guard let bytes = try storage.readPages(shard, .number(number), .pages([page]))?.pages.first?.bytes else {
      throw corrupt(page, "is missing")
    }
    var wanted: (messages: UInt32, mentions: UInt32) = (0, 0)
    try read(page, bytes) { peek, scan throws(WireError) in
      var sequence = SequenceNumber(segment * PageID.messagesPerSegment)
      let last = SequenceNumber(sequence.rawValue + peek.head.messageCount(segment))
      var countable = UInt32(0)
      while try scan.advance() {
        let message = try scan.message
        guard message.channel == peek.number, message.sequence == sequence.next, sequence < last else {
          throw .badValue(.effect)
        }
        sequence = message.sequence
        guard peek.counts(message) else { continue }
        countable += 1
        guard sequence > row.floor, !message.sender.equals(peek.entry.user.span.bytes) else { continue }
        wanted.messages += 1
        if try message.mentions(row.number, joined: row.joined) { wanted.mentions += 1 }
      }
      guard sequence == last, countable == peek.head.counts[Int(segment)] else { throw .badValue(.count) }
    }
    return wanted
  }

  private func counts(_ message: borrowing ScannedMessage) -> Bool {
    message.flags.isCountable && message.sequence > head.truncatedThrough
  }

  // MARK: Threads

  /// State of the thread whose pages are being scanned.
  private struct Thread {
    var parent = SequenceNumber.zero
    /// Nil if the user is not in the thread.
    var row: Row?
    var hasUnread = false
    /// Unread replies that mention the user.
    var mentions = UInt32(0)
  }

  /// Count threads with unread replies for the user, and unread replies that mention them; nil if there are too many
  /// pages (R15).
  private mutating func unreadThreads() throws(StorageError) -> (threads: UInt32, mentions: UInt32)? {
    let selection = PageSelection.threads(pagesMax: Self.threadPagesMax + 1)
    guard head.newest > .zero, let stored = try storage.readPages(shard, .number(number), selection) else {
      return (0, 0)
    }
    guard stored.pages.count <= Self.threadPagesMax else { return nil }
    var thread = Thread()
    var unread: [Thread] = []
    for (page, bytes) in stored.pages {
      let parent = page.parent
      if parent != thread.parent {
        if thread.hasUnread { unread.append(thread) }
        thread = Thread(parent: parent)
      }
      var found = thread
      try read(page, bytes) { peek, scan throws(WireError) in try peek.go(over: &scan, &found) }
      thread = found
    }
    if thread.hasUnread { unread.append(thread) }
    return try countExistingThreads(unread)
  }

  /// Scan a thread's page. A thread's rows come before its replies.
  private func go(over scan: inout PageScan, _ thread: inout Thread) throws(WireError) {
    while try scan.advance() {
      guard scan.parent == thread.parent else { throw .badValue(.effect) }
      switch scan.kind {
      case .row:
        let row = try scan.row
        guard row.channel == number else { throw .badValue(.effect) }
        guard !row.hasLeft, row.user.equals(entry.user.span.bytes) else { continue }
        thread.row = Row(row, inThread: true)
      case .message:
        guard let row = thread.row else { continue }
        let message = try scan.message
        guard message.channel == number else { throw .badValue(.effect) }
        guard message.sequence > row.floor, message.flags.isCountable else { continue }
        if message.sender.equals(entry.user.span.bytes) { continue }
        thread.hasUnread = true
        if try message.mentions(row.number, joined: row.joined) { thread.mentions += 1 }
      default: break
      }
    }
  }

  /// Count the threads whose parent still exists, and the mentions of the user in them. The threads are in rising
  /// order of parent; the thread of a deleted message counts nowhere.
  private mutating func countExistingThreads(
    _ threads: [Thread]
  ) throws(StorageError) -> (threads: UInt32, mentions: UInt32) {
    var living: (threads: UInt32, mentions: UInt32) = (0, 0)
    var rest = threads.filter { $0.parent > head.truncatedThrough && $0.parent <= head.newest }[...]
    while let parent = rest.first?.parent {
      let segment = (parent.rawValue - 1) / PageID.messagesPerSegment
      let page = PageID.segment(segment)
      guard let bytes = try storage.readPages(shard, .number(number), .pages([page]))?.pages.first?.bytes
      else { throw corrupt(page, "is missing") }
      var wanted = rest.prefix { ($0.parent.rawValue - 1) / PageID.messagesPerSegment == segment }
      rest = rest.dropFirst(wanted.count)
      var found: (threads: UInt32, mentions: UInt32) = (0, 0)
      try read(page, bytes) { _, scan throws(WireError) in
        while try scan.advance() {
          let message = try scan.message
          guard message.sequence == wanted.first?.parent else { continue }
          let thread = wanted.removeFirst()
          if message.flags.contains(.deleted) { continue }
          found.threads += 1
          found.mentions &+= thread.mentions
        }
      }
      guard wanted.isEmpty else { throw corrupt(page, "the parent of a thread is missing") }
      living.threads += found.threads
      living.mentions &+= found.mentions
    }
    return living
  }

  // MARK: Pages

  private mutating func read(
    _ page: PageID,
    _ bytes: ByteBuffer,
    _ body: (inout StoredChannelReader, inout PageScan) throws(WireError) -> Void
  ) throws(StorageError) {
    do throws(WireError) {
      var scan = try PageScan(bytes.readableBytesSpan)
      index = max(index, scan.index)
      try body(&self, &scan)
    } catch {
      throw corrupt(page, "\(error)")
    }
  }

  private func corrupt(_ page: PageID, _ text: String) -> StorageError {
    .corrupt("shard \(shard.rawValue), channel \(number.rawValue), page \(page): \(text)")
  }
}

extension PageID {
  /// Parent message of the page's thread.
  fileprivate var parent: SequenceNumber {
    switch self {
    case .threadRows(let parent, _), .threadSegment(let parent, _): parent
    default: .zero
    }
  }
}

/// A peek: reads some users' unread counts from channels on storage, without loading the channels (R14). It runs on a
/// thread that may block and reads only the pages it needs.
package struct StorageReadRequest: Hashable, Sendable {
  package struct Entry: Hashable, Sendable {
    package var cid: [UInt8]
    package var user: [UInt8]
    /// The user's row, as far as the caller knows.
    package var row: UInt32

    package init(cid: [UInt8], user: [UInt8], row: UInt32) {
      self.cid = cid
      self.user = user
      self.row = row
    }
  }

  package var shard: ShardID
  package var entries: [Entry]
  /// Returned with the results.
  package var requestID: UInt32

  /// Peek at all entries; call on a thread that may block.
  ///
  /// - Returns: one result per entry, in order.
  package func perform(on storage: any StorageEngine) -> [StorageUnreadCounts] {
    entries.map { entry in
      var peek = StoredChannelReader(storage: storage, shard: shard, entry: entry)
      let outcome: StorageUnreadCounts.Outcome
      do throws(StorageError) { outcome = try peek.outcome() } catch { outcome = .failed(error) }
      return StorageUnreadCounts(channel: peek.number, index: peek.index, outcome: outcome)
    }
  }
}

/// Result of a peek for one channel and one user.
package struct StorageUnreadCounts: Hashable, Sendable {
  package enum Outcome: Hashable, Sendable {
    case counts(UnreadCounts)
    /// Storage has no channel of that name.
    case absent
    case notAMember
    /// The channel must be loaded to find out.
    case unknown
    case failed(StorageError)
  }

  /// 0 if the channel was not found.
  package var channel: ChannelNumber
  /// Highest log index that any page which was read includes.
  package var index: LogIndex
  package var outcome: Outcome
}
