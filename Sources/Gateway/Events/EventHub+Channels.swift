internal import DequeModule
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// What is subscribed to, and what is made of the answers.
extension EventHub {
  // MARK: Streams and channels

  func isAttached(_ ref: Ref, _ cid: String) -> Bool {
    guard let place = place(ofChannel: cid), let stream = self[ref] else { return false }
    return stream.attached[place] != nil
  }

  /// A channel's place; nil: there are too many.
  mutating func take(channel cid: String) -> UInt32? {
    if let place = place(ofChannel: cid) { return place }
    guard channelCount < limits.channels else { return nil }
    let bytes = Array(cid.utf8)
    let shard = Int(ShardID.owning(bytes.span.bytes, count: shardCount).rawValue)
    let place: UInt32
    if let free = freeChannels.popLast() {
      place = free
    } else {
      place = UInt32(channels.count)
      channels.append(nil)
    }
    channels[Int(place)] = Channel(cid: cid, shard: shard)
    channelPlaces[ExactText(cid)] = place
    return place
  }

  /// The stream is told of this channel from here on, and its user is not leaving; nil: there are too many.
  mutating func attach(_ ref: Ref, _ cid: String, joinedAt: Timestamp) -> UInt32? {
    if let place = place(ofChannel: cid), streams[Int(ref.place)]?.attached[place] != nil {
      streams[Int(ref.place)]?.attached[place]?.joinedAt = joinedAt
      streams[Int(ref.place)]?.attached[place]?.endsAt = 0
      return place
    }
    guard attachmentCount < limits.attachments, let place = take(channel: cid),
      let count = channels[Int(place)]?.streams.count
    else { return nil }
    streams[Int(ref.place)]?.attached[place] = Attachment(index: UInt32(count), joinedAt: joinedAt)
    channels[Int(place)]?.streams.append(ref.place)
    attachmentCount += 1
    return place
  }

  /// When a stream's user joined a channel that it is told of; nil: it is nobody's.
  func joinedAt(_ ref: Ref, _ channel: UInt32) -> Timestamp? {
    guard let stream = self[ref], stream.user != nil else { return nil }
    return stream.attached[channel]?.joinedAt
  }

  /// A user has joined a channel, by the channel's own word: their index says so a little later.
  mutating func joined(_ user: String, _ cid: String, at time: Timestamp) {
    guard let place = place(ofUser: user), let channel = channelPlaces[ExactText(cid)] else { return }
    for ref in refs(ofUser: place) {
      guard let known = streams[Int(ref.place)]?.attached[channel]?.joinedAt, known < time else { continue }
      streams[Int(ref.place)]?.attached[channel]?.joinedAt = time
    }
  }

  func isLeaving(_ ref: Ref, _ channel: UInt32) -> Bool {
    streams[Int(ref.place)]?.attached[channel].map { $0.endsAt != 0 } ?? false
  }

  /// The stream is told of this channel no more.
  mutating func detach(_ ref: Ref, _ channel: UInt32) {
    guard let index = streams[Int(ref.place)]?.attached.removeValue(forKey: channel)?.index,
      let last = channels[Int(channel)]?.streams.popLast()
    else { return }
    attachmentCount -= 1
    if last != ref.place {
      channels[Int(channel)]?.streams[Int(index)] = last
      streams[Int(last)]?.attached[channel]?.index = index
    }
    release(channel: channel)
  }

  /// With the next tick the store is told that nobody is there any more.
  private mutating func release(channel place: UInt32) {
    guard let channel = channels[Int(place)], channel.streams.isEmpty, channel.frames == 0, !channel.isIdle
    else {
      return
    }
    channels[Int(place)]?.isIdle = true
    idleChannels.append(place)
  }

  /// The streams' user has become a member: they are told what has happened there since, and what happens.
  mutating func attachLater(_ refs: [Ref], _ cid: String, since: Timestamp) {
    var place: UInt32?
    for ref in refs {
      guard let stream = self[ref] else { continue }
      guard stream.attached.count < limits.channelsPerStream, let taken = attach(ref, cid, joinedAt: since)
      else {
        fail(ref, Problem(.storeBusy))
        continue
      }
      place = taken
    }
    guard let place else { return }
    ask([place], since: since, .attach(refs.filter { self[$0] != nil }))
  }

  // MARK: What happens in a channel

  /// Who is told of what a subscription has answered.
  func told(of frame: Int) -> Told {
    switch frames[frame]?.purpose {
    case .open(let ref): .streams([ref])
    case .attach(let refs): .newMembers(refs)
    case .gone(let ref): .formerMember(ref)
    case .resync, .end, nil: .everybody
    }
  }

  /// What of an answer about a channel is passed on. Whether something else had its name before, the index says of
  /// whoever has joined it since.
  func heard(_ events: [EventFields], by told: Told) -> ArraySlice<EventFields> {
    guard events.count > 1, case .channelDeleted? = events.first else { return events[...] }
    switch told {
    case .newMembers: return events.dropFirst()
    case .formerMember(let ref) where hasLeft(ref, events): return events.dropFirst()
    default: return events[...]
    }
  }

  /// Whether it is this channel that a stream's user has left, and not one that had its name before.
  private func hasLeft(_ ref: Ref, _ events: [EventFields]) -> Bool {
    guard let user = self[ref]?.request.user else { return false }
    return events.contains { event in
      if case .memberRemoved(let removed, _, _) = event { removed.isExactly(user) } else { false }
    }
  }

  /// Whether a stream is told of an event. Whoever is leaving, or has left, hears of that alone.
  func hears(_ event: EventFields, _ ref: Ref, channel: UInt32, isFormer: Bool = false) -> Bool {
    guard isThere(ref) else { return false }
    // Hardly ever is anybody leaving.
    guard isFormer || !leaving.isEmpty && isLeaving(ref, channel) else { return true }
    switch event {
    case .channelDeleted: return true
    case .memberRemoved(let user, _, _):
      return streams[Int(ref.place)]?.request.user?.isExactly(user) ?? false
    default: return false
    }
  }

  /// An event was passed on: whoever is no member any more hears nothing after it.
  ///
  /// - Parameter later: what is still to be told with it.
  mutating func passedOn(
    _ event: EventFields,
    channel: UInt32,
    to refs: [Ref],
    later: ArraySlice<EventFields>
  ) {
    switch event {
    case .channelDeleted:
      // A server named the channel: it may be made anew. What it is then users are told where they are members of it.
      for ref in refs where self[ref]?.user != nil {
        detach(ref, channel)
        if !later.isEmpty { relist(ref) }
      }
    case .memberRemoved(let user, let time, _):
      let isBack = later.contains {
        if case .memberAdded(let event) = $0 { event.user.isExactly(user) } else { false }
      }
      guard !isBack, let place = place(ofUser: user) else { return }
      for ref in refs where self[ref]?.user == place && !hasJoined(ref, channel, since: time) {
        detach(ref, channel)
      }
    default: return
    }
  }

  /// The user's index has said already that they are a member again: its word comes first at times. Where it has said
  /// nothing yet it will.
  private func hasJoined(_ ref: Ref, _ channel: UInt32, since time: Timestamp) -> Bool {
    guard let attachment = self[ref]?.attached[channel] else { return false }
    return attachment.endsAt == 0 && attachment.joinedAt > time
  }

  // MARK: Memberships

  /// What a user's index says of one channel now.
  mutating func membership(user place: UInt32, _ entry: ChannelEntryFields, at time: Timestamp, isGone: Bool)
  {
    var joined: [Ref] = []
    for ref in refs(ofUser: place) {
      guard let stream = self[ref], stream.named?.contains(ExactText(entry.cid)) ?? true else { continue }
      // Before its list is read there is nothing to be changed.
      guard stream.phase != .waiting, stream.phase != .subscribingUser else { continue }
      let channel = self.place(ofChannel: entry.cid).flatMap { stream.attached[$0] == nil ? nil : $0 }
      if !entry.isMember || isGone {
        streams[Int(ref.place)]?.found.removeAll { $0.cid.isExactly(entry.cid) }
        if let channel { userLeft(ref, channel, at: time) }
        continue
      }
      // The list may be past its place.
      if stream.phase == .listing || stream.relisting == .listing {
        streams[Int(ref.place)]?.found.append((entry.cid, entry.joinedAt))
      }
      if stream.phase == .listing {
        // What is told of it has to come behind the answer.
        if case .since(let time) = stream.start { note(entry, ref, since: time) }
      } else if let channel, !isLeaving(ref, channel) {
        streams[Int(ref.place)]?.attached[channel]?.joinedAt = entry.joinedAt
      } else {
        joined.append(ref)
      }
    }
    if !joined.isEmpty { attachLater(joined, entry.cid, since: entry.joinedAt) }
  }

  /// The user is no member any more: the channel's own word of it is waited for, and nothing else passed on.
  mutating func userLeft(_ ref: Ref, _ channel: UInt32, at time: Timestamp) {
    guard !isLeaving(ref, channel) else { return }
    let endsAt = ticks + Self.leavingTicks
    streams[Int(ref.place)]?.attached[channel]?.endsAt = endsAt
    leaving.append(Leaving(ref: ref, channel: channel, at: time, endsAt: endsAt))
  }

  // MARK: Frames

  func shard(of frame: Int) -> ShardID { ShardID(UInt16(frames[frame]?.shard ?? 0)) }
  func cids(of frame: Int) -> [String] {
    (frames[frame]?.channels ?? []).compactMap { channels[Int($0)]?.cid }
  }

  /// Subscribes to channels of one shard. Every answer leaves them subscribed to, for all that is known: a refusal may
  /// be of a request that was carried out.
  mutating func ask(_ places: [UInt32], since: Timestamp?, _ purpose: Purpose) {
    for start in stride(from: 0, to: places.count, by: Self.cidsPerFrame) {
      let part = Array(places[start..<min(start + Self.cidsPerFrame, places.count)])
      guard let shard = channels[Int(part[0])]?.shard else { continue }
      for place in part { channels[Int(place)]?.frames += 1 }
      switch purpose {
      case .open(let ref), .gone(let ref): streams[Int(ref.place)]?.pending += 1
      case .attach(let refs): for ref in refs { streams[Int(ref.place)]?.pending += 1 }
      case .resync: shards[shard].resyncs += 1
      case .end: break
      }
      due.append(Frame(shard: shard, channels: part, since: since, purpose: purpose))
    }
    sendDue()
  }

  private mutating func sendDue() {
    while frames.count < limits.frames, let frame = due.popFirst() {
      frames[nextFrame] = frame
      steps.append(.subscribe(frame: nextFrame, since: frame.since))
      nextFrame += 1
    }
  }

  /// A subscription was answered, and what it said was passed on.
  mutating func subscribed(_ number: Int, through: Timestamp, isComplete: Bool) {
    guard let frame = frames.removeValue(forKey: number) else { return }
    for place in frame.channels {
      channels[Int(place)]?.mayBeKept = true
      if channels[Int(place)]?.isLive == false {
        channels[Int(place)]?.isLive = true
        subscriptionAdded(frame.shard, through: through)
      }
      channels[Int(place)]?.frames -= 1
      release(channel: place)
    }
    switch frame.purpose {
    case .open(let ref), .gone(let ref):
      if !isComplete, self[ref] != nil { streams[Int(ref.place)]?.start = .anew }
      answered(ref)
    case .attach(let refs):
      for ref in refs where self[ref] != nil {
        if !isComplete { steps.append(.reset(ref)) }
        answered(ref)
      }
    case .resync:
      if !isComplete { resyncIncomplete(frame) }
      resyncEnded(frame.shard, through: through)
    case .end: break
    }
    sendDue()
  }

  /// What happened in these channels is too much for one answer: each half is asked for by itself, and who has a single
  /// channel of that kind has to ask anew.
  private mutating func resyncIncomplete(_ frame: Frame) {
    if frame.channels.count > 1 {
      let middle = frame.channels.count / 2
      ask(Array(frame.channels[..<middle]), since: frame.since, .resync)
      ask(Array(frame.channels[middle...]), since: frame.since, .resync)
      return
    }
    for ref in refs(ofChannel: frame.channels[0]) {
      steps.append(.reset(ref))
      relist(ref)
    }
  }

  mutating func subscribeFailed(_ number: Int, _ problem: Problem) {
    guard let frame = frames.removeValue(forKey: number) else { return }
    for place in frame.channels { channels[Int(place)]?.mayBeKept = true }
    if let again = again(frame, problem) {
      retries.append(again)
    } else {
      for place in frame.channels {
        channels[Int(place)]?.frames -= 1
        release(channel: place)
      }
      switch frame.purpose {
      case .open(let ref), .gone(let ref): fail(ref, problem)
      case .attach(let refs): for ref in refs { fail(ref, problem) }
      case .resync, .end: break
      }
    }
    sendDue()
  }

  /// What is asked again of a frame that failed, with the next tick; nil: nothing. A live stream gains the channels
  /// that its user joins however long that takes; who is not live yet is told of the problem.
  private mutating func again(_ frame: Frame, _ problem: Problem) -> Frame? {
    guard case .attach(let refs) = frame.purpose else { return frame.purpose == .resync ? frame : nil }
    guard problem.status == 503 else { return nil }
    let live = refs.filter { self[$0]?.phase == .live }
    if live.isEmpty { return nil }
    for ref in refs where self[ref] != nil && self[ref]?.phase != .live { fail(ref, problem) }
    return Frame(shard: frame.shard, channels: frame.channels, since: frame.since, purpose: .attach(live))
  }

  mutating func unsubscribed(_ number: Int) {
    guard let frame = frames.removeValue(forKey: number) else { return }
    for place in frame.channels {
      channels[Int(place)]?.frames -= 1
      guard let channel = channels[Int(place)], channel.streams.isEmpty, channel.frames == 0,
        !channel.mayBeKept
      else {
        release(channel: place)
        continue
      }
      if !channel.isIdle { forget(channel: place) }
    }
    sendDue()
  }

  /// What nobody has is tried again with the next tick.
  mutating func unsubscribeFailed(_ number: Int) {
    for place in frames[number]?.channels ?? [] { channels[Int(place)]?.mayBeKept = true }
    unsubscribed(number)
  }

  // MARK: Losses and time

  /// A new connection to the store, which knows of no subscription.
  ///
  /// - Parameter isSame: it is the store of before.
  mutating func connected(shardCount count: Int, isSame: Bool) {
    if shardCount != 0, !isSame || count != shardCount {
      for place in streams.indices {
        guard let stream = streams[place] else { continue }
        // What it has told was another store's, such as the one that this was restored from a backup of.
        if stream.hasBegun { steps.append(.reset(ref(UInt32(place)))) }
        fail(ref(UInt32(place)), Problem(.storeUnavailable))
      }
      // What is still to be answered is of streams that are no more.
      let kept = (limits, steps, nextGeneration, nextFrame)
      self = EventHub(limits: kept.0)
      (steps, nextGeneration, nextFrame) = (kept.1, kept.2, kept.3)
    }
    shardsAreKnown(count)
    for place in channels.indices {
      channels[place]?.mayBeKept = false
      guard let channel = channels[place], channel.isLive, channel.streams.isEmpty else { continue }
      channels[place]?.isLive = false
      subscriptionRemoved(channel.shard)
    }
    resync { $0.isLive }
    for place in users.indices {
      users[place]?.mayBeKept = false
      guard let user = users[place], user.isLive else { continue }
      users[place]?.isLive = false
      subscriptionRemoved(user.home)
      for ref in refs(ofUser: UInt32(place)) { relist(ref) }
    }
  }

  /// Events of this shard were dropped.
  mutating func lost(_ shard: ShardID) {
    let shard = Int(shard.rawValue)
    guard shard < shardCount else { return }
    resync { $0.isLive && $0.shard == shard }
    for place in users.indices where users[place]?.home == shard && users[place]?.isLive == true {
      for ref in refs(ofUser: UInt32(place)) { relist(ref) }
    }
  }

  /// Subscribes again to those of these channels that somebody has.
  private mutating func resync(_ isMeant: (Channel) -> Bool) {
    let places = channels.indices.filter { channels[$0].map { !$0.streams.isEmpty && isMeant($0) } ?? false }
    for (shard, places) in byShard(places.map { UInt32($0) }).enumerated() {
      ask(places, since: shards[shard].through ?? Timestamp.none, .resync)
    }
  }

  /// These channels, by their shards.
  func byShard(_ places: [UInt32]) -> [[UInt32]] {
    var byShard: [[UInt32]] = Array(repeating: [], count: shardCount)
    for place in places { byShard[channels[Int(place)]?.shard ?? 0].append(place) }
    return byShard
  }

  /// Some time has passed: nobody's subscriptions end, what failed is asked again.
  mutating func tick() {
    due.append(contentsOf: retries)
    retries = []
    sendDue()
    waiting.append(contentsOf: relistings)
    relistings = []
    openNext()
    ticks += 1
    while let left = leaving.first, left.endsAt <= ticks {
      leaving.removeFirst()
      guard let cid = channels[Int(left.channel)]?.cid,
        self[left.ref]?.attached[left.channel]?.endsAt == left.endsAt
      else { continue }
      steps.append(.left(left.ref, cid: cid, at: left.at))
      detach(left.ref, left.channel)
    }
    endIdleChannels()
    endIdleUsers()
  }

  private mutating func endIdleChannels() {
    var ending: [UInt32] = []
    for place in idleChannels {
      channels[Int(place)]?.isIdle = false
      guard let channel = channels[Int(place)], channel.streams.isEmpty, channel.frames == 0 else { continue }
      if channel.isLive {
        channels[Int(place)]?.isLive = false
        subscriptionRemoved(channel.shard)
      }
      if channel.mayBeKept { ending.append(place) } else { forget(channel: place) }
    }
    idleChannels = []
    for (shard, places) in byShard(ending).enumerated() {
      for start in stride(from: 0, to: places.count, by: Self.cidsPerFrame) {
        let part = Array(places[start..<min(start + Self.cidsPerFrame, places.count)])
        for place in part {
          channels[Int(place)]?.mayBeKept = false
          channels[Int(place)]?.frames += 1
        }
        frames[nextFrame] = Frame(shard: shard, channels: part, since: nil, purpose: .end)
        steps.append(.unsubscribe(frame: nextFrame))
        nextFrame += 1
      }
    }
  }

  private mutating func forget(channel place: UInt32) {
    guard let channel = channels[Int(place)] else { return }
    channels[Int(place)] = nil
    channelPlaces[ExactText(channel.cid)] = nil
    freeChannels.append(place)
  }

  private mutating func endIdleUsers() {
    for place in idleUsers {
      users[Int(place)]?.isIdle = false
      guard let user = users[Int(place)], user.streams.isEmpty, !user.isAsked, user.endings == 0 else {
        continue
      }
      if user.isLive {
        users[Int(place)]?.isLive = false
        subscriptionRemoved(user.home)
      }
      if user.mayBeKept {
        users[Int(place)]?.mayBeKept = false
        users[Int(place)]?.endings += 1
        steps.append(.unsubscribeUser(place: place, name: user.name))
      } else {
        forget(user: place)
      }
    }
    idleUsers = []
  }
}
