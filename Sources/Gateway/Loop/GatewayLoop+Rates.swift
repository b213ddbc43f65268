internal import HTTP2Session
internal import NIOCore
internal import Operations

/// Rate limits of callers and addresses.
extension GatewayLoop {
  /// Monotonic time in nanoseconds.
  var clock: Int64 { Int64(NIODeadline.now().uptimeNanoseconds) }

  /// Charge a request's cost to the buckets of its caller and of its address: to both, or to neither. A server's
  /// address is not charged: the requests of all its users come from there.
  func chargeRates(
    _ route: Route,
    _ caller: Caller,
    _ request: borrowing HTTP2Request,
    stream: HTTP2StreamHandle,
    connection: HTTP2ServerConnection<GatewayLoop>,
    admission: inout RequestAdmission
  ) throws(Problem) {
    admission.isCharged = true
    // The batch was charged before it waited.
    if admission.hasWaited { return }
    let (cost, now, index) = (route.requestCost, clock, connection.tableIndex)
    let address = caller.isServer ? nil : client(request, index)
    let addressCheck = rates.charge(cost, to: address, at: now, .nothing)
    if let addressCheck, !addressCheck.decision.isAllowed {
      throw limited(addressCheck, request, connection: index, stream: stream)
    }
    let ofCaller = rates.charge(cost, to: caller, at: now)
    if let ofCaller, !ofCaller.decision.isAllowed {
      throw limited(ofCaller, request, connection: index, stream: stream)
    }
    let ofAddress = rates.charge(cost, to: address, at: now, .always)
    // The headers show the bucket with less left.
    var shown = ofCaller ?? ofAddress
    if let ofCaller, let ofAddress, ofAddress.decision.remaining < ofCaller.decision.remaining {
      shown = ofAddress
    }
    if let shown { connection.setApplicationTag(stream, shown.packed) }
  }

  /// Charge a caller, and the client's address unless it is a server's, for more work than their request's own cost
  /// stands for. They may come into debt, and wait with their next request.
  func chargeMore(_ cost: Int, _ caller: Caller, from address: PeerAddress? = nil) {
    guard rates.isOn, cost > 0 else { return }
    _ = rates.charge(cost, to: caller, at: clock, .always)
    if !caller.isServer { _ = rates.charge(cost, to: address, at: clock, .always) }
  }

  /// Return the response to a request that was refused before it was charged: its problem, or that its address is over
  /// its rate.
  func refusalAfterCharge(
    _ problem: Problem,
    stream: HTTP2StreamHandle,
    connection: HTTP2ServerConnection<GatewayLoop>,
    admission: RequestAdmission
  ) -> Problem {
    guard rates.isOn, !admission.isCharged, problem.code != .rateLimited else { return problem }
    return connection.withRequest(stream) { request in
      do throws(Problem) {
        try self.chargeAddress(request, stream: stream, connection: connection)
        return problem
      } catch {
        return error
      }
    } ?? problem
  }

  /// Charge one request without a valid token to its address.
  func chargeAddress(
    _ request: borrowing HTTP2Request,
    stream: HTTP2StreamHandle,
    connection: HTTP2ServerConnection<GatewayLoop>
  ) throws(Problem) {
    let index = connection.tableIndex
    guard let charge = rates.charge(1, to: client(request, index), at: clock) else { return }
    if !charge.decision.isAllowed { throw limited(charge, request, connection: index, stream: stream) }
    connection.setApplicationTag(stream, charge.packed)
  }

  private func limited(
    _ charge: RateCharge,
    _ request: borrowing HTTP2Request,
    connection index: ConnectionIndex,
    stream: HTTP2StreamHandle
  ) -> Problem {
    connections.connection(index)?.setApplicationTag(stream, charge.packed)
    counters.rateLimited[Int(charge.share.rawValue) - 1] &+= 1
    refusals?.record(.rate, from: client(request, index))
    return rates.problem(charge)
  }

  /// Return whether a stream may send one more request; the request is charged in ``chargeStream(_:)``.
  func canCharge(_ stream: RequestStreamState) -> Bool {
    guard rates.isOn else { return true }
    let (caller, now) = (stream.caller, clock)
    return rates.charge(1, to: caller, at: now, .nothing)?.decision.isAllowed != false
      && (caller.isServer
        || rates.charge(1, to: stream.address, at: now, .nothing)?.decision.isAllowed != false)
  }

  /// Charge a frame or line of a stream's body, whether it is valid or not.
  func chargeStream(_ stream: RequestStreamState) {
    guard rates.isOn else { return }
    _ = rates.charge(1, to: stream.caller, at: clock)
    if !stream.caller.isServer { _ = rates.charge(1, to: stream.address, at: clock) }
  }

  /// Install the headers that all responses share: CORS headers and, where limits are set, rate headers.
  func setCommonHeaders() {
    let (origins, rates) = (origins, rates)
    switch (origins.isEmpty, rates.isOn) {
    case (true, false): resources.commonHeaders = nil
    case (false, false): resources.commonHeaders = { origins.addHeaders(for: $0, to: &$1) }
    case (true, true): resources.commonHeaders = { rates.addHeaders($0.applicationTag, to: &$1) }
    case (false, true):
      resources.commonHeaders = {
        origins.addHeaders(for: $0, to: &$1)
        rates.addHeaders($0.applicationTag, to: &$1)
      }
    }
  }
}
