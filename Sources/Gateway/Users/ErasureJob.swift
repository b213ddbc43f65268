internal import HTTP2Session
internal import NIOCore
internal import ReceiptModel

/// The store requests of an ``ErasureJob``.
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

/// A running erasure, and its waiter.
final class ErasureJob {
  /// The recipient of the erasure's end.
  enum Waiter {
    /// A request, until its timeout.
    case stream(HTTP2StreamHandle, connection: ConnectionIndex, route: Route)
    /// A round of ``SettlementRounds``, with the number of the value.
    case settlement(Int)
    /// Nobody any more: the request was answered.
    case none
  }

  var erasure: ErasureMachine
  var waiter: Waiter
  /// Requests to the store in flight.
  var inFlight = 0
  /// The timer of the waiting request.
  var timeout: Scheduled<Void>?

  init(_ erasure: ErasureMachine, _ waiter: Waiter) {
    self.erasure = erasure
    self.waiter = waiter
  }
}
