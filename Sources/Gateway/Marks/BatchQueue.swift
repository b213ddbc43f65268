internal import DequeModule
internal import HTTP2Session
internal import NIOCore
internal import StoreClient

/// Batches that wait until the store's request window has room for all of their entries, oldest first. A pure state
/// machine.
///
/// The queue throttles a client that sends many batches in parallel. Sent at once, entries that exceed the window would
/// be refused as `store_busy`, although there is room a moment later. At its deadline a batch begins regardless of
/// room. Bodies stay in their streams, whose number and bytes HTTP/2 bounds.
struct BatchQueue {
  /// A request with a validated body, of which nothing has been sent.
  struct Waiting {
    let connection: ConnectionIndex
    let stream: HTTP2StreamHandle
    let caller: Caller
    /// Number of its requests to the store.
    let entries: Int
    let deadline: NIODeadline
  }

  private var waiting = Deque<Waiting>()

  var count: Int { waiting.count }

  /// The deadline of the oldest batch.
  var deadline: NIODeadline? { waiting.first?.deadline }

  mutating func append(_ batch: Waiting) { waiting.append(batch) }

  /// Remove the oldest batch if there is room for its entries or its deadline has passed.
  mutating func next(now: NIODeadline, hasRoom: (_ entries: Int) -> Bool) -> Waiting? {
    guard let first = waiting.first, first.deadline <= now || hasRoom(first.entries) else { return nil }
    return waiting.removeFirst()
  }
}
