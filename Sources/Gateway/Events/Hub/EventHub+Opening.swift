internal import ReceiptModel
internal import ReceiptWire

/// Opening, relisting and closing of streams.
extension EventHub {
  /// Add a stream to the queue of openings.
  ///
  /// - Throws: `store_busy` where too many streams are open or waiting.
  mutating func open(_ request: Request) throws(Problem) -> Ref {
    guard shardCount > 0 else { throw Problem(.storeUnavailable) }
    guard streamCount < limits.streams else {
      throw Problem(.storeBusy, "this gateway's limit of open streams is reached; retry, another gateway may have room")
    }
    guard !streams.isFull else { throw Problem(.storeBusy, "too many streams are being opened") }
    let user = request.user.map { findOrInsert(user: $0) }
    if let user, let count = users[user]?.streams.count, count >= limits.streamsPerUser {
      throw Problem(.limitReached, "a user has at most \(limits.streamsPerUser) streams; close some of them")
    }
    let ref = streams.insert(Stream(request, user: user))
    if let user { users.add(ref, to: user) }
    startOpenings()
    return ref
  }

  /// Remove a stream whose client has disconnected or that was ended.
  mutating func close(_ ref: Ref) {
    guard streams.contains(ref) else { return }
    for channel in attachments.channels(of: ref) { detach(ref, channel) }
    if let user = streams[ref]?.user { users.remove(ref, from: user) }
    streams.remove(ref)
    startOpenings()
  }

  /// End a stream because of a problem; the problem is the response if the stream has not begun.
  mutating func fail(_ ref: Ref, _ problem: Problem) {
    guard let stream = self[ref] else { return }
    emit(stream.hasBegun ? .end(ref) : .refuse(ref, problem.code, detail: problem.detail))
    close(ref)
  }

  /// End the user's streams whose tokens were issued before this time.
  mutating func tokensRevoked(user index: UserIndex, before: Timestamp) {
    for ref in refs(ofUser: index) {
      guard let issued = self[ref]?.request.issued, Int64(issued) * 1_000 < before.milliseconds else {
        continue
      }
      fail(ref, Problem(.tokenRevoked))
    }
  }

  // MARK: Users

  /// Return the index of a user, added if new.
  private mutating func findOrInsert(user name: String) -> UserIndex {
    users.index(of: name) ?? users.insert(name, home: home(of: name))
  }

  mutating func userSubscribed(_ index: UserIndex, through: Timestamp) {
    guard let wasLive = users.confirm(index), let user = users[index] else { return }
    if !wasLive { progress.subscriptionAdded(user.home, through: through) }
    for ref in refs(ofUser: index) where self[ref]?.waitsForUser == true { beginList(ref) }
  }

  mutating func userFailed(_ index: UserIndex, _ problem: Problem) {
    guard users.subscribeFailed(index) else { return }
    let refs = refs(ofUser: index).filter { self[$0]?.waitsForUser == true }
    for ref in refs where !retryRelisting(ref, problem) { fail(ref, problem) }
  }

  /// Put a live stream's relisting back into the queue after a temporary failure. False: the failure is not of that
  /// kind.
  private mutating func retryRelisting(_ ref: Ref, _ problem: Problem) -> Bool {
    guard problem.status == 503, streams.retryRelisting(ref) else { return false }
    startOpenings()
    return true
  }

  mutating func userUnsubscribed(_ index: UserIndex) { users.unsubscribed(index, failed: false) }

  /// Handle a failed unsubscribe, which is retried at the next tick if the user still has no streams.
  mutating func userUnsubscribeFailed(_ index: UserIndex) { users.unsubscribed(index, failed: true) }

  // MARK: Openings

  /// Begin the opening or relisting of a stream that has got a slot.
  mutating func begin(_ ref: Ref) {
    guard let stream = self[ref] else { return }
    guard let index = stream.user, let user = users[index] else {
      return subscribe(ref, Listing(named: stream.request.channels ?? []))
    }
    if user.isLive { return beginList(ref) }
    if users.beginSubscribing(index) { emit(.subscribeUser(index: index, name: user.name)) }
  }

  /// List the channels of a stream whose user is subscribed to.
  private mutating func beginList(_ ref: Ref) {
    streams.update(ref) { $0.userSubscribed() }
    list(ref)
  }

  private mutating func list(_ ref: Ref, cursor: UInt64? = nil) {
    guard let stream = self[ref], let user = stream.user.flatMap({ users[$0] }) else { return }
    let since = stream.listResumesFrom.map { membershipStart($0) }
    emit(.list(ref, user: user.name, issued: stream.request.issued, cursor: cursor, since: since))
  }

  /// Handle a page of the user's channels.
  mutating func listed(_ ref: Ref, _ entries: [ChannelEntryFields], next: UInt64?) {
    // Not the stream as a whole: its list, of which this would be a copy, grows below.
    guard let isRelisting = self[ref]?.isLive else { return }
    let named = self[ref]?.named
    for entry in entries where named?.contains(ExactText(entry.cid)) ?? true {
      record(entry, ref)
      guard entry.isMember else { continue }
      streams.update(ref) { $0.updateListing { $0.append(entry.cid, joinedAt: entry.joinedAt) } }
      if !isRelisting { continue }
      if let channel = index(ofChannel: entry.cid), attachments.isAttached(ref, channel),
        !attachments.isLeaving(ref, channel)
      {
        attachments.setJoined(ref, channel, at: entry.joinedAt)
      } else {
        attachAndReplay([ref], entry.cid, since: entry.joinedAt)
      }
    }
    guard let listing = self[ref]?.listing else { return }
    if listing.channels.count > limits.channelsPerStream {
      let detail = "a stream has at most \(limits.channelsPerStream) channels; name some of them"
      return fail(ref, Problem(.limitReached, detail))
    }
    if let next {
      list(ref, cursor: next)
    } else if isRelisting {
      relisted(ref)
    } else {
      openListed(ref, listing)
    }
  }

  /// Record the index's changes for a stream whose list resumes from a time.
  mutating func record(_ entry: ChannelEntryFields, _ ref: Ref) {
    guard let time = self[ref]?.listResumesFrom else { return }
    let start = membershipStart(time)
    streams.update(ref) { $0.updateListing { $0.record(entry, since: start) } }
  }

  /// Return the start of the replay of a user's joins and leaves, for a client that resumes from `time`.
  private func membershipStart(_ time: Timestamp) -> Timestamp {
    Timestamp(milliseconds: max(0, time.milliseconds - limits.membershipMargin))
  }

  /// Handle a failed list. If deletions since the cursor are no longer all known, the stream is told to query its
  /// state again.
  mutating func listFailed(_ ref: Ref, _ problem: Problem) {
    if retryRelisting(ref, problem) { return }
    guard problem.code == .limitReached, self[ref]?.listResumesFrom != nil else { return fail(ref, problem) }
    streams.update(ref) { $0.restartList() }
    list(ref)
  }

  /// Handle the end of a relisting: a channel that is no longer listed was left or is gone.
  private mutating func relisted(_ ref: Ref) {
    guard let relisted = streams.endRelisting(ref) else { return }
    let found = Set(relisted.listing.channels.map { ExactText($0.cid) })
    for channel in attachments.channels(of: ref) {
      guard let cid = channels[channel]?.cid, !found.contains(ExactText(cid)) else { continue }
      attachments.beginLeave(ref, channel, at: time ?? .none)
    }
    if relisted.isStale { relist(ref) }
    startOpenings()
  }

  /// Subscribe to the channels of a user's stream, all of which are listed.
  private mutating func openListed(_ ref: Ref, _ listing: Listing) {
    guard let stream = self[ref] else { return }
    if let named = stream.named, !named.isSubset(of: listing.channels.map { ExactText($0.cid) }) {
      return fail(ref, Problem(stream.request.isServer ? .memberNotFound : .channelNotFound))
    }
    streams.update(ref) { $0.endList() }
    subscribe(ref, listing)
  }

  /// Subscribe to the stream's channels.
  private mutating func subscribe(_ ref: Ref, _ listing: Listing) {
    guard let subscribing = self[ref]?.subscribing else { return }
    let since = subscribing.since
    if since != nil {
      sendHeaders(ref)
      for (cid, time) in listing.deleted { emit(.deleted(ref, cid: cid, at: time)) }
    }
    var indexes: [ChannelIndex] = []
    let found = listing.latestJoins
    for (cid, _) in listing.channels where !isAttached(ref, cid) {
      guard let index = attach(ref, cid, joinedAt: found[ExactText(cid)] ?? Timestamp.none) else {
        return fail(ref, Problem(.storeBusy, "this gateway's limit of subscribed channels is reached"))
      }
      guard let channel = channels[index], since != nil || !channel.isLive,
        listing.joined[ExactText(cid)] == nil
      else { continue }
      indexes.append(index)
    }
    // Counted before the first request is sent: an early reply must not complete the opening.
    streams.update(ref) { $0.expectReply() }
    for indexes in byShard(indexes) { subscribeChannels(indexes, since: since, .open(ref)) }
    for (cid, time) in listing.joined.sorted(by: { $0.key < $1.key }) where found[cid] != nil {
      attachAndReplay([ref], cid.text, since: time)
    }
    if let since {
      let left = listing.left.filter { found[ExactText($0)] == nil }.compactMap { findOrInsert(channel: $0) }
      for indexes in byShard(left) { subscribeChannels(indexes, since: membershipStart(since), .former(ref)) }
    }
    replyReceived(ref)
  }

  /// Send the 200 headers, unless already sent.
  private mutating func sendHeaders(_ ref: Ref) {
    if streams.update(ref, { $0.begin() }) == true { emit(.begin(ref)) }
  }

  /// Handle one of the awaited replies; the last one makes the stream live.
  mutating func replyReceived(_ ref: Ref) {
    guard let opened = streams.replyReceived(ref) else { return }
    if !opened.hasBegun { emit(.begin(ref)) }
    if opened.start == .reset { emit(.reset(ref)) }
    emit(.live(ref))
    if opened.isStale { relist(ref) }
    startOpenings()
  }

  /// List the user's channels again, since changes may have been missed. Until the relisting ends, the stream's events
  /// have no id.
  mutating func relist(_ ref: Ref) {
    guard self[ref]?.user != nil else { return }
    if streams.requestRelisting(ref) { startOpenings() }
  }
}

/// The request for a stream, and the list of its user's channels.
extension EventHub {
  /// The parameters of a stream.
  struct Request {
    /// Nil: a server's stream of named channels.
    var user: String?
    /// Whether a server makes the request.
    var isServer: Bool
    /// When the user's token was issued; see ``Caller``.
    var issued: UInt32?
    /// Nil: all channels of the user.
    var channels: [String]?
    var start: EventCursor.Start

    init(
      user: String?,
      isServer: Bool = false,
      issued: UInt32? = nil,
      channels: [String]? = nil,
      start: EventCursor.Start = .live
    ) {
      self.user = user
      self.isServer = isServer
      self.issued = issued
      self.channels = channels
      self.start = start
    }
  }

  /// The channels of a stream's user, as their index lists them while the stream is opened or relisted.
  struct Listing {
    private(set) var channels: [(cid: String, joinedAt: Timestamp)] = []
    /// Channels left and deleted since the time the stream resumes from.
    private(set) var left: [String] = []
    private(set) var deleted: [(cid: String, at: Timestamp)] = []
    /// Listed channels that the user joined after that time; they are replayed from the join on (R6).
    private(set) var joined: [ExactText: Timestamp] = [:]

    init() {}

    /// The channels that a server's stream names.
    init(named cids: [String]) { channels = cids.map { ($0, .none) } }

    /// The channels by name. The latest join counts of one that was both listed and joined meanwhile.
    var latestJoins: [ExactText: Timestamp] {
      Dictionary(channels.map { (ExactText($0.cid), $0.joinedAt) }) { max($0, $1) }
    }

    mutating func append(_ cid: String, joinedAt: Timestamp) { channels.append((cid, joinedAt)) }

    mutating func remove(_ cid: String) { channels.removeAll { $0.cid.isExactly(cid) } }

    /// Record an entry for a stream that resumes from a time.
    ///
    /// - Parameter start: where the replay of its user's joins begins.
    mutating func record(_ entry: ChannelEntryFields, since start: Timestamp) {
      if entry.deletedAt != .none {
        deleted.append((entry.cid, entry.deletedAt))
      } else if !entry.isMember {
        left.append(entry.cid)
      }
      if entry.isMember, entry.joinedAt > start { joined[ExactText(entry.cid)] = entry.joinedAt }
    }
  }
}
