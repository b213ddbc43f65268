internal import HTTP2Session
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// A request waiting for the store's reply.
struct PendingRequest {
  var target: ReplyTarget
  /// The route and the kind of caller decide how a refusal is reported.
  var route: Route
  /// Whether a server makes the request, or the gateway itself.
  var isServer: Bool
  /// Whether it is a page query with one reply, whose number ``WaitingRequestsPart`` limits.
  var isPageQuery: Bool
  /// When it was sent, in nanoseconds of the loop's clock; 0 for most requests, whose round trip is not measured.
  var sentAt: UInt64 = 0

  init(_ target: ReplyTarget, route: Route, isServer: Bool, isPageQuery: Bool) {
    self.target = target
    self.route = route
    self.isServer = isServer
    self.isPageQuery = isPageQuery
  }
}

/// The requests waiting for the store, in reusable slots. A tag for the store client combines slot and generation, so a
/// duplicate or late tag is detected.
///
/// Not a ``SlotTable``: each mark goes in and out of this table, without checks for bounds or uniqueness.
struct PendingRequests: ~Copyable {
  /// Bitwise copyable, so `deinit` need not visit slots.
  private struct Slot: BitwiseCopyable {
    var request: PendingRequest
    var generation: UInt32
    /// The next free slot, or `inUse`.
    var next: UInt32
  }

  private static let inUse = UInt32.max
  private static let endOfList = UInt32.max - 1

  private var slots: UnsafeMutablePointer<Slot>
  private var capacity: Int
  /// Slots below this are initialised.
  private var initializedCount = 0
  private var freeHead = PendingRequests.endOfList
  /// Pending requests.
  private(set) var count = 0
  /// Those of them that are page queries.
  private(set) var pageQueryCount = 0

  init(capacity: Int = 1_024) {
    self.capacity = capacity
    slots = .allocate(capacity: capacity)
  }

  deinit { slots.deallocate() }

  /// Add a request; returns its tag.
  mutating func insert(_ request: PendingRequest) -> UInt64 {
    let index: UInt32
    if freeHead != Self.endOfList {
      index = freeHead
      freeHead = slots[Int(index)].next
      slots[Int(index)].request = request
      slots[Int(index)].next = Self.inUse
    } else {
      if initializedCount == capacity { grow() }
      index = UInt32(initializedCount)
      (slots + initializedCount).initialize(to: Slot(request: request, generation: 1, next: Self.inUse))
      initializedCount += 1
    }
    count += 1
    if request.isPageQuery { pageQueryCount += 1 }
    return UInt64(slots[Int(index)].generation) << 32 | UInt64(index)
  }

  /// Remove the request of a tag; nil where it was removed before.
  mutating func remove(_ tag: UInt64) -> PendingRequest? {
    let index = Int(UInt32(truncatingIfNeeded: tag))
    guard index < initializedCount, slots[index].generation == UInt32(tag >> 32), slots[index].next == Self.inUse
    else {
      return nil
    }
    slots[index].generation &+= 1
    slots[index].next = freeHead
    freeHead = UInt32(index)
    count -= 1
    if slots[index].request.isPageQuery { pageQueryCount -= 1 }
    return slots[index].request
  }

  private mutating func grow() {
    let larger = UnsafeMutablePointer<Slot>.allocate(capacity: capacity * 2)
    larger.moveInitialize(from: slots, count: initializedCount)
    slots.deallocate()
    slots = larger
    capacity *= 2
  }
}

/// The request or part that sent a store request, and the index of the store request in it.
enum ReplyTarget {
  /// A request of a client, answered with this one reply.
  case response(HTTP2StreamHandle, connection: ConnectionIndex)
  /// A request of a client, whose answer also has names that ``EchoingResponsesPart`` keeps.
  case echoingResponse(SlotIndex, HTTP2StreamHandle, connection: ConnectionIndex)
  /// An entry of a ``FanOut``.
  case fanOut(SlotIndex, entry: UInt32)
  case valueChange(SlotIndex, ValueChangeStoreRequest)
  /// An entry of an ``AckBatch``.
  ///
  /// - Parameter isByName: whether the push ack names its user and message; else it has a ticket.
  case ackBatch(SlotIndex, entry: UInt32, isByName: Bool)
  case hook(SlotIndex, HookStoreRequest)
  case userScan(SlotIndex, UserScanStoreRequest)
  case userList(SlotIndex, UserListStoreRequest)
  case erasure(SlotIndex, ErasureStoreRequest)
  case settlement(SettlementStoreRequest)
  /// A page of ``TokenListing``.
  case tokenList(round: UInt32)
  case events(EventStoreRequest)
  /// A shard's part of a ``ConsumerRequest``.
  case consumer(SlotIndex, shard: UInt16)
  /// A shard's part of a ``PushJobRequest``.
  case pushJob(SlotIndex, shard: UInt16)
  case feed(SlotIndex, FeedStoreRequest)
  case export(SlotIndex, ExportStoreRequest)
  /// A request of a ``RequestStream``.
  case stream(SlotIndex, StreamStoreRequest)
}

/// The result of one store request, as its sender gets it. The payload is valid during the call.
enum StoreResult: ~Escapable {
  case reply(kind: FrameKind, payload: RawSpan)
  case failure(StoreRequestFailure)

  var isReply: Bool {
    if case .reply = self { true } else { false }
  }
}

/// A failed store request.
struct StoreRequestFailure {
  let reason: StoreFailure
  /// The route and the kind of caller decide how the failure is reported.
  let route: Route
  let isServer: Bool

  /// The failure as the caller sees it.
  var problem: Problem { Problem(reason, route: route, isServer: isServer) }
}
