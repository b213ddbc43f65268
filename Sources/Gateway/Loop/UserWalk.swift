internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// Goes over all channels of one user, or of a few: their home shards are asked for the list, page after page, and
/// each channel is counted (R14) or marked read (R13) as it becomes known. A pure state machine: what has to be asked
/// comes out as steps, whose answers go in again, each exactly once.
///
/// Memory does not grow with the number of channels: no page is asked for while enough channels wait, what waits is
/// kept as the bytes of its names, and of those that failed so many are named.
struct UserWalk {
  /// What is done with each channel.
  enum Work: Equatable {
    case count
    case markRead
    /// Those who watch them are told how others see the user's row now (announce_row).
    case announce
  }

  /// What has to be asked.
  enum Step: Equatable {
    /// list_channels of this user, from ``cursor(of:)`` on; its answer is ``listed(_:_:)`` or ``listFailed(_:_:)``.
    case list(user: Int)
    /// unread_counts of these channels, to ``shard(of:)``; its answer is ``counted(_:_:)`` or ``countFailed(_:_:)``.
    case count(frame: Int)
    /// announce_row of these channels, to ``shard(of:)``; its answer is ``announced(_:)`` or ``countFailed(_:_:)``.
    case announce(frame: Int)
    /// mark_read of ``channel(of:)``; its answer is ``marked(_:_:)``.
    case mark(Int)
    /// user_threads of ``channel(of:)``, the unread ones from ``threadCursor(of:)`` on; its answer is
    /// ``threadsListed(_:_:)`` or ``marked(_:_:)``.
    case threads(Int)
    /// mark_read of ``thread(of:)`` in ``channel(of:)``; its answer is ``threadMarked(_:)`` or ``marked(_:_:)``.
    case markThread(Int)
    /// list_channels of the only user, for ``UnreadPage``; its answer is ``located(_:)`` or ``lookFailed(_:)``.
    case locate(cursor: UInt64?, limit: Int)
    /// read_state of that channel of the page, as the user sees it; its answer is ``looked(_:_:)`` or
    /// ``lookFailed(_:)``.
    case detail(Int)
  }

  /// Entries of one list_channels, and channels of one unread_counts at most (Proto/frames.md).
  static let listMax = 1_000
  static let frameMax = 1_024
  /// Lists under way at once; a user's own pages come one after the other.
  static let listsMax = 16
  /// unread_counts under way at once.
  static let framesMax = 16
  /// Channels that wait for their frame to fill; beyond it frames leave as they are.
  static let heldMax = 4_096
  /// mark_read under way at once.
  static let marksMax = 256

  /// What ends or shortens a walk.
  struct Limits: Equatable {
    /// Channels of one walk that counts; whoever has more is told so. Marking goes on to the end.
    var countedMax = 100_000
    /// Channels that are named as failed.
    var failedMax = 1_000
  }

  struct User {
    let id: [UInt8]
    /// From where the list goes on; nil: its beginning.
    fileprivate(set) var cursor: UInt64?
    fileprivate(set) var totals = UnreadTotals()
    /// Why there is no answer about them.
    fileprivate(set) var problem: Problem?
  }

  /// Channels of one shard: for each a varint of the user's place, one of its place on the page plus 1 (0: it is not
  /// for the page), string cid, varint row.
  private struct Frame {
    var shard: Int
    var count = 0
    var bytes = ByteBuffer()
  }

  let work: Work
  private let limits: Limits
  private let shardCount: Int
  private(set) var users: [User]
  /// Whose next list frame may be asked for; the next one last.
  private var due: [Int]
  private var listsInFlight = 0
  /// Channels listed so far.
  private var channelCount = 0
  /// The whole walk is over, whatever is still under way.
  private(set) var problem: Problem?

  // Counting.
  /// By shard; allocated with the first channel of each.
  private var filling: [Frame] = []
  private var heldCount = 0
  /// Filled, or as full as they will be.
  private var ready: [Frame] = []
  private var sent: [Int: Frame] = [:]
  private var nextFrame = 0
  /// The channels to be shown; nil: only the totals are asked for.
  private(set) var page: UnreadPage?

  // Marking.
  private var queue: [[UInt8]] = []
  private var marking: [Int: [UInt8]] = [:]
  /// Unread threads are marked read too.
  private let includesThreads: Bool
  /// Of a channel that is marked itself: its threads.
  private var threads: [Int: ThreadMarks] = [:]
  private var nextMark = 0
  /// Channels marked read without an error.
  private(set) var markedCount = 0
  /// Strings, one after the other: the channels that could not be, as many of them as are named.
  private(set) var failed = ByteBuffer()
  private(set) var failedCount = 0

  /// - Parameters:
  ///   - users: one to mark or to show a page of; at most 100 to count.
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
    self.includesThreads = includesThreads
    due = Array(users.indices.reversed())
    if work != .markRead { filling = (0..<shardCount).map { Frame(shard: $0) } }
  }

  /// Nothing is left to ask or to wait for.
  var isDone: Bool {
    problem != nil || hasGoneOver && !(page?.isWaiting ?? false)
  }

  /// All channels are listed, counted, marked.
  private var hasGoneOver: Bool {
    listsInFlight == 0 && due.isEmpty && sent.isEmpty && ready.isEmpty && heldCount == 0 && marking.isEmpty
      && queue.isEmpty
  }

  /// More failed than are named.
  var hasMoreFailed: Bool { failedCount > limits.failedMax }

  /// Something was changed, or may have been.
  var hasMarked: Bool { work == .markRead && nextMark > 0 }

  /// The unread threads of a channel, one after the other.
  private struct ThreadMarks {
    /// Those listed and not marked yet; the next one last.
    var parents: [[UInt8]] = []
    /// From where the list goes on; nil: its end, or its beginning.
    var cursor: UInt32?
  }

  // MARK: What the steps need

  func cursor(of user: Int) -> UInt64? { users[user].cursor }
  func shard(of frame: Int) -> ShardID { ShardID(UInt16(sent[frame]?.shard ?? 0)) }
  func channel(of mark: Int) -> [UInt8] { marking[mark] ?? [] }
  func threadCursor(of mark: Int) -> UInt32? { threads[mark]?.cursor }
  /// The parent message of the thread that is marked next.
  func thread(of mark: Int) -> [UInt8] { threads[mark]?.parents.last ?? [] }

  /// unread_counts, whole.
  func writeCounts(_ frame: Int, into buffer: inout ByteBuffer) {
    guard let frame = sent[frame] else { return }
    buffer.writeVarint(frame.count)
    do throws(WireError) { try write(frame, into: &buffer) } catch {
      preconditionFailure("a frame of our own does not parse: \(error)")
    }
  }

  /// announce_row, behind the user.
  func writeAnnouncement(_ frame: Int, into buffer: inout ByteBuffer) {
    guard let frame = sent[frame] else { return }
    buffer.writeVarint(frame.count)
    do throws(WireError) { try Self.writeChannels(of: frame, into: &buffer) } catch {
      preconditionFailure("a frame of our own does not parse: \(error)")
    }
  }

  private static func writeChannels(of frame: Frame, into buffer: inout ByteBuffer) throws(WireError) {
    var reader = FieldReader(frame.bytes.readableBytesSpan)
    for _ in 0..<frame.count {
      _ = try reader.varint()
      _ = try reader.varint()
      buffer.writeField(try reader.string())
      _ = try reader.varint()
    }
  }

  private func write(_ frame: Frame, into buffer: inout ByteBuffer) throws(WireError) {
    var reader = FieldReader(frame.bytes.readableBytesSpan)
    for _ in 0..<frame.count {
      let user = users[Int(try reader.varint())].id
      _ = try reader.varint()
      buffer.writeField(try reader.string())
      buffer.writeField(user.span.bytes)
      buffer.writeVarint(try reader.varint())
    }
  }

  /// Whose channels are in a frame, each user once for each.
  private static func users(of frame: Frame) throws(WireError) -> [Int] {
    var reader = FieldReader(frame.bytes.readableBytesSpan)
    var users: [Int] = []
    for _ in 0..<frame.count {
      users.append(Int(try reader.varint()))
      _ = try reader.varint()
      _ = try reader.string()
      _ = try reader.varint()
    }
    return users
  }

  // MARK: Events

  /// Begins.
  mutating func begin() -> [Step] { advance() }

  /// A page of a user's channels, as list_channels answers.
  mutating func listed(_ user: Int, _ reader: inout FieldReader) throws(WireError) -> [Step] {
    listsInFlight -= 1
    if users[user].problem != nil { return advance() }
    let from = users[user].cursor
    let isWanted = page?.beginFrame(from: from, order: channelCount) ?? false
    for _ in 0..<(try reader.count(elementBytesMin: ChannelEntryFields.byteCountMin)) {
      let cid = try reader.string()
      let row = try reader.optional32() ?? 0
      let isMember = try reader.byte() == 1
      _ = try reader.time()
      if !isMember { continue }
      if page?.start != nil {
        let name = cid.withUnsafeBytes { Array($0) }
        guard page?.isNew(name, isWanted: isWanted) ?? true else { continue }
      }
      take(cid, row: row, user, place: isWanted ? channelCount : nil)
      channelCount += 1
    }
    let next = try reader.optional()
    try reader.end()
    // A list that does not go on would be asked for without end.
    if let next, next <= (from ?? 0) { throw .badValue(.count) }
    if work == .count, channelCount > limits.countedMax {
      let detail = "a request goes over at most \(limits.countedMax) channels"
      fail(user, Problem(.limitReached, detail))
    } else if let next, page?.goesOn(from: next) ?? true {
      users[user].cursor = next
      due.append(user)
    } else if next == nil, page?.wrap() ?? false {
      // What stands before the page's start counts too.
      users[user].cursor = nil
      due.append(user)
    }
    return advance()
  }

  /// The home shard did not say.
  mutating func listFailed(_ user: Int, _ problem: Problem) -> [Step] {
    listsInFlight -= 1
    fail(user, problem)
    return advance()
  }

  /// What is unread in the channels of a frame, as unread_counts answers.
  mutating func counted(_ frame: Int, _ reader: inout FieldReader) throws(WireError) -> [Step] {
    guard let frame = sent.removeValue(forKey: frame) else { throw .badValue(.count) }
    guard try reader.count() == frame.count else { throw .badValue(.count) }
    var channels = FieldReader(frame.bytes.readableBytesSpan)
    for _ in 0..<frame.count {
      let user = Int(try channels.varint())
      let place = try channels.optional()
      let cid = try channels.string()
      _ = try channels.varint()
      switch try UnreadCountFields(&reader) {
      case .found(let counts):
        users[user].totals.add(counts)
        if let place, counts.isUnreadChannel {
          let name = cid.withUnsafeBytes { Array($0) }
          page?.note(name, place: Int(place))
        }
      // The index may be behind: what is no channel of theirs any more has nothing unread.
      case .refused(.channelNotFound), .refused(.notAMember): break
      case .refused: fail(user, Problem(.storeUnavailable))
      }
    }
    try reader.end()
    return advance()
  }

  /// Whoever watches the channels of a frame has been told.
  mutating func announced(_ frame: Int) -> [Step] {
    sent[frame] = nil
    return advance()
  }

  /// A shard did not say: a total without its channels would be a wrong one.
  mutating func countFailed(_ frame: Int, _ problem: Problem) -> [Step] {
    guard let frame = sent.removeValue(forKey: frame) else { return advance() }
    do throws(WireError) {
      for user in try Self.users(of: frame) { fail(user, problem) }
    } catch {
      preconditionFailure("a frame of our own does not parse: \(error)")
    }
    return advance()
  }

  /// Some of a channel's unread threads, as user_threads answers.
  mutating func threadsListed(_ mark: Int, _ reader: inout FieldReader) throws(WireError) -> [Step] {
    var listed = ThreadMarks()
    for _ in 0..<(try reader.count()) {
      _ = try reader.sequence()
      listed.parents.append(try reader.string().withUnsafeBytes { Array($0) })
      _ = try reader.varint32()
      for _ in 0..<3 { _ = try reader.string() }
    }
    listed.parents.reverse()
    let next = try reader.optional32()
    try reader.end()
    if let next, next >= (threads[mark]?.cursor ?? .max) { throw .badValue(.count) }
    listed.cursor = next
    threads[mark] = listed
    return nextThread(mark)
  }

  /// A thread was marked read.
  mutating func threadMarked(_ mark: Int) -> [Step] {
    threads[mark]?.parents.removeLast()
    return nextThread(mark)
  }

  private mutating func nextThread(_ mark: Int) -> [Step] {
    guard problem == nil, let left = threads[mark] else { return [] }
    if !left.parents.isEmpty { return [.markThread(mark)] }
    return left.cursor == nil ? marked(mark, nil) : [.threads(mark)]
  }

  /// A channel was marked read, or why it was not.
  mutating func marked(_ mark: Int, _ code: ProblemCode?) -> [Step] {
    if code == nil, includesThreads, problem == nil, marking[mark] != nil, threads[mark] == nil {
      threads[mark] = ThreadMarks()
      return [.threads(mark)]
    }
    // The thread went with its parent.
    if code == .messageDeleted, threads[mark]?.parents.isEmpty == false { return threadMarked(mark) }
    threads[mark] = nil
    guard let cid = marking.removeValue(forKey: mark) else { return advance() }
    switch code {
    case nil: markedCount += 1
    // Theirs no more, which the index did not know yet.
    case .channelNotFound, .memberNotFound: break
    case .tokenRevoked: problem = problem ?? Problem(.tokenRevoked)
    default:
      if failedCount < limits.failedMax { failed.writeField(cid.span.bytes) }
      failedCount += 1
    }
    return advance()
  }

  /// Where the next page starts.
  mutating func located(_ reader: inout FieldReader) throws(WireError) -> [Step] {
    try page?.located(&reader)
    return advance()
  }

  /// How the user stands in a channel of the page.
  mutating func looked(_ channel: Int, _ reader: inout FieldReader) throws(WireError) -> [Step] {
    try page?.looked(channel, user: users[0].id, &reader)
    return advance()
  }

  /// A channel of the page, or where the next one starts, could not be looked up.
  mutating func lookFailed(_ problem: Problem) -> [Step] {
    switch problem.code {
    case .channelNotFound, .memberNotFound: page?.gone()
    default: fail(0, problem)
    }
    return advance()
  }

  // MARK: -

  /// One user has no answer; with the last of them the walk is over.
  private mutating func fail(_ user: Int, _ problem: Problem) {
    if users[user].problem == nil { users[user].problem = problem }
    if problem.code == .tokenRevoked || users.count == 1 { self.problem = self.problem ?? problem }
  }

  private mutating func take(_ cid: RawSpan, row: UInt32, _ user: Int, place: Int?) {
    switch work {
    case .markRead: queue.append(cid.withUnsafeBytes { Array($0) })
    case .count, .announce:
      let shard = Int(ShardID.owning(cid, count: shardCount).rawValue)
      filling[shard].count += 1
      heldCount += 1
      filling[shard].bytes.writeVarint(user)
      filling[shard].bytes.writeOptional(place.map { UInt64($0) })
      filling[shard].bytes.writeField(cid)
      filling[shard].bytes.writeVarint(row)
      if filling[shard].count == Self.frameMax { close(shard) }
    }
  }

  private mutating func close(_ shard: Int) {
    guard filling[shard].count > 0 else { return }
    heldCount -= filling[shard].count
    ready.append(filling[shard])
    filling[shard] = Frame(shard: shard)
  }

  /// Begins what may be begun.
  private mutating func advance() -> [Step] {
    guard problem == nil else { return [] }
    var steps: [Step] = []
    sendReady(&steps)
    while hasRoom, listsInFlight < Self.listsMax, let user = due.popLast() {
      guard users[user].problem == nil else { continue }
      listsInFlight += 1
      steps.append(.list(user: user))
    }
    // When all lists are through, what is left leaves as it is.
    if heldCount > Self.heldMax || heldCount > 0 && listsInFlight == 0 && due.isEmpty {
      for shard in filling.indices { close(shard) }
      sendReady(&steps)
    }
    while marking.count < Self.marksMax, let cid = queue.popLast() {
      marking[nextMark] = cid
      steps.append(.mark(nextMark))
      nextMark += 1
    }
    if hasGoneOver, let looking = page?.look() { steps += looking }
    return steps
  }

  private mutating func sendReady(_ steps: inout [Step]) {
    while sent.count < Self.framesMax, let frame = ready.popLast() {
      sent[nextFrame] = frame
      steps.append(work == .announce ? .announce(frame: nextFrame) : .count(frame: nextFrame))
      nextFrame += 1
    }
  }

  /// Whether more channels may be listed.
  private var hasRoom: Bool {
    switch work {
    case .count, .announce: ready.isEmpty
    case .markRead: queue.count < Self.marksMax
    }
  }
}

/// What is unread for one user in all their channels (R14).
struct UnreadTotals: Equatable {
  var messages: UInt64 = 0
  /// Channels with unread messages, or flagged unread as a whole.
  var channels: UInt64 = 0
  var threads: UInt64 = 0
  /// Unread messages and replies that mention the user.
  var mentions: UInt64 = 0

  /// Muted channels, with their threads and the flag, are in no total.
  mutating func add(_ counts: UnreadCounts) {
    guard !counts.isMuted else { return }
    messages += UInt64(counts.messages)
    channels += counts.isUnreadChannel ? 1 : 0
    threads += UInt64(counts.threads)
    mentions += UInt64(counts.mentions)
  }
}

extension UnreadCounts {
  /// Whether the channel is one of those that a user has unread (R14).
  fileprivate var isUnreadChannel: Bool { !isMuted && (messages > 0 || isFlagged) }
}
