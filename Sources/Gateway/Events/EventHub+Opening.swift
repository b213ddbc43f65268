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
      throw Problem(
        .storeBusy,
        "this gateway's limit of open streams is reached; retry, another gateway may have room"
      )
    }
    guard waitingCount < limits.waiting else {
      throw Problem(.storeBusy, "too many streams are being opened")
    }
    let user = request.user.map { findOrInsert(user: $0) }
    if let user, let count = users[user]?.streams.count, count >= limits.streamsPerUser {
      throw Problem(.limitReached, "a user has at most \(limits.streamsPerUser) streams; close some of them")
    }
    var stream = Stream(request: request, user: user, start: request.start)
    if user != nil, let channels = request.channels { stream.named = Set(channels.map { ExactText($0) }) }
    let ref = streams.insert(stream)
    if let user { users[user]?.streams.append(ref.slot) }
    queue.append(ref)
    startOpenings()
    return ref
  }

  /// Remove a stream whose client has disconnected or that was ended.
  mutating func close(_ ref: Ref) {
    guard let stream = self[ref] else { return }
    if holdsOpeningSlot(stream) { queue.ended() }
    let isWaiting = stream.phase == .waiting || stream.phase == .live && stream.relisting == .waiting
    forget(ref, stream)
    if isWaiting { countClosedWaiting() }
    startOpenings()
  }

  /// Return whether the stream is being opened or relisted.
  private func holdsOpeningSlot(_ stream: Stream) -> Bool {
    switch stream.phase {
    case .waiting: false
    case .subscribingUser, .listing, .subscribing: true
    case .live: stream.relisting == .subscribingUser || stream.relisting == .listing
    }
  }

  /// Count a closed stream that is still in the queue.
  private mutating func countClosedWaiting() {
    guard queue.closed() else { return }
    let streams = streams
    queue.compact { streams.contains($0) }
  }

  private mutating func forget(_ ref: Ref, _ stream: Stream) {
    for channel in stream.attached.keys.sorted() { detach(ref, channel) }
    if let user = stream.user {
      users[user]?.streams.removeAll { $0 == ref.slot }
      release(user: user)
    }
    streams.remove(ref)
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
    users.index(of: name) ?? users.insert(User(name: name, home: home(of: name)), named: name)
  }

  mutating func userSubscribed(_ index: UserIndex, through: Timestamp) {
    guard let user = users[index], user.isSubscribing else { return }
    users[index]?.isSubscribing = false
    users[index]?.mayBeSubscribed = true
    if !user.isLive {
      users[index]?.isLive = true
      progress.subscriptionAdded(user.home, through: through)
    }
    for ref in refs(ofUser: index) where waitsForUser(ref) { list(ref) }
    release(user: index)
  }

  mutating func userFailed(_ index: UserIndex, _ problem: Problem) {
    guard users[index] != nil else { return }
    users[index]?.isSubscribing = false
    users[index]?.mayBeSubscribed = true
    for ref in refs(ofUser: index).filter({ waitsForUser($0) }) where !retryRelisting(ref, problem) {
      fail(ref, problem)
    }
    release(user: index)
  }

  /// Put a live stream's relisting back into the queue after a temporary failure. False: the failure is not of that
  /// kind.
  private mutating func retryRelisting(_ ref: Ref, _ problem: Problem) -> Bool {
    guard problem.status == 503, let stream = self[ref], stream.phase == .live, holdsOpeningSlot(stream)
    else {
      return false
    }
    streams[ref]?.relisting = .waiting
    streams[ref]?.isStale = false
    queue.retry(ref)
    queue.ended()
    startOpenings()
    return true
  }

  mutating func userUnsubscribed(_ index: UserIndex) {
    guard let user = users[index], user.unsubscribesInFlight > 0 else { return }
    users[index]?.unsubscribesInFlight -= 1
    if user.streams.isEmpty, !user.isSubscribing, user.unsubscribesInFlight == 1, !user.isIdle,
      !user.mayBeSubscribed
    {
      forget(user: index)
    } else {
      release(user: index)
    }
  }

  /// Handle a failed unsubscribe, which is retried at the next tick if the user still has no streams.
  mutating func userUnsubscribeFailed(_ index: UserIndex) {
    guard users[index] != nil else { return }
    users[index]?.mayBeSubscribed = true
    userUnsubscribed(index)
  }

  private func waitsForUser(_ ref: Ref) -> Bool {
    guard let stream = self[ref] else { return false }
    return stream.phase == .subscribingUser || stream.relisting == .subscribingUser
  }

  // MARK: Openings

  /// Start waiting openings and relistings, up to the limit. An opening that fails at once calls this again: the nested
  /// call starts none, so that stack depth does not grow with the number of waiting streams.
  mutating func startOpenings() {
    guard !isStartingOpenings else { return }
    isStartingOpenings = true
    defer { isStartingOpenings = false }
    while let ref = queue.next(limit: limits.openings) {
      guard streams.contains(ref) else {
        queue.skipped()
        continue
      }
      begin(ref)
    }
  }

  private mutating func begin(_ ref: Ref) {
    guard let stream = self[ref] else { return }
    streams[ref]?.listing = Listing()
    guard let user = stream.user.flatMap({ users[$0] }), let index = stream.user else {
      for cid in stream.request.channels ?? [] { streams[ref]?.listing.append(cid, joinedAt: .none) }
      return subscribe(ref)
    }
    if stream.phase == .live {
      streams[ref]?.relisting = .subscribingUser
    } else {
      streams[ref]?.phase = .subscribingUser
    }
    if user.isLive { return list(ref) }
    guard !user.isSubscribing else { return }
    users[index]?.isSubscribing = true
    emit(.subscribeUser(index: index, name: user.name))
  }

  private mutating func list(_ ref: Ref, cursor: UInt64? = nil) {
    guard let stream = self[ref], let user = stream.user.flatMap({ users[$0] }) else { return }
    var since: Timestamp?
    if stream.phase == .live {
      streams[ref]?.relisting = .listing
    } else {
      streams[ref]?.phase = .listing
      if case .since(let time) = stream.start { since = membershipStart(time) }
    }
    emit(
      .list(ref, user: user.name, issued: stream.request.issued, cursor: cursor, since: since)
    )
  }

  /// Handle a page of the user's channels.
  mutating func listed(_ ref: Ref, _ entries: [ChannelEntryFields], next: UInt64?) {
    guard let stream = self[ref] else { return }
    let isRelisting = stream.phase == .live
    for entry in entries where stream.named?.contains(ExactText(entry.cid)) ?? true {
      if case .since(let time) = stream.start, !isRelisting { record(entry, ref, since: time) }
      guard entry.isMember else { continue }
      streams[ref]?.listing.append(entry.cid, joinedAt: entry.joinedAt)
      if !isRelisting { continue }
      if let channel = index(ofChannel: entry.cid), isAttached(ref, entry.cid), !isLeaving(ref, channel) {
        streams[ref]?.attached[channel]?.joinedAt = entry.joinedAt
      } else {
        attachAndReplay([ref], entry.cid, since: entry.joinedAt)
      }
    }
    guard let now = self[ref] else { return }
    if now.listing.channels.count > limits.channelsPerStream {
      let detail = "a stream has at most \(limits.channelsPerStream) channels; name some of them"
      return fail(ref, Problem(.limitReached, detail))
    }
    if let next {
      list(ref, cursor: next)
    } else if isRelisting {
      relisted(ref, now)
    } else {
      subscribe(ref)
    }
  }

  /// Record the index's changes for a stream that resumes from a time.
  mutating func record(_ entry: ChannelEntryFields, _ ref: Ref, since time: Timestamp) {
    let start = membershipStart(time)
    streams[ref]?.listing.record(entry, since: start)
  }

  /// Return the start of the replay of a user's joins and leaves, for a client that resumes from `time`.
  private func membershipStart(_ time: Timestamp) -> Timestamp {
    Timestamp(milliseconds: max(0, time.milliseconds - limits.membershipMargin))
  }

  /// Handle a failed list. If deletions since the cursor are no longer all known, the stream is told to query its
  /// state again.
  mutating func listFailed(_ ref: Ref, _ problem: Problem) {
    if retryRelisting(ref, problem) { return }
    guard problem.code == .limitReached, let stream = self[ref], stream.phase == .listing,
      case .since = stream.start
    else { return fail(ref, problem) }
    streams[ref]?.start = .reset
    streams[ref]?.listing = Listing()
    list(ref)
  }

  /// Handle the end of a relisting: a channel that is no longer listed was left or is gone.
  private mutating func relisted(_ ref: Ref, _ stream: Stream) {
    let found = Set(stream.listing.channels.map { ExactText($0.cid) })
    for channel in stream.attached.keys.sorted() {
      guard let cid = channels[channel]?.cid, !found.contains(ExactText(cid)) else { continue }
      beginLeave(ref, channel, at: time ?? .none)
    }
    streams[ref]?.relisting = .none
    streams[ref]?.listing = Listing()
    queue.ended()
    replyReceived(ref)
    if self[ref]?.isStale == true {
      streams[ref]?.isStale = false
      relist(ref)
    }
    startOpenings()
  }

  /// Subscribe to the stream's channels, all of which are now known.
  private mutating func subscribe(_ ref: Ref) {
    guard let stream = self[ref] else { return }
    let listing = stream.listing
    if let named = stream.named, !named.isSubset(of: listing.channels.map { ExactText($0.cid) }) {
      return fail(ref, Problem(stream.request.isServer ? .memberNotFound : .channelNotFound))
    }
    streams[ref]?.phase = .subscribing
    streams[ref]?.listing = Listing()
    var since: Timestamp?
    if case .since(let time) = stream.start { since = time }
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
    streams[ref]?.pending += 1
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
    guard let stream = self[ref], !stream.hasBegun else { return }
    streams[ref]?.hasBegun = true
    emit(.begin(ref))
  }

  /// Handle one of the awaited replies; the last one makes the stream live.
  mutating func replyReceived(_ ref: Ref) {
    guard let stream = self[ref] else { return }
    streams[ref]?.pending -= 1
    guard stream.pending == 1, stream.phase == .subscribing else { return }
    streams[ref]?.phase = .live
    queue.ended()
    sendHeaders(ref)
    if stream.start == .reset { emit(.reset(ref)) }
    emit(.live(ref))
    if stream.isStale {
      streams[ref]?.isStale = false
      relist(ref)
    }
    startOpenings()
  }

  /// List the user's channels again, since changes may have been missed. Until the relisting ends, the stream's events
  /// have no id.
  mutating func relist(_ ref: Ref) {
    guard let stream = self[ref], stream.user != nil else { return }
    switch (stream.phase, stream.relisting) {
    case (.waiting, _), (.subscribingUser, _), (.live, .waiting), (.live, .subscribingUser): return
    case (.listing, _), (.subscribing, _), (.live, .listing): streams[ref]?.isStale = true
    case (.live, .none):
      streams[ref]?.relisting = .waiting
      streams[ref]?.pending += 1
      queue.append(ref)
      startOpenings()
    }
  }
}
