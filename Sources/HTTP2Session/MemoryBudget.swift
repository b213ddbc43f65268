internal import NIOCore

/// Bytes that the connections of one event loop hold for streams: received requests, unsent responses, and a fixed cost
/// per stream. All connections share one budget, ``HTTP2Limits/maxMemoryBytes``.
///
/// - Up to half of it, a connection, or a user over all connections, may hold ``HTTP2Limits/maxConnectionMemoryBytes``,
///   or ``HTTP2Limits/maxUnauthenticatedMemoryBytes`` if its peer is not authenticated.
/// - Above half of it, who holds more than a 128th gets no more; above three quarters, who holds more than
///   ``minShare``. New streams of such a connection are refused, and its streams with an incomplete body are reset.
///   Those who hold least are served longest.
/// - Above all of it, nobody gets more.
/// - Connections with unauthenticated peers together hold a quarter of it. Above that, each of them may hold
///   ``unauthenticatedFloor``: enough for the request that shows a token.
struct MemoryBudget {
  /// Cost of an open stream here and in nghttp2, besides its bytes.
  static let streamBytes = 1_536
  /// Estimated cost of a frame in nghttp2's queue.
  static let queuedFrameBytes = 256
  /// Memory that a closed connection is assumed to free, to decide when to return memory to the system. Its real cost
  /// is some 20 KiB.
  private static let bytesPerConnection = 8 * 1024
  /// Some 20 streams of ordinary size.
  static let minShare = 32 * 1024
  /// One stream whose request has ordinary headers, or a small body.
  static let unauthenticatedFloor = 4 * 1024

  private var limit = 0
  private var connectionLimit = 0
  private var unauthenticatedLimit = 0
  private(set) var held = 0
  /// The part of `held` that connections with unauthenticated peers hold.
  private(set) var unauthenticatedBytes = 0
  private let shares = MemoryShareSketch()
  /// Estimated cost of all open connections besides their streams. No limit counts it.
  private var connectionBytes = 0
  /// Peak of `held` and `connectionBytes` since ``hasDroppedFromPeak()`` last returned true.
  private var peak = 0

  init(limits: HTTP2Limits) { setLimits(limits) }

  /// Change the limits; the held bytes stay counted.
  mutating func setLimits(_ limits: HTTP2Limits) {
    limit = limits.maxMemoryBytes
    connectionLimit = limits.maxConnectionMemoryBytes
    unauthenticatedLimit = min(limits.maxUnauthenticatedMemoryBytes, limits.maxConnectionMemoryBytes)
  }

  /// Whether a connection that holds this many bytes may hold more.
  @inline(__always)
  func allows(_ connectionHeld: Int) -> Bool {
    held <= limit && connectionHeld <= share
  }

  /// What a connection or a user may hold now.
  @inline(__always)
  private var share: Int {
    if held <= limit / 2 { return connectionLimit }
    return min(connectionLimit, held <= limit / 4 * 3 ? max(limit / 128, Self.minShare) : Self.minShare)
  }

  /// Whether a connection with an unauthenticated peer that holds this many bytes may hold more.
  @inline(__always)
  func allowsUnauthenticated(_ connectionHeld: Int) -> Bool {
    connectionHeld <= (unauthenticatedBytes <= limit / 4 ? unauthenticatedLimit : Self.unauthenticatedFloor)
  }

  /// Whether a shared connection may open another stream, before its user or client is known.
  @inline(__always)
  var allowsShared: Bool { held <= limit }

  /// Whether a user or client may hold more, over all connections of this event loop.
  ///
  /// - Parameter key: 0 if the user or client is unknown.
  @inline(__always)
  func allows(share key: UInt64) -> Bool {
    if key == 0 { return allowsShared }
    return held <= limit && shares.held(key) <= share
  }

  /// Whether an unauthenticated client behind a proxy may hold more: four times the limit of an unauthenticated
  /// connection.
  func allows(unauthenticatedShare key: UInt64) -> Bool {
    allows(share: key) && shares.held(key) <= 4 * unauthenticatedLimit
  }

  @inline(__always)
  mutating func add(_ byteCount: Int, share key: UInt64) {
    held += byteCount
    if held + connectionBytes > peak { peak = held + connectionBytes }
    if key != 0 { shares.add(byteCount, key) }
  }

  /// Update the bytes that connections with unauthenticated peers hold.
  @inline(__always)
  mutating func addUnauthenticated(_ byteCount: Int) { unauthenticatedBytes += byteCount }

  /// Move held bytes from one key to another.
  @inline(__always)
  func move(_ byteCount: Int, from: UInt64, to: UInt64) {
    if from != 0 { shares.add(-byteCount, from) }
    if to != 0 { shares.add(byteCount, to) }
  }

  func destroy() { shares.destroy() }

  mutating func connectionOpened() {
    connectionBytes += Self.bytesPerConnection
    peak = max(peak, held + connectionBytes)
  }

  mutating func connectionClosed() { connectionBytes -= Self.bytesPerConnection }

  /// Whether use fell by 8 MiB or more since the peak; resets the peak if so.
  mutating func hasDroppedFromPeak() -> Bool {
    guard peak - held - connectionBytes >= 8 << 20 else { return false }
    peak = held + connectionBytes
    return true
  }
}

/// One stream's part of its event loop's ``MemoryBudget``.
struct StreamCharge {
  /// Bytes that the budget has charged to the stream.
  private(set) var bytes = 0
  /// Bytes that the application keeps for the stream elsewhere (``HTTP2ServerConnection/setRetainedBytes(_:_:)``).
  var retained = 0
  /// Key of the user or client that the bytes are charged to, across all connections; 0: the connection alone.
  private(set) var shareKey: UInt64 = 0

  /// Charge the bytes to a user or client.
  @inline(__always)
  mutating func assign(to key: UInt64) { shareKey = key }

  /// Replace the charge. Returns the bytes by which it grew.
  @inline(__always)
  mutating func set(_ byteCount: Int) -> Int {
    let added = byteCount - bytes
    bytes = byteCount
    return added
  }
}

/// Bytes that one connection holds of its event loop's ``MemoryBudget``, and whose limits apply to it.
struct ConnectionMemory {
  private let budget: UnsafeMutablePointer<MemoryBudget>
  private var held = 0
  /// The part of ``held`` that frames in nghttp2's queue hold.
  private var queued = 0
  /// Frames that are queued in any turn: the answers of as many streams.
  private static let freeFrames = 1_000
  /// Set with ``markAuthenticated()``, or before the first stream.
  private(set) var isAuthenticated = false
  private(set) var isShared = false

  init(budget: UnsafeMutablePointer<MemoryBudget>) { self.budget = budget }

  /// Treat the connection as shared by many clients, and thereby as authenticated, or not. Before the first stream.
  mutating func setShared(_ isShared: Bool) {
    isAuthenticated = isShared
    self.isShared = isShared
  }

  /// Update the charge of the frames that nghttp2 has queued for the connection. A few frames are not charged: they are
  /// written at the end of the turn.
  ///
  /// - Returns: whether the connection is within its limit, as far as these frames matter.
  @inline(__always)
  mutating func chargeQueue(_ frames: Int) -> Bool {
    let bytes = frames > Self.freeFrames ? frames * MemoryBudget.queuedFrameBytes : 0
    if bytes == queued { return true }
    let added = bytes - queued
    queued = bytes
    held += added
    if !isAuthenticated { budget.pointee.addUnauthenticated(added) }
    budget.pointee.add(added, share: 0)
    return bytes == 0 || canOpenStream
  }

  /// Whether a stream of this connection may hold more.
  @inline(__always)
  func isWithinLimit(_ slot: UnsafeMutablePointer<StreamSlot>) -> Bool {
    if isShared {
      return slot.pointee.phase == .receiving
        ? budget.pointee.allows(unauthenticatedShare: slot.pointee.charge.shareKey)
        : budget.pointee.allows(share: slot.pointee.charge.shareKey)
    }
    return isConnectionWithinLimit
  }

  /// Whether the connection may open another stream.
  @inline(__always)
  var canOpenStream: Bool { isShared ? budget.pointee.allowsShared : isConnectionWithinLimit }

  /// Whether a connection of one client may hold more.
  @inline(__always)
  private var isConnectionWithinLimit: Bool {
    budget.pointee.allows(held) && (isAuthenticated || budget.pointee.allowsUnauthenticated(held))
  }

  /// Update the charge of an open stream: its fixed cost, the received part of its request, its response, and the bytes
  /// that the application keeps for it.
  @inline(__always)
  mutating func charge(_ slot: UnsafeMutablePointer<StreamSlot>, answer: Int = 0) {
    setCharge(
      slot,
      MemoryBudget.streamBytes + slot.pointee.received.count + answer + slot.pointee.charge.retained
    )
  }

  /// Update the charge of a stream with a streaming response.
  @inline(__always)
  mutating func chargeStreaming(_ slot: UnsafeMutablePointer<StreamSlot>) {
    let waiting = slot.pointee.outgoing.bytes.readableBytes
    if waiting > 0 {
      slot.pointee.flags.insert(.isQueueCharged)
    } else {
      slot.pointee.flags.remove(.isQueueCharged)
    }
    charge(slot, answer: waiting)
  }

  /// Mark the peer as authenticated: what it holds no longer counts among unauthenticated peers.
  mutating func markAuthenticated() {
    isAuthenticated = true
    budget.pointee.addUnauthenticated(-held)
  }

  /// Charge a stream to a user or client, across all connections.
  ///
  /// - Parameter key: a hash, not 0.
  /// - Returns: whether the user or client is within its limit.
  @inline(__always)
  func assign(_ slot: UnsafeMutablePointer<StreamSlot>, to key: UInt64) -> Bool {
    budget.pointee.move(slot.pointee.charge.bytes, from: slot.pointee.charge.shareKey, to: key)
    slot.pointee.charge.assign(to: key)
    return budget.pointee.allows(share: key)
  }

  /// Charge a stream to a client that has not been authenticated, across all connections.
  ///
  /// - Returns: whether the client is within its limit.
  func assignUnauthenticated(_ slot: UnsafeMutablePointer<StreamSlot>, to key: UInt64) -> Bool {
    _ = assign(slot, to: key)
    return budget.pointee.allows(unauthenticatedShare: key)
  }

  /// Charge a stream to a user or client, including the expected size of its response.
  @inline(__always)
  mutating func admit(_ slot: UnsafeMutablePointer<StreamSlot>, for key: UInt64, answerBytes: Int)
    -> MemoryAdmission
  {
    let mayHold = key == 0 || assign(slot, to: key)
    charge(slot, answer: answerBytes)
    if !mayHold { return .callerIsOverShare }
    return isWithinLimit(slot) ? .admitted : .connectionIsOverLimit
  }

  /// Remove the charge of a closed stream.
  @inline(__always)
  mutating func discharge(_ slot: UnsafeMutablePointer<StreamSlot>) { setCharge(slot, 0) }

  @inline(__always)
  private mutating func setCharge(_ slot: UnsafeMutablePointer<StreamSlot>, _ byteCount: Int) {
    let added = slot.pointee.charge.set(byteCount)
    held += added
    if !isAuthenticated { budget.pointee.addUnauthenticated(added) }
    budget.pointee.add(added, share: slot.pointee.charge.shareKey)
  }
}

/// Whether a request may hold memory until it is answered.
package enum MemoryAdmission: Sendable {
  case admitted
  /// The user or client holds too much, over all of its connections. Reset the stream: an answer that its client leaves
  /// unread would hold memory too.
  case callerIsOverShare
  /// The connection, or all connections together, hold too much.
  case connectionIsOverLimit
}

/// Bytes held per user or address, counted by hash in two rows of counters (a count-min sketch): the lower of the two
/// counters is the estimate. So no request allocates an entry. A stranger is mistaken for a heavy user only if both of
/// their counters collide.
private struct MemoryShareSketch {
  private static let width = 8_192

  private let rows: UnsafeMutablePointer<Int>

  init() {
    rows = .allocate(capacity: 2 * Self.width)
    rows.initialize(repeating: 0, count: 2 * Self.width)
  }

  @inline(__always)
  private func indexes(_ key: UInt64) -> (Int, Int) {
    (Int(key % UInt64(Self.width)), Self.width + Int(key >> 40 % UInt64(Self.width)))
  }

  @inline(__always)
  func held(_ key: UInt64) -> Int {
    let indexes = indexes(key)
    return min(rows[indexes.0], rows[indexes.1])
  }

  @inline(__always)
  func add(_ byteCount: Int, _ key: UInt64) {
    let indexes = indexes(key)
    rows[indexes.0] += byteCount
    rows[indexes.1] += byteCount
  }

  func destroy() { rows.deallocate() }
}
