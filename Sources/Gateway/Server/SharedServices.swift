package import Logging
internal import NIOCore
package import Operations
internal import Synchronization

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
  /// Nil: there is no console.
  let console: ConsoleSessions?

  package init(
    logger: Logger,
    clock: GatewayClock = GatewayClock(),
    revokedTokens: RevokedTokens = RevokedTokens(),
    rates: RateLimiter = RateLimiter(),
    gate: ConnectionGate? = nil,
    refusals: RefusalLog? = nil,
    console: ConsoleSessions? = nil
  ) {
    self.logger = logger
    self.clock = clock
    self.revokedTokens = revokedTokens
    self.rates = rates
    self.gate = gate
    self.refusals = refusals
    self.console = console
  }
}

/// The clocks of a gateway for tokens and rates, which its loops share. What is below the handlers gets the time from
/// them. A test shifts the clocks. Timeouts are by the event loop's own clock.
package struct GatewayClock: Sendable {
  /// How far a test has moved the clocks.
  final class Shift: Sendable {
    private let shifted = Atomic<Int64>(0)

    /// Milliseconds so far.
    var milliseconds: Int64 { shifted.load(ordering: .relaxed) }

    func advance(by duration: TimeAmount) { shifted.add(duration.nanoseconds / 1_000_000, ordering: .relaxed) }
  }

  /// Nil: the machine's clocks.
  private let shift: Shift?

  init(shift: Shift) { self.shift = shift }

  /// The clocks of the machine.
  package init() { shift = nil }

  /// The wall clock, in milliseconds since 1970. Each access reads the clock, some 20 ns: a time cached per turn would
  /// let a token outlive its expiry if a turn did not end as it should.
  var now: Int64 {
    Times.now + (shift?.milliseconds ?? 0)
  }

  /// Monotonic time in nanoseconds.
  var uptimeNanoseconds: Int64 {
    let uptime = Int64(NIODeadline.now().uptimeNanoseconds)
    return uptime + (shift?.milliseconds ?? 0) * 1_000_000
  }
}
