internal import HTTP2Session
internal import ReceiptModel

/// The conversation that a store request belongs to, and its place in it.
enum ReplyTarget {
  /// A request of a client, answered with this one reply.
  case answer(HTTP2StreamHandle, connection: UInt32, AnswerForm)
  /// A request of a client, whose answer also has names that ``EchoedNameResponses`` keeps.
  case namedAnswer(SlotIndex, HTTP2StreamHandle, connection: UInt32)
  /// An entry of a ``FanOut``.
  case fanOut(SlotIndex, entry: UInt32)
  /// An entry of an ``AckBatch``.
  ///
  /// - Parameter isByName: whether the acknowledgement names its user and message; else it has a ticket.
  case ackBatch(SlotIndex, entry: UInt32, isByName: Bool)
  case hook(SlotIndex, HookStoreRequest)
  case userJob(SlotIndex, UserJobStoreRequest)
  case userList(SlotIndex, UserListStoreRequest)
  case erasure(SlotIndex, ErasureStoreRequest)
  case replication(ReplicationStoreRequest)
  /// A page of ``TokenListing``.
  case tokenList(round: UInt32)
  case events(EventStoreRequest)
  /// A request of a ``RequestStream``.
  case stream(SlotIndex, StreamStoreRequest)
}

/// How a reply that is a whole answer is written.
enum AnswerForm: UInt8 {
  /// `{"read": row}`.
  case row
  /// `{"channel": …}`, 201 where it was created.
  case createdChannel
  /// `{"channel": …}`.
  case channel
  /// `{"channels": […]}` of a user.
  case channelsOfUser
  case readState
  /// A thread's read state.
  case threadRows
  /// `{"members": […]}` of a channel.
  case roster
  /// `{"messages": […]}` of a channel.
  case messageList
  case channelType
  case user
  /// A list of a message's members.
  case members
  /// `{"members": […]}` of chosen members.
  case memberStatuses
}

/// What a ``HookJob`` asks.
enum HookStoreRequest: UInt8 {
  case isReplay
  case record
}

/// What a ``UserJob`` asks, with the index of the user, frame, mark or channel in its scan.
enum UserJobStoreRequest {
  /// The mark that the request itself asks for.
  case firstMark
  case list(user: UInt32)
  case count(frame: UInt32)
  case mark(UInt32)
  case threads(mark: UInt32)
  case markThread(mark: UInt32)
  case locate
  case detail(channel: UInt32)
  case announce(frame: UInt32)
}

/// What a ``UserListJob`` asks.
enum UserListStoreRequest {
  case list
  case locate
  /// The entries of a channel, by its index in the scan.
  case entries(channel: UInt32)
}

/// What an ``ErasureJob`` asks.
enum ErasureStoreRequest {
  case begin
  case assign
  case check
  case list
  /// By the channel's number in the erasure.
  case erase(channel: UInt32)
  case forget
  case purge(ShardID)
}

/// What ``SettingsReplication`` asks.
enum ReplicationStoreRequest {
  case unsettled(ShardID)
  /// By the number of the value.
  case assignment(UInt32)
  case settlement(UInt32)
}

/// What the ``EventHub`` asks.
enum EventStoreRequest {
  case subscribeUser(UInt32)
  case unsubscribeUser(UInt32)
  case list(EventHub.Ref)
  case subscribe(frame: UInt32)
  case unsubscribe(frame: UInt32)
}

/// What a ``RequestStream`` asks.
enum StreamStoreRequest {
  case frame(FrameStoreRequest)
  /// A line with an acknowledgement.
  ///
  /// - Parameter isByName: as in ``ReplyTarget/ackBatch(_:entry:isByName:)``.
  case ack(entry: UInt32, isByName: Bool)
}

/// What a ``FrameStream`` asks.
struct FrameStoreRequest {
  enum Kind: UInt8 {
    case plain
    /// acknowledge_push.
    case push
    /// present_ticket.
    case ticket
  }

  var kind: Kind
  /// Index of the device label of an acknowledgement.
  var device: UInt8 = LabelNames.none
  var correlation: UInt32
  /// Bytes reserved for the answer.
  var answerBytes: UInt32
}
