import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine
import TestSupport

/// Requests at the loops. The oracle decides each at the moment at which the store performs it: on arrival, once its
/// channel is in memory, or in a later slice.
extension Simulation {
  /// A model without slices, which the comparison must detect.
  enum ModelMistake: CaseIterable {
    /// A request that waits for a slice is decided on arrival.
    case postponesNothing
    /// A sliced query is answered in its first one.
    case slicesNothing
  }

  /// The way of a request that is about to be performed.
  private enum Way {
    case decide
    case refuse(UInt64)
    case waitForChannel(String, startsLoad: Bool)
    /// It does not parse.
    case fail
  }

  func take(_ request: Request, _ isResend: Bool, _ connection: Connection, _ target: SimulatedLoop) {
    let lane = connection.lanes[target.number]
    guard !lane.isClosed, !target.isHalted else { return }
    arrivals += 1
    var request = request
    request.arrival = arrivals
    connection.requests[request.correlation] = request
    let way = way(of: request, target)
    if case .waitForChannel(let cid, startsLoad: true) = way {
      oracles[request.shard].loading[.cid(Array(cid.utf8))] = .some(nil)
    }
    let header = FrameHeader(
      request.content.kind,
      flags: isResend ? request.content.flags.union(.resend) : request.content.flags,
      shard: ShardID(UInt16(request.shard)),
      correlation: request.correlation
    )
    arriving = (request, false)
    var error: WireError?
    do { try target.loop.receive(header, request.payload().readableBytesSpan, lane: lane) } catch let thrown {
      error = thrown
    }
    let isPostponed = arriving?.isPostponed == true
    arriving = nil
    if isPostponed {
      if case .waitForChannel(let cid, startsLoad: true) = way {
        oracles[request.shard].loading.removeValue(forKey: .cid(Array(cid.utf8)))
      }
      oracles[request.shard].postponed.append(ShardOracle.Waiting(request: request, connection: connection))
      if mistake == .postponesNothing { decide(request, connection, target) }
    } else if case .fail = way {
      if error == nil { faults.append("\(request) was taken though it does not parse") }
    } else {
      follow(way, request, connection, target)
      if let error { faults.append("\(request): \(error)") }
    }
    if let error { lane.fail(error) }
  }

  /// Predict the way of a request that the store is about to perform.
  private func way(of request: Request, _ target: SimulatedLoop) -> Way {
    guard let cid = request.content.cid else { return .decide }
    let shard = request.shard
    let bytes = Array(cid.utf8)
    let id = ShardID(UInt16(shard))
    // The store may evict any channel; later answers show that no data was lost.
    if oracles[shard].inMemory.contains(cid), !target.loop.isLoaded(id, cid: bytes.span.bytes) {
      oracles[shard].recordEvicted(cid)
      count("evicted")
    }
    if target.loop.isBeingDeleted(id, cid: bytes.span.bytes) {
      count("asked while being deleted")
      // Its name is not free yet.
      return request.content.isPut ? .refuse(NaiveShard.Code.busy) : .decide
    }
    if target.loop.isDeleted(id, cid: bytes.span.bytes) { return .decide }
    if oracles[shard].inMemory.contains(cid) {
      if case .malformed = request.content { return .fail }
      return .decide
    }
    if Int(ShardID.owning(bytes.span.bytes, count: Self.shardCount).rawValue) != shard {
      return .refuse(NaiveShard.Code.wrongShard)
    }
    let isLoading = oracles[shard].loading[.cid(bytes)] != nil
    if !isLoading, oracles[shard].loading.count >= configuration.loadsMax {
      return .refuse(NaiveShard.Code.busy)
    }
    if oracles[shard].waiting[cid, default: []].count >= configuration.waitingPerLoadMax {
      return .refuse(NaiveShard.Code.busy)
    }
    return .waitForChannel(cid, startsLoad: !isLoading)
  }

  private func follow(_ way: Way, _ request: Request, _ connection: Connection, _ target: SimulatedLoop) {
    switch way {
    case .decide: decide(request, connection, target)
    case .refuse(let code):
      if !isOver(request, connection, target) { expect(.refused(code), request, connection) }
    case .waitForChannel(let cid, _):
      oracles[request.shard].waiting[cid, default: []].append(
        ShardOracle.Waiting(request: request, connection: connection)
      )
      count("waits")
    case .fail: closingConnections.insert(connection.serial)
    }
  }

  func expect(_ reply: Reply, _ request: Request, _ connection: Connection, needs: Int = 0) {
    if case .refused(let code) = reply { count(Self.refusal(code)) }
    let cid = request.content.cid
    connection.expected[request.correlation] = Connection.Expectation(
      replies: [reply],
      shard: request.shard,
      needs: needs,
      cid: cid,
      deletions: cid.map { oracles[request.shard].deletionCount(of: $0) } ?? 0
    )
  }

  /// Whether a request has no result. A request that waited when its connection closed is not applied, but sent again.
  /// One that follows an unparsable request in the same connection's queue is lost.
  private func isOver(_ request: Request, _ connection: Connection, _ target: SimulatedLoop) -> Bool {
    connection.lanes[target.number].isClosed || closingConnections.contains(connection.serial)
  }

  func decide(_ request: Request, _ connection: Connection, _ target: SimulatedLoop) {
    if connection.lanes[target.number].isClosed { return }
    if case .malformed(let cid) = request.content, oracles[request.shard].live.channels[cid] != nil {
      closingConnections.insert(connection.serial)
      return
    }
    if isOver(request, connection, target) { return }
    let (reply, needs) = oracles[request.shard].decide(
      request,
      session: connection.session,
      clock: target.clock
    )
    let key = CommandKey(session: connection.session, counter: request.counter)
    if refused.contains(key), oracles[request.shard].taken[key] != nil {
      faults.append("\(request) is applied after its gateway received the refusal")
    }
    expect(reply, request, connection, needs: needs)
  }

  // MARK: Requests that waited

  /// A loop is about to carry out a decision that the oracle does not predict.
  func noteDecision(_ decision: SchedulingDecision, _ target: SimulatedLoop) {
    switch decision {
    case .postpone(let header, let lane): postpone(header, lane, target)
    case .slice(let header, let lane):
      count("sliced queries")
      connection(of: lane, target)?.sliced.insert(header.correlation)
    case .resume(let header, let lane): resume(header, lane, target)
    case .install(let request, let reference, let isReadable):
      install(request, reference, isReadable: isReadable, target)
    }
  }

  /// A lane of the simulation itself has none.
  private func connection(of lane: ReplyLane, _ target: SimulatedLoop) -> Connection? {
    connections.first { $0.lanes[target.number] === lane }
  }

  private func postpone(_ header: FrameHeader, _ lane: ReplyLane, _ target: SimulatedLoop) {
    count("postponed")
    if arriving?.request.correlation == header.correlation {
      arriving?.isPostponed = true
      return
    }
    guard let item = takeLookedUp(header, lane, target) else {
      faults.append("\(header) is postponed, though it does not wait for its channel")
      return
    }
    count("postponed after a load")
    oracles[item.request.shard].postponed.append(item)
    if mistake == .postponesNothing { decide(item.request, item.connection, target) }
  }

  private func takeLookedUp(_ header: FrameHeader, _ lane: ReplyLane, _ target: SimulatedLoop) -> ShardOracle.Waiting? {
    let place = lookedUp.firstIndex {
      $0.request.correlation == header.correlation && $0.connection.lanes[target.number] === lane
    }
    return place.map { lookedUp.remove(at: $0) }
  }

  private func resume(_ header: FrameHeader, _ lane: ReplyLane, _ target: SimulatedLoop) {
    guard let connection = connection(of: lane, target) else { return }
    let shard = Int(header.shard.rawValue)
    let postponed = oracles[shard].postponed.firstIndex {
      $0.request.correlation == header.correlation && $0.connection === connection
    }
    if let postponed {
      let request = oracles[shard].postponed.remove(at: postponed).request
      if mistake == .postponesNothing { return }
      let way = way(of: request, target)
      switch way {
      case .waitForChannel(let cid, startsLoad: true):
        oracles[shard].loading[.cid(Array(cid.utf8))] = .some(nil)
      case .decide: checkOrder(of: request, target)
      case .waitForChannel, .refuse, .fail: break
      }
      follow(way, request, connection, target)
    } else if let item = takeLookedUp(header, lane, target) {
      checkOrder(of: item.request, target)
      let cid = Array((item.request.content.cid ?? "").utf8)
      let isBeingDeleted = target.loop.isBeingDeleted(header.shard, cid: cid.span.bytes)
      if isBeingDeleted, item.request.content.isPut {
        follow(.refuse(NaiveShard.Code.busy), item.request, connection, target)
      } else {
        decide(item.request, connection, target)
      }
    } else if connection.sliced.contains(header.correlation), let request = connection.requests[header.correlation] {
      continueQuery(request, connection, target)
    } else {
      faults.append("\(header) is performed, though it does not wait")
    }
  }

  /// A query continues in another slice, and is answered as things are then.
  private func continueQuery(_ request: Request, _ connection: Connection, _ target: SimulatedLoop) {
    if mistake == .slicesNothing || isOver(request, connection, target) { return }
    guard var expected = connection.expected[request.correlation] else { return }
    let (reply, needs) = oracles[request.shard].decide(
      request,
      session: connection.session,
      clock: target.clock
    )
    if reply != expected.replies.last { count("sliced queries with changes") }
    expected.replies.append(reply)
    expected.needs = max(expected.needs, needs)
    connection.expected[request.correlation] = expected
  }

  /// Requests about one channel are performed in the order in which they came. Those of closed connections are not.
  private func checkOrder(of request: Request, _ target: SimulatedLoop) {
    guard let cid = request.content.cid else { return }
    let oracle = oracles[request.shard]
    let others = oracle.waiting[cid, default: []] + oracle.postponed + lookedUp
    for other in others where other.request.content.cid == cid && other.request.shard == request.shard {
      if other.request.arrival < request.arrival, !isOver(other.request, other.connection, target) {
        faults.append("\(request) overtakes \(other.request)")
      }
    }
  }

  // MARK: Channels that were read

  private func install(
    _ request: LoadRequest,
    _ reference: ChannelReference,
    isReadable: Bool,
    _ target: SimulatedLoop
  ) {
    checkLookedUp(target)
    let shard = Int(request.shard.rawValue)
    let isExpected = oracles[shard].loading[reference] == .some(request.loadID)
    if isExpected { oracles[shard].loading.removeValue(forKey: reference) }
    let named: String? =
      switch reference {
      case .cid(let bytes):
        isExpected && !IndexName.isIndex(bytes) ? String(decoding: bytes, as: UTF8.self) : nil
      case .number(let number): oracles[shard].names[number]
      case .head: nil
      }
    guard let cid = named else { return }
    guard isReadable else {
      guard case .cid = reference else { return }
      for item in oracles[shard].waiting.removeValue(forKey: cid) ?? [] {
        follow(.refuse(NaiveShard.Code.unavailable), item.request, item.connection, target)
      }
      return
    }
    if case .number(let number) = reference {
      // Waiting requests find the channel while it is being deleted, and get not found.
      let isNew =
        oracles[shard].live.channels[cid] != nil && !oracles[shard].loadedSinceStart.contains(cid)
        || oracles[shard].unfinishedDeletions[number] != nil
      guard isNew else { return }
      if oracles[shard].loading.removeValue(forKey: .cid(Array(cid.utf8))) != nil { count("taken in by number") }
    }
    oracles[shard].recordLoaded(cid)
    oracles[shard].unfinishedDeletions = oracles[shard].unfinishedDeletions.filter { $0.value != cid }
    lookedUp = oracles[shard].waiting.removeValue(forKey: cid) ?? []
  }

  /// Check, at the end of a loop's call, that the store has performed what waited for a channel that was read. Requests
  /// of closed connections are dropped.
  func checkLookedUp(_ target: SimulatedLoop) {
    for item in lookedUp where !target.isHalted && !item.connection.lanes[target.number].isClosed {
      faults.append("\(item.request) is not performed, though its channel was read")
    }
    lookedUp = []
  }
}
