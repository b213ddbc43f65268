internal import HTTP2Session
internal import ReceiptModel

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
  /// - Parameter isByName: whether the acknowledgement names its user and message; else it has a ticket.
  case ackBatch(SlotIndex, entry: UInt32, isByName: Bool)
  case hook(SlotIndex, HookStoreRequest)
  case userScan(SlotIndex, UserScanStoreRequest)
  case userList(SlotIndex, UserListStoreRequest)
  case erasure(SlotIndex, ErasureStoreRequest)
  case replication(ReplicationStoreRequest)
  /// A page of ``TokenListing``.
  case tokenList(round: UInt32)
  case events(EventStoreRequest)
  /// A request of a ``RequestStream``.
  case stream(SlotIndex, StreamStoreRequest)
}
