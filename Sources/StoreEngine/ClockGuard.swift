package import ReceiptModel

/// Decides which readings of the wall clock become the shards' time (R20).
///
/// A clock that was set forward by mistake would be logged, and a shard's time never falls: everything from then on
/// would carry the wrong time for ever. So each reading is compared with the time since the machine's boot, which only
/// passes. What matters is their difference: it is constant while the clock only runs.
///
/// A reading and the time since boot go in, what to do comes out. running ⇄ held; a start is either.
package struct ClockGuard: Sendable {
  /// How far the clock may be set forward, in milliseconds.
  package struct Limits: Hashable, Sendable {
    /// At once, while the store runs.
    package var jumpMax: Int64
    /// While it was stopped: from the last logged time to the start.
    package var startMax: Int64

    /// - Parameters: one hour and 400 days, where nothing else is said.
    package init(jumpMax: Int64 = 3_600_000, startMax: Int64 = 400 * 86_400_000) {
      self.jumpMax = jumpMax
      self.startMax = startMax
    }
  }

  /// What a start makes of the clock.
  package enum Start: Hashable, Sendable {
    /// Nothing to tell: time has passed, or the clock is behind the log by no more than a jump may be.
    case taken
    /// More than a jump has passed since the last logged time, and it is taken.
    case gapTaken(milliseconds: Int64)
    /// The log is ahead of the clock by this much: the shards' time stands until the clock gets there.
    case behindLog(milliseconds: Int64)
    /// More has passed than a start takes: the time is held.
    case held(aheadMilliseconds: Int64)
  }

  /// What a reading makes of the guard.
  package enum Change: Hashable, Sendable {
    case none
    case heldFromNow(aheadMilliseconds: Int64)
    case heldNoMore
  }

  private enum State {
    /// Becomes `held` with a reading that is too far ahead.
    case running
    /// Becomes ``running`` with a reading whose difference is `bound` or less.
    case held(bound: Int64, sinceStart: Bool)
  }

  private let limits: Limits
  private var state: State
  /// Differences of the wall clock and the time since boot: the one taken last, by which time passes while it is held;
  /// and the greatest one taken. A clock that is set back may be set forward again to where it was.
  private var last: Int64
  private var greatest: Int64

  /// - Parameters:
  ///   - logged: the newest shard's last logged time; none: nothing was ever logged.
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
          .gapTaken(milliseconds: gap)
        } else if -gap > limits.jumpMax {
          .behindLog(milliseconds: -gap)
        } else {
          .taken
        }
      return
    }
    last = logged.milliseconds - boot
    greatest = last
    state = .held(bound: last + limits.startMax, sinceStart: true)
    start = .held(aheadMilliseconds: gap)
  }

  /// What the start made of the clock.
  package let start: Start

  package var isHeld: Bool {
    switch state {
    case .running: false
    case .held: true
    }
  }

  /// Whether the time is held for what the clock said at the start.
  package var isHeldSinceStart: Bool {
    switch state {
    case .running: false
    case .held(_, let sinceStart): sinceStart
    }
  }

  /// The greatest difference that was taken: a reading that stays within it changes nothing.
  package var differenceTaken: Int64 { greatest }

  /// Takes a reading, or holds the time from here on, or no more.
  package mutating func read(wall: Timestamp, boot: Int64) -> Change {
    let difference = wall.milliseconds - boot
    switch state {
    case .running:
      guard difference - greatest <= limits.jumpMax else {
        state = .held(bound: greatest + limits.jumpMax, sinceStart: false)
        return .heldFromNow(aheadMilliseconds: difference - last)
      }
      take(difference)
      return .none
    case .held(let bound, _):
      guard difference <= bound else { return .none }
      state = .running
      take(difference)
      return .heldNoMore
    }
  }

  private mutating func take(_ difference: Int64) {
    last = difference
    greatest = max(greatest, difference)
  }

  /// The time that goes on from the last reading that was taken, as the machine's uptime does.
  package func time(boot: Int64) -> Timestamp { Timestamp(milliseconds: boot + last) }

  /// How far a reading is ahead of ``time(boot:)``; 0 where it is not.
  package func ahead(wall: Timestamp, boot: Int64) -> Int64 { max(0, wall.milliseconds - boot - last) }
}
