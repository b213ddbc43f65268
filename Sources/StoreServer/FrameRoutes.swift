import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine

/// The loops that have shards, with the lanes of one connection there. It passes each request to the loop that owns its
/// shard: at once on the connection's own loop, at the end of a read on another.
///
/// A class: any turn of the connection's own loop may close the connection, and thereby its routes.
final class FrameRoutes {
  private struct Route {
    let host: LoopHost
    let lane: ReplyLane
    /// For another loop: frames of this read, which are forwarded at its end.
    var forward: ByteBuffer?
  }

  /// Empty before the opening is done, and from the end on.
  private var routes: [Route] = []
  private var routeOfShard: [UInt8] = []

  /// Opens a lane on each loop.
  func open(
    _ hosts: [LoopHost],
    hostOfShard: [UInt8],
    on eventLoop: any EventLoop,
    lane: (LoopHost) -> ReplyLane
  ) {
    routeOfShard = hostOfShard
    routes = hosts.map { host in
      let lane = lane(host)
      if host.eventLoop === eventLoop {
        host.loop.open(lane)
      } else {
        Self.open(UncheckedLane(lane: lane), on: host)
      }
      return Route(host: host, lane: lane)
    }
  }

  /// Begins a turn of the connection's own loop.
  func beginTurn(on eventLoop: any EventLoop) {
    for route in routes where route.host.eventLoop === eventLoop { route.host.readClock() }
  }

  /// Passes a request on.
  ///
  /// - Parameter frame: the request with its header.
  @inline(__always)
  func receive(
    _ header: FrameHeader,
    _ payload: RawSpan,
    frame: RawSpan,
    on eventLoop: (any EventLoop)?
  ) throws(WireError) {
    let shard = Int(header.shard.rawValue)
    // Any loop refuses a shard that does not exist.
    let position = shard < routeOfShard.count ? Int(routeOfShard[shard]) : 0
    if routes[position].host.eventLoop === eventLoop {
      try routes[position].host.loop.receive(header, payload, lane: routes[position].lane)
    } else {
      var forward = routes[position].forward ?? ByteBuffer()
      routes[position].forward = nil
      forward.writeRaw(frame)
      routes[position].forward = forward
    }
  }

  /// Ends the turn of the connection's own loop.
  func endTurn(on eventLoop: any EventLoop) {
    for route in routes where route.host.eventLoop === eventLoop { route.host.loop.endTurn() }
  }

  /// Ends a read: the turn of the connection's own loop, and forwards what is for others.
  func endRead(on eventLoop: any EventLoop) {
    var position = 0
    // The end of a turn may close the connection: a write may fail.
    while position < routes.count {
      if routes[position].host.eventLoop === eventLoop {
        routes[position].host.loop.endTurn()
      } else if let frames = routes[position].forward {
        routes[position].forward = nil
        Self.forward(frames, to: routes[position].host, lane: UncheckedLane(lane: routes[position].lane))
      }
      position += 1
    }
  }

  /// Closes all lanes.
  func close(on eventLoop: (any EventLoop)?) {
    let closed = routes
    routes = []
    for route in closed {
      if route.host.eventLoop === eventLoop {
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
