internal import HTTP2Session
internal import Operations

/// The limits `--rate-user`, `--rate-server` and `--rate-address`, in requests per second; nil: no limit.
package struct RateLimits: Hashable, Sendable {
  package var user: Int?
  package var server: Int?
  package var address: Int?

  package init(user: Int? = nil, server: Int? = nil, address: Int? = nil) {
    self.user = user
    self.server = server
    self.address = address
  }
}

/// Rate limits of callers, shared by all event loops of a gateway. Each route has a cost (``Route/requestCost``).
package final class RateLimiter: Sendable {
  /// The kind of bucket that a request was charged to.
  enum Share: UInt64 {
    case user = 1, server, address

    /// The name of its policy in the headers.
    var name: StaticString {
      switch self {
      case .user: "user"
      case .server: "server"
      case .address: "address"
      }
    }
  }

  private let users = RateTable()
  private let servers = RateTable()
  private let addresses = RateTable()
  /// Refused tokens by address.
  private let badTokens = RateTable(perSecond: badTokensPerSecond)

  /// Bad tokens per second that one address may have verified; bursts of twice as many.
  static let badTokensPerSecond = 100

  package init(_ limits: RateLimits = RateLimits()) { update(limits) }

  /// Change the limits for later requests.
  package func update(_ limits: RateLimits) {
    users.perSecond = limits.user
    servers.perSecond = limits.server
    addresses.perSecond = limits.address
  }

  /// Whether any limit is on.
  @inline(__always)
  var isOn: Bool { users.isOn || servers.isOn || addresses.isOn }

  private func table(_ share: Share) -> RateTable {
    switch share {
    case .user: users
    case .server: servers
    case .address: addresses
    }
  }

  /// Charge a request to its caller's bucket; nil for a caller without a token.
  func charge(_ cost: Int, to caller: Caller, at now: Int64, _ mode: RateTable.ChargeMode = .ifAllowed) -> RateCharge? {
    if caller.isServer { return charge(cost, share: .server, key: caller.key, now: now, mode: mode) }
    return caller.userID.isEmpty ? nil : charge(cost, share: .user, key: caller.key, now: now, mode: mode)
  }

  /// Charge a request to the bucket of its client address; nil where the address is unknown.
  func charge(_ cost: Int, to address: PeerAddress?, at now: Int64, _ mode: RateTable.ChargeMode = .ifAllowed)
    -> RateCharge?
  {
    guard addresses.isOn, let address else { return nil }
    return charge(cost, share: .address, key: address.key, now: now, mode: mode)
  }

  private func charge(_ cost: Int, share: Share, key: UInt64, now: Int64, mode: RateTable.ChargeMode) -> RateCharge? {
    table(share).charge(cost, to: key, at: now, mode).map { RateCharge(share: share, decision: $0) }
  }

  /// Return whether a token that is new from this address may be verified.
  func canVerifyToken(_ address: PeerAddress, at now: Int64) -> RateDecision? {
    badTokens.charge(1, to: address.key, at: now, .nothing)
  }

  /// Charge an address for a token that no key has signed, even beyond its limit: several may have been in
  /// verification at once.
  func recordBadToken(_ address: PeerAddress, at now: Int64) {
    _ = badTokens.charge(1, to: address.key, at: now, .always)
  }

  /// Add the headers for a response whose request was charged (IETF draft-ietf-httpapi-ratelimit-headers).
  ///
  /// - Parameter packed: ``RateCharge/packed``; 0: the request was not charged.
  func addHeaders(_ packed: UInt64, to fields: inout ResponseFields) {
    guard let charge = RateCharge(packed: packed), let perSecond = table(charge.share).perSecond else {
      return
    }
    Self.addHeaders(
      charge.share.name,
      perSecond: perSecond,
      remaining: charge.decision.remaining,
      resetSeconds: charge.decision.resetSeconds,
      to: &fields
    )
  }

  static func addHeaders(
    _ policy: StaticString,
    perSecond: Int,
    remaining: Int,
    resetSeconds: Int,
    to fields: inout ResponseFields
  ) {
    fields.add("ratelimit-policy")
    fields.append("\"")
    fields.append(policy)
    fields.append("\";q=")
    fields.append(decimal: 2 * perSecond)
    fields.append(";w=2")
    fields.add("ratelimit")
    fields.append("\"")
    fields.append(policy)
    fields.append("\";r=")
    fields.append(decimal: remaining)
    fields.append(";t=")
    fields.append(decimal: resetSeconds)
  }

  /// Return the problem for a refused request.
  func problem(_ charge: RateCharge) -> Problem {
    let perSecond = table(charge.share).perSecond ?? 0
    let requests =
      switch charge.share {
      case .user: "this user's requests"
      case .server: "the requests of this server's token"
      case .address: "requests from this address"
      }
    var problem = Problem(
      .rateLimited,
      "\(requests) are limited to \(perSecond) a second, and \(2 * perSecond) at once"
    )
    problem.retryAfterSeconds = charge.decision.retryAfterSeconds
    return problem
  }
}

extension PeerAddress {
  /// Hash of the address's network, never 0; the key of its buckets.
  var key: UInt64 {
    var hasher = Hasher()
    hasher.combine(network)
    return UInt64(bitPattern: Int64(hasher.finalize())) | 1
  }
}

extension Route {
  /// The cost of a request (``RouteSpec/cost``).
  var requestCost: Int { spec.cost }
}

/// The result of a charge, small enough to be stored beside a stream until its response is written.
struct RateCharge {
  let share: RateLimiter.Share
  let decision: RateDecision

  init(share: RateLimiter.Share, decision: RateDecision) {
    self.share = share
    self.decision = decision
  }

  /// Decode a ``packed`` answer; nil where it is empty.
  init?(packed: UInt64) {
    guard let share = RateLimiter.Share(rawValue: packed >> 62) else { return nil }
    self.share = share
    decision = RateDecision(
      isAllowed: true,
      remaining: Int(packed & 0x7FFF_FFFF),
      resetSeconds: Int(packed >> 31 & 0x7FFF_FFFF),
      retryAfterSeconds: 0
    )
  }

  /// The values that the headers need, packed into one number; never 0.
  var packed: UInt64 {
    share.rawValue << 62 | UInt64(min(decision.resetSeconds, 0x7FFF_FFFF)) << 31
      | UInt64(min(decision.remaining, 0x7FFF_FFFF))
  }
}
