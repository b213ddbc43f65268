internal import HTTP2Session
internal import Operations
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// A request whose body is read as it comes, and answered as it is read: both directions flow at once. What its bytes
/// mean is its subclass's affair; ``GatewayLoop`` tells it when there may be something to do, and carries bytes and
/// requests for it.
///
/// Nothing of it grows without a bound: a stream that has too much under way, or whose client does not take its
/// answers, reads no more of the body, and HTTP/2's window then stops the client.
class RequestStream {
  let handle: HTTP2StreamHandle
  /// The connection's place in the ``ConnectionTable``.
  let connection: UInt32
  let route: Route
  let caller: Caller
  /// From where it comes, where that is asked (``RequestContext/address``).
  let address: PeerAddress?
  /// Its place in the ``RequestStreamTable``.
  fileprivate(set) var place: UInt32 = 0
  /// It is on the list of those that have something to do at the end of the turn.
  fileprivate var isMarked = false
  /// It waits for the loop's other streams to have less under way.
  fileprivate var isHeld = false

  /// Bytes of the body that were taken, and of the answer that were given to HTTP/2.
  var bytesRead: UInt64 = 0
  var bytesWritten: UInt64 = 0
  /// What the sweep has seen of both, and for how many ticks it has stood still while it waited for its client.
  fileprivate var bytesSeen: (read: UInt64, sent: UInt64) = (0, 0)
  fileprivate var ticksStalled = 0

  init(_ context: RequestContext, _ route: Route) {
    handle = context.stream
    connection = context.connection
    caller = context.caller
    address = context.address
    self.route = route
  }

  /// HTTP/2 has refused answers, and says when it takes more.
  final var isFull = false
  /// A part of something that is read whole has come.
  final var hasPart = false
  /// What is under way has left no room for the rest of what has come.
  final var lacksRoom = false

  /// It can only go on when its client does, beside taking what HTTP/2 holds.
  final var waitsForClient: Bool { hasPart || isFull }

  /// Reads, sends and writes what it can. Called at most once a turn, when the body, the answer or the requests under
  /// way have moved.
  final func advance(on loop: GatewayLoop) {
    write(loop)
    if isReading, !isFull {
      hasPart = false
      lacksRoom = false
      read(loop)
      write(loop)
      // What asks nothing of the store brings no reply to go on with.
      if lacksRoom, !isWaiting, !isFull { loop.touch(self) }
    }
    finish(loop)
  }

  /// More of the body is taken.
  var isReading: Bool { preconditionFailure("a subclass's") }

  /// The store has requests of it, whose replies it is called for.
  var isWaiting: Bool { preconditionFailure("a subclass's") }

  /// Takes what it can of the body; notes in ``hasPart`` and ``lacksRoom`` why it has taken no more.
  func read(_ loop: GatewayLoop) { preconditionFailure("a subclass's") }

  /// Gives HTTP/2 the answers that there are, in one piece; notes in ``isFull`` whether it took them.
  func write(_ loop: GatewayLoop) { preconditionFailure("a subclass's") }

  /// Ends the stream once all that was taken is answered and nothing more is.
  func finish(_ loop: GatewayLoop) { preconditionFailure("a subclass's") }

  /// A reply to one of its requests; `payload` is valid during the call. ``advance(on:)`` follows at the turn's end.
  func replied(_ request: PendingRequest, _ kind: FrameKind, _ payload: RawSpan, on loop: GatewayLoop) {
    preconditionFailure("a subclass's")
  }

  /// One of its requests got no reply. ``advance(on:)`` follows at the turn's end.
  func failed(_ request: PendingRequest, _ failure: StoreFailure, on loop: GatewayLoop) {
    preconditionFailure("a subclass's")
  }

  /// It is to take no more of the body, to answer what it has taken, and to end with the reason. ``advance(on:)``
  /// follows.
  func end(_ reason: StreamEnd) { preconditionFailure("a subclass's") }
}

/// Why a streamed request is ended before its client ends it.
enum StreamEnd {
  /// The caller's token has expired.
  case tokenExpired
  /// The caller's token was revoked.
  case tokenRevoked
  /// This gateway goes away.
  case draining
}

/// The streamed requests of one loop.
struct RequestStreamTable {
  private(set) var streams: [RequestStream?] = []
  private var free: [UInt32] = []
  /// Places by the handle of the HTTP/2 stream.
  private var places: [UInt64: UInt32] = [:]
  private var marked: [RequestStream] = []
  /// Those that wait for ``inFlight`` to fall, longest first.
  private var held: [RequestStream] = []
  /// Requests of all of them that the store has not answered, of streams that have ended too.
  var inFlight = 0
  /// No stream is begun any more.
  var isDraining = false

  // Counted since the start.
  var opened: UInt64 = 0
  var stalled: UInt64 = 0

  var count: Int { streams.count - free.count }

  /// The stream of a place, if it is still the one of that handle.
  @inline(__always)
  func stream(at place: UInt32, _ handle: HTTP2StreamHandle) -> RequestStream? {
    guard let stream = streams[Int(place)], stream.handle == handle else { return nil }
    return stream
  }

  func stream(of handle: HTTP2StreamHandle) -> RequestStream? {
    places[handle.rawValue].flatMap { streams[Int($0)] }
  }

  mutating func insert(_ stream: RequestStream) {
    if let reused = free.popLast() {
      stream.place = reused
      streams[Int(reused)] = stream
    } else {
      stream.place = UInt32(streams.count)
      streams.append(stream)
    }
    places[stream.handle.rawValue] = stream.place
    opened &+= 1
  }

  mutating func remove(_ stream: RequestStream) {
    guard streams[Int(stream.place)] === stream else { return }
    streams[Int(stream.place)] = nil
    free.append(stream.place)
    places[stream.handle.rawValue] = nil
  }

  /// Has ``RequestStream/advance(on:)`` called at the turn's end. True where this is the first of the turn.
  @inline(__always)
  mutating func mark(_ stream: RequestStream) -> Bool {
    if stream.isMarked { return false }
    stream.isMarked = true
    marked.append(stream)
    return marked.count == 1
  }

  /// Those that were marked, in that order.
  mutating func takeMarked() -> [RequestStream] {
    if marked.isEmpty { return [] }
    let streams = marked
    marked = []
    for stream in streams { stream.isMarked = false }
    return streams.filter { self.streams[Int($0.place)] === $0 }
  }

  /// The stream goes on when fewer requests are under way.
  mutating func hold(_ stream: RequestStream) {
    if stream.isHeld { return }
    stream.isHeld = true
    held.append(stream)
  }

  var hasHeld: Bool { !held.isEmpty }

  /// Those that were held, for another try.
  mutating func takeHeld() -> [RequestStream] {
    if held.isEmpty { return [] }
    let streams = held
    held = []
    for stream in streams { stream.isHeld = false }
    return streams.filter { self.streams[Int($0.place)] === $0 }
  }
}

extension RequestStream {
  /// Looks, once a tick, whether it has moved. True where its client has kept it waiting for that many ticks.
  ///
  /// - Parameter queued: bytes of its answer that wait in HTTP/2.
  func stalls(queued: Int, ticksMax: Int) -> Bool {
    let seen = (read: bytesRead, sent: bytesWritten &- UInt64(queued))
    let hasMoved = seen != bytesSeen
    bytesSeen = seen
    guard !hasMoved, queued > 0 || waitsForClient else {
      ticksStalled = 0
      return false
    }
    ticksStalled += 1
    return ticksStalled >= ticksMax
  }
}
