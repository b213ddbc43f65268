import DequeModule
import NIOCore
import ReceiptModel
import ReceiptWire

/// A request for unread counts that waits for channels which are not in memory (R14).
struct UnreadRequest {
  /// An entry that is not answered yet, and which it is.
  struct Open {
    var place: Int
    var entry: PeekRequest.Entry
    /// How often its channel had come into memory, as far as that was watched, when it was peeked at.
    var entries: UInt32 = 0
  }

  /// An entry whose channel is being read whole.
  struct Place {
    var ticket: UInt32
    var open: Open
  }

  let header: FrameHeader
  let lane: ReplyLane
  var answers: [UnreadCountFields]
  /// The last effect that the answers tell of.
  var last = LogIndex.zero
  /// Not looked at yet; to be peeked at together.
  var unseen: [Open] = []
  /// Being peeked at.
  var peeked: [Open] = []
  var peekRounds = 0
  /// To be read whole, and how many are being read.
  var whole: Deque<Open> = []
  var loading = 0

  var isDone: Bool { unseen.isEmpty && peeked.isEmpty && whole.isEmpty && loading == 0 }
}

/// Channels that are being peeked at, and whether they came into memory meanwhile: what was read of them is old then,
/// or of no one state.
struct PeekWatches {
  private struct Watch {
    var peeks = 0
    var entries: UInt32 = 0
  }

  private var watches: [[UInt8]: Watch] = [:]

  /// A peek begins.
  ///
  /// - Returns: to be handed in when it ends.
  mutating func begin(_ cid: [UInt8]) -> UInt32 {
    watches[cid, default: Watch()].peeks += 1
    return watches[cid]?.entries ?? 0
  }

  /// A peek has ended.
  ///
  /// - Returns: whether its channel came into memory since it began.
  mutating func end(_ cid: [UInt8], since entries: UInt32) -> Bool {
    guard var watch = watches[cid] else { return true }
    watch.peeks -= 1
    watches[cid] = watch.peeks == 0 ? nil : watch
    return watch.entries != entries
  }

  /// A channel has come into memory.
  mutating func entered(_ cid: [UInt8]) {
    guard !watches.isEmpty else { return }
    watches[cid]?.entries &+= 1
  }
}

/// Unread counts of many channels and users at once (Proto/frames.md, 0x2A; R14). Channels in memory answer; those on
/// storage are peeked at, and stay there. Only one that has effects in the log's tail, or whose pages do not say
/// enough, is read in.
extension ShardEngine {
  /// Entries of one request.
  private static let unreadEntriesMax = 1_024
  /// A channel that comes and goes while it is peeked at is read in after so many times.
  private static let peekRoundsMax = 4

  func unreadCounts(_ header: FrameHeader, _ payload: RawSpan, _ lane: ReplyLane) throws(WireError) {
    var reader = FieldReader(payload)
    let count = try reader.count()
    guard (1...Self.unreadEntriesMax).contains(count) else {
      return refuse(header, .invalidField, "entries: 1 to \(Self.unreadEntriesMax)", lane)
    }
    var entries = reader
    var isRevoked = false
    for _ in 0..<count {
      _ = try reader.string()
      isRevoked = self.isRevoked(try reader.string()) || isRevoked
      _ = try reader.varint32()
    }
    try reader.end()
    guard !isRevoked else { return refuse(header, .tokenRevoked, nil, lane) }
    loop.entriesLeft -= count
    var request = UnreadRequest(header: header, lane: lane, answers: [])
    request.answers.reserveCapacity(count)
    for place in 0..<count {
      let cid = try entries.string()
      let user = try entries.string()
      let row = try entries.varint32()
      if let answer = unreadNow(cid, user, &request.last) {
        request.answers.append(answer)
        continue
      }
      request.answers.append(.refused(.unavailable))
      let entry = PeekRequest.Entry(
        cid: cid.withUnsafeBytes { Array($0) },
        user: user.withUnsafeBytes { Array($0) },
        row: row
      )
      let open = UnreadRequest.Open(place: place, entry: entry)
      if isBeingLoaded(entry.cid) { request.whole.append(open) } else { request.unseen.append(open) }
    }
    if !request.isDone {
      guard hasRoomForUnread else {
        return refuse(header, .busy, retryAfterMilliseconds: 100, Self.tooManyUnread, lane)
      }
    }
    unreadTicket &+= 1
    goOn(request, unreadTicket)
  }

  private static let tooManyUnread = "too many requests for unread counts"

  private var hasRoomForUnread: Bool { unreadRequests.count < configuration.unreadRequestsMax }

  /// The answer where nothing has to be read for it.
  ///
  /// - Parameter last: rises to the last effect that it tells of.
  private func unreadNow(_ cid: RawSpan, _ user: RawSpan, _ last: inout LogIndex) -> UnreadCountFields? {
    // Before it is looked for: a user's index is kept under a name that is no cid.
    guard Identifier.isCID(cid), Identifier.isUser(user) else { return .refused(.invalidField) }
    if let slot = state.slot(of: cid) {
      last = max(last, dirty.last(slot))
      if state[slot].isEnding { return .refused(.channelNotFound) }
      do throws(Refusal) {
        return .found(try state.unread(slot, user))
      } catch {
        return .refused(Self.code(error))
      }
    }
    if isDeleted(cid) {
      last = max(last, deletions.last)
      return .refused(.channelNotFound)
    }
    return ShardID.owning(cid, count: shardCount) == state.id ? nil : .refused(.wrongShard)
  }

  /// Whether a channel is on its way into memory, or has to come there since the log says more of it than its pages.
  private func isBeingLoaded(_ cid: [UInt8]) -> Bool {
    loads[.cid(cid)] != nil || tail.number(of: cid) != nil
  }

  // MARK: Going on

  /// Has done what can be done now, and answers where that is all.
  private func goOn(_ request: consuming UnreadRequest, _ ticket: UInt32) {
    var request = request
    if !request.unseen.isEmpty { peek(&request, ticket) }
    guard readWhole(&request, ticket) else {
      unreadRequests[ticket] = nil
      return refuse(
        request.header,
        .busy,
        retryAfterMilliseconds: 100,
        "too many channels are being loaded",
        request.lane
      )
    }
    guard request.isDone else {
      unreadRequests[ticket] = request
      return
    }
    unreadRequests[ticket] = nil
    // What a user or a type has set since has no part in counts, but an answer may not be from before it.
    let last = max(request.last, dirty.typesLast, dirty.usersLast)
    reply(request.header, departure(last), request.lane) { buffer in
      buffer.writeVarint(request.answers.count)
      for answer in request.answers { answer.write(into: &buffer) }
    }
  }

  /// All in one read.
  private func peek(_ request: inout UnreadRequest, _ ticket: UInt32) {
    request.peekRounds += 1
    request.peeked = request.unseen
    request.unseen = []
    for place in request.peeked.indices {
      request.peeked[place].entries = peekWatches.begin(request.peeked[place].entry.cid)
    }
    loop.peek(PeekRequest(shard: state.id, entries: request.peeked.map(\.entry), ticket: ticket))
  }

  /// A few at a time.
  ///
  /// - Returns: false where too many other channels are being loaded.
  private func readWhole(_ request: inout UnreadRequest, _ ticket: UInt32) -> Bool {
    while request.loading < configuration.unreadLoadsMax, let open = request.whole.popFirst() {
      // It may have come into memory while others were read.
      if answer(open, &request) { continue }
      let reference = ChannelReference.cid(open.entry.cid)
      if loads[reference] == nil {
        guard loads.count < configuration.loadsMax else { return false }
        load(storageReference(reference), as: reference)
      }
      loads[reference]?.unread.append(UnreadRequest.Place(ticket: ticket, open: open))
      request.loading += 1
    }
    return true
  }

  /// Answers an entry whose channel is in memory.
  private func answer(_ open: UnreadRequest.Open, _ request: inout UnreadRequest) -> Bool {
    let now = unreadNow(open.entry.cid.span.bytes, open.entry.user.span.bytes, &request.last)
    guard let now else { return false }
    request.answers[open.place] = now
    return true
  }

  // MARK: What was read

  /// Channels were peeked at.
  func peeked(_ peek: PeekRequest, _ results: [Peeked]) {
    guard var request = unreadRequests.removeValue(forKey: peek.ticket) else {
      for entry in peek.entries { _ = peekWatches.end(entry.cid, since: 0) }
      return
    }
    let peeked = request.peeked
    request.peeked = []
    for (open, result) in zip(peeked, results) {
      let isOvertaken = peekWatches.end(open.entry.cid, since: open.entries)
      guard !request.lane.isClosed, !answer(open, &request) else { continue }
      if isOvertaken {
        if request.peekRounds < Self.peekRoundsMax, !isBeingLoaded(open.entry.cid) {
          request.unseen.append(open)
        } else {
          request.whole.append(open)
        }
      } else {
        take(result, open, &request)
      }
    }
    // Its connection is gone; it is simply asked again.
    if !request.lane.isClosed { goOn(request, peek.ticket) }
  }

  /// What was read of a channel that was on storage, and in no part in memory, all the time.
  private func take(_ result: Peeked, _ open: UnreadRequest.Open, _ request: inout UnreadRequest) {
    if tail.hasEffects(on: result.channel) || tail.number(of: open.entry.cid) != nil {
      request.whole.append(open)
      return
    }
    switch result.outcome {
    case .counts where result.index > closed:
      loop.reports(
        .corrupt(
          "shard \(state.id.rawValue), channel \(result.channel.rawValue): a page of log index \(result.index.rawValue), which is not written yet"
        )
      )
      request.answers[open.place] = .refused(.unavailable)
    case .counts(let counts): request.answers[open.place] = .found(counts)
    case .absent: request.answers[open.place] = .refused(.channelNotFound)
    case .notAMember: request.answers[open.place] = .refused(.notAMember)
    case .unknown: request.whole.append(open)
    case .failed(let error):
      loop.reports(error)
      request.answers[open.place] = .refused(.unavailable)
    }
  }

  /// A channel that an entry waits for was read whole, or could not be.
  func unreadLoaded(_ place: UnreadRequest.Place, isReadable: Bool) {
    guard var request = unreadRequests.removeValue(forKey: place.ticket) else { return }
    request.loading -= 1
    // Of the peek that is under way as well it wants to know nothing more, but that ends by itself.
    if request.lane.isClosed {
      request.whole = []
      if !request.peeked.isEmpty || request.loading > 0 { unreadRequests[place.ticket] = request }
      return
    }
    if !answer(place.open, &request) {
      request.answers[place.open.place] = .refused(isReadable ? .channelNotFound : .unavailable)
    }
    goOn(request, place.ticket)
  }
}
