internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire
internal import StoreEngine

/// The loops that have shards, with the lanes of one connection there. It passes each request to the loop that owns its
/// shard: at once on the connection's own loop, at the end of a read on another.
///
/// A class: any turn of the connection's own loop may close the connection, and thereby its routes.
final class FrameRoutes {
  private struct Route {
    let host: LoopHost
    let lane: ReplyLane
    /// Whether the host is on the connection's own loop. Stored, so that a request compares no event loops.
    let isLocal: Bool
    /// For another loop: frames of this read, which are forwarded at its end.
    var forward: ByteBuffer?
  }

  /// Empty before the handshake is done, and from the end on.
  private var routes: [Route] = []
  /// Index in `routes`, by shard. In a cluster, shards that this node does not own have none.
  private var routeOfShard: [UInt8] = []
  private static let noRoute = UInt8.max

  /// Open a lane on each loop whose shards are served, unless it has one.
  func open(_ serving: ServingState.Serving, on eventLoop: any EventLoop, lane: (LoopHost) -> ReplyLane) {
    var routeOfHost = [UInt8](repeating: Self.noRoute, count: serving.hosts.count)
    for (index, host) in serving.hosts.enumerated() where serving.isServed(index) {
      if let route = routes.firstIndex(where: { $0.host === host }) {
        routeOfHost[index] = UInt8(route)
        continue
      }
      let route = Route(host: host, lane: lane(host), isLocal: host.eventLoop === eventLoop)
      if route.isLocal {
        host.loop.open(route.lane)
      } else {
        Self.open(UncheckedLane(lane: route.lane), on: host)
      }
      routeOfHost[index] = UInt8(routes.count)
      routes.append(route)
    }
    routeOfShard = serving.hostOfShard.map { routeOfHost[Int($0)] }
  }

  /// Begin a turn of the connection's own loop.
  func beginTurn() {
    for route in routes where route.isLocal { route.host.readClock() }
  }

  /// Pass a request on.
  ///
  /// - Parameter frame: the request with its header.
  /// - Returns: false if another node owns the shard; then nothing was done.
  @inline(__always)
  func receive(_ header: FrameHeader, _ payload: RawSpan, frame: RawSpan) throws(WireError) -> Bool {
    let shard = Int(header.shard.rawValue)
    // Any loop refuses a shard that does not exist.
    let position = shard < routeOfShard.count ? Int(routeOfShard[shard]) : 0
    guard position < routes.count else { return false }
    if routes[position].isLocal {
      try routes[position].host.loop.receive(header, payload, lane: routes[position].lane)
    } else {
      var forward = routes[position].forward ?? ByteBuffer()
      routes[position].forward = nil
      forward.writeRaw(frame)
      routes[position].forward = forward
    }
    return true
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
        Self.forward(frames, to: routes[position].host, lane: UncheckedLane(lane: routes[position].lane))
      }
      position += 1
    }
  }

  /// Close all lanes.
  func close() {
    let closed = routes
    routes = []
    for route in closed {
      if route.isLocal {
        route.host.loop.close(route.lane)
      } else {
        Self.close(UncheckedLane(lane: route.lane), on: route.host)
      }
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
