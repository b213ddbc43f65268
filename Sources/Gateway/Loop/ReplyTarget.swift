internal import HTTP2Session
internal import ReceiptModel

/// The request or part that sent a store request, and the index of the store request in it.
enum ReplyTarget {
  /// A request of a client, answered with this one reply.
  case answer(HTTP2StreamHandle, connection: UInt32, AnswerForm)
  /// A request of a client, whose answer also has names that ``EchoingAnswers`` keeps.
  case echoingAnswer(SlotIndex, HTTP2StreamHandle, connection: UInt32)
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
