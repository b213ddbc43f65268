internal import HTTP2Session
internal import NIOCore
internal import Synchronization

/// Measurements of one event loop.
struct LoopResult: Sendable {
  /// Measured requests.
  var requests = 0
  var seconds = 0.0
  var statuses: [Int: Int] = [:]
  var failures: [UInt32: Int] = [:]
  var connectionsLost = 0
  var latencies = Latencies()
  /// CPU seconds in the measured time: of this process, then of the plan's processes.
  var cpuSeconds: [Double?] = []
  /// Walks by the connection's number in the plan.
  var walks: [Int: RequestWalk] = [:]
  /// Kept responses by the connection's number.
  var samples: [Int: [ResponseSample]] = [:]
}

/// Connection of a ``LoadLoop``.
protocol LoadDriver: AnyObject {
  /// Number in the plan, from 0.
  var number: Int { get }
  var walk: RequestWalk? { get }
  var sampler: ResponseSampler { get }

  /// Make the first requests.
  func begin(now: UInt64)
  /// Close the connection and release it.
  func close()
}

/// Connection that makes requests on demand.
protocol PacedDriver: LoadDriver {
  /// Make a request on an idle stream.
  ///
  /// - Returns: false without an idle stream or without requests left.
  func makeOne(dueAt: UInt64) -> Bool
  func flush()
}

/// Connections of one event loop, and their counters. Used on that loop only.
///
/// Phases: waiting (for connections) → warming → measuring → draining → ended. The measured time begins with the last
/// response of the warm-up and ends with the last response, so it excludes connection set-up.
final class LoadLoop {
  private enum Phase { case waiting, warming, measuring, draining, ended }

  let resources = HTTP2ClientResources()

  private let plan: LoadPlan
  private let warmup: Int
  private let requests: Int
  private let meter: ProcessCPUMeter
  private let published: AnsweredCount
  private let promise: EventLoopPromise<LoopResult>

  private var phase = Phase.waiting
  /// Connections that are ready.
  private var connections: [any LoadDriver] = []
  /// Connections that may never become ready, but have to be closed.
  private var opening: [any LoadDriver] = []
  private let connectionCount: Int

  private var remainingRequests: Int
  private var inFlight = 0
  /// Answered requests, with those of the warm-up.
  private var allRequests = 0
  private var measuredFrom: UInt64 = 0
  private var cpuFrom: [Double?] = []
  /// Number of requests by the status of their response, which HTTP/2 limits to 999, with those of the warm-up.
  private var statusCounts = Array(repeating: 0, count: 1000)
  private var result = LoopResult()
  /// Pacer of a paced run.
  private var pacer: LoadPacer?

  /// - Parameters:
  ///   - requests: share of the plan's measured requests.
  ///   - meter: has processes on one loop only.
  init(
    plan: LoadPlan,
    connectionCount: Int,
    requests: Int,
    warmup: Int,
    meter: ProcessCPUMeter,
    published: AnsweredCount,
    promise: EventLoopPromise<LoopResult>
  ) {
    self.plan = plan
    self.connectionCount = connectionCount
    self.requests = requests
    self.warmup = warmup
    self.meter = meter
    self.published = published
    self.promise = promise
    remainingRequests = requests + warmup
  }

  // MARK: Connections

  /// Whether connections are still being opened.
  var isWaiting: Bool { phase == .waiting }

  /// Register a connection that retries until it is closed.
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
        switch plan.wireProtocol {
        case .http2: "before the server sent its settings: does it speak HTTP/2?"
        case .frames: "before all connections were open"
        }
      promise.fail(LoadError("a connection was closed \(reason)"))
      closeConnections()
    } else {
      endIfDone(MonotonicClock.now)
    }
  }

  /// Handle the error of a connection, before its closing. It ends the run only while connections are opened.
  func connectionFailed(_ reason: String) {
    guard phase == .waiting else { return }
    phase = .ended
    promise.fail(LoadError("\(plan.endpoint): \(reason)"))
    closeConnections()
  }

  /// Make no further requests.
  func stop() {
    guard phase != .ended else { return }
    remainingRequests = 0
    endIfDone(MonotonicClock.now)
  }

  /// Stop without waiting for requests in flight.
  func abort() {
    guard phase != .ended else { return }
    phase = .ended
    promise.fail(CancellationError())
    closeConnections()
  }

  // MARK: Requests

  @inline(__always)
  func takeRequest() -> Bool {
    guard remainingRequests > 0 else { return false }
    remainingRequests &-= 1
    inFlight &+= 1
    return true
  }

  /// Return a request that the stream could not make.
  func returnRequest() {
    remainingRequests += 1
    inFlight -= 1
  }

  @inline(__always)
  func answered(status: Int, nanoseconds: UInt64, now: UInt64) {
    inFlight &-= 1
    allRequests &+= 1
    statusCounts[status] &+= 1
    if phase == .measuring {
      result.latencies.record(nanoseconds: nanoseconds)
      result.requests &+= 1
      if result.requests == requests { endMeasuring(now) }
    } else if allRequests == warmup {
      beginMeasuring(now)
    }
  }

  func failed(errorCode: UInt32) {
    inFlight -= 1
    result.failures[errorCode, default: 0] += 1
    if inFlight == 0 { endIfDone(MonotonicClock.now) }
  }

  func readComplete() {
    published.publish(allRequests)
    if inFlight == 0 { endIfDone(MonotonicClock.now) }
  }

  // MARK: Pace

  /// Make requests by the clock, on all connections in turn.
  private func beginPacing(_ now: UInt64) {
    guard let rate = plan.ratePerLoop else { return }
    let paced = connections.compactMap { $0 as? any PacedDriver }
    precondition(paced.count == connections.count, "only requests over HTTP/2 are paced")
    let eventLoop = promise.futureResult.eventLoop
    let bound = NIOLoopBound(self, eventLoop: eventLoop)
    pacer = LoadPacer(paced, rate: rate, now: now, on: eventLoop) {
      bound.value.makeDue()
    }
  }

  private func makeDue() {
    guard phase == .warming || phase == .measuring, let count = pacer?.count, count > 0 else { return }
    let now = MonotonicClock.now
    var skippedCount = 0
    while skippedCount < count, remainingRequests > 0, let (connection, due) = pacer?.nextDue(at: now) {
      if connection.makeOne(dueAt: due) {
        pacer?.madeOne()
        skippedCount = 0
      } else {
        skippedCount += 1
      }
    }
    pacer?.flush()
    // No connection can make a request, and none waits for a response: the walks have ended or the connections are
    // lost.
    if skippedCount == count, inFlight == 0 { stop() }
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
    result.cpuSeconds = meter.seconds(since: cpuFrom)
    phase = .draining
  }

  /// End the run if no request is in flight and none can be made.
  private func endIfDone(_ now: UInt64) {
    guard phase != .waiting, phase != .ended, inFlight == 0 else { return }
    // In a paced run the next request may not be due yet.
    if phase != .draining, pacer != nil, remainingRequests > 0 { return }
    if phase == .measuring { endMeasuring(now) }
    phase = .ended
    for (status, count) in statusCounts.enumerated() where count > 0 { result.statuses[status] = count }
    for connection in connections {
      result.walks[connection.number] = connection.walk
      result.samples[connection.number] = connection.sampler.samples
    }
    published.publish(allRequests)
    promise.succeed(result)
    closeConnections()
  }

  private func closeConnections() {
    pacer?.stop()
    pacer = nil
    // Breaks the reference cycle with the connections.
    let closing = connections + opening
    connections = []
    opening = []
    for connection in closing { connection.close() }
  }
}

/// Number of answered requests of a loop so far, for the progress line.
final class AnsweredCount: Sendable {
  private let count = Atomic<Int>(0)

  var value: Int { count.load(ordering: .relaxed) }

  func publish(_ value: Int) { count.store(value, ordering: .relaxed) }
}
