package import Logging
package import Operations

/// The services that all event loops of a gateway share. Each is safe to use from any of them.
package struct SharedServices: Sendable {
  let logger: Logger
  let clock: GatewayClock
  /// One table for all loops; one loop reads the list from the store.
  let revokedTokens: RevokedTokens
  let rates: RateLimiter
  /// Admits connections, and is told of those that have shown a valid token; nil in tests.
  let gate: ConnectionGate?
  /// Nil in tests.
  let refusals: RefusalLog?

  package init(
    logger: Logger,
    clock: GatewayClock = GatewayClock(),
    revokedTokens: RevokedTokens = RevokedTokens(),
    rates: RateLimiter = RateLimiter(),
    gate: ConnectionGate? = nil,
    refusals: RefusalLog? = nil
  ) {
    self.logger = logger
    self.clock = clock
    self.revokedTokens = revokedTokens
    self.rates = rates
    self.gate = gate
    self.refusals = refusals
  }
}
