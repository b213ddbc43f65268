internal import DequeModule
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// Schedule of the counts of users' `notification.totals`. A pure state machine: each user is counted at most once in
/// ``intervalMilliseconds``, in the order of possible changes; the caller limits concurrent counts.
struct TotalsQueue {
  /// A user with streams that want totals.
  private struct User {
    var streams: [EventHub.Ref] = []
    /// Whether the totals may have changed since the last count.
    var isDirty = false
    var isCounting = false
    /// Whether the user is in `resting`: the last count began less than the interval ago.
    var isResting = false

    var isOver: Bool { streams.isEmpty && !isCounting && !isResting }
  }

  /// Proto/openapi.yaml.
  static let intervalMilliseconds: Int64 = 1_000

  private var users: [ExactText: User] = [:]
  /// Users to count, who all have streams.
  private var due = WaitingQueue<ExactText, ExactText>()
  /// Users with the end of their interval, in that order.
  private var resting = Deque<(user: ExactText, until: Int64)>()
  /// Users whose totals are being counted.
  private(set) var countingCount = 0

  init() {}

  /// Number of known users.
  var userCount: Int { users.count }

  func streams(of user: String) -> [EventHub.Ref] { users[ExactText(user)]?.streams ?? [] }

  mutating func add(_ stream: EventHub.Ref, of user: String) {
    users[ExactText(user), default: User()].streams.append(stream)
  }

  mutating func remove(_ stream: EventHub.Ref, of user: String) {
    let user = ExactText(user)
    users[user]?.streams.removeAll { $0 == stream }
    if users[user]?.streams.isEmpty == true { due.cancel(user) }
    forgetIfOver(user)
  }

  /// Record that a user's totals may have changed. Ignored if no stream wants them.
  mutating func changed(_ user: String) {
    let user = ExactText(user)
    guard let known = users[user], !known.streams.isEmpty else { return }
    users[user]?.isDirty = true
    queue(user)
  }

  /// Take the next user to count; report the result with ``counted(_:isDone:)``.
  ///
  /// - Parameter now: milliseconds since 1970.
  mutating func next(at now: Int64) -> String? {
    while let first = resting.first, first.until <= now {
      resting.removeFirst()
      users[first.user]?.isResting = false
      queue(first.user)
      forgetIfOver(first.user)
    }
    guard let user = due.popFirst() else { return nil }
    users[user]?.isDirty = false
    users[user]?.isCounting = true
    users[user]?.isResting = true
    countingCount += 1
    resting.append((user, now + Self.intervalMilliseconds))
    return user.text
  }

  /// Record the end of a count. A failed count is repeated after the interval.
  mutating func counted(_ user: String, isDone: Bool) {
    let user = ExactText(user)
    guard users[user]?.isCounting == true else { return }
    countingCount -= 1
    users[user]?.isCounting = false
    if !isDone { users[user]?.isDirty = true }
    queue(user)
    forgetIfOver(user)
  }

  private mutating func queue(_ user: ExactText) {
    guard let known = users[user], known.isDirty, !known.streams.isEmpty, !known.isCounting, !known.isResting,
      !due.contains(user)
    else { return }
    due.requeue(user, id: user)
  }

  private mutating func forgetIfOver(_ user: ExactText) {
    if users[user]?.isOver == true { users[user] = nil }
  }
}

/// The unread totals of the users whose event streams want them: performs ``TotalsQueue``.
final class TotalsPart: GatewayPart {
  private var queue = TotalsQueue()

  /// Users whose totals are being counted.
  var countingCount: Int { queue.countingCount }

  func opened(_ stream: EventStream) {
    if let user = stream.totalsOf { queue.add(stream.ref, of: user) }
  }

  func closed(_ stream: EventStream) {
    if let user = stream.totalsOf { queue.remove(stream.ref, of: user) }
  }

  /// Let the totals be counted if an event may have changed them for the stream's user.
  ///
  /// - Parameter isOwn: whether the event is the user's own mark.
  func deliver(_ event: EventFields, to stream: EventStream, isOwn: Bool) {
    switch event {
    case .row: if !isOwn { return }
    case .channelUpdated, .status, .receipt: return
    case .messageNew, .messageDeleted, .truncated, .channelDeleted, .memberAdded, .memberRemoved: break
    }
    changed(for: stream)
  }

  /// Let the totals be counted, which may have changed for the stream's user.
  func changed(for stream: EventStream) {
    guard let user = stream.totalsOf else { return }
    queue.changed(user)
    count()
  }

  /// Start the counts that are due, as far as limits allow.
  func count() {
    guard loop.store.shardCount > 0 else { return }
    while queue.countingCount < loop.limits.totalsJobs, loop.userScans.hasRoom,
      let user = queue.next(at: loop.now)
    {
      let count = queue.countingCount
      let scan = UserChannelScan(
        .count,
        users: [Array(user.utf8)],
        shardCount: loop.store.shardCount,
        limits: UserChannelScan.Limits(loop.limits)
      )
      loop.userScans.begin(UserScanJob(.totals(user: user), scan))
      // The store's window is full.
      if queue.countingCount < count { return }
    }
  }

  /// Send counted totals to the user's streams; nil: the count failed.
  func counted(_ user: String, _ totals: UnreadTotals?) {
    queue.counted(user, isDone: totals != nil)
    guard let totals else { return }
    let bytes = Array(user.utf8)
    let block = EventJSON.totals(totals, user: bytes.span.bytes, at: Timestamp(milliseconds: loop.now))
    for ref in queue.streams(of: user) {
      guard let stream = loop.events.table[ref] else { continue }
      loop.events.write(block, stream) { StreamQueue.Key(.totals) }
    }
    count()
  }
}
