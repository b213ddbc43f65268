internal import DequeModule
internal import ReceiptModel
internal import ReceiptWire

/// A request for unread counts that waits for channels to be read (R14).
struct UnreadRequest {
  /// An unanswered entry, with its position in the request.
  struct Open {
    var index: Int
    var entry: StorageReadRequest.Entry
    /// How often the channel had been loaded when its peek began, counted while peeks are in flight.
    var entries: UInt32 = 0
  }

  /// An entry whose channel is being loaded.
  struct PendingEntry {
    var requestID: UInt32
    var open: Open
  }

  var results: [UnreadCountFields]
  /// Last effect that the replies reveal.
  var last = LogIndex.zero
  /// Entries to peek at next, together.
  var unpeeked: [Open] = []
  /// Entries with a peek in flight.
  var peeked: [Open] = []
  var peekRounds = 0
  /// Entries whose channels must be loaded; and the number of loads in flight.
  var whole: Deque<Open> = []
  var loading = 0

  var isDone: Bool { unpeeked.isEmpty && peeked.isEmpty && whole.isEmpty && loading == 0 }
}

/// Unread counts of many channels and users at once (Proto/frames.md, 0x2A; R14). Channels in memory answer directly.
/// Channels on storage are peeked at and stay there. A channel is loaded only if it has effects in the log's tail, or
/// its pages are not enough.
final class UnreadQueries: ShardPart {
  /// Requests that wait for channels to load, by request id.
  private var unreadRequests: [UInt32: UnreadRequest] = [:]
  /// Id of the last of these requests.
  private var lastRequestID: UInt32 = 0
  /// Channels with a peek in flight.
  private var staleReads = StaleReadDetector()

  /// Record that a channel was loaded or created.
  func channelLoaded(_ cid: [UInt8]) { staleReads.channelLoaded(cid) }

  /// Maximum number of entries in one request.
  private static let unreadEntriesMax = 1_024
  /// Number of peeks after which a channel that is loaded and evicted meanwhile is loaded for good.
  private static let peekRoundsMax = 4

  func unreadCounts(_ request: inout Request) throws(WireError) -> Outcome {
    let count = try request.fields.count()
    guard (1...Self.unreadEntriesMax).contains(count) else {
      return .refused(.invalidField, "entries: 1 to \(Self.unreadEntriesMax)")
    }
    var entries = request.fields
    var isRevoked = false
    for _ in 0..<count {
      let entry = try UnreadCountEntry(&request.fields)
      isRevoked = shard.isRevoked(entry.user, request) || isRevoked
    }
    try request.fields.end()
    guard !isRevoked else { return shard.refused(.tokenRevoked, nil) }
    shard.loop.budget.useEntries(count)
    var unread = UnreadRequest(results: [])
    unread.results.reserveCapacity(count)
    for index in 0..<count {
      let fields = try UnreadCountEntry(&entries)
      let (cid, user, row) = (fields.cid, fields.user, fields.row)
      if let counts = unreadNow(cid, user, &unread.last) {
        unread.results.append(counts)
        continue
      }
      unread.results.append(.refused(.unavailable))
      let entry = StorageReadRequest.Entry(
        cid: cid.withUnsafeBytes { Array($0) },
        user: user.withUnsafeBytes { Array($0) },
        row: row
      )
      let open = UnreadRequest.Open(index: index, entry: entry)
      if isBeingLoaded(entry.cid) { unread.whole.append(open) } else { unread.unpeeked.append(open) }
    }
    guard !unread.isDone else { return reply(unread, request.header, request.lane) }
    lastRequestID &+= 1
    let outcome = shard.waiting.add(request.header, request.lane, for: .unread(lastRequestID))
    if case .waits = outcome { runSlice(unread, lastRequestID) }
    return outcome
  }

  /// Drop a request whose connection is gone. A peek in flight ends by itself.
  func cancel(_ requestID: UInt32) { unreadRequests[requestID] = nil }

  func isRunning(_ requestID: UInt32) -> Bool { unreadRequests[requestID] != nil }

  /// Return the reply if nothing must be read for it.
  ///
  /// - Parameter last: raised to the last effect that the reply reveals.
  private func unreadNow(_ cid: RawSpan, _ user: RawSpan, _ last: inout LogIndex) -> UnreadCountFields? {
    // Check first: a user's index is stored under a name that is not a cid.
    guard Identifier.isCID(cid), Identifier.isUser(user) else { return .refused(.invalidField) }
    if let slot = shard.state.slot(of: cid) {
      last = max(last, shard.dirty.last(slot))
      if shard.state[slot].isBeingDeleted { return .refused(.channelNotFound) }
      do throws(Refusal) {
        return .found(try shard.state.unread(slot, user))
      } catch {
        return .refused(ShardEngine.code(error))
      }
    }
    if shard.deletions.isDeleted(cid) {
      last = max(last, shard.deletions.last)
      return .refused(.channelNotFound)
    }
    return ShardID.owning(cid, count: shard.shardCount) == shard.state.id ? nil : .refused(.wrongShard)
  }

  /// Return whether a channel is being loaded, or must be because the log's tail has effects on it.
  private func isBeingLoaded(_ cid: [UInt8]) -> Bool {
    shard.loads.isInFlight(.cid(cid)) || shard.tail.number(of: cid) != nil
  }

  // MARK: Progress

  /// Do all work that can be done now, and answer the request if it is complete.
  private func runSlice(_ request: consuming UnreadRequest, _ requestID: UInt32) {
    var request = request
    if !request.unpeeked.isEmpty { peek(&request, requestID) }
    guard loadChannels(&request, requestID) else {
      let refused = RefusedRequest(.busy, retryAfterMilliseconds: 100, "too many channels are being loaded")
      for waiting in shard.waiting.take(.unread(requestID)) {
        shard.refuse(waiting.header, refused, waiting.lane)
      }
      return
    }
    guard request.isDone else {
      unreadRequests[requestID] = request
      return
    }
    for waiting in shard.waiting.take(.unread(requestID)) { _ = reply(request, waiting.header, waiting.lane) }
  }

  private func reply(_ request: UnreadRequest, _ header: FrameHeader, _ lane: ReplyLane) -> Outcome {
    // Settings and type options have no part in counts, but a reply must not predate their last change.
    let last = max(request.last, shard.dirty.typesLast, shard.dirty.usersLast)
    return shard.reply(header, shard.replyTiming(last), lane) { buffer in
      buffer.writeVarint(request.results.count)
      for counts in request.results { counts.write(into: &buffer) }
    }
  }

  /// Peek at all entries in one read.
  private func peek(_ request: inout UnreadRequest, _ requestID: UInt32) {
    request.peekRounds += 1
    request.peeked = request.unpeeked
    request.unpeeked = []
    for index in request.peeked.indices {
      request.peeked[index].entries = staleReads.begin(request.peeked[index].entry.cid)
    }
    shard.loop.driver.peek(
      StorageReadRequest(shard: shard.state.id, entries: request.peeked.map(\.entry), requestID: requestID)
    )
  }

  /// Load a few channels at a time.
  ///
  /// - Returns: false if too many other channels are being loaded.
  private func loadChannels(_ request: inout UnreadRequest, _ requestID: UInt32) -> Bool {
    while request.loading < shard.configuration.unreadLoadsMax, let open = request.whole.popFirst() {
      // The channel may have been loaded meanwhile.
      if fillIn(open, &request) { continue }
      let reference = ChannelReference.cid(open.entry.cid)
      if !shard.loads.isInFlight(reference) {
        guard shard.loads.count < shard.configuration.loadsMax else { return false }
        shard.loads.load(reference)
      }
      shard.loads.add(.unread(UnreadRequest.PendingEntry(requestID: requestID, open: open)), to: reference)
      request.loading += 1
    }
    return true
  }

  /// Answer an entry whose channel is in memory.
  private func fillIn(_ open: UnreadRequest.Open, _ request: inout UnreadRequest) -> Bool {
    let now = unreadNow(open.entry.cid.span.bytes, open.entry.user.span.bytes, &request.last)
    guard let now else { return false }
    request.results[open.index] = now
    return true
  }

  // MARK: Results of reads

  /// Handle the results of a peek.
  func peeked(_ peek: StorageReadRequest, _ results: [StorageUnreadCounts]) {
    guard var request = unreadRequests.removeValue(forKey: peek.requestID) else {
      for entry in peek.entries { _ = staleReads.end(entry.cid, since: 0) }
      return
    }
    let peeked = request.peeked
    request.peeked = []
    for (open, result) in zip(peeked, results) {
      let isOvertaken = staleReads.end(open.entry.cid, since: open.entries)
      guard !fillIn(open, &request) else { continue }
      if isOvertaken {
        if request.peekRounds < Self.peekRoundsMax, !isBeingLoaded(open.entry.cid) {
          request.unpeeked.append(open)
        } else {
          request.whole.append(open)
        }
      } else {
        apply(result, open, &request)
      }
    }
    runSlice(request, peek.requestID)
  }

  /// Apply a peek's result for a channel that stayed on storage all the time.
  private func apply(_ result: StorageUnreadCounts, _ open: UnreadRequest.Open, _ request: inout UnreadRequest) {
    if shard.tail.hasEffects(on: result.channel) || shard.tail.number(of: open.entry.cid) != nil {
      request.whole.append(open)
      return
    }
    if shard.state.consumers.heldDeletion(of: result.channel) != nil {
      request.results[open.index] = .refused(.channelNotFound)
      return
    }
    switch result.outcome {
    case .counts where result.index > shard.log.closed:
      shard.loop.driver.reportError(
        .corrupt(
          "shard \(shard.state.id.rawValue), channel \(result.channel.rawValue): "
            + "a page of log index \(result.index.rawValue), which is not written yet"
        )
      )
      request.results[open.index] = .refused(.unavailable)
    case .counts(let counts): request.results[open.index] = .found(counts)
    case .absent: request.results[open.index] = .refused(.channelNotFound)
    case .notAMember: request.results[open.index] = .refused(.notAMember)
    case .unknown: request.whole.append(open)
    case .failed(let error):
      shard.loop.driver.reportError(error)
      request.results[open.index] = .refused(.unavailable)
    }
  }

  /// Handle a finished or failed load of a channel that an entry waits for.
  func loaded(_ entry: UnreadRequest.PendingEntry, isReadable: Bool) {
    guard var request = unreadRequests.removeValue(forKey: entry.requestID) else { return }
    request.loading -= 1
    if !fillIn(entry.open, &request) {
      request.results[entry.open.index] = .refused(isReadable ? .channelNotFound : .unavailable)
    }
    runSlice(request, entry.requestID)
  }
}

/// Channels with peeks in flight, to detect loads meanwhile: after one, the peek's result is stale or mixes two states.
struct StaleReadDetector {
  private struct Watch {
    var peeks = 0
    var entries: UInt32 = 0
  }

  private var watches: [[UInt8]: Watch] = [:]

  /// Begin a peek.
  ///
  /// - Returns: a count to pass to ``end(_:since:)``.
  mutating func begin(_ cid: [UInt8]) -> UInt32 {
    watches[cid, default: Watch()].peeks += 1
    return watches[cid]?.entries ?? 0
  }

  /// End a peek.
  ///
  /// - Returns: whether the channel was loaded since the peek began.
  mutating func end(_ cid: [UInt8], since entries: UInt32) -> Bool {
    guard var watch = watches[cid] else { return true }
    watch.peeks -= 1
    watches[cid] = watch.peeks == 0 ? nil : watch
    return watch.entries != entries
  }

  /// Record that a channel was loaded.
  mutating func channelLoaded(_ cid: [UInt8]) {
    guard !watches.isEmpty else { return }
    watches[cid]?.entries &+= 1
  }
}
