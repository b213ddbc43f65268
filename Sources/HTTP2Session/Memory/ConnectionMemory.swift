internal import NIOCore

/// Bytes that one connection holds of its event loop's ``MemoryBudget``, and whose limits apply to it.
struct ConnectionMemory {
  private let budget: UnsafeMutablePointer<MemoryBudget>
  private var held = 0
  /// The part of ``held`` that frames in nghttp2's queue hold.
  private var queued = 0
  /// Frames that are queued in any turn: the responses of as many streams.
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

  /// Return whether a stream of this connection may hold more.
  @inline(__always)
  func isWithinLimit(_ slot: UnsafeMutablePointer<StreamSlot>) -> Bool {
    if isShared {
      return slot.pointee.state.isReceiving
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
  mutating func charge(_ slot: UnsafeMutablePointer<StreamSlot>, response: Int = 0) {
    setCharge(slot, MemoryBudget.streamBytes + slot.pointee.received.count + response + slot.pointee.charge.retained)
  }

  /// Update the charge of a stream with a streaming response.
  @inline(__always)
  mutating func chargeStreaming(_ slot: UnsafeMutablePointer<StreamSlot>) {
    let waiting = slot.pointee.outgoing.bytes.readableBytes
    slot.pointee.charge.setQueued(waiting > 0)
    charge(slot, response: waiting)
  }

  /// Update the charge of a stream whose request's body is read as it arrives.
  @inline(__always)
  mutating func chargeRequest(_ slot: UnsafeMutablePointer<StreamSlot>) {
    if slot.pointee.state.isStreaming { chargeStreaming(slot) } else { charge(slot) }
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
  mutating func admit(_ slot: UnsafeMutablePointer<StreamSlot>, for key: UInt64, responseBytes: Int) -> MemoryAdmission
  {
    let mayHold = key == 0 || assign(slot, to: key)
    charge(slot, response: responseBytes)
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
