internal import NIOCore
internal import ReceiptModel

/// What waits in one stream whose client takes less than there is to tell: the latest of each state, in order, at most
/// ``entriesMax``. Beyond, all of it is dropped, the client is told to ask anew, and what comes after that is kept
/// again.
///
/// An entry's id is given with it. It says that everything up to there was written *before or with* it, so an entry
/// that is replaced where it stands keeps its older id, and one that moves to the end takes the newer.
struct StreamQueue {
  /// What an entry is about: a later one with the same key says all that it said.
  struct Key: Hashable, Sendable {
    /// The kinds of entries, and what each is to others about the same channel, thread and subject.
    enum Kind: UInt8, Sendable {
      /// Rising positions: replaced where they stand, unless something is behind them that the newer follows from: a
      /// `row`, the user's leaving and joining, messages of the channel, and for `read` a `delivered` that is less.
      case read
      case delivered
      /// How a row stands: says all that `read` and `delivered` say.
      case row
      /// The user's own marks: likewise, with the other kind of mark in place of a `row`.
      case markRead
      case markUnread
      /// Always the latest.
      case totals
      /// One message each.
      case messageNew
      case messageDeleted
      /// One user's acknowledgement of one message, behind all others: each says how many there are.
      case receipt
      /// A run of messages, behind all others: they may have messages in common.
      case status
      /// Of which the last counts, behind all before it.
      case truncated
      case updated
      case member
      /// Nothing before it about the channel counts any more.
      case channelDeleted
      /// In place of all that was dropped.
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

    /// It says that a message is there, or is not any more.
    fileprivate var isOfMessages: Bool {
      switch kind {
      case .messageNew, .messageDeleted, .truncated: true
      default: false
      }
    }

    /// That of the user's joining or leaving the channel, which their rows in its threads go by too.
    fileprivate var membership: Key { Key(.member, cid: cid.text, subject: subject.text) }
  }

  struct Entry {
    var key: Key
    /// The event without its id.
    var bytes: ByteBuffer
    /// Nil: it has none.
    var id: Timestamp?
  }

  /// What came of a new entry.
  enum Outcome: Equatable {
    case kept
    /// An older one with the same key gave way.
    case conflated
    /// All others were dropped, and this one; only the reset waits.
    case overflowed
  }

  static let entriesMax = 1_024

  /// In order; nil where one was moved or replaced by others.
  private var entries: [Entry?] = []
  /// The place of the first that may be there.
  private var head = 0
  /// Entries that are there.
  private(set) var count = 0
  private var places: [Key: Int] = [:]
  /// By cid, the last place of an event about its messages.
  private var messagePlaces: [ExactText: Int] = [:]

  init() {}

  var isEmpty: Bool { count == 0 }

  /// Keeps an event.
  ///
  /// - Parameter reset: writes the event that stands for all that is dropped.
  mutating func put(_ entry: Entry, reset: () -> ByteBuffer) -> Outcome {
    let key = entry.key
    if key.kind == .channelDeleted { drop { $0.cid == key.cid } }
    if key.kind == .row {
      remove(key.with(.read))
      remove(key.with(.delivered))
    }
    if let place = places[key], staysInPlace(key, place) {
      entries[place]?.bytes = entry.bytes
      return .conflated
    }
    let wasThere = remove(key)
    guard count < Self.entriesMax else {
      overflow(reset(), id: entry.id)
      return .overflowed
    }
    append(entry)
    return wasThere ? .conflated : .kept
  }

  /// Takes the oldest out.
  mutating func pop() -> Entry? {
    while head < entries.count {
      let entry = entries[head]
      entries[head] = nil
      head += 1
      guard let entry else { continue }
      places[entry.key] = nil
      count -= 1
      if count == 0 { self = StreamQueue() }
      return entry
    }
    return nil
  }

  /// Puts one that was taken out back to the front.
  mutating func putBack(_ entry: Entry) {
    if head > 0 {
      head -= 1
      entries[head] = entry
      places[entry.key] = head
      count += 1
    } else if entries.isEmpty {
      append(entry)
    } else {
      preconditionFailure("only what was taken out is put back")
    }
  }

  /// Drops all for a reset.
  mutating func overflow(_ reset: ByteBuffer, id: Timestamp?) {
    self = StreamQueue()
    append(Entry(key: Key(.reset), bytes: reset, id: id))
  }

  /// Whether the client has yet to be told to ask anew.
  var isReset: Bool { places[Key(.reset)] != nil }

  /// Whether a newer entry may stand where the older one does: nothing that came between them says otherwise.
  private func staysInPlace(_ key: Key, _ place: Int) -> Bool {
    switch key.kind {
    case .read:
      !isBehind(key.with(.row), place) && !isBehind(key.with(.delivered), place) && isFree(key, place)
    case .delivered: !isBehind(key.with(.row), place) && isFree(key, place)
    case .markRead: !isBehind(key.with(.markUnread), place) && isFree(key, place)
    case .markUnread: !isBehind(key.with(.markRead), place) && isFree(key, place)
    case .totals, .messageNew, .messageDeleted: true
    case .row, .receipt, .status, .truncated, .updated, .member, .channelDeleted, .reset: false
    }
  }

  /// Neither messages of the channel nor the user's membership are behind it.
  private func isFree(_ key: Key, _ place: Int) -> Bool {
    !isBehind(key.membership, place) && messagePlaces[key.cid, default: place] <= place
  }

  private func isBehind(_ key: Key, _ place: Int) -> Bool { places[key].map { $0 > place } ?? false }

  private mutating func append(_ entry: Entry) {
    // What was taken out in front, and the holes of those that moved, are not kept for ever.
    if entries.count >= 2 * Self.entriesMax { compact() }
    places[entry.key] = entries.count
    if entry.key.isOfMessages { messagePlaces[entry.key.cid] = entries.count }
    entries.append(entry)
    count += 1
  }

  @discardableResult
  private mutating func remove(_ key: Key) -> Bool {
    guard let place = places.removeValue(forKey: key) else { return false }
    entries[place] = nil
    count -= 1
    return true
  }

  private mutating func drop(_ isMeant: (Key) -> Bool) {
    for place in head..<entries.count {
      if let key = entries[place]?.key, isMeant(key) { remove(key) }
    }
  }

  private mutating func compact() {
    let kept = entries[head...].compactMap { $0 }
    entries = kept
    head = 0
    messagePlaces = [:]
    for (place, entry) in kept.enumerated() {
      places[entry.key] = place
      if entry.key.isOfMessages { messagePlaces[entry.key.cid] = place }
    }
  }
}
