internal import NIOCore
package import ReceiptModel
internal import ReceiptWire

/// A pending read of a channel from storage, which requests wait for. They block no other channel.
struct ChannelLoad {
  /// Identifies the read. An older read of the same channel may still be in flight, from before the channel was loaded
  /// and evicted; its result is stale and is ignored.
  let loadID: UInt32
  /// Set for a user's index that has pending changes.
  var isForChanges = false
  /// Set for a read that only looks up the name; the channel is not kept in memory.
  var isForName = false
  /// In arrival order. Requests about the channel itself wait in ``WaitingRequests``.
  var waiters: [LoadWaiter] = []
}

/// Work over several channels that waits for a load of one of them.
enum LoadWaiter {
  /// An entry of a request for unread counts.
  case unread(UnreadRequest.PendingEntry)
  case scan(ChannelScans.PendingLoad)
  /// Due timers of a channel, whose name is looked up first.
  case timers(ChannelNumber)
}

/// The name of a channel that was looked up by its number, in order to load it. A number never changes its name.
enum LookedUpName {
  case named([UInt8])
  /// There is no channel with this number.
  case notFound
}

/// A channel to read from storage, requested from the loop's driver.
package struct LoadRequest: Hashable, Sendable {
  package var shard: ShardID
  package var channel: ChannelReference
  /// Tells reads of one channel apart; returned with the result.
  package var loadID: UInt32
  /// A background read: reads that requests wait for go first.
  package var isBackground = false
}

/// The reads of channels from storage that are in flight, and the requests that wait for them.
final class ChannelLoads: ShardPart {
  private var loads: [ChannelReference: ChannelLoad] = [:]
  /// Id of the last load.
  private(set) var lastLoadID: UInt32 = 0
  /// Tail channels that are being loaded so that the log can be trimmed.
  private var tailLoads = 0
  /// When to retry tail channels that could not be read, in the loop's elapsed time.
  private var tailRetryAt: Int64 = 0
  /// Loads of users' indexes with pending changes.
  private(set) var countForChanges = 0

  var count: Int { loads.count }
  /// Whether another channel may be loaded for a request.
  var hasRoom: Bool { loads.count - countForChanges < shard.configuration.loadsMax }

  func isInFlight(_ reference: ChannelReference) -> Bool { loads[reference] != nil }

  /// Let a request wait until a channel is loaded, or, with its number, until its name is known (``LookedUpName``).
  /// Starts the load if none is in flight.
  func wait(
    _ request: borrowing Request,
    for reference: ChannelReference,
    progress: RequestAttempt.Progress? = nil
  ) -> Outcome {
    if loads[reference] == nil {
      guard hasRoom else {
        return .refused(.busy, retryAfterMilliseconds: 100, "too many channels are being loaded")
      }
      load(reference)
    }
    return shard.waiting.add(request, for: .load(reference), progress: progress)
  }

  /// Start to load a channel. Storage may find it under another reference.
  ///
  /// - Parameters:
  ///   - isForName: only look up the name.
  ///   - isBackground: a background load, for which no request waits.
  func load(_ reference: ChannelReference, isForName: Bool = false, isBackground: Bool = false) {
    let channel = storageReference(reference)
    lastLoadID &+= 1
    loads[reference] = ChannelLoad(loadID: lastLoadID, isForName: isForName)
    var request = LoadRequest(shard: shard.state.id, channel: channel, loadID: lastLoadID)
    request.isBackground = isBackground
    shard.loop.memory.load(request, as: reference)
  }

  /// Let work wait for a load in flight.
  func add(_ waiter: LoadWaiter, to reference: ChannelReference) {
    loads[reference]?.waiters.append(waiter)
  }

  /// Resume work whose load has finished or failed.
  private func resume(_ waiter: LoadWaiter, isReadable: Bool) {
    switch waiter {
    case .unread(let entry): shard.unreadQueries.loaded(entry, isReadable: isReadable)
    case .scan(let pending): shard.scans.loaded(pending, isReadable: isReadable)
    case .timers(let number): isReadable ? shard.timers.loaded(number) : shard.timers.unreadable(number)
    }
  }

  /// Return whether the work was not cancelled.
  private func isRunning(_ waiter: LoadWaiter) -> Bool {
    switch waiter {
    case .unread(let entry): shard.unreadQueries.isRunning(entry.requestID)
    case .scan(let pending): shard.scans.isRunning(pending.scanID)
    case .timers: true
    }
  }

  /// Load a user's index for pending changes, or make a load in flight count as such.
  func loadForChanges(_ reference: ChannelReference) {
    if loads[reference] == nil { load(reference, isBackground: true) }
    guard loads[reference]?.isForChanges == false else { return }
    loads[reference]?.isForChanges = true
    countForChanges += 1
  }

  /// Id of the oldest load in flight.
  var oldestInFlight: UInt32? { loads.values.map(\.loadID).min() }

  /// Return whether this read is still wanted.
  func isWanted(_ request: LoadRequest, as reference: ChannelReference) -> Bool {
    loads[reference]?.loadID == request.loadID
  }

  /// Return the reference for reading from storage. A channel created in the log's tail is found there by number only,
  /// if at all.
  private func storageReference(_ reference: ChannelReference) -> ChannelReference {
    if case .cid(let cid) = reference, let number = shard.tail.number(of: cid) { return .number(number) }
    return reference
  }

  /// Load channels of the log's tail in the background, so that the log can be trimmed.
  func drainTail(inFlightMax: Int) {
    if shard.tail.hasPostponed, shard.loop.elapsedMilliseconds >= tailRetryAt { shard.tail.retryPostponed() }
    while tailLoads < inFlightMax, let number = shard.tail.next() {
      tailLoads += 1
      load(.number(number), isBackground: true)
    }
  }

  /// Install a channel that was read, then perform the requests that waited for it.
  func loaded(_ request: LoadRequest, as reference: ChannelReference, _ result: Result<StoredChannel?, StorageError>) {
    guard isWanted(request, as: reference), let load = takeLoad(reference) else { return }
    defer { shard.resumeIndexWork(isAfterRead: true) }
    if load.isForName { return shard.indexRebuild.nameRead(reference, result) }
    if case .head(let number) = reference {
      return nameRead(number, load.waiters, result)
    }
    var waiting = shard.waiting.take(.load(reference))
    var waiters = load.waiters
    do throws(StorageError) {
      let slot = try install(result.get(), reference)
      if case .number = reference {
        tailLoads -= 1
        // Serve the requests that wait for it by name first; later requests find it in memory.
        if let slot, let named = takeLoad(.cid(shard.state[slot].cid)) {
          waiting = shard.waiting.take(.load(.cid(shard.state[slot].cid)))
          waiters = named.waiters
        }
      } else if load.isForChanges {
        shard.indexes.recordAbsence(reference)
      }
    } catch {
      if case .number(let number) = reference {
        tailLoads -= 1
        shard.tail.postpone(number)
        tailRetryAt = shard.loop.elapsedMilliseconds + shard.configuration.tailRetryMilliseconds
      }
      shard.loop.driver.reportError(error)
      for item in waiting { refuseUnreadable(item) }
      for waiter in waiters { resume(waiter, isReadable: false) }
      if load.isForChanges {
        shard.indexes.recordUnreadable(reference, error, number: (try? result.get())?.number)
      }
      shard.indexRebuild.recordUnreadable(reference, error)
      return
    }
    for (index, request) in waiting.enumerated() {
      shard.resume(request, .loaded(mayPostpone: index > 0))
    }
    for waiter in waiters { resume(waiter, isReadable: true) }
  }

  /// Resume the requests and timers that waited for the name of a channel.
  private func nameRead(
    _ number: ChannelNumber,
    _ waiters: [LoadWaiter],
    _ result: Result<StoredChannel?, StorageError>
  ) {
    let waiting = shard.waiting.take(.load(.head(number)))
    do throws(StorageError) {
      let cid = try name(of: number, result.get())
      for request in waiting { shard.resume(request, .named(cid.map { .named($0) } ?? .notFound)) }
      if !waiters.isEmpty { shard.timers.nameRead(number, cid) }
    } catch {
      shard.loop.driver.reportError(error)
      for request in waiting { refuseUnreadable(request) }
      if !waiters.isEmpty { shard.timers.unreadable(number) }
    }
  }

  /// Remove a load that is no longer in flight.
  private func takeLoad(_ reference: ChannelReference) -> ChannelLoad? {
    guard let load = loads.removeValue(forKey: reference) else { return nil }
    if load.isForChanges { countForChanges -= 1 }
    return load
  }

  func refuseUnreadable(_ request: WaitingRequest) {
    shard.refuse(request, RefusedRequest(.unavailable, retryAfterMilliseconds: 1000, "the channel cannot be read"))
  }

  /// Forget the loads that no request waits for any more, after the connection of some has closed. A load that is
  /// delayed for lack of memory is then never started.
  func cancelUnwanted() {
    for (reference, load) in loads where !isWanted(load, reference) { loads[reference] = nil }
  }

  private func isWanted(_ load: ChannelLoad, _ reference: ChannelReference) -> Bool {
    // Loads for the log's tail, for a user's index and for a rebuild have no request.
    if case .number = reference { return true }
    return load.isForChanges || load.isForName || shard.indexRebuild.isLoading(reference)
      || shard.waiting.hasWaiting(.load(reference)) || load.waiters.contains(where: isRunning)
  }

  /// - Returns: the channel's slot if it was installed now.
  private func install(_ stored: StoredChannel?, _ reference: ChannelReference) throws(StorageError) -> ChannelSlot? {
    // A tail channel that was loaded by name meanwhile, together with its tail.
    if case .number(let asked) = reference, shard.tail.effects(of: asked).isEmpty { return nil }
    var number: ChannelNumber
    if let stored {
      number = stored.number
    } else {
      switch reference {
      case .number(let asked), .head(let asked): number = asked
      case .cid(let cid):
        guard let created = shard.tail.number(of: cid) else { return nil }
        number = created
      }
    }
    let location = "shard \(shard.state.id.rawValue), channel \(number.rawValue)"
    var pages: [(page: PageID, content: Page)] = []
    for (page, bytes) in stored?.pages ?? [] {
      let content = try ShardEngine.page(bytes, "\(location), page \(page)")
      guard content.index <= shard.log.closed else {
        throw .corrupt("\(location), page \(page): of log index \(content.index.rawValue), which is not written yet")
      }
      pages.append((page, content))
    }
    var head = shard.tail.head(of: number)
    if case .channel(_, .channelAssigned(let cid, let created, let own))? = pages.first?.content.effects.first {
      head = (cid, created, own)
    }
    guard let head else {
      // Neither on storage nor in the tail: another load has installed it already.
      if stored == nil, shard.tail.effects(of: number).isEmpty { return nil }
      throw .corrupt("\(location): the head page is missing")
    }
    let cid = Array(head.cid.utf8)
    if case .cid(let asked) = reference, asked != cid {
      throw .corrupt("\(location): was found under the cid of another channel")
    }
    // Meanwhile another load may have installed it, or the hold of its deletion may have ended.
    guard shard.state.slot(named: cid) == nil, !shard.deletions.hasEndedUnloaded(number) else { return nil }
    let content = try LoadedContent(number, pages, shard.tail.effects(of: number), location)
    // Assigning four effects takes as long as adding one member.
    shard.loop.budget.useEntries(1 + content.effects.count / 4)
    let begun = shard.tail.effects(of: number).first { $0.effect == .deletionBegun }?.index
    let slot = shard.install(content, number, cid: head.cid, created: head.created, own: head.own)
    if !shard.state[slot].isBeingDeleted, shard.events.channelLoaded(cid, slot) { shard.events.findExpiry(slot) }
    if shard.deletions.hasSlicesLeft(slot) {
      shard.deletions.resume(slot, at: begun ?? shard.log.closed)
    }
    return slot
  }

  /// Return whether a looked-up name is to be loaded: by now it may belong to another channel.
  func mayLoad(lookedUp cid: [UInt8]) -> Bool {
    !IndexName.isIndex(cid) && shard.deletions.index(absent: cid) == nil && shard.state.slot(named: cid) == nil
  }

  /// Return the name of a channel that is on storage or was created in the log's tail; nil if no channel has that
  /// number.
  func name(of number: ChannelNumber, _ stored: StoredChannel?) throws(StorageError) -> [UInt8]? {
    let location = "shard \(shard.state.id.rawValue), channel \(number.rawValue), head page"
    if let head = stored?.pages.first, head.page == .head,
      case .channel(number, .channelAssigned(let cid, _, _))? = try ShardEngine.page(head.bytes, location)
        .effects.first
    {
      return Array(cid.utf8)
    }
    if let head = shard.tail.head(of: number) { return Array(head.cid.utf8) }
    guard stored == nil else { throw .corrupt("\(location): is missing") }
    return nil
  }
}
