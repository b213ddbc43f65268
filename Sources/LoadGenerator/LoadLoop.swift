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
  var walks: [Int: RequestWalk] = [:]
  /// The same.
  var samples: [Int: [AnswerSample]] = [:]
}

/// What a loop needs of one of its connections.
protocol LoadDriver: AnyObject {
  /// In the plan, from 0.
  var number: Int { get }
  var walk: RequestWalk? { get }
  var samples: [AnswerSample] { get }

  /// Makes the first requests.
  func begin(now: UInt64)
  /// Ends the connection and lets go of the loop's side of it.
  func close()
}

/// One that makes requests when it is told to.
protocol PacedDriver: LoadDriver {
  /// Makes a request on a stream that has none under way; false where there is no such stream, or no request left.
  func makeOne(dueAt: UInt64) -> Bool
  func flush()
}

/// All connections of one event loop and what is counted over them. On that loop only.
///
/// waiting (for connections) → warming → measuring → draining → ended. The measured time begins with the answer that
/// ends the warm-up and ends with the last one: connecting, first windows and tables are outside it.
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
  /// Those that are ready.
  private var connections: [any LoadDriver] = []
  /// Those that are to be closed even if they never are.
  private var opening: [any LoadDriver] = []
  private let connectionCount: Int

  private var untaken: Int
  private var inFlight = 0
  private var allAnswers = 0
  private var measuredFrom: UInt64 = 0
  private var cpuFrom: [Double?] = []
  /// By status, which HTTP/2 bounds to 999; of all answers, the warm-up's too: an error there is an error.
  private var statusCounts = Array(repeating: 0, count: 1000)
  private var result = LoopResult()
  /// Of a paced run, from its beginning.
  private var pace: LoadPace?
  private var paced: [any PacedDriver] = []
  /// The one whose turn is next.
  private var pacedNext = 0
  private var pacer: RepeatedTask?

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

  /// Whether the run has not begun: connections are still being made.
  var isWaiting: Bool { phase == .waiting }

  /// A connection that goes on trying until it is closed.
  func connectionOpening(_ connection: any LoadDriver) { opening.append(connection) }

  func connectionReady(_ connection: any LoadDriver) {
    guard phase == .waiting else { return }
    connections.append(connection)
    guard connections.count == connectionCount else { return }
    let now = MonotonicClock.now
    phase = .warming
    if warmup == 0 { beginMeasuring(now) }
    if plan.rate == nil {
      for connection in connections { connection.begin(now: now) }
    } else {
      beginPacing(now)
    }
    endIfDone(now)
  }

  func connectionClosed() {
    guard phase != .ended else { return }
    result.connectionsLost += 1
    if phase == .waiting {
      phase = .ended
      let reason =
        switch plan.language {
        case .http2: "before the server's settings came: does it speak HTTP/2?"
        case .frames: "before the last one was open"
        }
      promise.fail(LoadError("a connection was closed \(reason)"))
      closeConnections()
    } else {
      endIfDone(MonotonicClock.now)
    }
  }

  /// A connection's error; it is closed after this. Only while connecting it says more than the closing does.
  func connectionFailed(_ reason: String) {
    guard phase == .waiting else { return }
    phase = .ended
    promise.fail(LoadError("\(plan.endpoint): \(reason)"))
    closeConnections()
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

  // MARK: Pace

  /// Requests are made by the clock, by all connections in turn.
  private func beginPacing(_ now: UInt64) {
    guard let rate = plan.rate else { return }
    paced = connections.compactMap { $0 as? any PacedDriver }
    precondition(paced.count == connections.count, "only requests over HTTP/2 are paced")
    pace = LoadPace(rate: rate / Double(plan.loops), start: now)
    let eventLoop = promise.futureResult.eventLoop
    let bound = NIOLoopBound(self, eventLoop: eventLoop)
    let tick = TimeAmount.nanoseconds(LoadPace.tickNanoseconds)
    pacer = eventLoop.scheduleRepeatedTask(initialDelay: .zero, delay: tick) { _ in bound.value.makeDue() }
  }

  private func makeDue() {
    guard phase == .warming || phase == .measuring, !paced.isEmpty else { return }
    let now = MonotonicClock.now
    var passedOver = 0
    while passedOver < paced.count, untaken > 0, let due = pace?.next(at: now) {
      let connection = paced[pacedNext]
      pacedNext = (pacedNext + 1) % paced.count
      if connection.makeOne(dueAt: due) {
        pace?.madeOne()
        passedOver = 0
      } else {
        passedOver += 1
      }
    }
    for connection in paced { connection.flush() }
    // Nobody can make one, and nobody waits for an answer after which they could: the walks are at their ends, or the
    // connections gone.
    if passedOver == paced.count, inFlight == 0 { stop() }
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
    // In a paced run it may just be that nothing is due.
    if phase != .draining, pacer != nil, untaken > 0 { return }
    if phase == .measuring { endMeasuring(now) }
    phase = .ended
    for (status, count) in statusCounts.enumerated() where count > 0 { result.statuses[status] = count }
    for connection in connections {
      result.walks[connection.number] = connection.walk
      result.samples[connection.number] = connection.samples
    }
    published.publish(allAnswers)
    promise.succeed(result)
    closeConnections()
  }

  private func closeConnections() {
    pacer?.cancel()
    pacer = nil
    paced = []
    // Breaks the cycle between this and its connections.
    let closing = connections + opening
    connections = []
    opening = []
    for connection in closing { connection.close() }
  }
}

/// How many answers a loop has had so far, for the line that shows it.
final class AnswerCount: Sendable {
  private let count = Atomic<Int>(0)

  var value: Int { count.load(ordering: .relaxed) }

  func publish(_ value: Int) { count.store(value, ordering: .relaxed) }
}
