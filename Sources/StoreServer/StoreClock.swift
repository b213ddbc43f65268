internal import Glibc
internal import Logging
internal import NIOConcurrencyHelpers
internal import Operations
package import ReceiptModel
internal import StoreEngine
internal import Synchronization

/// The store's time: the wall clock, except during a jump forward that is held (``ClockGuard``). All loops share it, so
/// that no loop logs a time that another one rejects.
package final class StoreClock: Sendable {
  /// Whether time is held, and how far the wall clock is ahead.
  package struct Status: Hashable, Sendable {
    package var isHeld = false
    package var aheadMilliseconds: Int64 = 0
    /// Set if time is held because of the reading at the start.
    package var isSinceStart = false

    package init() {}
  }

  private let limits: ClockGuard.Limits
  private let logger: Logger
  /// nil before the storage was read; every reading is accepted then.
  private let state = NIOLockedValueBox<ClockGuard?>(nil)
  /// Greatest difference that changes nothing and needs no lock; the minimum value while time is held.
  private let unlockedMax = Atomic<Int64>(.max)

  init(limits: ClockGuard.Limits, logger: Logger) {
    self.limits = limits
    self.logger = logger
  }

  /// Start the guard once the storage was read. Later calls change nothing, because this process has watched the clock
  /// since.
  ///
  /// - Parameter logged: last logged time of the newest shard.
  func start(logged: Timestamp) {
    state.withLockedValue { state in
      guard state == nil else { return }
      let (wall, boot) = Self.reading()
      let made = ClockGuard(limits: limits, logged: logged, wall: wall, boot: boot)
      state = made
      publish(made)
      let times: Logger.Metadata = ["last_logged": "\(Self.text(logged))", "clock": "\(Self.text(wall))"]
      switch made.start {
      case .accepted: break
      case .acceptedWithGap:
        logger.notice("The clock is far ahead of the last log entry and was accepted", metadata: times)
      case .behindLog:
        logger.warning(
          """
          The last log entry is later than the clock: the store's time stands still until the clock reaches it; if the \
          log is wrong, stop the store and run tidemark repair-clock
          """,
          metadata: times
        )
      case .held:
        logger.error(
          "The clock is too far ahead of the log: commands are refused; \(Self.startRemedy)",
          metadata: times
        )
      }
    }
  }

  /// Return the current time. It may fall, as the wall clock does; a loop's time does not.
  package func now() -> Timestamp {
    let (wall, boot) = Self.reading()
    return wall.milliseconds - boot <= unlockedMax.load(ordering: .relaxed) ? wall : accept(wall, boot)
  }

  /// Return the same, and also detect a clock that was set back; call periodically.
  func observe() -> Timestamp {
    let (wall, boot) = Self.reading()
    return accept(wall, boot)
  }

  private func accept(_ wall: Timestamp, _ boot: Int64) -> Timestamp {
    state.withLockedValue { state in
      guard state != nil else { return wall }
      logChange(state!.read(wall: wall, boot: boot), at: wall)
      publish(state!)
      return state!.isHeld ? state!.time(boot: boot) : wall
    }
  }

  /// Whether commands are refused, as of the last ``now()``.
  var isHeld: Bool { unlockedMax.load(ordering: .relaxed) == .min }

  /// Current status.
  package var status: Status {
    let (wall, boot) = Self.reading()
    return state.withLockedValue { state in
      var status = Status()
      guard let state, state.isHeld else { return status }
      status.isHeld = true
      status.isSinceStart = state.isHeldSinceStart
      status.aheadMilliseconds = state.ahead(wall: wall, boot: boot)
      return status
    }
  }

  /// Why commands are refused and what to do, for operators; nil if they are not.
  package var heldReason: String? {
    let status = status
    guard status.isHeld else { return nil }
    let seconds = status.aheadMilliseconds / 1_000
    let remedy = status.isSinceStart ? Self.startRemedy : Self.jumpRemedy
    return "the clock is \(seconds) s ahead of what the store expects, commands are refused; \(remedy)"
  }

  private static let jumpRemedy =
    "set the clock right; or, where it is right now, restart the store; it accepts a gap of up to --clock-start-max "
    + "(docs/operate/operations.md)"
  private static let startRemedy =
    "set the clock right; or, where it is right, restart the store with a larger --clock-start-max "
    + "(docs/operate/operations.md)"

  private func logChange(_ change: ClockGuard.Change, at wall: Timestamp) {
    switch change {
    case .none: break
    case .heldSince(let ahead):
      logger.error(
        "The clock was set forward: commands are refused; \(Self.jumpRemedy)",
        metadata: ["clock": "\(Self.text(wall))", "ahead_seconds": "\(ahead / 1_000)"]
      )
    case .released:
      logger.notice(
        "The clock is within its bound again: commands are accepted",
        metadata: ["clock": "\(Self.text(wall))"]
      )
    }
  }

  private func publish(_ made: ClockGuard) {
    unlockedMax.store(made.isHeld ? .min : made.differenceAccepted, ordering: .relaxed)
  }

  private static func text(_ time: Timestamp) -> String { Times.text(time.milliseconds) }

  /// Read the wall clock first: a pause between the two readings makes it look late rather than ahead.
  private static func reading() -> (wall: Timestamp, boot: Int64) {
    let wall = milliseconds(CLOCK_REALTIME)
    return (Timestamp(milliseconds: wall), milliseconds(CLOCK_BOOTTIME))
  }

  private static func milliseconds(_ clock: clockid_t) -> Int64 {
    var time = timespec()
    clock_gettime(clock, &time)
    return Int64(time.tv_sec) * 1_000 + Int64(time.tv_nsec) / 1_000_000
  }
}
