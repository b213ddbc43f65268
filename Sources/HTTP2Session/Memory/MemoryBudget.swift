internal import NIOCore

/// Bytes that the connections of one event loop hold for streams: received requests, unsent responses, and a fixed cost
/// per stream. All connections share one budget, ``HTTP2Limits/memoryBytesMax``.
///
/// - Up to half of it, a connection, or a user over all connections, may hold ``HTTP2Limits/connectionMemoryBytesMax``,
///   or ``HTTP2Limits/unauthenticatedMemoryBytesMax`` if its peer is not authenticated.
/// - Above half of it, who holds more than a 128th gets no more; above three quarters, who holds more than
///   ``shareMin``. New streams of such a connection are refused, and its streams with an incomplete body are reset.
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
  static let shareMin = 32 * 1024
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
    limit = limits.memoryBytesMax
    connectionLimit = limits.connectionMemoryBytesMax
    unauthenticatedLimit = min(limits.unauthenticatedMemoryBytesMax, limits.connectionMemoryBytesMax)
  }

  /// Return whether a connection that holds this many bytes may hold more.
  @inline(__always)
  func allows(_ connectionHeld: Int) -> Bool {
    held <= limit && connectionHeld <= share
  }

  /// What a connection or a user may hold now.
  @inline(__always)
  private var share: Int {
    if held <= limit / 2 { return connectionLimit }
    return min(connectionLimit, held <= limit / 4 * 3 ? max(limit / 128, Self.shareMin) : Self.shareMin)
  }

  /// Return whether a connection with an unauthenticated peer that holds this many bytes may hold more.
  @inline(__always)
  func allowsUnauthenticated(_ connectionHeld: Int) -> Bool {
    connectionHeld <= (unauthenticatedBytes <= limit / 4 ? unauthenticatedLimit : Self.unauthenticatedFloor)
  }

  /// Whether a shared connection may open another stream, before its user or client is known.
  @inline(__always)
  var allowsShared: Bool { held <= limit }

  /// Return whether a user or client may hold more, over all connections of this event loop.
  ///
  /// - Parameter key: 0 if the user or client is unknown.
  @inline(__always)
  func allows(share key: UInt64) -> Bool {
    if key == 0 { return allowsShared }
    return held <= limit && shares.held(key) <= share
  }

  /// Return whether an unauthenticated client behind a proxy may hold more: four times the limit of an unauthenticated
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

  /// Return whether use fell by 8 MiB or more since the peak; resets the peak if so.
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
  /// The bytes include queued ones of a streaming response.
  private(set) var includesQueue = false

  /// Charge the bytes to a user or client.
  @inline(__always)
  mutating func assign(to key: UInt64) { shareKey = key }

  mutating func setQueued(_ includesQueue: Bool) { self.includesQueue = includesQueue }

  /// Replace the charge. Returns the bytes by which it grew.
  @inline(__always)
  mutating func set(_ byteCount: Int) -> Int {
    let added = byteCount - bytes
    bytes = byteCount
    return added
  }
}

/// Whether a request may hold memory until it is answered.
package enum MemoryAdmission: Sendable {
  case admitted
  /// The user or client holds too much, over all of its connections. Reset the stream: a response that its client
  /// leaves unread would hold memory too.
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
