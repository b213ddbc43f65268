import DequeModule
import NIOCore
import ReceiptModel
import ReceiptWire

/// A request, or a change of a channel type, that looks at channels one after the other and reads those that are not in
/// memory, a few at a time.
struct ChannelWalk {
  enum Purpose {
    /// What has changed in each at or after a time (Proto/frames.md, subscribe).
    case changes(since: Timestamp)
    /// How others see a user's row since then is told to those who watch it (announce_row).
    case row(of: [UInt8], at: Timestamp)
    /// The options of all watched channels of a type have changed then.
    case options(ofType: [UInt8], at: Timestamp)
    /// Receipts in watched channels have expired, the first of them then.
    case expiries(since: Timestamp)
  }

  /// What was found in one channel.
  struct Found {
    let cid: [UInt8]
    /// *channel events*; empty where nothing has changed.
    var bytes: ByteBuffer
    var events: Int
    /// How often something had happened in it.
    var changes: UInt32
  }

  /// Who asked for it.
  struct Asker {
    let header: FrameHeader
    let lane: ReplyLane
  }

  let purpose: Purpose
  /// nil: nobody.
  let asker: Asker?
  /// When it was begun, in the loop's elapsed time.
  var began: Int64 = 0
  /// Still to be looked at.
  var cids: Deque<[UInt8]> = []
  /// Of `options`: the number of the watched channel that is next.
  var next = 0
  /// Being read.
  var loading = 0
  private(set) var found: [Found] = []
  /// Events in ``found``, and their bytes.
  private(set) var events = 0
  private(set) var bytes = 0
  /// The last effect that the answer tells of.
  var last = LogIndex.zero
  /// When the last receipt expired that the answer may say so of; none: it does not.
  var expiry = Timestamp.none

  mutating func add(_ item: Found) {
    found.append(item)
    events += item.events
    bytes += item.bytes.readableBytes
  }

  /// Takes out what was found in channels that have to be looked at again.
  mutating func lookAgain(where isStale: (Found) -> Bool) {
    let all = found
    found = []
    (events, bytes) = (0, 0)
    for item in all {
      if isStale(item) { cids.append(item.cid) } else { add(item) }
    }
  }
}

/// The walks of a shard that are not at their end.
struct ChannelWalks {
  /// A channel that a walk has asked to be read.
  struct Place {
    var ticket: UInt32
    var cid: [UInt8]
  }

  private var walks: [UInt32: ChannelWalk] = [:]
  private var ticket: UInt32 = 0
  /// Those that go on in a later turn, the one whose turn is next first.
  var postponed: Deque<UInt32> = []
  /// Changes of types that are to be told, in the order in which they came.
  var unstarted: [ChannelWalk] = []

  /// Requests that are not answered.
  var requests: Int { walks.values.count { $0.asker != nil } }

  mutating func nextTicket() -> UInt32 {
    ticket &+= 1
    return ticket
  }

  mutating func take(_ ticket: UInt32) -> ChannelWalk? { walks.removeValue(forKey: ticket) }

  mutating func keep(_ walk: ChannelWalk, _ ticket: UInt32) { walks[ticket] = walk }

  /// The time of the oldest change of a type, expiry, or change of what a user hides, that is not told to all yet;
  /// none: there is none.
  var oldest: Timestamp {
    var oldest = Timestamp.none
    for walk in unstarted { Self.lower(&oldest, walk) }
    for walk in walks.values { Self.lower(&oldest, walk) }
    return oldest
  }

  private static func lower(_ oldest: inout Timestamp, _ walk: ChannelWalk) {
    switch walk.purpose {
    case .options(_, let time), .row(_, let time), .expiries(let time):
      oldest = oldest == .none ? time : min(oldest, time)
    case .changes: break
    }
  }
}

extension ShardEngine {
  /// Events of one answer; where it would be more the gateway asks for everything.
  static let changesMax = 1_024
  /// And its bytes, so that it fits into a frame.
  private static let changesBytesMax = 768 << 10
  /// What looking at a channel takes of a turn beside its rows, in rows.
  private static let rowsPerLook = 64

  /// Begins a walk, and goes as far as one turn has room.
  func begin(_ walk: ChannelWalk) {
    var walk = walk
    walk.began = loop.elapsedMilliseconds
    goOn(walk, walks.nextTicket())
  }

  /// The options of a type are changing in the batch that gathers.
  func announceOptions(ofType name: String) {
    walks.unstarted.append(
      ChannelWalk(purpose: .options(ofType: Array(name.utf8), at: state.time), asker: nil)
    )
  }

  /// Begins to tell of types that have changed.
  func startAnnouncements() {
    while !walks.unstarted.isEmpty { begin(walks.unstarted.removeFirst()) }
  }

  /// Goes on with a walk that had no room in an earlier turn.
  func goOnWalking() {
    guard let ticket = walks.postponed.popFirst() else { return }
    // Long queries may have had all of this turn.
    loop.rowsLeft = max(loop.rowsLeft, configuration.shortRows)
    if let walk = walks.take(ticket) { goOn(walk, ticket) }
    if !walks.postponed.isEmpty { loop.works(self) }
  }

  private func goOn(_ walk: consuming ChannelWalk, _ ticket: UInt32) {
    var walk = walk
    if let asker = walk.asker, asker.lane.isClosed {
      // It asks again on another connection. What is being read comes back to nobody.
      return
    }
    if case .changes = walk.purpose, isLate(walk) {
      return refuse(walk, .busy, retryAfterMilliseconds: 1_000, "what has changed takes too long to find")
    }
    while true {
      // With nothing left to look at it ends in this turn: in a later one a busy channel is another again.
      while walk.loading < configuration.walkLoadsMax, hasNext(walk) {
        guard loop.rowsLeft > 0 else {
          walks.keep(walk, ticket)
          return postpone(ticket)
        }
        guard let cid = nextChannel(&walk) else { break }
        guard look(cid, &walk, ticket) else { return }
      }
      guard walk.loading == 0, walk.cids.isEmpty else { return walks.keep(walk, ticket) }
      if case .options = walk.purpose, walk.next < subscriptions.channels.count { continue }
      if takeStale(&walk) { continue }
      break
    }
    finish(walk)
  }

  private func isLate(_ walk: borrowing ChannelWalk) -> Bool {
    loop.elapsedMilliseconds - walk.began > configuration.walkMilliseconds
  }

  private func postpone(_ ticket: UInt32) {
    if !walks.postponed.contains(ticket) { walks.postponed.append(ticket) }
    loop.works(self)
  }

  private func hasNext(_ walk: borrowing ChannelWalk) -> Bool {
    guard case .options = walk.purpose else { return !walk.cids.isEmpty }
    return walk.next < subscriptions.channels.count
  }

  private func nextChannel(_ walk: inout ChannelWalk) -> [UInt8]? {
    guard case .options(let type, _) = walk.purpose else { return walk.cids.popFirst() }
    while walk.next < subscriptions.channels.count, loop.rowsLeft > 0 {
      loop.rowsLeft -= 1
      walk.next += 1
      if let channel = subscriptions.channels[walk.next - 1], channel.cid.starts(with: type),
        channel.cid[type.count] == UInt8(ascii: ":")
      {
        return channel.cid
      }
    }
    return nil
  }

  /// Looks at one channel, or has it read first.
  ///
  /// - Returns: false where the walk has ended with a refusal, or with nothing.
  private func look(_ cid: [UInt8], _ walk: inout ChannelWalk, _ ticket: UInt32) -> Bool {
    if let slot = state.slot(of: cid.span.bytes) { return look(slot, cid, &walk) }
    if deletions.index(absent: cid) != nil {
      noteAbsent(cid, &walk)
      return true
    }
    let reference = ChannelReference.cid(cid)
    if loads[reference] == nil {
      guard loads.count - incoming.loads < configuration.loadsMax || walk.asker == nil else {
        refuse(walk, .busy, retryAfterMilliseconds: 100, "too many channels are being loaded")
        return false
      }
      load(storageReference(reference), as: reference)
    }
    loads[reference]?.walks.append(ChannelWalks.Place(ticket: ticket, cid: cid))
    walk.loading += 1
    return true
  }

  /// - Returns: false where the walk has ended.
  private func look(_ slot: ChannelSlot, _ cid: [UInt8], _ walk: inout ChannelWalk) -> Bool {
    loop.rowsLeft -= Self.rowsPerLook
    state.refresh(slot)
    switch walk.purpose {
    case .changes(let since):
      walk.last = max(walk.last, dirty.last(slot))
      guard !state[slot].isEnding else {
        noteAbsent(cid, &walk)
        return true
      }
      // What was known under the name before is not it.
      let deletedAt = state.isNew(slot, since: since) ? state[slot].created : .none
      let events = state.events(
        in: slot,
        since: since,
        limit: Self.changesMax - walk.events,
        statusesMax: configuration.walkStatusesMax,
        left: &loop.rowsLeft
      )
      guard let events, add(events, cid, slot, deletedAt: deletedAt, &walk)
      else {
        answerIncomplete(walk)
        return false
      }
      if events.contains(where: \.isReceipt) {
        walk.expiry = max(walk.expiry, state.lastExpiry(in: slot))
      }
    case .row(let user, let changedAt):
      loop.rowsLeft -= state[slot].rows.rowCount
      guard let number = subscriptions.number(in: slot) else { return true }
      _ = state.advance(clock: loop.clock)
      let place = subscriptions.place(number)
      state.noteSettings(of: user.span.bytes, in: slot, at: state.time, &subscriptions.noted[place].notes)
      subscriptions.noted[place].notes.hasBeenDue(since: changedAt)
      walk.last = max(walk.last, dirty.last(slot))
    case .options(_, let changedAt):
      loop.rowsLeft -= state[slot].rows.rowCount
      guard let number = subscriptions.number(in: slot) else { return true }
      _ = state.advance(clock: loop.clock)
      let place = subscriptions.place(number)
      state.noteOptions(in: slot, at: state.time, &subscriptions.noted[place].notes)
      subscriptions.noted[place].notes.hasBeenDue(since: changedAt)
    case .expiries:
      if let number = subscriptions.number(in: slot) { noteExpired(number, slot) }
    }
    return true
  }

  /// A channel that does not exist: nobody's row is in it, and it has no options.
  private func noteAbsent(_ cid: [UInt8], _ walk: inout ChannelWalk) {
    loop.rowsLeft -= Self.rowsPerLook
    guard case .changes = walk.purpose else { return }
    walk.last = max(walk.last, deletions.last)
    _ = add([], cid, nil, deletedAt: state.advance(clock: loop.clock), &walk)
  }

  /// - Parameter deletedAt: the channel, or one that had the name before it, is there no more; none: it was there then.
  /// - Returns: false where that is more than one answer holds.
  private func add(
    _ events: [ChannelEvent],
    _ cid: [UInt8],
    _ slot: ChannelSlot?,
    deletedAt: Timestamp,
    _ walk: inout ChannelWalk
  ) -> Bool {
    var bytes = ByteBuffer()
    var count = 0
    if deletedAt != .none || !events.isEmpty {
      var written = ByteBuffer()
      if deletedAt != .none {
        written.writeDeletedEvent(at: deletedAt)
        count = 1
      }
      if let slot {
        for event in events { count += written.writeLimitedEvent(event, slot, in: &state) }
      }
      bytes.writeField(cid.span.bytes)
      bytes.writeVarint(count)
      bytes.writeBuffer(&written)
    }
    walk.add(
      ChannelWalk.Found(
        cid: cid,
        bytes: bytes,
        events: count,
        changes: changes(in: cid)
      )
    )
    return walk.events <= Self.changesMax && walk.bytes <= Self.changesBytesMax
  }

  private func changes(in cid: [UInt8]) -> UInt32 {
    subscriptions.number(of: cid).flatMap { subscriptions.channels[Int($0)]?.changes } ?? 0
  }

  /// Has channels looked at once more in which something has happened while others were read: frames that tell of that
  /// may have left already, and the answer may not take it back.
  ///
  /// - Returns: whether there are any.
  private func takeStale(_ walk: inout ChannelWalk) -> Bool {
    walk.lookAgain { $0.changes != changes(in: $0.cid) }
    return !walk.cids.isEmpty
  }

  // MARK: Ends

  private func finish(_ walk: ChannelWalk) {
    switch walk.purpose {
    case .changes:
      guard let asker = walk.asker else { return }
      let told = toldThrough()
      let last = max(walk.last, dirty.typesLast, dirty.usersLast)
      let found = walk.found.filter { $0.events > 0 }
      let departure = max(told.departure, departure(last, sayingExpiredAt: walk.expiry, asker.lane))
      reply(asker.header, departure, asker.lane) { buffer in
        buffer.writeTime(told.time)
        buffer.writeInteger(UInt8(1))
        buffer.writeVarint(found.count)
        for item in found { buffer.writeImmutableBuffer(item.bytes) }
      }
    case .row:
      if let asker = walk.asker {
        reply(asker.header, departure(max(walk.last, dirty.usersLast)), asker.lane) { _ in }
      }
      tellWithoutBatch()
    case .options, .expiries: tellWithoutBatch()
    }
  }

  private func answerIncomplete(_ walk: ChannelWalk) {
    guard let asker = walk.asker else { return }
    answerIncomplete(asker.header, asker.lane)
  }

  /// What has changed is too much to tell, or is not known.
  func answerIncomplete(_ header: FrameHeader, _ lane: ReplyLane) {
    let (through, departure) = toldThrough()
    reply(header, departure, lane) { buffer in
      buffer.writeTime(through)
      buffer.writeInteger(UInt8(0))
      buffer.writeVarint(0)
    }
  }

  /// What was subscribed to with the request stays so: meanwhile another request of the connection may have found it
  /// there.
  private func refuse(
    _ walk: ChannelWalk,
    _ code: ErrorCode,
    retryAfterMilliseconds: UInt32,
    _ detail: String
  ) {
    guard let asker = walk.asker else { return }
    refuse(asker.header, code, retryAfterMilliseconds: retryAfterMilliseconds, detail, asker.lane)
  }

  // MARK: What was read

  /// A channel that a walk waits for was looked for, or could not be read.
  func walkLoaded(_ place: ChannelWalks.Place, isReadable: Bool) {
    guard var walk = walks.take(place.ticket) else { return }
    walk.loading -= 1
    if let slot = state.slot(of: place.cid.span.bytes) {
      if walk.asker?.lane.isClosed != true, !look(slot, place.cid, &walk) { return }
    } else if isReadable {
      noteAbsent(place.cid, &walk)
    } else if walk.asker != nil {
      return refuse(walk, .unavailable, retryAfterMilliseconds: 1_000, "a channel cannot be read")
    }
    goOn(walk, place.ticket)
  }
}
