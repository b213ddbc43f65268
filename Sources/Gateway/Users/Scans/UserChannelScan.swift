internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// Scan over all channels of one or several users. The users' home shards list the channels page by page; each channel
/// is counted (R14) or marked read (R13) once it is listed. A pure state machine: requests come out as actions, and
/// each answer goes in exactly once.
///
/// Memory does not grow with the number of channels: no page is requested while enough channels are pending, pending
/// channels are stored as the bytes of their names, and the number of failed channels that are named is limited.
struct UserChannelScan {
  /// The operation on each channel.
  enum Work: Equatable {
    case count
    case markRead
    /// Tell watchers of the channel how others now see the user's row (announce_row).
    case announce
  }

  /// A request to send.
  enum Action: Equatable {
    /// Send list_channels for this user from ``cursor(of:)`` on; its reply is ``listed(_:_:)`` or
    /// ``listFailed(_:_:)``.
    case list(user: Int)
    /// Send unread_counts of these channels to ``shard(of:)``; its reply is ``counted(_:_:)`` or
    /// ``countFailed(_:_:)``.
    case count(frame: Int)
    /// Send announce_row of these channels to ``shard(of:)``; its reply is ``announced(_:)`` or ``countFailed(_:_:)``.
    case announce(frame: Int)
    /// Send mark_read for ``channel(of:)``; its reply is ``marked(_:_:)``.
    case mark(Int)
    /// Send user_threads for the unread threads of ``channel(of:)`` from ``threadCursor(of:)`` on; its reply is
    /// ``threadsListed(_:_:)`` or ``marked(_:_:)``.
    case threads(Int)
    /// Send mark_read for ``thread(of:)`` in ``channel(of:)``; its reply is ``threadMarked(_:)`` or ``marked(_:_:)``.
    case markThread(Int)
    /// Send list_channels for the only user, for ``UnreadPage``; its reply is ``located(_:)`` or
    /// ``readStateFailed(_:)``.
    case locate(cursor: UInt64?, limit: Int)
    /// Send read_state for that channel of the page, in the user's view; its reply is ``readStateReceived(_:_:)`` or
    /// ``readStateFailed(_:)``.
    case detail(Int)
  }

  /// Maximum entries of one list_channels (Proto/frames.md).
  static let listMax = 1_000
  /// list_channels requests in flight at once; the pages of one user are sequential.
  static let listsMax = 16
  /// unread_counts requests in flight at once.
  static let framesMax = 16
  /// Channels waiting for their frame to fill; above this, partly filled frames are sent.
  static let heldMax = 4_096
  /// mark_read requests in flight at once.
  static let marksMax = 256

  /// Limits of a scan.
  struct Limits: Equatable {
    /// Channels that a counting scan covers; it fails for a user with more. Marking covers all channels.
    var countedMax = 100_000
    /// Failed channels that are named.
    var failedMax = 1_000
  }

  struct User {
    let id: [UInt8]
    /// The cursor of the next page; nil: the first page.
    fileprivate(set) var cursor: UInt64?
    fileprivate(set) var totals = UnreadTotals()
    /// The problem that prevents a result for the user; nil: no problem.
    fileprivate(set) var problem: Problem?
  }

  let work: Work
  private let limits: Limits
  private let shardCount: Int
  private(set) var users: [User]
  /// Users whose next page may be requested; the next one is last.
  private var due: [Int]
  private var listsInFlight = 0
  /// Channels listed so far.
  private var channelCount = 0
  /// The problem that ends the whole scan, whatever is still in flight.
  private(set) var problem: Problem?

  /// The channels to count or to announce.
  private var frames: CountFrames
  /// The channels to mark.
  private var marks: ChannelMarks
  /// The page of channels to show; nil: only the totals are wanted.
  private(set) var page: UnreadPage?

  /// - Parameters:
  ///   - users: one user to mark or to show a page of; at most 100 to count.
  ///   - shardCount: at least 1.
  init(
    _ work: Work,
    users: [[UInt8]],
    shardCount: Int,
    page: UnreadPage? = nil,
    includesThreads: Bool = false,
    limits: Limits = Limits()
  ) {
    self.work = work
    self.limits = limits
    self.shardCount = shardCount
    self.users = users.map { User(id: $0, cursor: page?.start) }
    self.page = page
    frames = CountFrames(shardCount: work == .markRead ? 0 : shardCount)
    marks = ChannelMarks(includesThreads: includesThreads, failedMax: limits.failedMax)
    due = Array(users.indices.reversed())
  }

  /// Whether nothing is left to send or to wait for.
  var isDone: Bool {
    problem != nil || isScanComplete && !(page?.isWaiting ?? false)
  }

  /// Whether all channels are listed and processed.
  private var isScanComplete: Bool {
    listsInFlight == 0 && due.isEmpty && frames.isEmpty && marks.isEmpty
  }

  /// Channels marked read without an error.
  var markedCount: Int { marks.markedCount }
  /// Names of the failed channels, up to the limit, as consecutive string fields.
  var failed: ByteBuffer { marks.failed }
  var failedCount: Int { marks.failedCount }
  /// Whether more channels failed than are named.
  var hasMoreFailed: Bool { failedCount > limits.failedMax }
  /// Whether a mark was sent, so that something may have changed.
  var hasMarked: Bool { marks.hasSent }

  // MARK: Requests

  func cursor(of user: Int) -> UInt64? { users[user].cursor }
  func shard(of frame: Int) -> ShardID { ShardID(UInt16(frames[frame]?.shard ?? 0)) }
  /// Return the number of channels in a frame.
  func channelCount(of frame: Int) -> Int { frames[frame]?.count ?? 0 }
  func channel(of mark: Int) -> [UInt8] { marks.channel(of: mark) }
  func threadCursor(of mark: Int) -> UInt32? { marks.threadCursor(of: mark) }
  /// Return the parent message of the thread that is marked next.
  func thread(of mark: Int) -> [UInt8] { marks.thread(of: mark) }

  /// Write all fields of unread_counts.
  func writeCounts(_ frame: Int, into buffer: inout ByteBuffer) {
    guard let frame = frames[frame] else { return }
    buffer.writeVarint(frame.count)
    frame.forEach { channel in
      let user = users[channel.user].id
      buffer.writeUnreadCountEntry(cid: channel.cid, user: user.span.bytes, row: channel.row)
    }
  }

  /// Write the fields of announce_row after the user.
  func writeAnnouncement(_ frame: Int, into buffer: inout ByteBuffer) {
    guard let frame = frames[frame] else { return }
    buffer.writeVarint(frame.count)
    frame.forEach { buffer.writeField($0.cid) }
  }

  // MARK: Events

  /// Start the scan.
  mutating func begin() -> [Action] { advance() }

  /// Handle a page of a user's channels from list_channels.
  mutating func listed(_ user: Int, _ reader: inout FieldReader) throws(WireError) -> [Action] {
    listsInFlight -= 1
    if users[user].problem != nil { return advance() }
    let from = users[user].cursor
    let isWanted = page?.beginFrame(from: from, order: channelCount) ?? false
    let next = try reader.channelList { channel in
      guard channel.isMember else { return }
      if page?.start != nil {
        guard page?.isNew(channel.cid.bytes, isWanted: isWanted) ?? true else { return }
      }
      addChannel(channel.cid, row: channel.row ?? 0, user, pagePosition: isWanted ? channelCount : nil)
      channelCount += 1
    }
    // A list that does not advance would be requested endlessly.
    if let next, next <= (from ?? 0) { throw .badValue(.count) }
    if work == .count, channelCount > limits.countedMax {
      let detail = "a request covers at most \(limits.countedMax) channels"
      fail(user, Problem(.limitReached, detail))
    } else if let next, page?.hasMore(from: next) ?? true {
      users[user].cursor = next
      due.append(user)
    } else if next == nil, page?.wrap() ?? false {
      // Channels before the page's start count too.
      users[user].cursor = nil
      due.append(user)
    }
    return advance()
  }

  /// Handle a failed list_channels.
  mutating func listFailed(_ user: Int, _ problem: Problem) -> [Action] {
    listsInFlight -= 1
    fail(user, problem)
    return advance()
  }

  /// Handle a frame's counts from unread_counts.
  mutating func counted(_ frame: Int, _ reader: inout FieldReader) throws(WireError) -> [Action] {
    guard let frame = frames.remove(frame) else { throw .badValue(.count) }
    guard try reader.count() == frame.count else { throw .badValue(.count) }
    var channels = frame.reader
    for _ in 0..<frame.count {
      let channel = try CountFrames.Channel(&channels)
      switch try UnreadCountFields(&reader) {
      case .found(let counts):
        users[channel.user].totals.add(counts)
        if let pagePosition = channel.pagePosition, counts.isUnreadChannel {
          page?.add(channel.cid.bytes, pagePosition: pagePosition)
        }
      // The index may lag: a channel that is no longer the user's has nothing unread.
      case .refused(.channelNotFound), .refused(.notAMember): break
      case .refused: fail(channel.user, Problem(.storeUnavailable))
      }
    }
    try reader.end()
    return advance()
  }

  /// Handle the reply to announce_row.
  mutating func announced(_ frame: Int) -> [Action] {
    _ = frames.remove(frame)
    return advance()
  }

  /// Handle a failed frame. The users in it get no result: a total without these channels would be wrong.
  mutating func countFailed(_ frame: Int, _ problem: Problem) -> [Action] {
    guard let frame = frames.remove(frame) else { return advance() }
    // A user appears once for each channel.
    var failed: [Int] = []
    frame.forEach { failed.append($0.user) }
    for user in failed { fail(user, problem) }
    return advance()
  }

  /// Handle a page of a channel's unread threads from user_threads.
  mutating func threadsListed(_ mark: Int, _ reader: inout FieldReader) throws(WireError) -> [Action] {
    try marks.threadsListed(mark, &reader)
    return after(marks.nextThread(mark))
  }

  /// Handle the reply to a thread's mark_read.
  mutating func threadMarked(_ mark: Int) -> [Action] { after(marks.threadMarked(mark)) }

  /// Handle the result of marking a channel; nil: it succeeded.
  mutating func marked(_ mark: Int, _ code: ProblemCode?) -> [Action] {
    if code == .tokenRevoked { problem = problem ?? Problem(.tokenRevoked) }
    return after(marks.marked(mark, code))
  }

  /// Continue after a mark; nil: its channel is done.
  private mutating func after(_ action: Action?) -> [Action] {
    guard problem == nil, let action else { return advance() }
    return [action]
  }

  /// Handle the list that locates the next page's start.
  mutating func located(_ reader: inout FieldReader) throws(WireError) -> [Action] {
    try page?.located(&reader)
    return advance()
  }

  /// Handle the read state of a channel on the page.
  mutating func readStateReceived(_ channel: Int, _ reader: inout FieldReader) throws(WireError) -> [Action] {
    try page?.readStateReceived(channel, user: users[0].id, &reader)
    return advance()
  }

  /// Handle a failed look-up of a channel of the page, or of the next page's start.
  mutating func readStateFailed(_ problem: Problem) -> [Action] {
    switch problem.code {
    case .channelNotFound, .memberNotFound: page?.channelNotFound()
    default: fail(0, problem)
    }
    return advance()
  }

  // MARK: -

  /// Fail one user. The whole scan fails with an only user, or with a revoked token.
  private mutating func fail(_ user: Int, _ problem: Problem) {
    if users[user].problem == nil { users[user].problem = problem }
    if problem.code == .tokenRevoked || users.count == 1 { self.problem = self.problem ?? problem }
  }

  private mutating func addChannel(_ cid: RawSpan, row: UInt32, _ user: Int, pagePosition: Int?) {
    switch work {
    case .markRead: marks.append(cid.bytes)
    case .count, .announce:
      let shard = Int(ShardID.owning(cid, count: shardCount).rawValue)
      frames.append(CountFrames.Channel(user: user, pagePosition: pagePosition, cid: cid, row: row), shard: shard)
    }
  }

  /// Start whatever the limits allow.
  private mutating func advance() -> [Action] {
    guard problem == nil else { return [] }
    var actions: [Action] = []
    sendReady(&actions)
    while hasRoom, listsInFlight < Self.listsMax, let user = due.popLast() {
      guard users[user].problem == nil else { continue }
      listsInFlight += 1
      actions.append(.list(user: user))
    }
    // After the last list, partly filled frames are sent.
    if frames.heldCount > Self.heldMax || frames.heldCount > 0 && listsInFlight == 0 && due.isEmpty {
      frames.closeAll()
      sendReady(&actions)
    }
    while let mark = marks.next(inFlightMax: Self.marksMax) { actions.append(.mark(mark)) }
    if isScanComplete, let lookUps = page?.beginDetails() { actions += lookUps }
    return actions
  }

  private mutating func sendReady(_ actions: inout [Action]) {
    while let frame = frames.next(inFlightMax: Self.framesMax) {
      actions.append(work == .announce ? .announce(frame: frame) : .count(frame: frame))
    }
  }

  /// Whether more channels may be listed.
  private var hasRoom: Bool {
    switch work {
    case .count, .announce: !frames.hasReady
    case .markRead: marks.queuedCount < Self.marksMax
    }
  }
}

/// The unread totals of one user over all their channels (R14).
struct UnreadTotals: Equatable {
  var messages: UInt64 = 0
  /// Channels with unread messages, or flagged unread as a whole.
  var channels: UInt64 = 0
  var threads: UInt64 = 0
  /// Unread messages and replies that mention the user.
  var mentions: UInt64 = 0

  /// Add a channel's counts. Muted channels, their threads and their flag are in no total.
  mutating func add(_ counts: UnreadCounts) {
    guard !counts.isMuted else { return }
    messages += UInt64(counts.messages)
    channels += counts.isUnreadChannel ? 1 : 0
    threads += UInt64(counts.threads)
    mentions += UInt64(counts.mentions)
  }
}

extension UnreadCounts {
  /// Whether the channel counts as unread for the user (R14).
  var isUnreadChannel: Bool { !isMuted && (messages > 0 || isFlagged) }
}

extension UserChannelScan.Limits {
  init(_ limits: GatewayLimits) {
    self.init(countedMax: limits.countedChannels, failedMax: limits.failedChannels)
  }
}
