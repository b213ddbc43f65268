/// The rows of a place at one moment: who has read, and who has got, which message.
///
/// A value: it answers without waiting, and does not change while a screen is drawn from it.
public struct ReadState: Sendable {
  /// Known messages that are kept, and own numbers whose status is kept.
  static let messagesMax = 1_000

  /// The channel or thread.
  public let place: Place
  /// The user whose client this is.
  public let user: String
  /// Members' rows, by their ids.
  public internal(set) var rows: [String: Row] = [:]
  /// Whether all members' rows are here.
  public internal(set) var isComplete = false

  /// Which kinds of receipts the place shows; both while the server has told of none.
  public internal(set) var receiptsShown = ReceiptsShown(read: true, delivered: true)

  /// Number of the newest message that an event has told.
  var told = 0
  /// When rows were queried last.
  var queriedAt: ContinuousClock.Instant?

  struct KnownMessage {
    var message: RegisteredMessage
    /// Rises with each message that is told.
    var order: Int
  }

  /// Known messages by id.
  private(set) var messages: [String: KnownMessage] = [:]
  private var nextOrder = 0

  struct OwnStatus {
    /// As the server has told it; nil: it has not.
    var told: DeliveryStatus?
    /// Whether it was told while statuses were queried, so that the query's answer may be older.
    var isFresh = false
  }

  /// Own messages by number.
  private(set) var statuses: [Int: OwnStatus] = [:]

  init(place: Place, user: String) {
    self.place = place
    self.user = user
  }

  /// The user's own row.
  public var own: Row? { rows[user] }

  /// Number of unread messages; nil: it is not known.
  public var unreadCount: Int? { own?.unreadMessages }

  // MARK: Messages

  /// Users who have read a message, in order of their ids.
  public func readers(of message: Message) -> [String] { users(message) { $0.hasRead($1) } }

  /// Users who have a message delivered, readers included.
  public func delivered(of message: Message) -> [String] { users(message) { $0.hasDelivered($1) } }

  /// Users who have a message delivered, and have not read it.
  public func deliveredNotRead(of message: Message) -> [String] {
    users(message) { $0.hasDelivered($1) && !$0.hasRead($1) }
  }

  /// Members who count for a message: those who joined before it, without its sender.
  private func users(_ message: Message, where holds: (Row, Int) -> Bool) -> [String] {
    guard let seq = message.seq else { return [] }
    return rows.filter { user, row in
      user != message.user && isExpected(row, seq) && holds(row, seq)
    }.keys.sorted()
  }

  private func isExpected(_ row: Row, _ seq: Int) -> Bool {
    row.joinedSeq < seq || (place.thread != nil && row.hasRead(seq))
  }

  /// Whether a member has read a message.
  public func hasRead(_ message: Message, user: String) -> Bool {
    guard let seq = message.seq, let row = rows[user] else { return false }
    return row.hasRead(seq)
  }

  /// What to show beside an own message.
  public func deliveryStatus(of message: Message) -> DeliveryStatus {
    if let known = Self.localStatus(of: message) { return known }
    guard let seq = message.seq else { return .pending }
    if let told = statuses[seq]?.told { return told }
    let counted = rows.filter { $0.key != user && isExpected($0.value, seq) }.values
    if counted.contains(where: { $0.hasRead(seq) }) { return .read }
    return counted.contains { $0.hasDelivered(seq) } ? .delivered : .sent
  }

  /// The status of a message that the server does not know.
  static func localStatus(of message: Message) -> DeliveryStatus? {
    message.hasFailed ? .failed : message.seq == nil ? .pending : nil
  }

  /// The number of a message; nil: it is not known.
  func seq(of id: String?) -> Int? {
    guard let id else { return nil }
    if let known = messages[id] { return known.message.seq }
    for row in rows.values {
      if row.lastReadMessageID == id { return row.lastReadSeq }
      if row.lastDeliveredMessageID == id { return row.lastDeliveredSeq }
    }
    return nil
  }

  /// The newest known message.
  var newest: RegisteredMessage? { messages.values.max { $0.message.seq < $1.message.seq }?.message }

  /// Ids of known own messages.
  var ownMessageIDs: [String] { messages.values.filter { $0.message.user == user }.map(\.message.id) }

  mutating func know(_ message: RegisteredMessage) {
    guard message.seq > 0 else { return }
    messages[message.id] = KnownMessage(message: message, order: nextOrder)
    nextOrder += 1
    if messages.count > Self.messagesMax, let oldest = messages.min(by: { $0.value.order < $1.value.order }) {
      messages.removeValue(forKey: oldest.key)
    }
  }

  mutating func forget(message id: String) -> RegisteredMessage? { messages.removeValue(forKey: id)?.message }

  /// Forget messages up to a number.
  mutating func forget(upTo seq: Int) {
    messages = messages.filter { $0.value.message.seq > seq }
    statuses = statuses.filter { $0.key > seq }
  }

  // MARK: Statuses

  /// Keep the status of an own message from now on.
  mutating func follow(_ seq: Int, told: DeliveryStatus? = nil) {
    guard statuses[seq] == nil else { return }
    statuses[seq] = OwnStatus(told: told)
    if statuses.count > Self.messagesMax, let oldest = statuses.keys.min() {
      statuses.removeValue(forKey: oldest)
    }
  }

  mutating func forgetStatus(_ seq: Int) { statuses.removeValue(forKey: seq) }

  /// Take the status of a run of own messages from an event.
  mutating func tell(_ status: DeliveryStatus, of range: ClosedRange<Int>) {
    for seq in statuses.keys where range.contains(seq) {
      statuses[seq] = OwnStatus(told: status, isFresh: true)
    }
  }

  /// Take a status from a query's answer, unless an event has told a newer one.
  mutating func apply(_ status: DeliveryStatus, of seq: Int) {
    if statuses[seq]?.isFresh != true { statuses[seq] = OwnStatus(told: status) }
  }

  /// A query of statuses begins: what events tell from now on is newer than its answer.
  mutating func beginStatuses() {
    for seq in statuses.keys { statuses[seq]?.isFresh = false }
  }

  // MARK: Rows

  /// Take the rows of a query.
  mutating func apply(_ rows: [String: Row], isAll: Bool, now: ContinuousClock.Instant) {
    if isAll {
      self.rows = rows
      isComplete = true
    } else {
      self.rows.merge(rows) { _, new in new }
    }
    queriedAt = now
  }

  /// Show the user's own place as read.
  mutating func clearUnread() {
    rows[user]?.unreadMessages = 0
    rows[user]?.unreadMentions = 0
    rows[user]?.markedUnread = false
    rows[user]?.firstUnreadMessageID = nil
  }
}
