internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire
internal import StoreEngine

/// The loops that have shards, with the lanes of one connection there. It passes each request to the loop that owns its
/// shard: at once on the connection's own loop, at the end of a read on another.
///
/// A node of a cluster may lose shards, and own them again. It then *withholds* them from the connection until the
/// gateway has confirmed the loss (``endWithholding()``). Commands that were dropped came before those that the gateway
/// had still sent, and no command may overtake another one (Proto/frames.md, "Shards of a cluster").
///
/// A class: any turn of the connection's own loop may close the connection, and thereby its routes.
final class FrameRoutes {
  private struct Route {
    /// No other route of the connection had it.
    let number: Int
    let host: LoopHost
    /// Index of the host. It stays when another host takes its place.
    let index: Int
    let lane: ReplyLane
    /// Whether the host is on the connection's own loop. Stored, so that a request compares no event loops.
    let isLocal: Bool
    /// For another loop: frames of this read, which are forwarded at its end.
    var forward: ByteBuffer?
    /// For another loop: capacity of the next such buffer, in bytes: what the last read needed.
    var forwardCapacity = 0
    /// For another loop: requests that it has not answered.
    var unanswered = 0
  }

  /// Empty before the handshake is done, and from the end on.
  private var routes: [Route] = []
  /// Index in `routes`, by shard. In a cluster, shards that this node does not own have none.
  private var routeOfShard: [UInt8] = []
  private static let noRoute = UInt8.max
  private static let withheld = UInt8.max - 1
  /// Indexes of the hosts whose shards are withheld. Empty except in a cluster.
  private(set) var withheldHosts: Set<Int> = []
  private var lastNumber = 0

  /// Open a lane on each loop whose shards are served, unless it has one or they are withheld.
  ///
  /// - Parameter lane: makes the lane of a host, for a route of this number.
  func open(_ serving: ServingState.Serving, on eventLoop: any EventLoop, lane: (LoopHost, Int) -> ReplyLane) {
    var routeOfHost = [UInt8](repeating: Self.noRoute, count: serving.hosts.count)
    for index in withheldHosts where index < routeOfHost.count { routeOfHost[index] = Self.withheld }
    for (index, host) in serving.hosts.enumerated() where serving.isServed(index) && !withheldHosts.contains(index) {
      if let route = routes.firstIndex(where: { $0.host === host }) {
        routeOfHost[index] = UInt8(route)
        continue
      }
      lastNumber += 1
      let route = Route(
        number: lastNumber,
        host: host,
        index: index,
        lane: lane(host, lastNumber),
        isLocal: host.eventLoop === eventLoop
      )
      if route.isLocal {
        // The turn may have begun before.
        host.readClock()
        host.loop.open(route.lane)
      } else {
        Self.open(UncheckedLane(lane: route.lane), on: host)
      }
      routeOfHost[index] = UInt8(routes.count)
      routes.append(route)
    }
    routeOfShard = serving.hostOfShard.map { routeOfHost[Int($0)] }
  }

  /// Close the lanes on loops whose shards are no longer served, and withhold these shards. Call ``open(_:on:lane:)``
  /// next.
  ///
  /// - Parameter unanswered: number of unanswered requests of all routes.
  /// - Returns: how many of these get no reply; nil: no shards were lost.
  func closeLost(_ serving: ServingState.Serving, unanswered: Int) -> Int? {
    let lost = routes.filter { !serving.isServed($0.index, by: $0.host) }
    guard !lost.isEmpty else { return nil }
    // Of one loop, the connection's own, requests are counted nowhere else.
    let ownUnanswered = unanswered - routes.reduce(0) { $0 + $1.unanswered }
    routes.removeAll { route in lost.contains { $0.number == route.number } }
    var dropped = 0
    for route in lost {
      dropped += route.isLocal ? ownUnanswered : route.unanswered
      withheldHosts.insert(route.index)
      close(route)
    }
    return dropped
  }

  /// Withhold no shards any more. Call ``open(_:on:lane:)`` next.
  func endWithholding() { withheldHosts = [] }

  /// Return whether a shard is withheld: its requests are neither applied nor answered.
  func isWithheld(_ shard: ShardID) -> Bool {
    let shard = Int(shard.rawValue)
    return !withheldHosts.isEmpty && shard < routeOfShard.count && routeOfShard[shard] == Self.withheld
  }

  /// Record replies of another loop.
  ///
  /// - Returns: false if the route is closed: the replies are about shards that were lost.
  func answered(_ count: Int, byRoute number: Int) -> Bool {
    guard let position = routes.firstIndex(where: { $0.number == number }) else { return false }
    routes[position].unanswered -= count
    return true
  }

  /// Begin a turn of the connection's own loop.
  func beginTurn() {
    for route in routes where route.isLocal { route.host.readClock() }
  }

  /// Pass a request on.
  ///
  /// - Parameter frame: the request with its header.
  /// - Returns: false if another node owns the shard, or it is withheld; then nothing was done.
  @inline(__always)
  func receive(_ header: FrameHeader, _ payload: RawSpan, frame: RawSpan) throws(WireError) -> Bool {
    let shard = Int(header.shard.rawValue)
    // Any loop refuses a shard that does not exist.
    let position = shard < routeOfShard.count ? Int(routeOfShard[shard]) : 0
    guard position < routes.count else { return false }
    if routes[position].isLocal {
      try routes[position].host.loop.receive(header, payload, lane: routes[position].lane)
    } else {
      var forward = routes[position].forward ?? emptyForward(for: position)
      routes[position].forward = nil
      forward.writeRaw(frame)
      routes[position].forward = forward
      routes[position].unanswered += 1
    }
    return true
  }

  private func emptyForward(for position: Int) -> ByteBuffer {
    var buffer = ByteBuffer()
    buffer.reserveCapacity(routes[position].forwardCapacity)
    return buffer
  }

  /// End the turn of the connection's own loop.
  func endTurn() {
    for route in routes where route.isLocal { route.host.loop.endTurn() }
  }

  /// End a read: the turn of the connection's own loop, and forward what is for others.
  func endRead() {
    var position = 0
    // The end of a turn may close the connection: a write may fail.
    while position < routes.count {
      if routes[position].isLocal {
        routes[position].host.loop.endTurn()
      } else if let frames = routes[position].forward {
        routes[position].forward = nil
        routes[position].forwardCapacity = frames.writerIndex
        Self.forward(frames, to: routes[position].host, lane: UncheckedLane(lane: routes[position].lane))
      }
      position += 1
    }
  }

  /// Close all lanes.
  func close() {
    let closed = routes
    routes = []
    for route in closed { close(route) }
  }

  private func close(_ route: Route) {
    if route.isLocal {
      route.host.loop.close(route.lane)
    } else {
      Self.close(UncheckedLane(lane: route.lane), on: route.host)
    }
  }

  // MARK: Other loops

  /// A lane for another loop.
  ///
  /// `@unchecked Sendable`: the lane is made here, and from then on used only on its host's loop.
  private struct UncheckedLane: @unchecked Sendable {
    var lane: ReplyLane
  }

  private static func forward(_ frames: ByteBuffer, to host: LoopHost, lane: UncheckedLane) {
    host.eventLoop.execute { host.receive(frames, lane: lane.lane) }
  }

  private static func open(_ lane: UncheckedLane, on host: LoopHost) {
    host.eventLoop.execute { host.loop.open(lane.lane) }
  }

  private static func close(_ lane: UncheckedLane, on host: LoopHost) {
    host.eventLoop.execute { host.loop.close(lane.lane) }
  }
}
