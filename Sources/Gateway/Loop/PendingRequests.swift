internal import HTTP2Session

/// What the reply of a request to the store is made into.
enum ReplyShape: UInt8 {
  /// `{"read": row}`.
  case row
  /// `{"message": …}` of a registration.
  case registration
  /// `{"message": …}` of a deletion.
  case deletion
  /// `{"channel": …}`, 201 where it was created.
  case createdChannel
  /// `{"channel": …}`.
  case channel
  case readState
  /// One status.
  case status
  /// `{"statuses": […]}`.
  case statuses
  case channelType
  case user
  /// `{"acknowledged": […], "errors": […]}`.
  case acknowledged
  /// A list of a message's members.
  case members
  /// `{"members": […]}` of chosen members.
  case memberStatuses
  /// One of the entries of a ``Gather``.
  case entry
  // What ``Settling`` asks for; `entry` is the shard, or the number of the value.
  case unsettled
  case assignment
  case settlement

  var isSettling: Bool { rawValue >= ReplyShape.unsettled.rawValue }
}

/// A request that waits for the store.
struct PendingRequest {
  var stream: HTTP2StreamHandle
  /// The connection's place in the ``ConnectionTable``.
  var connection: UInt32
  /// The place of its ``Gather``, and the entry's in that; unused for other shapes.
  var gather: UInt32 = 0
  var entry: UInt32 = 0
  var shape: ReplyShape
  var route: Route
  var isServer: Bool
  /// When it was sent, in nanoseconds of the loop's clock; 0 for most, whose round trip is not measured.
  var sentAt: UInt64 = 0
}

/// The requests that wait for the store, in slots that are used again; a token for the store client is slot
/// and generation, so a token that comes twice, or late, is noticed.
struct PendingRequests: ~Copyable {
  private struct Slot {
    var request: PendingRequest
    var generation: UInt32
    /// The next free slot, or `inUse`.
    var next: UInt32
  }

  private static let inUse = UInt32.max
  private static let endOfList = UInt32.max - 1

  private var slots: UnsafeMutablePointer<Slot>
  private var capacity: Int
  /// Slots below this have been used before.
  private var touched = 0
  private var freeHead = PendingRequests.endOfList
  /// Requests that wait.
  private(set) var count = 0

  init(capacity: Int = 1_024) {
    self.capacity = capacity
    slots = .allocate(capacity: capacity)
  }

  deinit { slots.deallocate() }

  /// Keeps a request; returns its token.
  mutating func insert(_ request: PendingRequest) -> UInt64 {
    let index: UInt32
    if freeHead != Self.endOfList {
      index = freeHead
      freeHead = slots[Int(index)].next
      slots[Int(index)].request = request
      slots[Int(index)].next = Self.inUse
    } else {
      if touched == capacity { grow() }
      index = UInt32(touched)
      (slots + touched).initialize(to: Slot(request: request, generation: 1, next: Self.inUse))
      touched += 1
    }
    count += 1
    return UInt64(slots[Int(index)].generation) << 32 | UInt64(index)
  }

  /// Takes out the request of a token; nil where it has been taken out before.
  mutating func remove(_ token: UInt64) -> PendingRequest? {
    let index = Int(UInt32(truncatingIfNeeded: token))
    guard index < touched, slots[index].generation == UInt32(token >> 32), slots[index].next == Self.inUse
    else {
      return nil
    }
    slots[index].generation &+= 1
    slots[index].next = freeHead
    freeHead = UInt32(index)
    count -= 1
    return slots[index].request
  }

  private mutating func grow() {
    let larger = UnsafeMutablePointer<Slot>.allocate(capacity: capacity * 2)
    larger.moveInitialize(from: slots, count: touched)
    slots.deallocate()
    slots = larger
    capacity *= 2
  }
}
