internal import Glibc
internal import NIOCore
internal import Operations
internal import StoreEngine
internal import Synchronization

/// A node's connection to the shared log from one event loop: its writer, and the probe that reports to the groups of
/// that loop.
///
/// `@unchecked Sendable`: everything but `eventLoop` and ``silence`` is used on `eventLoop` only.
final class SharedLogLink: @unchecked Sendable {
  let eventLoop: any EventLoop
  let log: any GroupLog
  let writer: GroupWriter
  private var probe: LogProbe
  private var replicas: [GroupReplica] = [] {
    didSet { version += 1 }
  }
  /// Number of changes of `replicas`.
  private var version: UInt64 = 0
  private var timer: Scheduled<Void>?
  /// ``ClusterStatistics/followAges`` of the loop's groups.
  var followAges = Histogram.durations
  /// When a probe was answered last.
  private let answeredAt = Atomic(BootTime.now().nanoseconds)

  /// Time since the log has answered a probe; from any thread.
  var silence: Duration { .nanoseconds(BootTime.now().nanoseconds - answeredAt.load(ordering: .relaxed)) }

  /// Create a link; call on `eventLoop`.
  init(eventLoop: any EventLoop, log: any GroupLog, limits: ClusterLimits) {
    eventLoop.preconditionInEventLoop()
    self.eventLoop = eventLoop
    self.log = log
    writer = GroupWriter(log: log)
    probe = LogProbe(limits: limits, now: BootTime.now())
  }

  /// Probe the log for these groups from now on, instead of those before.
  func probe(for replicas: [GroupReplica]) {
    self.replicas = replicas
    timerFired()
  }

  /// Forget a replica whose host stops: nothing may reach the replica without its host.
  func drop(_ replica: GroupReplica) { replicas.removeAll { $0 === replica } }

  func stop() {
    replicas = []
    timer?.cancel()
    timer = nil
  }

  private func timerFired() {
    guard !replicas.isEmpty else { return }
    perform(probe.timerFired(at: BootTime.now()))
    setTimer()
  }

  private func setTimer() {
    timer?.cancel()
    guard !replicas.isEmpty else { return }
    timer = eventLoop.assumeIsolated().scheduleTask(in: BootTime.now().amount(until: probe.deadline)) {
      [weak self] in self?.timerFired()
    }
  }

  private func perform(_ actions: [LogProbe.Action]) {
    for action in actions {
      switch action {
      case .restartSilence: for replica in replicas { replica.handle(.logUnresponsive) }
      case .probe(let number): send(number)
      }
    }
  }

  private func send(_ number: UInt64) {
    let asked = version
    log.ends(of: replicas.map(\.group)) { [weak self] ends in
      // The replicas of before may be gone.
      guard let self, asked == version, !replicas.isEmpty else { return }
      if let ends {
        answeredAt.store(BootTime.now().nanoseconds, ordering: .relaxed)
        perform(probe.answered(number, at: BootTime.now()))
        for (replica, end) in zip(replicas, ends) { replica.handle(.probeAnswered(end)) }
      } else {
        perform(probe.failed(number, at: BootTime.now()))
      }
      setTimer()
    }
  }
}

extension BootTime {
  /// Reading of this machine's clock.
  static func now() -> BootTime {
    var time = timespec()
    clock_gettime(CLOCK_BOOTTIME, &time)
    return BootTime(nanoseconds: Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_nsec))
  }

  /// Time until a deadline; at most a minute, for ``never``.
  func amount(until deadline: BootTime) -> TimeAmount {
    .nanoseconds(min(max(0, deadline.nanoseconds &- nanoseconds), 60_000_000_000))
  }
}
