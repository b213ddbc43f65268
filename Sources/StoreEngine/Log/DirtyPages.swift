internal import DequeModule
internal import ReceiptModel

/// Dirty pages of a shard: those with effects that are in the log but not yet in the page on storage. The oldest such
/// effect holds the log.
struct DirtyPages {
  struct Entry {
    enum Owner {
      /// Generation of the slot: a channel that was deleted since no longer matches.
      case channel(ChannelSlot, generation: UInt32)
      case shard
    }

    var owner: Owner
    var page: PageID
    /// Log index of the page's first unwritten effect.
    var since: LogIndex
    /// The loop's elapsed milliseconds and the shard's logged bytes at that effect: a page is due after a time or an
    /// amount of log.
    var elapsed: Int64
    var loggedBytes: UInt64
  }

  /// Dirty state of one loaded channel's pages.
  private struct Tracker {
    var isHeadDirty = false
    var rows: [Bool] = []
    var segments: [Bool] = []
    /// Dirty acknowledgements, segments of steps, threads and memberships, of which there are few at a time.
    var others: Set<PageID> = []
    /// Log index of the channel's last effect.
    var last = LogIndex.zero
    /// Number of dirty pages.
    var dirtyCount = 0
    /// Rises with every channel that occupies the slot.
    var generation: UInt32 = 0

    /// Set whether a page is dirty. Returns whether that is a change.
    mutating func set(_ page: PageID, isDirty: Bool) -> Bool {
      switch page {
      case .head: DirtyPages.set(&isHeadDirty, isDirty)
      case .rows(let number): DirtyPages.set(&rows, number, isDirty)
      case .segment(let number): DirtyPages.set(&segments, number, isDirty)
      case .acknowledgements, .steps, .threadRows, .threadSegment, .memberships:
        DirtyPages.set(&others, page, isDirty)
      case .types, .users, .shardHead, .outbox, .index, .webhooks, .tokens, .consumers, .timers, .pushJob:
        preconditionFailure("page \(page) belongs to the shard")
      }
    }
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
  /// The last effect on consumers of the feed.
  private(set) var consumersLast = LogIndex.zero
  /// The last effect on push jobs.
  private(set) var pushJobsLast = LogIndex.zero
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
  func last(_ slot: ChannelSlot) -> LogIndex { trackers[Int(slot.rawValue)].last }

  /// Return whether all of a channel's pages are on storage, or in flight to it.
  func isClean(_ slot: ChannelSlot) -> Bool { trackers[Int(slot.rawValue)].dirtyCount == 0 }

  /// Return whether this page of acknowledgements or steps has effects that are not on storage.
  func isDirty(_ slot: ChannelSlot, other page: PageID) -> Bool {
    trackers[Int(slot.rawValue)].others.contains(page)
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
    guard case .channel(let slot, let generation) = entry.owner else { return false }
    return trackers[Int(slot.rawValue)].generation != generation
  }

  /// Record an effect on a page of a channel.
  mutating func touch(
    _ page: PageID,
    of slot: ChannelSlot,
    at index: LogIndex,
    elapsed: Int64,
    loggedBytes: UInt64,
    isRecovered: Bool = false
  ) {
    let number = Int(slot.rawValue)
    let isNew = trackers[number].set(page, isDirty: true)
    trackers[number].last = max(trackers[number].last, index)
    guard isNew else { return }
    trackers[number].dirtyCount += 1
    let owner = Entry.Owner.channel(slot, generation: trackers[number].generation)
    append(
      Entry(owner: owner, page: page, since: index, elapsed: elapsed, loggedBytes: loggedBytes),
      isRecovered: isRecovered
    )
  }

  /// Record an effect on one of the shard's own pages.
  mutating func touchShardPage(
    _ page: PageID,
    at index: LogIndex,
    elapsed: Int64,
    loggedBytes: UInt64,
    isRecovered: Bool = false
  ) {
    let isNew = shardPages.set(page, isDirty: true)
    switch page {
    case .types: typesLast = max(typesLast, index)
    case .users: usersLast = max(usersLast, index)
    case .webhooks: webhooksLast = max(webhooksLast, index)
    case .tokens: tokensLast = max(tokensLast, index)
    case .consumers: consumersLast = max(consumersLast, index)
    case .pushJob: pushJobsLast = max(pushJobsLast, index)
    default: break
    }
    guard isNew else { return }
    append(
      Entry(owner: .shard, page: page, since: index, elapsed: elapsed, loggedBytes: loggedBytes),
      isRecovered: isRecovered
    )
  }

  private mutating func append(_ entry: Entry, isRecovered: Bool) {
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
    switch entry.owner {
    case .channel(let slot, _):
      trackers[Int(slot.rawValue)].dirtyCount -= 1
      _ = trackers[Int(slot.rawValue)].set(entry.page, isDirty: false)
    case .shard: _ = shardPages.set(entry.page, isDirty: false)
    }
    return entry
  }

  fileprivate static func set(_ flag: inout Bool, _ isDirty: Bool) -> Bool {
    guard flag != isDirty else { return false }
    flag = isDirty
    return true
  }

  fileprivate static func set(_ pages: inout [Bool], _ number: UInt32, _ isDirty: Bool) -> Bool {
    while pages.count <= Int(number) { pages.append(false) }
    return set(&pages[Int(number)], isDirty)
  }

  fileprivate static func set<Page>(_ pages: inout Set<Page>, _ page: Page, _ isDirty: Bool) -> Bool {
    isDirty ? pages.insert(page).inserted : pages.remove(page) != nil
  }
}

/// Dirty state of the shard's own pages.
private struct ShardPages {
  private var isHeadDirty = false
  private var areTypesDirty = false
  private var users: [Bool] = []
  private var outbox: [Bool] = []
  private var isIndexDirty = false
  private var webhooks: [Bool] = []
  private var areTokensDirty = false
  private var areConsumersDirty = false
  /// Few at a time: timers are added and removed in about the order of their numbers.
  private var timers: Set<UInt32> = []
  private var pushJobs: Set<UInt32> = []

  /// Set whether a page is dirty. Returns whether that is a change.
  mutating func set(_ page: PageID, isDirty: Bool) -> Bool {
    switch page {
    case .types: DirtyPages.set(&areTypesDirty, isDirty)
    case .users(let number): DirtyPages.set(&users, number, isDirty)
    case .shardHead: DirtyPages.set(&isHeadDirty, isDirty)
    case .outbox(let number): DirtyPages.set(&outbox, number, isDirty)
    case .index: DirtyPages.set(&isIndexDirty, isDirty)
    case .webhooks(let number): DirtyPages.set(&webhooks, number, isDirty)
    case .tokens: DirtyPages.set(&areTokensDirty, isDirty)
    case .consumers: DirtyPages.set(&areConsumersDirty, isDirty)
    case .timers(let number): DirtyPages.set(&timers, number, isDirty)
    case .pushJob(let number): DirtyPages.set(&pushJobs, number, isDirty)
    case .head, .rows, .segment, .acknowledgements, .steps, .threadRows, .threadSegment, .memberships:
      preconditionFailure("page \(page) belongs to a channel")
    }
  }
}
