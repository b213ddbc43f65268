import DequeModule
import ReceiptModel

/// Which pages of a shard have effects that are in the log but not yet on storage as part of their page; the oldest of
/// them holds the log.
struct DirtyPages {
  struct Entry {
    /// nil for the shard's own pages.
    var slot: ChannelSlot?
    var page: PageID
    /// The first effect's place in the log.
    var since: LogIndex
    /// When that was, in the loop's elapsed milliseconds, and how many bytes the shard had logged: a page is written
    /// after a time or an amount.
    var elapsed: Int64
    var loggedBytes: UInt64
    /// Of the channel in the slot: one that was deleted since has no pages.
    var generation: UInt32 = 0
  }

  /// What is known of one loaded channel's pages: the log index since which each is dirty, 0 for clean.
  private struct Tracker {
    var head: UInt64 = 0
    var rows: [UInt64] = []
    var segments: [UInt64] = []
    /// Receipts, segments of steps, threads and memberships: few are dirty at a time.
    var others: [PageID: UInt64] = [:]
    /// The last effect of all.
    var last: UInt64 = 0
    /// How many of its pages are dirty.
    var dirtyCount = 0
    /// Rises with every channel that is in the slot.
    var generation: UInt32 = 0
  }

  private var trackers: [Tracker] = []
  private var shardHead: UInt64 = 0
  private var types: UInt64 = 0
  private var users: [UInt64] = []
  private var outbox: [UInt64] = []
  private var index: UInt64 = 0
  private var webhooks: [UInt64] = []
  private var tokens: UInt64 = 0
  private(set) var typesLast = LogIndex.zero
  /// The last effect on users' settings.
  private(set) var usersLast = LogIndex.zero
  /// The last effect on remembered webhooks.
  private(set) var webhooksLast = LogIndex.zero
  /// The last effect on revoked tokens.
  private(set) var tokensLast = LogIndex.zero
  private var queue: Deque<Entry> = []
  /// Pages whose first effect was found in the log at recovery: older than all of `queue`, in no order among
  /// themselves.
  private var recovered: Deque<Entry> = []

  var isEmpty: Bool { queue.isEmpty && recovered.isEmpty }
  var count: Int { queue.count + recovered.count }
  var hasRecovered: Bool { !recovered.isEmpty }

  /// The oldest effect that is not part of a page on storage, those of ``hasRecovered`` aside.
  var oldest: LogIndex? { queue.first?.since }

  /// The log index of the last effect on a channel.
  func last(_ slot: ChannelSlot) -> LogIndex { LogIndex(trackers[Int(slot.rawValue)].last) }

  /// Whether all of a channel's pages are on storage, or on their way there.
  func isClean(_ slot: ChannelSlot) -> Bool { trackers[Int(slot.rawValue)].dirtyCount == 0 }

  /// Whether this page of receipts or steps has effects that are not on storage.
  func isDirty(_ slot: ChannelSlot, other page: PageID) -> Bool {
    trackers[Int(slot.rawValue)].others[page] != nil
  }

  mutating func insert(_ slot: ChannelSlot) {
    while trackers.count <= Int(slot.rawValue) { trackers.append(Tracker()) }
    forget(slot)
  }

  /// The channel in this slot is gone: none of its pages is written any more.
  mutating func forget(_ slot: ChannelSlot) {
    let generation = trackers[Int(slot.rawValue)].generation
    trackers[Int(slot.rawValue)] = Tracker(generation: generation &+ 1)
  }

  private func isForgotten(_ entry: Entry) -> Bool {
    entry.slot.map { trackers[Int($0.rawValue)].generation != entry.generation } ?? false
  }

  /// Notes an effect on a page.
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
    case .receipts, .steps, .threadRows, .threadSegment, .memberships:
      isNew = trackers[Int(slot!.rawValue)].others.updateValue(index.rawValue, forKey: page) == nil
    case .types:
      isNew = Self.mark(&types, index)
      typesLast = max(typesLast, index)
    case .users(let number):
      isNew = Self.mark(&users, Int(number), index)
      usersLast = max(usersLast, index)
    case .shardHead:
      isNew = Self.mark(&shardHead, index)
    case .outbox(let number):
      isNew = Self.mark(&outbox, Int(number), index)
    case .index:
      isNew = Self.mark(&self.index, index)
    case .webhooks(let number):
      isNew = Self.mark(&webhooks, Int(number), index)
      webhooksLast = max(webhooksLast, index)
    case .tokens:
      isNew = Self.mark(&tokens, index)
      tokensLast = max(tokensLast, index)
    }
    if let slot { trackers[Int(slot.rawValue)].last = max(trackers[Int(slot.rawValue)].last, index.rawValue) }
    guard isNew else { return }
    if let slot { trackers[Int(slot.rawValue)].dirtyCount += 1 }
    var entry = Entry(slot: slot, page: page, since: index, elapsed: elapsed, loggedBytes: loggedBytes)
    if let slot { entry.generation = trackers[Int(slot.rawValue)].generation }
    if isRecovered { recovered.append(entry) } else { queue.append(entry) }
  }

  /// The next page to write, if `isDue` says so of it; it counts as clean from here on.
  mutating func popDue(_ isDue: (Entry) -> Bool) -> Entry? {
    while let first = recovered.first, isForgotten(first) { recovered.removeFirst() }
    if recovered.isEmpty {
      while let first = queue.first, isForgotten(first) { queue.removeFirst() }
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
    case .receipts, .steps, .threadRows, .threadSegment, .memberships:
      trackers[Int(entry.slot!.rawValue)].others[entry.page] = nil
    case .types: types = 0
    case .users(let number): users[Int(number)] = 0
    case .shardHead: shardHead = 0
    case .outbox(let number): outbox[Int(number)] = 0
    case .index: index = 0
    case .webhooks(let number): webhooks[Int(number)] = 0
    case .tokens: tokens = 0
    }
    return entry
  }

  private static func mark(_ since: inout UInt64, _ index: LogIndex) -> Bool {
    guard since == 0 else { return false }
    since = index.rawValue
    return true
  }

  private static func mark(_ column: inout [UInt64], _ number: Int, _ index: LogIndex) -> Bool {
    while column.count <= number { column.append(0) }
    return mark(&column[number], index)
  }
}
