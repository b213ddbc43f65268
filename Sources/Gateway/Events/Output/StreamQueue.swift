internal import NIOCore
internal import ReceiptModel

/// The queue of a stream whose client reads more slowly than events occur. It keeps the latest event of each key, in
/// order, at most ``entriesMax``. On overflow all entries are dropped for one `stream.reset`, which tells the client to
/// query its state again; later events are queued again.
///
/// Each entry has an id, which says that all events up to it were written *before or with* the entry. An entry replaced
/// in place therefore keeps its older id; an entry that moves to the end takes the newer one.
struct StreamQueue {
  /// Identifies the state that an entry describes: a later entry with the same key supersedes it.
  struct Key: Hashable, Sendable {
    /// The kinds of entries, with their order rules against others of the same channel, thread and subject.
    enum Kind: UInt8, Sendable {
      /// Rising positions. Replaced in place, unless the queue has a later entry that the new one depends on: a `row`,
      /// the user's leave or join, messages of the channel, or, for `read`, a `delivered`.
      case read
      case delivered
      /// The whole row; supersedes `read` and `delivered`.
      case row
      /// The user's own marks. Replaced in place likewise, with the other kind of mark instead of a `row`.
      case markRead
      case markUnread
      /// Replaced in place.
      case totals
      /// One entry per message. Replaced in place, unless the queue has a later join or leave of the channel, which may
      /// be the sender's: the message also moves its sender's positions.
      case messageNew
      /// One entry per message. Replaced in place.
      case messageDeleted
      /// One user's acknowledgement of one message. Moves to the end: each entry has the count so far.
      case receipt
      /// A run of messages. Moves to the end: runs may overlap.
      case status
      /// Only the latest counts. Moves to the end.
      case truncated
      case updated
      case member
      /// Supersedes all earlier entries about the channel.
      case channelDeleted
      /// Replaces all dropped entries.
      case reset
    }

    var kind: Kind
    var cid: ExactText
    var thread: ExactText
    /// A user, a message or a run of messages.
    var subject: ExactText

    init(_ kind: Kind, cid: String = "", thread: String = "", subject: String = "") {
      self.kind = kind
      self.cid = ExactText(cid)
      self.thread = ExactText(thread)
      self.subject = ExactText(subject)
    }

    fileprivate func with(_ kind: Kind) -> Key {
      var key = self
      key.kind = kind
      return key
    }

    /// Whether the entry adds or removes messages.
    fileprivate var isOfMessages: Bool {
      switch kind {
      case .messageNew, .messageDeleted, .truncated: true
      default: false
      }
    }

    /// The key of the user's join or leave of the channel, which also governs their rows in its threads.
    fileprivate var membership: Key { Key(.member, cid: cid.text, subject: subject.text) }
  }

  struct Entry {
    var key: Key
    /// The event without its id.
    var bytes: ByteBuffer
    /// Nil: the event has no id.
    var id: Timestamp?

    /// Approximate memory use in bytes: the tables beside the entry take as much as four slots of 40 bytes.
    var heldBytes: Int {
      let keyBytes = key.cid.text.utf8.count + key.thread.text.utf8.count + key.subject.text.utf8.count
      return 160 + bytes.readableBytes + keyBytes
    }
  }

  /// Result of adding an entry.
  enum Outcome: Equatable {
    case kept
    /// An older entry with the same key was replaced.
    case conflated
    /// All entries, including this one, were dropped; only the reset is queued.
    case overflowed
  }

  static let entriesMax = 1_024

  /// In order; nil where an entry was removed or moved.
  private var entries: [Entry?] = []
  /// Index of the first slot that may hold an entry.
  private var head = 0
  /// Number of entries.
  private(set) var count = 0
  private var indexes: [Key: Int] = [:]
  /// Index of the last event about messages, by cid.
  private var messageIndexes: [ExactText: Int] = [:]
  /// Index of the last join or leave, by cid.
  private var memberIndexes: [ExactText: Int] = [:]

  /// Approximate memory use of all entries in bytes.
  private(set) var byteCount = 0

  init() {}

  var isEmpty: Bool { count == 0 }

  /// Add an event.
  ///
  /// - Parameter reset: encodes the event that replaces everything on overflow.
  mutating func put(_ entry: Entry, reset: () -> ByteBuffer) -> Outcome {
    let key = entry.key
    if key.kind == .channelDeleted { drop { $0.cid == key.cid } }
    if key.kind == .row {
      remove(key.with(.read))
      remove(key.with(.delivered))
    }
    if let index = indexes[key], canReplaceInPlace(key, index) {
      byteCount += entry.bytes.readableBytes - (entries[index]?.bytes.readableBytes ?? 0)
      entries[index]?.bytes = entry.bytes
      return .conflated
    }
    let existed = remove(key)
    guard count < Self.entriesMax else {
      overflow(reset(), id: entry.id)
      return .overflowed
    }
    append(entry)
    return existed ? .conflated : .kept
  }

  /// Remove the oldest entry.
  mutating func pop() -> Entry? {
    while head < entries.count {
      let entry = entries[head]
      entries[head] = nil
      head += 1
      guard let entry else { continue }
      indexes[entry.key] = nil
      count -= 1
      byteCount -= entry.heldBytes
      if count == 0 { self = StreamQueue() }
      return entry
    }
    return nil
  }

  /// Put a removed entry back at the front.
  mutating func requeueFront(_ entry: Entry) {
    if head > 0 {
      head -= 1
      entries[head] = entry
      indexes[entry.key] = head
      count += 1
      byteCount += entry.heldBytes
    } else if entries.isEmpty {
      append(entry)
    } else {
      preconditionFailure("only what was taken out is put back")
    }
  }

  /// Replace all entries with a reset.
  mutating func overflow(_ reset: ByteBuffer, id: Timestamp?) {
    self = StreamQueue()
    append(Entry(key: Key(.reset), bytes: reset, id: id))
  }

  /// Whether a reset is queued.
  var isReset: Bool { indexes[Key(.reset)] != nil }

  /// Return whether a newer entry may replace the older one in place: no entry in between depends on their order.
  private func canReplaceInPlace(_ key: Key, _ index: Int) -> Bool {
    switch key.kind {
    case .read:
      !isQueuedAfter(key.with(.row), index) && !isQueuedAfter(key.with(.delivered), index)
        && hasNoDependentEntryAfter(key, index)
    case .delivered: !isQueuedAfter(key.with(.row), index) && hasNoDependentEntryAfter(key, index)
    case .markRead: !isQueuedAfter(key.with(.markUnread), index) && hasNoDependentEntryAfter(key, index)
    case .markUnread: !isQueuedAfter(key.with(.markRead), index) && hasNoDependentEntryAfter(key, index)
    case .messageNew: memberIndexes[key.cid, default: index] <= index
    case .totals, .messageDeleted: true
    case .row, .receipt, .status, .truncated, .updated, .member, .channelDeleted, .reset: false
    }
  }

  /// Return whether neither messages of the channel nor the user's membership stand after the entry.
  private func hasNoDependentEntryAfter(_ key: Key, _ index: Int) -> Bool {
    !isQueuedAfter(key.membership, index) && messageIndexes[key.cid, default: index] <= index
  }

  private func isQueuedAfter(_ key: Key, _ index: Int) -> Bool { indexes[key].map { $0 > index } ?? false }

  private mutating func append(_ entry: Entry) {
    // Slots of removed and moved entries must not accumulate.
    if entries.count >= 2 * Self.entriesMax { compact() }
    setIndexes(entry.key, entries.count)
    entries.append(entry)
    count += 1
    byteCount += entry.heldBytes
  }

  @discardableResult
  private mutating func remove(_ key: Key) -> Bool {
    guard let index = indexes.removeValue(forKey: key) else { return false }
    byteCount -= entries[index]?.heldBytes ?? 0
    entries[index] = nil
    count -= 1
    return true
  }

  private mutating func drop(where matches: (Key) -> Bool) {
    for index in head..<entries.count {
      if let key = entries[index]?.key, matches(key) { remove(key) }
    }
  }

  private mutating func compact() {
    let kept = entries[head...].compactMap { $0 }
    entries = kept
    head = 0
    messageIndexes = [:]
    memberIndexes = [:]
    for (index, entry) in kept.enumerated() { setIndexes(entry.key, index) }
  }

  private mutating func setIndexes(_ key: Key, _ index: Int) {
    indexes[key] = index
    if key.isOfMessages { messageIndexes[key.cid] = index }
    if key.kind == .member { memberIndexes[key.cid] = index }
  }
}
