package import ReceiptModel

/// Decides which readings of the wall clock become the shards' time (R20).
///
/// A shard's time never falls. So if a clock that was set forward by mistake were logged, everything from then on would
/// carry the wrong time for ever. Therefore each reading is compared with the time since the machine's boot, which is
/// monotonic. The guard watches the difference of the two, which stays constant while the clock merely runs.
///
/// A reading and the time since boot go in, an action comes out. Transitions: running ⇄ held; a start may be in either
/// state.
package struct ClockGuard: Sendable {
  /// How far the clock may be set forward, in milliseconds.
  package struct Limits: Hashable, Sendable {
    /// In one jump while the store runs.
    package var jumpMax: Int64
    /// While the store was stopped: from the last logged time to the start.
    package var startMax: Int64

    /// - Parameters: default to one hour and 400 days.
    package init(jumpMax: Int64 = 3_600_000, startMax: Int64 = 400 * 86_400_000) {
      self.jumpMax = jumpMax
      self.startMax = startMax
    }
  }

  /// Result of the clock check at the start.
  package enum Start: Hashable, Sendable {
    /// Accepted without a report: time has passed, or the clock is behind the log by no more than a jump may be.
    case accepted
    /// Accepted, but more than a jump has passed since the last logged time.
    case acceptedWithGap(milliseconds: Int64)
    /// The log is ahead of the clock by this much: the shards' time stands still until the clock catches up.
    case behindLog(milliseconds: Int64)
    /// More time has passed than a start accepts: the time is held.
    case held(aheadMilliseconds: Int64)
  }

  /// Change of the guard's state by a reading.
  package enum Change: Hashable, Sendable {
    case none
    case heldSince(aheadMilliseconds: Int64)
    case released
  }

  private enum State {
    /// Becomes `held` on a reading that is too far ahead.
    case running
    /// Becomes ``running`` on a reading whose difference is `bound` or less.
    case held(bound: Int64, sinceStart: Bool)
  }

  private let limits: Limits
  private var state: State
  /// Differences between wall clock and time since boot: the last accepted one, which drives the time while it is held,
  /// and the greatest accepted one. A clock that was set back may be set forward again to where it was.
  private var last: Int64
  private var greatest: Int64

  /// - Parameters:
  ///   - logged: last logged time of the newest shard; none if nothing was ever logged.
  ///   - boot: milliseconds since the machine's boot, sleep included, read after `wall`.
  package init(limits: Limits, logged: Timestamp, wall: Timestamp, boot: Int64) {
    self.limits = limits
    let difference = wall.milliseconds - boot
    let gap = logged == .none ? 0 : wall.milliseconds - logged.milliseconds
    guard gap > limits.startMax else {
      state = .running
      last = difference
      greatest = difference
      start =
        if gap > limits.jumpMax {
          .acceptedWithGap(milliseconds: gap)
        } else if -gap > limits.jumpMax {
          .behindLog(milliseconds: -gap)
        } else {
          .accepted
        }
      return
    }
    last = logged.milliseconds - boot
    greatest = last
    state = .held(bound: last + limits.startMax, sinceStart: true)
    start = .held(aheadMilliseconds: gap)
  }

  /// Result of the clock check at the start.
  package let start: Start

  package var isHeld: Bool {
    switch state {
    case .running: false
    case .held: true
    }
  }

  /// Whether the time is held because of the reading at the start.
  package var isHeldSinceStart: Bool {
    switch state {
    case .running: false
    case .held(_, let sinceStart): sinceStart
    }
  }

  /// Greatest accepted difference: a reading within it changes nothing.
  package var differenceAccepted: Int64 { greatest }

  /// Accept or reject a reading, and hold or release the time accordingly.
  package mutating func read(wall: Timestamp, boot: Int64) -> Change {
    let difference = wall.milliseconds - boot
    switch state {
    case .running:
      guard difference - greatest <= limits.jumpMax else {
        state = .held(bound: greatest + limits.jumpMax, sinceStart: false)
        return .heldSince(aheadMilliseconds: difference - last)
      }
      accept(difference)
      return .none
    case .held(let bound, _):
      guard difference <= bound else { return .none }
      state = .running
      accept(difference)
      return .released
    }
  }

  private mutating func accept(_ difference: Int64) {
    last = difference
    greatest = max(greatest, difference)
  }

  /// Return the time that continues from the last accepted reading with the machine's uptime.
  package func time(boot: Int64) -> Timestamp { Timestamp(milliseconds: boot + last) }

  /// Return how far a reading is ahead of ``time(boot:)``, in milliseconds; 0 if it is not.
  package func ahead(wall: Timestamp, boot: Int64) -> Int64 { max(0, wall.milliseconds - boot - last) }
}
