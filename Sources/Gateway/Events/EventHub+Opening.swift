internal import DequeModule
internal import ReceiptModel
internal import ReceiptWire

/// How streams are opened, gone over again, and ended.
extension EventHub {
  /// Takes up a stream, which waits for its turn to be opened.
  ///
  /// - Throws: `store_busy` where there are too many, or too many wait.
  mutating func open(_ request: Request) throws(Problem) -> Ref {
    guard shardCount > 0 else { throw Problem(.storeUnavailable) }
    guard streamCount < limits.streams else {
      throw Problem(
        .storeBusy,
        "as many streams are open as this gateway serves; try again, it may be another's turn"
      )
    }
    guard waitingCount < limits.waiting else {
      throw Problem(.storeBusy, "too many streams are being opened")
    }
    let place: UInt32
    if let free = freeStreams.popLast() {
      place = free
    } else {
      place = UInt32(streams.count)
      streams.append(nil)
    }
    let ref = Ref(place: place, generation: nextGeneration)
    nextGeneration &+= 1
    let user = request.user.map { take($0) }
    if let user, let count = users[Int(user)]?.streams.count, count >= limits.streamsPerUser {
      freeStreams.append(place)
      throw Problem(.limitReached, "a user has at most \(limits.streamsPerUser) streams; close some of them")
    }
    var stream = Stream(request: request, generation: ref.generation, user: user, start: request.start)
    if user != nil, let channels = request.channels { stream.named = Set(channels.map { ExactText($0) }) }
    streams[Int(place)] = stream
    if let user { users[Int(user)]?.streams.append(place) }
    waiting.append(ref)
    openNext()
    return ref
  }

  /// The stream is over: its client has gone, or it was ended.
  mutating func close(_ ref: Ref) {
    guard let stream = self[ref] else { return }
    if hasTurn(stream) { openings -= 1 }
    let isWaiting = stream.phase == .waiting || stream.phase == .live && stream.relisting == .waiting
    forget(ref, stream)
    if isWaiting { waitingHasGone() }
    openNext()
  }

  /// It is being opened, or gone over again.
  private func hasTurn(_ stream: Stream) -> Bool {
    switch stream.phase {
    case .waiting: false
    case .subscribingUser, .listing, .subscribing: true
    case .live: stream.relisting == .subscribingUser || stream.relisting == .listing
    }
  }

  /// Those that have gone are passed over when their turn comes, and are never more than those that wait.
  private mutating func waitingHasGone() {
    waitingGone += 1
    guard waitingGone > waitingCount + 1_024 else { return }
    waiting = Deque(waiting.filter { self[$0] != nil })
    relistings = relistings.filter { self[$0] != nil }
    waitingGone = 0
  }

  private mutating func forget(_ ref: Ref, _ stream: Stream) {
    for channel in stream.attached.keys.sorted() { detach(ref, channel) }
    if let user = stream.user {
      users[Int(user)]?.streams.removeAll { $0 == ref.place }
      release(user: user)
    }
    streams[Int(ref.place)] = nil
    freeStreams.append(ref.place)
  }

  /// Ends a stream because of a problem: as an answer where it has not begun.
  mutating func fail(_ ref: Ref, _ problem: Problem) {
    guard let stream = self[ref] else { return }
    steps.append(stream.hasBegun ? .end(ref) : .refuse(ref, problem.code, detail: problem.detail))
    close(ref)
  }

  /// Tokens of this user that were issued before this time are refused.
  mutating func tokensRevoked(user place: UInt32, before: Timestamp) {
    for ref in refs(ofUser: place) {
      guard let issued = self[ref]?.request.issued, Int64(issued) * 1_000 < before.milliseconds else {
        continue
      }
      fail(ref, Problem(.tokenRevoked))
    }
  }

  // MARK: Users

  private mutating func take(_ name: String) -> UInt32 {
    if let place = userPlaces[ExactText(name)] { return place }
    let place: UInt32
    if let free = freeUsers.popLast() {
      place = free
    } else {
      place = UInt32(users.count)
      users.append(nil)
    }
    users[Int(place)] = User(name: name, home: home(of: name))
    userPlaces[ExactText(name)] = place
    return place
  }

  /// With the next tick the store is told that nobody is there any more.
  private mutating func release(user place: UInt32) {
    guard let user = users[Int(place)], user.streams.isEmpty, !user.isIdle else { return }
    users[Int(place)]?.isIdle = true
    idleUsers.append(place)
  }

  mutating func forget(user place: UInt32) {
    guard let user = users[Int(place)] else { return }
    users[Int(place)] = nil
    userPlaces[ExactText(user.name)] = nil
    freeUsers.append(place)
  }

  mutating func userSubscribed(_ place: UInt32, through: Timestamp) {
    guard Int(place) < users.count, let user = users[Int(place)], user.isAsked else { return }
    users[Int(place)]?.isAsked = false
    users[Int(place)]?.mayBeKept = true
    if !user.isLive {
      users[Int(place)]?.isLive = true
      subscriptionAdded(user.home, through: through)
    }
    for ref in refs(ofUser: place) where waitsForUser(ref) { list(ref) }
    release(user: place)
  }

  mutating func userFailed(_ place: UInt32, _ problem: Problem) {
    guard Int(place) < users.count else { return }
    users[Int(place)]?.isAsked = false
    users[Int(place)]?.mayBeKept = true
    for ref in refs(ofUser: place).filter({ waitsForUser($0) }) where !relistAgain(ref, problem) {
      fail(ref, problem)
    }
    release(user: place)
  }

  /// What stops the going over of a live stream for a while does not end it. False: it is not that.
  private mutating func relistAgain(_ ref: Ref, _ problem: Problem) -> Bool {
    guard problem.status == 503, let stream = self[ref], stream.phase == .live, hasTurn(stream) else {
      return false
    }
    streams[Int(ref.place)]?.relisting = .waiting
    streams[Int(ref.place)]?.isStale = false
    relistings.append(ref)
    openings -= 1
    openNext()
    return true
  }

  mutating func userUnsubscribed(_ place: UInt32) {
    guard Int(place) < users.count, let user = users[Int(place)], user.endings > 0 else { return }
    users[Int(place)]?.endings -= 1
    if user.streams.isEmpty, !user.isAsked, user.endings == 1, !user.isIdle, !user.mayBeKept {
      forget(user: place)
    } else {
      release(user: place)
    }
  }

  /// Where nobody is there still it is tried again with the next tick.
  mutating func userUnsubscribeFailed(_ place: UInt32) {
    guard Int(place) < users.count else { return }
    users[Int(place)]?.mayBeKept = true
    userUnsubscribed(place)
  }

  private func waitsForUser(_ ref: Ref) -> Bool {
    guard let stream = self[ref] else { return false }
    return stream.phase == .subscribingUser || stream.relisting == .subscribingUser
  }

  // MARK: Openings

  /// Begins with those whose turn it is.
  mutating func openNext() {
    while openings < limits.openings, let ref = waiting.popFirst() {
      if self[ref] == nil {
        waitingGone -= 1
        continue
      }
      openings += 1
      begin(ref)
    }
  }

  private mutating func begin(_ ref: Ref) {
    guard let stream = self[ref] else { return }
    streams[Int(ref.place)]?.found = []
    streams[Int(ref.place)]?.gone = []
    streams[Int(ref.place)]?.deleted = []
    guard let user = stream.user.flatMap({ users[Int($0)] }), let place = stream.user else {
      streams[Int(ref.place)]?.found = (stream.request.channels ?? []).map { ($0, Timestamp.none) }
      return subscribe(ref)
    }
    if stream.phase == .live {
      streams[Int(ref.place)]?.relisting = .subscribingUser
    } else {
      streams[Int(ref.place)]?.phase = .subscribingUser
    }
    if user.isLive { return list(ref) }
    guard !user.isAsked else { return }
    users[Int(place)]?.isAsked = true
    steps.append(.subscribeUser(place: place, name: user.name))
  }

  private mutating func list(_ ref: Ref, cursor: UInt64? = nil) {
    guard let stream = self[ref], let user = stream.user.flatMap({ users[Int($0)] }) else { return }
    var since: Timestamp?
    if stream.phase == .live {
      streams[Int(ref.place)]?.relisting = .listing
    } else {
      streams[Int(ref.place)]?.phase = .listing
      if case .since(let time) = stream.start { since = membershipStart(time) }
    }
    steps.append(
      .list(ref, user: user.name, issued: stream.request.issued, cursor: cursor, since: since)
    )
  }

  /// A page of the user's channels.
  mutating func listed(_ ref: Ref, _ entries: [ChannelEntryFields], next: UInt64?) {
    guard let stream = self[ref] else { return }
    let isRelisting = stream.phase == .live
    for entry in entries where stream.named?.contains(ExactText(entry.cid)) ?? true {
      if case .since(let time) = stream.start, !isRelisting { note(entry, ref, since: time) }
      guard entry.isMember else { continue }
      streams[Int(ref.place)]?.found.append((entry.cid, entry.joinedAt))
      if !isRelisting { continue }
      if let channel = place(ofChannel: entry.cid), isAttached(ref, entry.cid), !isLeaving(ref, channel) {
        streams[Int(ref.place)]?.attached[channel]?.joinedAt = entry.joinedAt
      } else {
        attachLater([ref], entry.cid, since: entry.joinedAt)
      }
    }
    guard let now = self[ref] else { return }
    if now.found.count > limits.channelsPerStream {
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

  /// Notes what the index says to a stream that goes on from a time.
  mutating func note(_ entry: ChannelEntryFields, _ ref: Ref, since time: Timestamp) {
    if entry.deletedAt != .none {
      streams[Int(ref.place)]?.deleted.append((entry.cid, entry.deletedAt))
    } else if !entry.isMember {
      streams[Int(ref.place)]?.gone.append(entry.cid)
    }
    if entry.isMember, entry.joinedAt > membershipStart(time) {
      streams[Int(ref.place)]?.joined[ExactText(entry.cid)] = entry.joinedAt
    }
  }

  /// From when on what a user has joined and left is asked for, by who goes on from this time.
  private func membershipStart(_ time: Timestamp) -> Timestamp {
    Timestamp(milliseconds: max(0, time.milliseconds - limits.membershipMargin))
  }

  /// Where nobody knows any more all that was deleted since, the stream is told to ask anew.
  mutating func listFailed(_ ref: Ref, _ problem: Problem) {
    if relistAgain(ref, problem) { return }
    guard problem.code == .limitReached, let stream = self[ref], stream.phase == .listing,
      case .since = stream.start
    else { return fail(ref, problem) }
    streams[Int(ref.place)]?.start = .anew
    streams[Int(ref.place)]?.found = []
    streams[Int(ref.place)]?.joined = [:]
    list(ref)
  }

  /// What the list does not have any more was left, or is gone.
  private mutating func relisted(_ ref: Ref, _ stream: Stream) {
    let found = Set(stream.found.map { ExactText($0.cid) })
    for channel in stream.attached.keys.sorted() {
      guard let cid = channels[Int(channel)]?.cid, !found.contains(ExactText(cid)) else { continue }
      userLeft(ref, channel, at: time ?? .none)
    }
    streams[Int(ref.place)]?.relisting = .none
    streams[Int(ref.place)]?.found = []
    openings -= 1
    answered(ref)
    if self[ref]?.isStale == true {
      streams[Int(ref.place)]?.isStale = false
      relist(ref)
    }
    openNext()
  }

  /// All of the stream's channels are known.
  private mutating func subscribe(_ ref: Ref) {
    guard let stream = self[ref] else { return }
    if let named = stream.named, !named.isSubset(of: stream.found.map { ExactText($0.cid) }) {
      return fail(ref, Problem(stream.request.isServer ? .memberNotFound : .channelNotFound))
    }
    streams[Int(ref.place)]?.phase = .subscribing
    streams[Int(ref.place)]?.found = []
    streams[Int(ref.place)]?.gone = []
    streams[Int(ref.place)]?.deleted = []
    streams[Int(ref.place)]?.joined = [:]
    var since: Timestamp?
    if case .since(let time) = stream.start { since = time }
    if since != nil {
      begun(ref)
      for (cid, time) in stream.deleted { steps.append(.deleted(ref, cid: cid, at: time)) }
    }
    var places: [UInt32] = []
    // The last word counts of what was listed, and joined meanwhile.
    let found = Dictionary(stream.found.map { (ExactText($0.cid), $0.joinedAt) }) { max($0, $1) }
    for (cid, _) in stream.found where !isAttached(ref, cid) {
      guard let place = attach(ref, cid, joinedAt: found[ExactText(cid)] ?? Timestamp.none) else {
        return fail(ref, Problem(.storeBusy, "this gateway has as many channels as it takes"))
      }
      guard let channel = channels[Int(place)], since != nil || !channel.isLive,
        stream.joined[ExactText(cid)] == nil
      else { continue }
      places.append(place)
    }
    // Counted before the first is asked for: an answer must not find it done.
    streams[Int(ref.place)]?.pending += 1
    for places in byShard(places) { ask(places, since: since, .open(ref)) }
    for (cid, time) in stream.joined.sorted(by: { $0.key < $1.key }) where found[cid] != nil {
      attachLater([ref], cid.text, since: time)
    }
    if let since {
      let gone = stream.gone.filter { found[ExactText($0)] == nil }.compactMap { take(channel: $0) }
      for places in byShard(gone) { ask(places, since: membershipStart(since), .gone(ref)) }
    }
    answered(ref)
  }

  /// 200, where that was not said yet.
  private mutating func begun(_ ref: Ref) {
    guard let stream = self[ref], !stream.hasBegun else { return }
    streams[Int(ref.place)]?.hasBegun = true
    steps.append(.begin(ref))
  }

  /// One answer less is waited for.
  mutating func answered(_ ref: Ref) {
    guard let stream = self[ref] else { return }
    streams[Int(ref.place)]?.pending -= 1
    guard stream.pending == 1, stream.phase == .subscribing else { return }
    streams[Int(ref.place)]?.phase = .live
    openings -= 1
    begun(ref)
    if stream.start == .anew { steps.append(.reset(ref)) }
    steps.append(.live(ref))
    if stream.isStale {
      streams[Int(ref.place)]?.isStale = false
      relist(ref)
    }
    openNext()
  }

  /// Has the user's channels gone over again: changes of them may have been missed. Until that is done the stream's
  /// events have no id.
  mutating func relist(_ ref: Ref) {
    guard let stream = self[ref], stream.user != nil else { return }
    switch (stream.phase, stream.relisting) {
    case (.waiting, _), (.subscribingUser, _), (.live, .waiting), (.live, .subscribingUser): return
    case (.listing, _), (.subscribing, _), (.live, .listing): streams[Int(ref.place)]?.isStale = true
    case (.live, .none):
      streams[Int(ref.place)]?.relisting = .waiting
      streams[Int(ref.place)]?.pending += 1
      waiting.append(ref)
      openNext()
    }
  }
}
