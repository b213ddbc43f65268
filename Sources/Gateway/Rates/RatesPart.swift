internal import HTTP2Session
internal import Operations

/// The addresses of clients, and the rate limits of callers and addresses.
final class RatesPart: GatewayPart {
  private let limiter: RateLimiter
  /// Requests answered 429 since the start, by ``RateLimiter/Share``.
  private var limitedCounts: [UInt64] = [0, 0, 0]

  init(_ limiter: RateLimiter) { self.limiter = limiter }

  /// Whether any limit is on.
  var isOn: Bool { @inline(__always) get { limiter.isOn } }

  private var now: Int64 { loop.shared.clock.uptimeNanoseconds }

  // MARK: Addresses

  /// Record a connection's client: its peer, the client a PROXY header names, or clients that a proxy names per
  /// request.
  ///
  /// - Parameter isNamed: whether a PROXY header names the client; the connection is then that client's alone.
  func recordClient(
    _ index: ConnectionIndex,
    client: PeerAddress?,
    isNamed: Bool,
    _ connection: HTTP2ServerConnection<GatewayLoop>
  ) {
    let isShared = !isNamed && client.map { loop.shared.gate?.isTrusted($0) ?? false } ?? false
    loop.connections.recordClient(index, client: client, isShared: isShared)
    connection.isShared = isShared
  }

  /// Return the client address of a request; nil where unknown.
  func client(_ request: borrowing HTTP2Request, _ index: ConnectionIndex) -> PeerAddress? {
    guard loop.connections.isShared(index) else { return loop.connections.client(index) }
    return PeerAddress(lastOf: request.forwardedFor)
  }

  /// Return the address that refused tokens count against. Nil where it is unknown or loopback: loopback peers are most
  /// often proxies.
  private func chargedAddress(_ request: borrowing HTTP2Request, _ index: ConnectionIndex) -> PeerAddress? {
    guard let address = client(request, index) else { return nil }
    return address.isLoopback && loop.shared.gate?.limits.countsLoopback != true ? nil : address
  }

  // MARK: Refused tokens

  /// Return why an unknown token of this client may not be verified now; nil if it may be.
  func refusalToVerify(_ request: borrowing HTTP2Request, _ index: ConnectionIndex) -> RateDecision? {
    guard let address = chargedAddress(request, index), let decision = limiter.canVerifyToken(address, at: now),
      !decision.isAllowed
    else { return nil }
    loop.shared.refusals?.record(.token, from: address)
    return decision
  }

  /// Charge a request's client for a token that no key has signed.
  func chargeBadToken(_ request: borrowing HTTP2Request, _ index: ConnectionIndex) {
    if let address = chargedAddress(request, index) { limiter.recordBadToken(address, at: now) }
  }

  /// Log a refused request.
  func recordRefusal(_ kind: RefusalLog.Kind, _ request: borrowing HTTP2Request, _ index: ConnectionIndex) {
    if let refusals = loop.shared.refusals { refusals.record(kind, from: client(request, index)) }
  }

  /// Log a connection that the gateway ends. The clients of a shared one are not known.
  func recordEnd(_ index: ConnectionIndex) {
    let client = loop.connections.isShared(index) ? nil : loop.connections.client(index)
    loop.shared.refusals?.record(.connection, from: client)
  }

  // MARK: Requests

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
    let (cost, time, index) = (route.requestCost, now, connection.tableIndex)
    let address = caller.isServer ? nil : client(request, index)
    let addressCheck = limiter.charge(cost, to: address, at: time, .nothing)
    if let addressCheck, !addressCheck.decision.isAllowed {
      throw limited(addressCheck, request, connection: index, stream: stream)
    }
    let ofCaller = limiter.charge(cost, to: caller, at: time)
    if let ofCaller, !ofCaller.decision.isAllowed {
      throw limited(ofCaller, request, connection: index, stream: stream)
    }
    let ofAddress = limiter.charge(cost, to: address, at: time, .always)
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
    guard isOn, cost > 0 else { return }
    let time = now
    _ = limiter.charge(cost, to: caller, at: time, .always)
    if !caller.isServer { _ = limiter.charge(cost, to: address, at: time, .always) }
  }

  /// Charge a request that was refused before it was charged to its address, and return the response: the request's
  /// problem, or that the address is over its rate.
  func chargeRefused(
    _ problem: Problem,
    stream: HTTP2StreamHandle,
    connection: HTTP2ServerConnection<GatewayLoop>,
    admission: RequestAdmission
  ) -> Problem {
    guard isOn, !admission.isCharged, problem.code != .rateLimited else { return problem }
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
    guard let charge = limiter.charge(1, to: client(request, index), at: now) else { return }
    if !charge.decision.isAllowed { throw limited(charge, request, connection: index, stream: stream) }
    connection.setApplicationTag(stream, charge.packed)
  }

  private func limited(
    _ charge: RateCharge,
    _ request: borrowing HTTP2Request,
    connection index: ConnectionIndex,
    stream: HTTP2StreamHandle
  ) -> Problem {
    loop.connections.connection(index)?.setApplicationTag(stream, charge.packed)
    limitedCounts[Int(charge.share.rawValue) - 1] &+= 1
    recordRefusal(.rate, request, index)
    return limiter.problem(charge)
  }

  /// Return whether a stream may send one more request; the request is charged in ``chargeStream(_:)``.
  func canCharge(_ stream: RequestStreamState) -> Bool {
    guard isOn else { return true }
    let (caller, time) = (stream.caller, now)
    return limiter.charge(1, to: caller, at: time, .nothing)?.decision.isAllowed != false
      && (caller.isServer || limiter.charge(1, to: stream.address, at: time, .nothing)?.decision.isAllowed != false)
  }

  /// Charge a frame or line of a stream's body, whether it is valid or not.
  func chargeStream(_ stream: RequestStreamState) {
    guard isOn else { return }
    let time = now
    _ = limiter.charge(1, to: stream.caller, at: time)
    if !stream.caller.isServer { _ = limiter.charge(1, to: stream.address, at: time) }
  }

  /// Install the headers that all responses share: CORS headers and, where limits are set, rate headers.
  func setCommonHeaders(_ origins: CrossOrigins) {
    let (rates, resources) = (limiter, loop.resources)
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

  // MARK: Metrics

  override func collect(into samples: inout MetricSamples) {
    for (share, count) in zip(["user", "server", "address"], limitedCounts) {
      samples.counter(
        "tidemark_gateway_rate_limited_total",
        help: "Requests answered 429, by the rate limit exceeded (--rate-user, --rate-server, --rate-address).",
        labels: ["rate": share],
        Int64(clamping: count)
      )
    }
  }
}

extension PeerAddress {
  /// The last element of a comma-separated list such as `X-Forwarded-For`; nil where the list is empty. All invalid
  /// addresses count as one client.
  init?(lastOf list: RawSpan) {
    if list.isEmpty { return nil }
    var start = list.byteCount
    var end = list.byteCount
    func byte(_ at: Int) -> UInt8 { list.unsafeLoad(fromByteOffset: at, as: UInt8.self) }
    while start > 0, byte(start - 1) != UInt8(ascii: ",") { start -= 1 }
    while start < end, byte(start) == 0x20 || byte(start) == 0x09 { start += 1 }
    while end > start, byte(end - 1) == 0x20 || byte(end - 1) == 0x09 { end -= 1 }
    self = PeerAddress(text: list.extracting(start..<end)) ?? PeerAddress(high: 0, low: 0)
  }
}

extension RatesPart {
  /// Charge the caller of a scan for work that its route's own cost does not include. The caller may come into debt,
  /// and waits with their next request.
  ///
  /// - Parameter twentieths: the cost in twentieths of a request.
  func charge(_ twentieths: Int, to request: inout ScanRequest) {
    guard isOn, let caller = request.caller else { return }
    chargeMore(request.add(twentieths), caller)
  }
}
