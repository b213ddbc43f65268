public import Foundation

extension Tidemark {
  // MARK: Answers from memory

  /// The rows of a place, as they are now; nil: it is not loaded.
  public func readState(_ cid: CID, thread: String? = nil) -> ReadState? {
    entries[Place(cid: cid, thread: thread)]?.state
  }

  /// Number of unread messages; nil: it is not known.
  public func countUnread(_ cid: CID, thread: String? = nil) -> Int? {
    readState(cid, thread: thread)?.unreadCount
  }

  /// Id of the message up to which the user has read; nil: none, or it is not known.
  public func lastReadMessageID(_ cid: CID, thread: String? = nil) -> String? {
    readState(cid, thread: thread)?.own?.lastReadMessageID
  }

  /// Id of the user's first unread message; nil: none, or it is not known.
  public func firstUnreadMessageID(_ cid: CID, thread: String? = nil) -> String? {
    readState(cid, thread: thread)?.own?.firstUnreadMessageID
  }

  /// What was unread when the place was opened, for a divider that stays while it is read. A mark-unread since then
  /// replaces it; nil: the place is not open, or not loaded.
  public func unreadWhenOpened(_ cid: CID, thread: String? = nil) -> UnreadWhenOpened? {
    let place = Place(cid: cid, thread: thread)
    guard let own = entries[place]?.state.own, let opened = openedUnread[place] else { return nil }
    let now = UnreadWhenOpened(
      messageID: own.firstUnreadMessageID,
      count: own.unreadMessages,
      epoch: own.unreadEpoch
    )
    // Only a mark-unread raises the epoch (R4).
    if let opened, now.epoch == opened.epoch || now.messageID == nil { return opened }
    openedUnread[place] = .some(now)
    return now
  }

  /// Which kinds of receipts a place shows (R8); both while the server has told of none.
  public func receiptsShown(_ cid: CID, thread: String? = nil) -> ReceiptsShown {
    readState(cid, thread: thread)?.receiptsShown ?? ReceiptsShown(read: true, delivered: true)
  }

  /// Users who have read a message, in order of their ids; none while the place is not loaded.
  public func readersFor(_ message: Message) -> [String] { entries[message.place]?.state.readers(of: message) ?? [] }

  /// Users who have a message delivered, readers included.
  public func deliveredFor(_ message: Message) -> [String] {
    entries[message.place]?.state.delivered(of: message) ?? []
  }

  /// Users who have a message delivered, and have not read it.
  public func deliveredNotReadFor(_ message: Message) -> [String] {
    entries[message.place]?.state.deliveredNotRead(of: message) ?? []
  }

  /// Whether a member has read a message.
  public func hasUserRead(_ message: Message, user: String) -> Bool {
    entries[message.place]?.state.hasRead(message, user: user) ?? false
  }

  /// What to show beside an own message.
  public func deliveryStatus(_ message: Message) -> DeliveryStatus {
    entries[message.place]?.state.deliveryStatus(of: message) ?? ReadState.localStatus(of: message) ?? .sent
  }

  // MARK: Marks

  /// Mark a place read up to a message: at once, then at most once in the interval, with the furthest message.
  ///
  /// Like all marks it returns when the mark is in the store, also offline. A mark that the server refuses for good is
  /// reported as ``Change/refused(_:)``. Without `messageID` it is the newest message that is known here, or else all.
  public func markRead(_ cid: CID, _ messageID: String? = nil, thread: String? = nil) async {
    await makeRead(Place(cid: cid, thread: thread), messageID).value
  }

  /// Mark a message delivered, with others of the same second. A read of it or a later one makes that needless, and
  /// nothing is sent for a user who hides deliveries.
  public func markDelivered(_ cid: CID, _ messageID: String, thread: String? = nil) async {
    guard showsDeliveries != false else { return }
    let place = Place(cid: cid, thread: thread)
    var mark = Mark(.delivered, place: place, id: messageID)
    mark.seq = entries[place]?.state.seq(of: messageID)
    await add(mark).value
  }

  /// Mark a place unread, from a message or from a time on, or as a whole. Automatic reads of the place stop until it
  /// is opened again.
  public func markUnread(
    _ cid: CID,
    messageID: String? = nil,
    timestamp: Date? = nil,
    thread: String? = nil
  ) async {
    let place = Place(cid: cid, thread: thread)
    unreadByHand.insert(place)
    ownEpochs[place] = nil
    var mark = Mark(.unread, place: place, id: messageID)
    mark.timestamp = timestamp
    mark.epoch = entries[place]?.state.own?.unreadEpoch
    await add(mark).value
  }

  /// Mark all channels read, and all threads if asked.
  public func markAllRead(threads: Bool = false) async {
    var mark = Mark(.readAll)
    mark.threads = threads
    await add(mark).value
  }

  /// Acknowledge messages that ask for it, with a note for the sender.
  public func acknowledge(_ cid: CID, _ messageIDs: [String], note: String? = nil) async {
    var last: Task<Void, Never>?
    for first in stride(from: 0, to: messageIDs.count, by: Outbox.batchMax) {
      var mark = Mark(.acknowledge, place: Place(cid: cid))
      mark.ids = Array(messageIDs[first..<min(first + Outbox.batchMax, messageIDs.count)])
      mark.note = note
      last = add(mark)
    }
    await last?.value
  }

  /// - Returns: A task that ends when the mark is in the store.
  @discardableResult
  func makeRead(_ place: Place, _ messageID: String?) -> Task<Void, Never> {
    let entry = entries[place]
    let id = messageID ?? entry?.state.newest?.id
    var mark = Mark(.read, place: place, id: id)
    mark.seq = entry?.state.seq(of: id)
    mark.epoch = entry?.state.own?.unreadEpoch
    let adding = add(mark)
    guard let entry, entry.state.own != nil else { return adding }
    if id != nil {
      guard entry.state.told > 0, let seq = mark.seq, seq >= entry.state.told else { return adding }
    }
    entry.state.clearUnread()
    changed(entry)
    return adding
  }
}
