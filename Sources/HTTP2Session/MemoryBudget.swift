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

  private var limit: Int
  private var connectionLimit: Int
  private var unprovenLimit: Int
  private(set) var held = 0
  private let shares = HeldShares()
  /// The most since ``hasFallen()`` was true.
  private var most = 0

  init(limits: HTTP2Limits) {
    limit = limits.maxHeldBytes
    connectionLimit = limits.maxConnectionHeldBytes
    unprovenLimit = min(limits.maxUnprovenHeldBytes, limits.maxConnectionHeldBytes)
  }

  /// Changes the limits; what is held stays.
  mutating func setLimits(_ limits: HTTP2Limits) {
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

  /// Whether one more stream may come on a connection that clients share, before it is known whose it is.
  @inline(__always)
  var allowsShared: Bool { held <= limit }

  /// Whether a user or client may hold more, over all connections of this event loop.
  ///
  /// - Parameter key: 0: it is not known who it is.
  @inline(__always)
  func allows(share key: UInt64) -> Bool {
    if key == 0 { return allowsShared }
    let shareHeld = shares.held(key)
    return shareHeld <= connectionLimit && held <= (shareHeld <= Self.fairShare ? limit : limit / 2)
  }

  /// The same of a client behind a proxy, before it is known who calls: four times what a connection of its own might.
  func allows(unprovenShare key: UInt64) -> Bool {
    allows(share: key) && shares.held(key) <= 4 * unprovenLimit
  }

  @inline(__always)
  mutating func add(_ byteCount: Int, share key: UInt64) {
    held += byteCount
    if held > most { most = held }
    if key != 0 { shares.add(byteCount, key) }
  }

  /// Moves held bytes from one key to another.
  @inline(__always)
  func move(_ byteCount: Int, from: UInt64, to: UInt64) {
    if from != 0 { shares.add(-byteCount, from) }
    if to != 0 { shares.add(byteCount, to) }
  }

  func destroy() { shares.destroy() }

  /// Whether use fell by 8 MiB or more since the peak; resets the peak.
  mutating func hasFallen() -> Bool {
    guard most - held >= 8 << 20 else { return false }
    most = held
    return true
  }
}

extension ServerCore {
  /// Whether a stream of this connection may hold more.
  @inline(__always)
  func mayGrow(_ slot: UnsafeMutablePointer<StreamSlot>) -> Bool {
    if isShared {
      return slot.pointee.phase == .receiving
        ? memory.pointee.allows(unprovenShare: slot.pointee.shareKey)
        : memory.pointee.allows(share: slot.pointee.shareKey)
    }
    return memory.pointee.allows(held)
      && (isProven || memory.pointee.allowsUnproven(held, bodies: bodies.total))
  }

  /// Whether one more stream is taken.
  @inline(__always)
  var mayOpen: Bool {
    if isShared { return memory.pointee.allowsShared }
    return memory.pointee.allows(held)
      && (isProven || memory.pointee.allowsUnproven(held, bodies: bodies.total))
  }

  /// Notes what is held for an open stream now: itself, what has come of its request, and its answer.
  @inline(__always)
  mutating func charge(_ slot: UnsafeMutablePointer<StreamSlot>, answer: Int = 0) {
    setCharge(slot, MemoryBudget.streamBytes + slot.pointee.count + answer)
  }

  /// Has what a stream holds count for somebody, over all connections.
  ///
  /// - Parameter key: a hash, not 0.
  /// - Returns: whether they may hold as much.
  @inline(__always)
  func assign(_ slot: UnsafeMutablePointer<StreamSlot>, to key: UInt64) -> Bool {
    memory.pointee.move(slot.pointee.chargedBytes, from: slot.pointee.shareKey, to: key)
    slot.pointee.shareKey = key
    return memory.pointee.allows(share: key)
  }

  /// The same, with what its answer will take.
  ///
  /// - Returns: whether they, and this connection, may hold as much.
  @inline(__always)
  mutating func admit(_ slot: UnsafeMutablePointer<StreamSlot>, for key: UInt64, answerBytes: Int) -> Bool {
    let mayHold = key == 0 || assign(slot, to: key)
    charge(slot, answer: answerBytes)
    return mayHold && mayGrow(slot)
  }

  /// The stream is closed.
  @inline(__always)
  mutating func discharge(_ slot: UnsafeMutablePointer<StreamSlot>) { setCharge(slot, 0) }

  @inline(__always)
  private mutating func setCharge(_ slot: UnsafeMutablePointer<StreamSlot>, _ byteCount: Int) {
    let added = byteCount - slot.pointee.chargedBytes
    slot.pointee.chargedBytes = byteCount
    held += added
    memory.pointee.add(added, share: slot.pointee.shareKey)
  }
}

/// What users and addresses hold, by a hash of each, in two rows of counters: somebody holds what the lower of their two
/// says (a count-min sketch). So nothing is made or freed for a request, and strangers who share a counter with somebody
/// who holds much are taken for them only where they share both.
private struct HeldShares {
  private static let width = 8_192

  private let rows: UnsafeMutablePointer<Int>

  init() {
    rows = .allocate(capacity: 2 * Self.width)
    rows.initialize(repeating: 0, count: 2 * Self.width)
  }

  @inline(__always)
  private func places(_ key: UInt64) -> (Int, Int) {
    (Int(key % UInt64(Self.width)), Self.width + Int(key >> 40 % UInt64(Self.width)))
  }

  @inline(__always)
  func held(_ key: UInt64) -> Int {
    let places = places(key)
    return min(rows[places.0], rows[places.1])
  }

  @inline(__always)
  func add(_ byteCount: Int, _ key: UInt64) {
    let places = places(key)
    rows[places.0] += byteCount
    rows[places.1] += byteCount
  }

  func destroy() { rows.deallocate() }
}
