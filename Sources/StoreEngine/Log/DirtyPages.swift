internal import DequeModule
internal import ReceiptModel

/// Dirty pages of a shard: those with effects that are in the log but not yet in the page on storage. The oldest such
/// effect holds the log.
struct DirtyPages {
  struct Entry {
    /// nil for the shard's own pages.
    var slot: ChannelSlot?
    var page: PageID
    /// Log index of the page's first unwritten effect.
    var since: LogIndex
    /// The loop's elapsed milliseconds and the shard's logged bytes at that effect: a page is due after a time or an
    /// amount of log.
    var elapsed: Int64
    var loggedBytes: UInt64
    /// Generation of the slot; a channel that was deleted since no longer matches.
    var generation: UInt32 = 0
  }

  /// Dirty state of one loaded channel's pages: the log index since which each page is dirty, 0 for clean.
  private struct Tracker {
    var head: UInt64 = 0
    var rows: [UInt64] = []
    var segments: [UInt64] = []
    /// Acknowledgements, segments of steps, threads and memberships, of which few are dirty at a time.
    var others: [PageID: UInt64] = [:]
    /// Log index of the channel's last effect.
    var last: UInt64 = 0
    /// Number of dirty pages.
    var dirtyCount = 0
    /// Rises with every channel that occupies the slot.
    var generation: UInt32 = 0
  }

  private var trackers: [Tracker] = []
  private var shardPages = ShardPages()
  private(set) var typesLast = LogIndex.zero
  /// The last effect on users' settings.
  private(set) var usersLast = LogIndex.zero
  /// The last effect on remembered webhooks.
  private(set) var webhooksLast = LogIndex.zero
  /// The last effect on revoked tokens.
  private(set) var tokensLast = LogIndex.zero
  private var queue: Deque<Entry> = []
  /// Pages whose first effect was found in the log at recovery. All are older than `queue`, and unordered among
  /// themselves.
  private var recovered: Deque<Entry> = []

  var isEmpty: Bool { queue.isEmpty && recovered.isEmpty }
  var count: Int { queue.count + recovered.count }
  var hasRecovered: Bool { !recovered.isEmpty }

  /// Oldest effect that is not in a page on storage, ignoring the pages of ``hasRecovered``.
  var oldest: LogIndex? { queue.first?.since }

  /// Oldest effect of the pages of ``hasRecovered``. It looks at each of them.
  var oldestRecovered: LogIndex? { recovered.lazy.map(\.since).min() }

  /// Return the log index of the last effect on a channel.
  func last(_ slot: ChannelSlot) -> LogIndex { LogIndex(trackers[Int(slot.rawValue)].last) }

  /// Return whether all of a channel's pages are on storage, or in flight to it.
  func isClean(_ slot: ChannelSlot) -> Bool { trackers[Int(slot.rawValue)].dirtyCount == 0 }

  /// Return whether this page of acknowledgements or steps has effects that are not on storage.
  func isDirty(_ slot: ChannelSlot, other page: PageID) -> Bool {
    trackers[Int(slot.rawValue)].others[page] != nil
  }

  mutating func insert(_ slot: ChannelSlot) {
    while trackers.count <= Int(slot.rawValue) { trackers.append(Tracker()) }
    remove(slot)
  }

  /// Forget the channel in a slot: none of its pages is written any more.
  mutating func remove(_ slot: ChannelSlot) {
    let generation = trackers[Int(slot.rawValue)].generation
    trackers[Int(slot.rawValue)] = Tracker(generation: generation &+ 1)
  }

  private func isRemoved(_ entry: Entry) -> Bool {
    entry.slot.map { trackers[Int($0.rawValue)].generation != entry.generation } ?? false
  }

  /// Record an effect on a page.
  mutating func touch(
    _ slot: ChannelSlot?,
    _ page: PageID,
    at index: LogIndex,
    elapsed: Int64,
    loggedBytes: UInt64,
    isRecovered: Bool = false
  ) {
    var isNew = false
    switch page {
    case .rows(let number):
      isNew = Self.mark(&trackers[Int(slot!.rawValue)].rows, Int(number), index)
    case .segment(let number):
      isNew = Self.mark(&trackers[Int(slot!.rawValue)].segments, Int(number), index)
    case .head:
      isNew = Self.mark(&trackers[Int(slot!.rawValue)].head, index)
    case .acknowledgements, .steps, .threadRows, .threadSegment, .memberships:
      isNew = trackers[Int(slot!.rawValue)].others.updateValue(index.rawValue, forKey: page) == nil
    case .types:
      isNew = shardPages.mark(page, index)
      typesLast = max(typesLast, index)
    case .users:
      isNew = shardPages.mark(page, index)
      usersLast = max(usersLast, index)
    case .webhooks:
      isNew = shardPages.mark(page, index)
      webhooksLast = max(webhooksLast, index)
    case .tokens:
      isNew = shardPages.mark(page, index)
      tokensLast = max(tokensLast, index)
    case .shardHead, .outbox, .index: isNew = shardPages.mark(page, index)
    }
    if let slot { trackers[Int(slot.rawValue)].last = max(trackers[Int(slot.rawValue)].last, index.rawValue) }
    guard isNew else { return }
    if let slot { trackers[Int(slot.rawValue)].dirtyCount += 1 }
    var entry = Entry(slot: slot, page: page, since: index, elapsed: elapsed, loggedBytes: loggedBytes)
    if let slot { entry.generation = trackers[Int(slot.rawValue)].generation }
    if isRecovered { recovered.append(entry) } else { queue.append(entry) }
  }

  /// Take the next page to write, if it was recovered or `isDue` accepts it. The page counts as clean from here on.
  mutating func popDue(_ isDue: (Entry) -> Bool) -> Entry? {
    while let first = recovered.first, isRemoved(first) { recovered.removeFirst() }
    if recovered.isEmpty {
      while let first = queue.first, isRemoved(first) { queue.removeFirst() }
    }
    let entry: Entry
    if let first = recovered.first {
      entry = first
      recovered.removeFirst()
    } else if let first = queue.first, isDue(first) {
      entry = first
      queue.removeFirst()
    } else {
      return nil
    }
    if let slot = entry.slot { trackers[Int(slot.rawValue)].dirtyCount -= 1 }
    switch entry.page {
    case .rows(let number): trackers[Int(entry.slot!.rawValue)].rows[Int(number)] = 0
    case .segment(let number): trackers[Int(entry.slot!.rawValue)].segments[Int(number)] = 0
    case .head: trackers[Int(entry.slot!.rawValue)].head = 0
    case .acknowledgements, .steps, .threadRows, .threadSegment, .memberships:
      trackers[Int(entry.slot!.rawValue)].others[entry.page] = nil
    default: shardPages.clear(entry.page)
    }
    return entry
  }

  fileprivate static func mark(_ since: inout UInt64, _ index: LogIndex) -> Bool {
    guard since == 0 else { return false }
    since = index.rawValue
    return true
  }

  fileprivate static func mark(_ column: inout [UInt64], _ number: Int, _ index: LogIndex) -> Bool {
    while column.count <= number { column.append(0) }
    return mark(&column[number], index)
  }
}

/// Dirty state of the shard's own pages: the log index since which each page is dirty, 0 for clean.
private struct ShardPages {
  private var head: UInt64 = 0
  private var types: UInt64 = 0
  private var users: [UInt64] = []
  private var outbox: [UInt64] = []
  private var index: UInt64 = 0
  private var webhooks: [UInt64] = []
  private var tokens: UInt64 = 0

  /// Return whether the page was clean.
  mutating func mark(_ page: PageID, _ index: LogIndex) -> Bool {
    switch page {
    case .types: DirtyPages.mark(&types, index)
    case .users(let number): DirtyPages.mark(&users, Int(number), index)
    case .shardHead: DirtyPages.mark(&head, index)
    case .outbox(let number): DirtyPages.mark(&outbox, Int(number), index)
    case .index: DirtyPages.mark(&self.index, index)
    case .webhooks(let number): DirtyPages.mark(&webhooks, Int(number), index)
    case .tokens: DirtyPages.mark(&tokens, index)
    default: preconditionFailure("page \(page) belongs to a channel")
    }
  }

  mutating func clear(_ page: PageID) {
    switch page {
    case .types: types = 0
    case .users(let number): users[Int(number)] = 0
    case .shardHead: head = 0
    case .outbox(let number): outbox[Int(number)] = 0
    case .index: index = 0
    case .webhooks(let number): webhooks[Int(number)] = 0
    case .tokens: tokens = 0
    default: preconditionFailure("page \(page) belongs to a channel")
    }
  }
}
