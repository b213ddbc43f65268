/// The bytes that the connections of one event loop hold for streams: requests that have come, answers that have not
/// left, and what a stream costs by itself. One budget for all, against ``HTTP2Limits/maxHeldBytes``.
///
/// - Up to half of it a connection may hold ``HTTP2Limits/maxConnectionHeldBytes``, and, bodies aside, one whose peer is
///   not proven ``HTTP2Limits/maxUnprovenHeldBytes``.
/// - Past half of it the connections that hold more than ``fairShare`` get nothing more: their new streams are refused,
///   and streams whose bodies go on are reset. So whoever holds least is served longest.
/// - Past all of it nobody gets more.
struct MemoryBudget {
  /// What an open stream costs here and in nghttp2, beside its bytes.
  static let streamBytes = 1_536
  /// A stream or two of ordinary size.
  static let fairShare = 32 * 1024

  private let limit: Int
  private let connectionLimit: Int
  private let unprovenLimit: Int
  private(set) var held = 0
  /// The most since ``hasFallen()`` was true.
  private var most = 0

  init(limits: HTTP2Limits) {
    limit = limits.maxHeldBytes
    connectionLimit = limits.maxConnectionHeldBytes
    unprovenLimit = min(limits.maxUnprovenHeldBytes, limits.maxConnectionHeldBytes)
  }

  /// Whether a connection that holds so much may hold more.
  @inline(__always)
  func allows(_ connectionHeld: Int) -> Bool {
    guard connectionHeld <= connectionLimit else { return false }
    return held <= limit / 2 || (held <= limit && connectionHeld <= Self.fairShare)
  }

  /// Whether a connection whose peer is not proven may open one more stream. Bodies do not count here: their windows
  /// slow them down (``BodyBudget``).
  @inline(__always)
  func allowsUnproven(_ connectionHeld: Int, bodies: Int) -> Bool { connectionHeld - bodies <= unprovenLimit }

  @inline(__always)
  mutating func add(_ byteCount: Int) {
    held += byteCount
    if held > most { most = held }
  }

  /// Whether so much less is held than was that its memory is worth giving back.
  mutating func hasFallen() -> Bool {
    guard most - held >= 8 << 20 else { return false }
    most = held
    return true
  }
}

extension ServerCore {
  /// Whether this connection may hold more.
  @inline(__always)
  var mayHoldMore: Bool { memory.pointee.allows(held) }

  /// Whether one more stream is taken.
  @inline(__always)
  var mayOpen: Bool {
    mayHoldMore && (isProven || memory.pointee.allowsUnproven(held, bodies: bodies.total))
  }

  /// Notes what is held for an open stream now: itself, what has come of its request, and its answer.
  @inline(__always)
  mutating func charge(_ slot: UnsafeMutablePointer<StreamSlot>, answer: Int = 0) {
    setCharge(slot, MemoryBudget.streamBytes + slot.pointee.count + answer)
  }

  /// The stream is closed.
  @inline(__always)
  mutating func discharge(_ slot: UnsafeMutablePointer<StreamSlot>) { setCharge(slot, 0) }

  @inline(__always)
  private mutating func setCharge(_ slot: UnsafeMutablePointer<StreamSlot>, _ byteCount: Int) {
    let added = byteCount - slot.pointee.chargedBytes
    slot.pointee.chargedBytes = byteCount
    held += added
    memory.pointee.add(added)
  }
}
