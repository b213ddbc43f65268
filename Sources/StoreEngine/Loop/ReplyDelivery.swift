internal import ReceiptModel

/// The connections of a loop, and the delivery of their replies. It owns the lanes that have replies to leave now, with
/// the commit in flight, or with the next one.
final class ReplyDelivery: LoopPart {
  /// Connections that are open for requests.
  private var lanes: [SessionID: ReplyLane] = [:]
  private var now: [ReplyLane] = []
  private var inFlight: [ReplyLane] = []
  private var next: [ReplyLane] = []
  /// Lanes whose replies are being delivered.
  private var delivering: [ReplyLane] = []
  private var isDelivering = false
  private var endsTurnAgain = false

  // MARK: Connections

  /// Open a connection; see ``StoreLoop/open(_:)``.
  func open(_ lane: ReplyLane) {
    if let other = lanes[lane.session], other !== lane {
      guard other.serial <= lane.serial else {
        lane.isClosed = true
        return
      }
      loop.close(other)
    }
    lanes[lane.session] = lane
  }

  func close(_ lane: ReplyLane) {
    lane.isClosed = true
    if lanes[lane.session] === lane { lanes[lane.session] = nil }
  }

  /// Close all connections: their replies are dropped.
  override func stop() {
    for lane in now + inFlight + next + Array(lanes.values) { lane.isClosed = true }
    lanes = [:]
    now = []
    inFlight = []
    next = []
  }

  // MARK: Delivery

  /// Register a lane that has got its first reply of this timing.
  func record(_ lane: ReplyLane, _ replyTiming: ReplyLane.Timing) {
    switch replyTiming {
    case .now: now.append(lane)
    case .afterCurrentCommit: inFlight.append(lane)
    case .afterNextCommit: next.append(lane)
    }
  }

  /// Move the replies of the next commit to those in flight.
  func commitBegan() {
    swap(&next, &inFlight)
    for lane in inFlight { lane.moveNextToInFlight() }
  }

  /// Return whether the turn cannot end while replies are being delivered. It then ends afterwards.
  func postponesTurnEnd() -> Bool {
    if isDelivering { endsTurnAgain = true }
    return isDelivering
  }

  func deliverNow() {
    switch loop.lease {
    case .valid:
      swap(&now, &delivering)
      deliver { $0.deliverNow() }
    case .expired: break
    case .lost: refuseNow()
    }
  }

  /// Refuse what may leave now, as far as that is possible.
  private func refuseNow() {
    swap(&now, &delivering)
    deliver { lane in
      let refusals = lane.takeRefusals()
      if lane.hasNow, !lane.isClosed { now.append(lane) }
      lane.deliverIfOpen(refusals)
    }
  }

  /// Deliver the replies of the commit that has ended. Without a valid lease they wait as well: a query may have been
  /// answered after the shared log had accepted the commit's record, which then proves nothing about it.
  func deliverInFlight() {
    guard loop.lease == .valid else {
      for lane in inFlight {
        if !lane.hasNow { now.append(lane) }
        lane.moveInFlightToNow()
      }
      return inFlight.removeAll(keepingCapacity: true)
    }
    swap(&inFlight, &delivering)
    deliver { $0.deliverInFlight() }
  }

  private func deliver(_ body: (ReplyLane) -> Void) {
    isDelivering = true
    for lane in delivering { body(lane) }
    delivering.removeAll(keepingCapacity: true)
    isDelivering = false
    if endsTurnAgain {
      endsTurnAgain = false
      loop.endTurn()
    }
  }
}
