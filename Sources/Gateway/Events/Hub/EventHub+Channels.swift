internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// Subscriptions to channels, and their replies.
extension EventHub {
  // MARK: Streams and channels

  func isAttached(_ ref: Ref, _ cid: String) -> Bool {
    index(ofChannel: cid).map { attachments.isAttached(ref, $0) } ?? false
  }

  /// Return the index of a channel, added if new; nil: the limit is reached.
  mutating func findOrInsert(channel cid: String) -> ChannelIndex? {
    if let index = index(ofChannel: cid) { return index }
    guard channelCount < limits.channels else { return nil }
    return channels.insert(cid, shard: home(of: cid))
  }

  /// Return when a stream's user joined an attached channel; nil: not attached, or a server's stream.
  func joinedAt(_ ref: Ref, _ channel: ChannelIndex) -> Timestamp? {
    userIndex(of: ref) == nil ? nil : attachments.joinedAt(ref, channel)
  }

  /// Record a join reported by the channel; the user's index reports it a little later.
  mutating func joined(_ user: String, _ cid: String, at time: Timestamp) {
    guard let index = index(ofUser: user), let channel = channels.index(of: cid) else { return }
    for ref in refs(ofUser: index) {
      guard let known = attachments.joinedAt(ref, channel), known < time else { continue }
      attachments.setJoined(ref, channel, at: time)
    }
  }

  /// Attach streams whose user has become a member, and replay events from the join on.
  mutating func attachAndReplay(_ refs: [Ref], _ cid: String, since: Timestamp) {
    var index: ChannelIndex?
    for ref in refs where streams.contains(ref) {
      guard attachments.channelCount(of: ref) < limits.channelsPerStream, let taken = attach(ref, cid, joinedAt: since)
      else {
        fail(ref, Problem(.storeBusy))
        continue
      }
      index = taken
    }
    guard let index else { return }
    subscribeChannels([index], since: since, .attach(refs.filter { streams.contains($0) }))
  }

  // MARK: Channel events

  /// Return the recipients of a subscription's replay.
  func replayRecipients(of frame: Int) -> ReplayRecipients {
    switch frames[frame]?.purpose {
    case .open(let ref): .streams([ref])
    case .attach(let refs): .newMembers(refs)
    case .former(let ref): .formerMember(ref)
    case .resync, .end, nil: .allStreams
    }
  }

  /// Return the part of a channel's replay to deliver. A leading deletion is of an earlier channel of the same name:
  /// the index tells later members of it.
  func eventsToDeliver(_ events: [EventFields], to recipients: ReplayRecipients) -> ArraySlice<EventFields> {
    guard events.count > 1, case .channelDeleted? = events.first else { return events[...] }
    switch recipients {
    case .newMembers: return events.dropFirst()
    case .formerMember(let ref) where hasLeft(ref, events): return events.dropFirst()
    default: return events[...]
    }
  }

  /// Return whether a stream's user has left this channel, and not an earlier one of the same name.
  private func hasLeft(_ ref: Ref, _ events: [EventFields]) -> Bool {
    guard let user = self[ref]?.request.user else { return false }
    return events.contains { event in
      if case .memberRemoved(let removed, _, _) = event { removed.isExactly(user) } else { false }
    }
  }

  /// Return whether a stream gets an event. A user who is leaving, or has left, gets only their removal and the
  /// channel's deletion.
  func receives(_ event: EventFields, _ ref: Ref, channel: ChannelIndex, isFormer: Bool = false) -> Bool {
    guard streams.contains(ref) else { return false }
    guard isFormer || attachments.hasLeaves && attachments.isLeaving(ref, channel) else { return true }
    switch event {
    case .channelDeleted: return true
    case .memberRemoved(let user, _, _): return streams[ref]?.request.user?.isExactly(user) ?? false
    default: return false
    }
  }

  /// Detach streams after an event that ends membership.
  ///
  /// - Parameter later: events of the channel that follow in the same batch.
  mutating func detachAfter(
    _ event: EventFields,
    channel: ChannelIndex,
    to refs: [Ref],
    later: ArraySlice<EventFields>
  ) {
    switch event {
    case .channelDeleted:
      // A server's stream stays attached, since the channel may be created again. Users are attached again if they are
      // members of that one.
      for ref in refs where userIndex(of: ref) != nil {
        detach(ref, channel)
        if !later.isEmpty { relist(ref) }
      }
    case .memberRemoved(let user, let time, _):
      let isBack = later.contains {
        if case .memberAdded(let event) = $0 { event.user.isExactly(user) } else { false }
      }
      guard !isBack, let index = index(ofUser: user) else { return }
      for ref in refs where self.userIndex(of: ref) == index && !hasJoined(ref, channel, since: time) {
        detach(ref, channel)
      }
    default: return
    }
  }

  /// Return whether the user's index has already reported a later join: it is sometimes ahead of the channel. Otherwise
  /// the index will report it.
  private func hasJoined(_ ref: Ref, _ channel: ChannelIndex, since time: Timestamp) -> Bool {
    guard let joinedAt = attachments.joinedAt(ref, channel) else { return false }
    return joinedAt > time && !attachments.isLeaving(ref, channel)
  }

  // MARK: Memberships

  /// Handle a change of a user's membership from their index.
  mutating func membership(user index: UserIndex, _ entry: ChannelEntryFields, at time: Timestamp, isGone: Bool) {
    var joined: [Ref] = []
    for ref in refs(ofUser: index) {
      guard self[ref]?.hasListBegun == true, self[ref]?.named?.contains(ExactText(entry.cid)) ?? true else { continue }
      let channel = self.index(ofChannel: entry.cid).flatMap { attachments.isAttached(ref, $0) ? $0 : nil }
      if !entry.isMember || isGone {
        streams.update(ref) { $0.updateListing { $0.remove(entry.cid) } }
        if let channel { attachments.beginLeave(ref, channel, at: time) }
        continue
      }
      // The list may have passed the channel's position.
      streams.update(ref) { $0.updateListing { $0.append(entry.cid, joinedAt: entry.joinedAt) } }
      if self[ref]?.isOpeningList == true {
        // Events of the channel must follow the reply.
        record(entry, ref)
      } else if let channel, !attachments.isLeaving(ref, channel) {
        attachments.setJoined(ref, channel, at: entry.joinedAt)
      } else {
        joined.append(ref)
      }
    }
    if !joined.isEmpty { attachAndReplay(joined, entry.cid, since: entry.joinedAt) }
  }

  // MARK: Frames

  func shard(of frame: Int) -> ShardID { ShardID(UInt16(frames[frame]?.shard ?? 0)) }
  func cids(of frame: Int) -> [String] {
    (frames[frame]?.channels ?? []).compactMap { channels[$0]?.cid }
  }

  /// Subscribe to channels of one shard. After any reply they count as subscribed: a refusal may be of a request that
  /// was carried out.
  mutating func subscribeChannels(_ indexes: [ChannelIndex], since: Timestamp?, _ purpose: Purpose) {
    for part in Self.parts(of: indexes) {
      guard let shard = channels[part[0]]?.shard else { continue }
      channels.frameAdded(part)
      for ref in purpose.waitingStreams { streams.update(ref) { $0.expectReply() } }
      if purpose == .resync { progress.resyncBegan(shard) }
      frames.append(Frame(shard: shard, channels: part, since: since, purpose: purpose))
    }
    sendDue()
  }

  private mutating func sendDue() {
    while let (number, frame) = frames.nextDue(limit: limits.frames) {
      emit(.subscribe(frame: number, since: frame.since))
    }
  }

  /// Handle a subscription's reply, after its events were delivered.
  mutating func subscribed(_ number: Int, through: Timestamp, isComplete: Bool) {
    guard let frame = frames.remove(number) else { return }
    for index in frame.channels {
      if channels.confirm(index) { progress.subscriptionAdded(frame.shard, through: through) }
      channels.frameEnded(index)
      release(channel: index)
    }
    switch frame.purpose {
    case .open(let ref), .former(let ref):
      if !isComplete { streams.update(ref) { $0.replayIncomplete() } }
      replyReceived(ref)
    case .attach(let refs):
      for ref in refs where streams.contains(ref) {
        if !isComplete { emit(.reset(ref)) }
        replyReceived(ref)
      }
    case .resync:
      if !isComplete { resyncIncomplete(frame) }
      progress.resyncEnded(frame.shard, through: through)
    case .end: break
    }
    sendDue()
  }

  /// Handle a replay too large for one reply: each half is requested separately. For a single channel, its streams are
  /// told to query their state again.
  private mutating func resyncIncomplete(_ frame: Frame) {
    if frame.channels.count > 1 {
      let middle = frame.channels.count / 2
      subscribeChannels(Array(frame.channels[..<middle]), since: frame.since, .resync)
      subscribeChannels(Array(frame.channels[middle...]), since: frame.since, .resync)
      return
    }
    for ref in refs(ofChannel: frame.channels[0]) {
      emit(.reset(ref))
      relist(ref)
    }
  }

  mutating func subscribeFailed(_ number: Int, _ problem: Problem) {
    guard let frame = frames.remove(number) else { return }
    for index in frame.channels { channels.suspectSubscription(index) }
    if let rest = frameToRetry(frame, problem) {
      frames.retry(rest)
    } else {
      for index in frame.channels {
        channels.frameEnded(index)
        release(channel: index)
      }
      switch frame.purpose {
      case .open(let ref), .former(let ref): fail(ref, problem)
      case .attach(let refs): for ref in refs { fail(ref, problem) }
      case .resync, .end: break
      }
    }
    sendDue()
  }

  /// Return the part of a failed frame to retry at the next tick; nil: none. Live streams keep retrying to gain
  /// channels that their user has joined; streams that are not live yet fail.
  private mutating func frameToRetry(_ frame: Frame, _ problem: Problem) -> Frame? {
    guard case .attach(let refs) = frame.purpose else { return frame.purpose == .resync ? frame : nil }
    guard problem.status == 503 else { return nil }
    let live = refs.filter { self[$0]?.isLive == true }
    if live.isEmpty { return nil }
    for ref in refs where self[ref]?.isLive == false { fail(ref, problem) }
    return Frame(shard: frame.shard, channels: frame.channels, since: frame.since, purpose: .attach(live))
  }

  mutating func unsubscribed(_ number: Int) {
    guard let frame = frames.remove(number) else { return }
    for index in frame.channels {
      channels.frameEnded(index)
      if attachments.hasNoStreams(index), channels.removeUnsubscribed(index) { continue }
      release(channel: index)
    }
    sendDue()
  }

  /// Handle a failed unsubscribe, which is retried at the next tick.
  mutating func unsubscribeFailed(_ number: Int) {
    for index in frames[number]?.channels ?? [] { channels.suspectSubscription(index) }
    unsubscribed(number)
  }

  // MARK: Reconnects and timers

  /// Handle a new connection to the store, which has no subscriptions.
  ///
  /// - Parameters:
  ///   - isSame: whether it is the same store as before.
  ///   - shards: the shards that the connection serves; nil: all.
  mutating func connected(shardCount count: Int, isSame: Bool, shards: Set<Int>? = nil) {
    if shardCount != 0, !isSame || count != shardCount {
      for ref in streams.refs {
        // Its events came from another store, for example the one whose backup this was restored from.
        if streams[ref]?.hasBegun == true { emit(.reset(ref)) }
        fail(ref, Problem(.storeUnavailable))
      }
      removeAllSubscriptions()
    }
    progress.setShardCount(count)
    for shard in channels.connected(attachments, shards) { progress.subscriptionRemoved(shard) }
    resync { $0.isLive && shards?.contains($0.shard) != false }
    for index in users.connected(shards) {
      if let user = users[index] { progress.subscriptionRemoved(user.home) }
      for ref in refs(ofUser: index) { relist(ref) }
    }
  }

  /// Handle the loss of a shard's events: they were dropped.
  mutating func lost(_ shard: ShardID) {
    let shard = Int(shard.rawValue)
    guard shard < shardCount else { return }
    resync { $0.isLive && $0.shard == shard }
    for index in users.indexes where users[index]?.home == shard && users[index]?.isLive == true {
      for ref in refs(ofUser: index) { relist(ref) }
    }
  }

  /// Subscribe again to the matching channels that have streams.
  private mutating func resync(where matches: (ChannelSubscriptions.Channel) -> Bool) {
    let indexes = channels.indexes.filter { !attachments.hasNoStreams($0) && (channels[$0].map(matches) ?? false) }
    for (shard, indexes) in byShard(indexes).enumerated() {
      subscribeChannels(indexes, since: progress.through(shard) ?? Timestamp.none, .resync)
    }
  }

  /// Group channels by shard.
  func byShard(_ indexes: [ChannelIndex]) -> [[ChannelIndex]] {
    var byShard: [[ChannelIndex]] = Array(repeating: [], count: shardCount)
    for index in indexes { byShard[channels[index]?.shard ?? 0].append(index) }
    return byShard
  }

  /// End unused subscriptions, retry failed ones, and complete leaves; called once per tick.
  mutating func tick() {
    frames.tick()
    sendDue()
    streams.tick()
    startOpenings()
    attachments.tick()
    while let leave = attachments.popEndedLeave() {
      guard let cid = channels[leave.channel]?.cid else { continue }
      emit(.left(leave.ref, cid: cid, at: leave.at))
      detach(leave.ref, leave.channel)
    }
    unsubscribeIdleChannels()
    unsubscribeIdleUsers()
  }
}
