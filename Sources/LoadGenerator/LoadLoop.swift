internal import HTTP2Session
internal import Histogram
internal import NIOCore
internal import Synchronization

/// What one event loop measured.
struct LoopResult: Sendable {
  var answers = 0
  var seconds = 0.0
  var statuses: [Int: Int] = [:]
  var failures: [UInt32: Int] = [:]
  var connectionsLost = 0
  /// Nanoseconds.
  var latencies = Histogram<UInt32>(
    highestTrackableValue: 60_000_000_000,
    numberOfSignificantValueDigits: .three
  )
  /// CPU seconds spent in the measured time: this process, then the plan's.
  var cpuSeconds: [Double?] = []
  /// By the connection's number in the plan.
  var walks: [Int: MarkWalk] = [:]
}

/// All connections of one event loop and what is counted over them. On that loop only.
///
/// waiting (for connections) → warming → measuring → draining → ended. The measured time begins with the answer that ends the
/// warm-up and ends with the last one: connecting, first windows and tables are outside it.
final class LoadLoop {
  private enum Phase { case waiting, warming, measuring, draining, ended }

  let resources = HTTP2ClientResources()

  private let plan: LoadPlan
  private let warmup: Int
  private let requests: Int
  private let meter: ProcessCPUMeter
  private let published: AnswerCount
  private let promise: EventLoopPromise<LoopResult>

  private var phase = Phase.waiting
  private var connections: [(load: LoadConnection, http: HTTP2ClientConnection<LoadConnection>)] = []
  private let connectionCount: Int
  private var openConnections = 0

  private var untaken: Int
  private var inFlight = 0
  private var allAnswers = 0
  private var measuredFrom: UInt64 = 0
  private var cpuFrom: [Double?] = []
  /// By status, which HTTP/2 bounds to 999; of all answers, the warm-up's too: an error there is an error.
  private var statusCounts = Array(repeating: 0, count: 1000)
  private var result = LoopResult()

  /// - Parameters:
  ///   - requests: this loop's share of the plan's.
  ///   - meter: for the loop that measures CPU time; the others get one without processes.
  init(
    plan: LoadPlan,
    connectionCount: Int,
    requests: Int,
    warmup: Int,
    meter: ProcessCPUMeter,
    published: AnswerCount,
    promise: EventLoopPromise<LoopResult>
  ) {
    self.plan = plan
    self.connectionCount = connectionCount
    self.requests = requests
    self.warmup = warmup
    self.meter = meter
    self.published = published
    self.promise = promise
    untaken = requests + warmup
  }

  // MARK: Connections

  func connectionReady(_ load: LoadConnection, _ http: HTTP2ClientConnection<LoadConnection>) {
    guard phase == .waiting else { return }
    openConnections += 1
    connections.append((load, http))
    guard connections.count == connectionCount else { return }
    let now = MonotonicClock.now
    phase = .warming
    if warmup == 0 { beginMeasuring(now) }
    for connection in connections { connection.load.begin(on: connection.http, now: now) }
    endIfDone(now)
  }

  func connectionClosed() {
    guard phase != .ended else { return }
    result.connectionsLost += 1
    if phase == .waiting {
      phase = .ended
      promise.fail(
        LoadError("a connection was closed before the server's settings came: does it speak HTTP/2?")
      )
    } else {
      openConnections -= 1
      endIfDone(MonotonicClock.now)
    }
  }

  /// A connection's error; it is closed after this. Only while connecting it says more than the closing does.
  func connectionFailed(_ error: any Error) {
    guard phase == .waiting else { return }
    phase = .ended
    promise.fail(LoadError("\(plan.endpoint): the connection failed: \(error)"))
  }

  /// Gives up what was not begun, as at the end of the time or on an interrupt.
  func stop() {
    guard phase != .ended else { return }
    untaken = 0
    endIfDone(MonotonicClock.now)
  }

  /// As ``stop()``; requests under way are not waited for.
  func abort() {
    guard phase != .ended else { return }
    phase = .ended
    promise.fail(CancellationError())
    closeConnections()
  }

  // MARK: Requests

  @inline(__always)
  func takeRequest() -> Bool {
    guard untaken > 0 else { return false }
    untaken &-= 1
    inFlight &+= 1
    return true
  }

  /// The stream had no request to make: another one may.
  func giveRequestBack() {
    untaken += 1
    inFlight -= 1
  }

  @inline(__always)
  func answered(status: Int, nanoseconds: UInt64, now: UInt64) {
    inFlight &-= 1
    allAnswers &+= 1
    statusCounts[status] &+= 1
    if phase == .measuring {
      result.latencies.record(nanoseconds)
      result.answers &+= 1
      if result.answers == requests { endMeasuring(now) }
    } else if allAnswers == warmup {
      beginMeasuring(now)
    }
  }

  func failed(errorCode: UInt32) {
    inFlight -= 1
    result.failures[errorCode, default: 0] += 1
    if inFlight == 0 { endIfDone(MonotonicClock.now) }
  }

  func readComplete() {
    published.publish(allAnswers)
    if inFlight == 0 { endIfDone(MonotonicClock.now) }
  }

  // MARK: Phases

  private func beginMeasuring(_ now: UInt64) {
    phase = .measuring
    measuredFrom = now
    cpuFrom = meter.sample()
    guard let duration = plan.duration else { return }
    let eventLoop = promise.futureResult.eventLoop
    let bound = NIOLoopBound(self, eventLoop: eventLoop)
    eventLoop.scheduleTask(in: .nanoseconds(Int64(duration * 1e9))) { bound.value.stop() }
  }

  private func endMeasuring(_ now: UInt64) {
    result.seconds = Double(now - measuredFrom) / 1e9
    result.cpuSeconds = zip(meter.sample(), cpuFrom).map { end, start in
      guard let end, let start else { return nil }
      return end - start
    }
    phase = .draining
  }

  /// Whether nothing is under way and nothing can be begun, be it that all is done, that the walks are at their ends or
  /// that the connections are gone.
  private func endIfDone(_ now: UInt64) {
    guard phase != .waiting, phase != .ended, inFlight == 0 else { return }
    if phase == .measuring { endMeasuring(now) }
    phase = .ended
    for (status, count) in statusCounts.enumerated() where count > 0 { result.statuses[status] = count }
    for connection in connections { result.walks[connection.load.number] = connection.load.walk }
    published.publish(allAnswers)
    promise.succeed(result)
    closeConnections()
  }

  private func closeConnections() {
    // Breaks the cycle between this and its connections.
    let closing = connections
    connections = []
    for connection in closing { connection.http.close() }
  }
}

/// How many answers a loop has had so far, for the line that shows it.
final class AnswerCount: Sendable {
  private let count = Atomic<Int>(0)

  var value: Int { count.load(ordering: .relaxed) }

  func publish(_ value: Int) { count.store(value, ordering: .relaxed) }
}
