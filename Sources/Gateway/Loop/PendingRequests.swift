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
  /// `{"member": {"user", "role"?, "joined_at", "muted"}}`, 201 where they joined.
  case member
  /// `{"cid", "deleted"}`.
  case deletedChannel
  /// `{"channels": […]}` of a user.
  case channelsOfUser
  case readState
  /// The same of a thread.
  case threadRows
  /// `{"members": […]}` of a channel.
  case roster
  /// `{"messages": […]}` of a channel.
  case messageList
  /// One status.
  case status
  /// `{"statuses": […]}`.
  case statuses
  case channelType
  case user
  /// `{"jti","revoked","expires_at"?}`.
  case token
  /// `{"acknowledged": […], "errors": […]}`.
  case acknowledged
  /// A list of a message's members.
  case members
  /// `{"members": […]}` of chosen members.
  case memberStatuses
  /// One of the entries of a ``Gather``.
  case entry
  /// One of the entries of an ``AckBatch``, of which `gather` is the place; `isServer`: it is by name.
  case ack
  // What a ``HookJob`` asks for; `gather` is its place.
  case hookKnown
  case hookNoted
  // What a ``UserJob`` asks for; `gather` is its place, `entry` the user's, the frame's, the mark's or the channel's.
  case jobMark
  case jobList
  case jobCount
  case jobMarkAll
  case jobThreads
  case jobMarkThread
  case jobLocate
  case jobDetail
  case jobAnnounce
  // What an ``ErasureJob`` asks for; `gather` is its place, `entry` the channel's or the shard.
  case erasureBegun
  case erasureAssigned
  case erasureChecked
  case erasureListed
  case erasureErased
  case erasureForgot
  case erasurePurged
  // What a ``UserListJob`` asks for; `gather` is its place, `entry` the channel's.
  case ownList
  case ownEntries
  case ownPlace
  // What ``Settling`` asks for; `entry` is the shard, or the number of the value.
  case unsettled
  case assignment
  case settlement
  /// What ``TokenListing`` asks for; `entry` is its round.
  case tokenList
  // What the ``EventHub`` asks for: `gather` is the user's place, the stream's with its generation in `entry`; `entry`
  // is the frame's number.
  case eventUser
  case eventList
  case eventFrame
  case eventUserEnd
  case eventFrameEnd
  // What a ``RequestStream`` asks for: `gather` is its place, `entry` its own.
  case frame
  /// acknowledge_push.
  case framePush
  /// present_ticket.
  case frameTicket
  /// `isServer`: it is an acknowledgement by name, else by ticket.
  case streamedAck

  /// Whether a reply is not the answer itself, but one of what makes it.
  var isPart: Bool { rawValue >= ReplyShape.entry.rawValue }
  var isJob: Bool { (ReplyShape.jobMark.rawValue...ReplyShape.jobAnnounce.rawValue).contains(rawValue) }
  var isEvent: Bool {
    (ReplyShape.eventUser.rawValue...ReplyShape.eventFrameEnd.rawValue).contains(rawValue)
  }
  var isStreamed: Bool { rawValue >= ReplyShape.frame.rawValue }
  var isOwnList: Bool { (ReplyShape.ownList.rawValue...ReplyShape.ownPlace.rawValue).contains(rawValue) }
  var isErasure: Bool {
    (ReplyShape.erasureBegun.rawValue...ReplyShape.erasurePurged.rawValue).contains(rawValue)
  }
}

/// A request that waits for the store.
struct PendingRequest {
  var stream: HTTP2StreamHandle
  /// The connection's place in the ``ConnectionTable``.
  var connection: UInt32
  /// The place of its ``Gather``, and the entry's in that; or as the shape says; unused for others.
  var gather: UInt32 = 0
  var entry: UInt32 = 0
  /// Of a ``RequestStream``: what it has reserved for the answer.
  var answerBytes: UInt32 = 0
  var shape: ReplyShape
  var route: Route
  var isServer: Bool
  /// Of an acknowledgement in a ``RequestStream``: the number of its device's label.
  var device: UInt8 = 0
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
