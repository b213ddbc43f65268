internal import HTTP2Session
internal import NIOCore

/// A stream that stays open: a streamed request, or an event stream.
class OpenStream {
  final let handle: HTTP2StreamHandle
  /// The connection's index in the ``ConnectionTable``.
  final let connection: ConnectionIndex
  /// The caller; the stream ends when its token does.
  final let caller: Caller
  /// Bytes of a streamed body consumed, and bytes of the response passed to HTTP/2.
  final var bytesRead: UInt64 = 0
  final var bytesWritten: UInt64 = 0
  private final var progress = ClientProgress()

  init(_ context: RequestContext) {
    handle = context.stream
    connection = context.connection
    caller = context.caller
  }

  /// Whether progress depends on the client, besides reading what HTTP/2 has queued.
  var waitsForClient: Bool { false }

  /// Return whether the stream has waited for its client for the timeout, as of this check.
  ///
  /// - Parameter queued: bytes of its response queued in HTTP/2.
  final func isStalled(queued: Int, at now: NIODeadline, timeout: TimeAmount) -> Bool {
    let moved = bytesRead &+ bytesWritten &- UInt64(queued)
    return progress.isStalled(moved: moved, clientMustAct: queued > 0 || waitsForClient, at: now, timeout: timeout)
  }
}

/// Detector of a client without progress: it neither reads queued bytes nor sends more of an incomplete frame or line.
struct ClientProgress {
  private var bytesMoved: UInt64 = 0
  /// Nil before the first check.
  private var movedAt: NIODeadline?

  /// Check for progress: ``HTTP2Limits/progressBytesMin`` since the last one, or nothing to do.
  ///
  /// - Parameters:
  ///   - moved: bytes that the stream has moved in its life.
  ///   - clientMustAct: whether the next step is the client's.
  mutating func isStalled(moved: UInt64, clientMustAct: Bool, at now: NIODeadline, timeout: TimeAmount) -> Bool {
    guard let movedAt, clientMustAct, moved &- bytesMoved < UInt64(HTTP2Limits.progressBytesMin) else {
      bytesMoved = moved
      movedAt = now
      return false
    }
    return now - movedAt >= timeout
  }
}

/// Why the gateway ends a stream before its client does.
enum StreamEnd {
  /// The caller's token has expired.
  case tokenExpired
  /// The caller's token was revoked.
  case tokenRevoked
  /// The gateway is shutting down.
  case draining

  var problem: Problem {
    switch self {
    case .tokenExpired: Problem(.tokenExpired)
    case .tokenRevoked: Problem(.tokenRevoked)
    case .draining: OpenStreamsPart.shuttingDown
    }
  }
}

/// A part that has open streams.
protocol OpenStreamOwner: GatewayPart {
  var openStreams: [OpenStream] { get }
  /// Return the streams of every `parts`th slot, from slot `part` on.
  func openStreams(part: Int, of parts: Int) -> [OpenStream]
  /// How often each of its streams is checked.
  var checkInterval: TimeAmount { get }
  /// How long a stream may wait for its client before it is reset.
  var stallTimeout: TimeAmount { get }

  /// Forget a stream whose client has disconnected, if it is one of the part's.
  func aborted(_ stream: HTTP2StreamHandle)
  /// Continue a stream that can write again, if it is one of the part's.
  func drained(_ stream: HTTP2StreamHandle)

  /// Begin to end a stream, after what it has begun; ``completeEnds()`` follows.
  func end(_ stream: OpenStream, _ reason: StreamEnd)
  /// Remove a stream whose client has stalled, and count it; ``completeEnds()`` follows.
  func removeStalled(_ stream: OpenStream)
  /// Do what is left to do for streams that have ended. Called after each check, also if none has.
  func completeEnds()
  /// Continue after each check of all streams.
  func streamsChecked()
}

/// Streams of both kinds that stay open: their one timer, and their end when a token expires or is revoked, when a
/// client stalls, and when the gateway shuts down.
final class OpenStreamsPart: GatewayPart {
  private var ticker: RepeatedTask?
  private var ticks = 0
  /// Whether the loop is draining and refuses new streams.
  private var isDraining = false

  private lazy var owners: [any OpenStreamOwner] = [loop.events, loop.streams, loop.feedStreams, loop.exports]

  func aborted(_ stream: HTTP2StreamHandle) {
    for owner in owners { owner.aborted(stream) }
  }

  func drained(_ stream: HTTP2StreamHandle) {
    for owner in owners { owner.drained(stream) }
  }

  /// Check that a stream may be opened.
  ///
  /// - Throws: `store_busy` while draining.
  func checkNotDraining() throws(Problem) {
    if isDraining { throw Self.shuttingDown }
  }

  static let shuttingDown = Problem(.storeBusy, "this gateway is shutting down")

  override func start() {
    let tick = owners.map(\.checkInterval).min() ?? .seconds(1)
    let bound = NIOLoopBound(self, eventLoop: loop.eventLoop)
    ticker = loop.eventLoop.scheduleRepeatedTask(initialDelay: tick, delay: tick) { _ in
      bound.value.ticked(each: tick)
      bound.value.loop.releaseUnusedMemory()
    }
  }

  override func stop() {
    ticker?.cancel()
    ticker = nil
  }

  /// Check a part of each owner's streams, so that a turn does not walk all of up to 50,000.
  private func ticked(each tick: TimeAmount) {
    ticks &+= 1
    let (now, wallClock) = (loop.eventLoop.now, loop.now)
    for owner in owners {
      let parts = max(1, Int(owner.checkInterval.nanoseconds / tick.nanoseconds))
      let part = ticks % parts
      for stream in owner.openStreams(part: part, of: parts) {
        let connection = loop.connections.connection(stream.connection)
        let queued = connection?.queuedBytes(stream.handle) ?? 0
        if stream.isStalled(queued: queued, at: now, timeout: owner.stallTimeout) {
          owner.removeStalled(stream)
          connection?.reset(stream.handle, .cancel)
          loop.connections.markDirty(stream.connection)
        } else if wallClock >= stream.caller.expiresAt {
          owner.end(stream, .tokenExpired)
        }
      }
      owner.completeEnds()
      if part == 0 { owner.streamsChecked() }
    }
    loop.endTurnSoon()
  }

  /// End the streams of revoked tokens.
  func revoke(where isRevoked: (Caller) -> Bool) { end(.tokenRevoked) { isRevoked($0.caller) } }

  /// End all streams, and accept no new ones.
  override func drain() {
    isDraining = true
    end(.draining) { _ in true }
  }

  private func end(_ reason: StreamEnd, where isEnding: (OpenStream) -> Bool) {
    for owner in owners {
      for stream in owner.openStreams where isEnding(stream) { owner.end(stream, reason) }
      owner.completeEnds()
    }
  }
}
