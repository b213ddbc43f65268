internal import HTTP2Session
internal import Operations
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// A store request of a ``RequestStream``.
enum StreamStoreRequest {
  case frame(FrameStoreRequest)
  /// A line with an acknowledgement.
  ///
  /// - Parameter isByName: as in ``ReplyTarget/ackBatch(_:entry:isByName:)``.
  case ack(entry: UInt32, isByName: Bool)
  /// A group of lines of an import.
  case imported(ImportOrder.GroupID)
}

/// A request whose body is processed while it arrives; its response is written at the same time. A conforming class
/// parses the body. ``GatewayLoop`` calls the stream when there may be work, and transports its bytes and store
/// requests.
///
/// All state is bounded: a stream with too much in flight, or whose client does not read its responses, stops reading
/// the body, and HTTP/2's window then stops the client.
protocol RequestStream: RequestStreamState {
  /// Whether the stream still reads its body.
  var isReading: Bool { get }

  /// Whether store requests are in flight, whose replies advance the stream.
  var hasRequestsInFlight: Bool { get }

  /// Read what it can of the body. Sets ``RequestStreamState/hasPartialItem`` and ``RequestStreamState/lacksRoom`` to
  /// say why it stopped.
  func read(_ loop: GatewayLoop)

  /// Pass the pending responses to HTTP/2, as one buffer. Sets ``RequestStreamState/isFull`` if HTTP/2 refused them.
  func write(_ loop: GatewayLoop)

  /// End the stream once reading has ended and everything is answered and written.
  func finish(_ loop: GatewayLoop)

  /// Handle the result of a store request. ``advance(on:)`` follows at the end of the turn.
  func completed(_ request: StreamStoreRequest, with result: StoreResult, on loop: GatewayLoop)

  /// Stop reading the body, to answer what was read and end with the reason. ``advance(on:)`` follows.
  func end(_ reason: StreamEnd)
}

extension RequestStream {
  /// Read, send and write as much as possible. Called at most once a turn, after progress of the body, the response or
  /// the requests in flight.
  func advance(on loop: GatewayLoop) {
    write(loop)
    if isReading, !isFull {
      hasPartialItem = false
      lacksRoom = false
      itemsRead = 0
      read(loop)
      write(loop)
      // Without a request to the store there is no reply to continue with.
      if lacksRoom, isTurnOver || !hasRequestsInFlight, !isFull { loop.streams.scheduleLater(self) }
    }
    finish(loop)
  }
}

/// The state that all kinds of ``RequestStream`` have.
class RequestStreamState: OpenStream {
  let route: Route
  /// The client address, if it is needed (``RequestContext/address``).
  let address: PeerAddress?
  /// Its index in the ``RequestStreamTable``; nil before it is opened.
  fileprivate(set) var index: SlotIndex?
  /// Whether it is scheduled to advance at the end of the turn.
  fileprivate var isScheduled = false
  /// Whether it continues in a later turn.
  fileprivate var isScheduledLater = false

  override init(_ context: RequestContext) {
    address = context.address
    route = context.route
    super.init(context)
  }

  /// Whether HTTP/2 has refused answers; it notifies when it takes more.
  final var isFull = false
  /// Whether an incomplete frame or line has arrived.
  final var hasPartialItem = false
  /// Whether a limit has stopped the reading of the body: on requests in flight, on answers, or ``itemsPerTurn``.
  final var lacksRoom = false
  /// Frames or lines that a stream may read in one turn of the loop, so that one client does not delay others.
  static let itemsPerTurn = 256
  /// Frames or lines read in this turn.
  final var itemsRead = 0

  /// Whether the stream has read all that it may read in this turn.
  final var isTurnOver: Bool { itemsRead >= Self.itemsPerTurn }

  final override var waitsForClient: Bool { hasPartialItem || isFull }

  /// Return the registration of one of the stream's store requests.
  final func pendingRequest(_ request: StreamStoreRequest) -> PendingRequest {
    guard let index else { preconditionFailure("a stream reads its body once it is open") }
    return PendingRequest(.stream(index, request), route: route, isServer: caller.isServer, isPageQuery: false)
  }
}

/// The open streamed requests of one loop, and those that are to advance.
struct RequestStreamTable {
  private var streams = SlotTable<any RequestStream>()
  /// Indexes by the handle of the HTTP/2 stream.
  private var indexes: [UInt64: SlotIndex] = [:]
  private var scheduled: [any RequestStream] = []
  /// Streams that wait for fewer requests in flight.
  private var waitingForRoom = WaitingQueue<SlotIndex, SlotIndex>()

  var count: Int { streams.count }

  var all: [any RequestStream] { streams.all.map(\.value) }

  /// Return the streams of every `parts`th slot, from slot `part` on.
  func streams(part: Int, of parts: Int) -> [any RequestStream] { streams.values(part: part, of: parts) }

  /// Return the number of streams of one caller (``Caller/key``).
  func count(of caller: UInt64) -> Int { streams.indexes.count { streams[$0]?.caller.key == caller } }

  subscript(index: SlotIndex) -> (any RequestStream)? { streams[index] }

  func stream(of handle: HTTP2StreamHandle) -> (any RequestStream)? {
    indexes[handle.rawValue].flatMap { streams[$0] }
  }

  mutating func insert(_ stream: any RequestStream) {
    let index = streams.insert(stream)
    stream.index = index
    indexes[stream.handle.rawValue] = index
  }

  mutating func remove(_ stream: any RequestStream) {
    guard holds(stream), let index = stream.index else { return }
    streams.remove(index)
    waitingForRoom.cancel(index)
    indexes[stream.handle.rawValue] = nil
  }

  private func holds(_ stream: any RequestStream) -> Bool {
    stream.index.map { streams[$0] === stream } ?? false
  }

  /// Schedule ``RequestStream/advance(on:)`` for the end of the turn. True where this is the first stream of the turn.
  @inline(__always)
  mutating func schedule(_ stream: any RequestStream) -> Bool {
    if stream.isScheduled { return false }
    stream.isScheduled = true
    scheduled.append(stream)
    return scheduled.count == 1
  }

  /// Take the scheduled streams, in order.
  mutating func takeScheduled() -> [any RequestStream] {
    if scheduled.isEmpty { return [] }
    let streams = scheduled
    scheduled = []
    for stream in streams { stream.isScheduled = false }
    return streams.filter { holds($0) }
  }

  /// Schedule a stream for a later turn. False where it is already.
  func scheduleLater(_ stream: any RequestStream) -> Bool {
    defer { stream.isScheduledLater = true }
    return !stream.isScheduledLater
  }

  /// End that. False where the stream has ended.
  func resume(_ stream: any RequestStream) -> Bool {
    stream.isScheduledLater = false
    return holds(stream)
  }

  /// Let a stream wait until fewer requests are in flight.
  mutating func waitForRoom(_ stream: any RequestStream) {
    guard let index = stream.index, !waitingForRoom.contains(index) else { return }
    waitingForRoom.requeue(index, id: index)
  }

  var hasWaitingForRoom: Bool { !waitingForRoom.isEmpty }

  /// Take the streams that wait for room, longest first, for another attempt.
  mutating func takeWaitingForRoom() -> [any RequestStream] {
    waitingForRoom.popOldest(countMax: .max) { _ in true }.compactMap { streams[$0] }
  }
}
