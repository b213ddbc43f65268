internal import DequeModule
internal import ReceiptModel

extension EventHub {
  /// Why a frame subscribes or unsubscribes channels.
  enum Purpose: Equatable {
    case open(Ref)
    case attach([Ref])
    case former(Ref)
    /// Subscribe again after a loss, for all streams of the channels.
    case resync
    /// Unsubscribe channels without streams.
    case end

    /// The streams that wait for the reply.
    var waitingStreams: [Ref] {
      switch self {
      case .open(let ref), .former(let ref): [ref]
      case .attach(let refs): refs
      case .resync, .end: []
      }
    }
  }

  struct Frame {
    let shard: Int
    let channels: [ChannelIndex]
    let since: Timestamp?
    let purpose: Purpose
  }
}

/// The subscribe and unsubscribe requests of an ``EventHub``: in flight, due, and to be sent again. A number is used
/// once.
struct SubscribeFrames {
  private var inFlight: [Int: EventHub.Frame] = [:]
  private(set) var nextNumber = 0
  /// Frames not sent yet.
  private var due = Deque<EventHub.Frame>()
  /// Failed frames, to be sent again at the next tick.
  private var retries: [EventHub.Frame] = []

  /// A frame in flight.
  subscript(number: Int) -> EventHub.Frame? { inFlight[number] }

  mutating func append(_ frame: EventHub.Frame) { due.append(frame) }

  /// Send a frame again at the next tick.
  mutating func retry(_ frame: EventHub.Frame) { retries.append(frame) }

  mutating func tick() {
    due.append(contentsOf: retries)
    retries = []
  }

  /// Begin the next frame that is due, if fewer than `limit` are in flight.
  mutating func nextDue(limit: Int) -> (number: Int, frame: EventHub.Frame)? {
    guard inFlight.count < limit, let frame = due.popFirst() else { return nil }
    return (begin(frame), frame)
  }

  /// Put a frame in flight; returns its number.
  mutating func begin(_ frame: EventHub.Frame) -> Int {
    defer { nextNumber += 1 }
    inFlight[nextNumber] = frame
    return nextNumber
  }

  /// Remove an answered frame; nil where it was removed before.
  mutating func remove(_ number: Int) -> EventHub.Frame? { inFlight.removeValue(forKey: number) }

  /// All frames: in flight, due, and to be sent again.
  var all: [EventHub.Frame] { Array(inFlight.values) + due + retries }

  mutating func removeAll() {
    inFlight = [:]
    due = []
    retries = []
  }
}
