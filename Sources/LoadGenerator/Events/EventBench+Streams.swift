internal import CommandOutput
internal import NIOCore

extension EventBench {
  /// Timeout for one event to reach all streams.
  private static let eventTimeout = TimeAmount.seconds(20)

  /// Open idle streams, measure the gateway's memory, then send events to all streams.
  func measureStreams(_ environment: Environment) async throws -> (EventReport.Idle, EventReport.FanOut) {
    let note = environment.services.note
    try await environment.dataset.makeViewers(streams, channelsEach: channels)
    note("making tokens")
    var requests: [EventStreamRequest] = []
    for viewer in 0..<streams {
      requests.append(EventStreamRequest(token: try await environment.services.token(EventDataset.viewer(viewer))))
    }
    let before = try environment.gatewayBytes
    let start = MonotonicClock.now
    let opened = try await EventLoadStreams.open(
      requests,
      at: environment.endpoint,
      connections: connections,
      on: environment.timed
    ) { [streams] in note("\(Figures.count($0)) of \(Figures.count(streams)) streams open") }
    let seconds = MonotonicClock.seconds(since: start)
    return try await withCleanup {
      let open = try environment.gatewayBytes
      let known = try await environment.gatewayMetric("tidemark_gateway_event_streams")
      guard Int(known) == streams else { throw LoadError("the gateway has \(Int(known)) streams, expected \(streams)") }
      if awaitsHeartbeat {
        note("waiting for a heartbeat of each stream")
        try await waitForHeartbeats(opened)
      }
      let idle = EventReport.Idle(
        streams: streams,
        connections: connections,
        openSeconds: seconds,
        bytesBefore: before,
        bytesOpen: open,
        bytesAfterHeartbeat: awaitsHeartbeat ? try environment.gatewayBytes : nil
      )
      return (idle, try await measureFanOut(opened, environment))
    } cleanUp: {
      await opened.close()
    }
  }

  private func waitForHeartbeats(_ opened: EventLoadStreams) async throws {
    for _ in 0..<60 {
      if try await opened.heartbeats >= 1 { return }
      try await Task.sleep(for: .seconds(1))
    }
    throw LoadError("timed out after 60 s waiting for a heartbeat on every stream")
  }

  private func measureFanOut(_ opened: EventLoadStreams, _ environment: Environment) async throws -> EventReport.FanOut
  {
    let meter = ServiceCPUMeter(environment.processes)
    let cpuStart = meter.start()
    var outcomes: [(first: Double, median: Double, last: Double)] = []
    for number in 1...events {
      environment.services.note("event \(number) of \(events) to \(Figures.count(streams)) streams")
      let message = "to-all-\(number)"
      let (streams, timed) = (streams, environment.timed)
      let listening = try await opened.listen { promise in
        EventFanOut(message: message, streams: streams, within: Self.eventTimeout, promise, eventLoop: timed)
      }
      let start = MonotonicClock.now
      try await environment.dataset.register(message, in: EventDataset.everybody)
      let outcome = try await listening.outcome()
      func microseconds(_ time: UInt64) -> Double { Double(time - start) / 1_000 }
      outcomes.append((microseconds(outcome.first), microseconds(outcome.median), microseconds(outcome.last)))
      try await Task.sleep(for: .milliseconds(20))
    }
    let cpu = try meter.seconds(since: cpuStart)
    func each(_ seconds: Double) -> Double { seconds * 1e6 / Double(events) }
    return EventReport.FanOut(
      viewers: streams,
      events: events,
      firstMicroseconds: outcomes.median(\.first),
      medianMicroseconds: outcomes.median(\.median),
      lastMicroseconds: outcomes.median(\.last),
      lastMaxMicroseconds: outcomes.map(\.last).max() ?? 0,
      clientMicroseconds: each(cpu.client),
      gatewayMicroseconds: each(cpu.gateway),
      storeMicroseconds: each(cpu.store)
    )
  }
}

/// Fan-out of one event to all streams: the times at which the first, the median and the last stream receive it.
final class EventFanOut: EventSink {
  /// Readings of ``MonotonicClock``.
  struct Outcome: Sendable {
    var first: UInt64
    var median: UInt64
    var last: UInt64
  }

  private let message: String
  private let promise: EventLoopPromise<Outcome>
  private var received: [Bool]
  private var count = 0
  private var outcome = Outcome(first: 0, median: 0, last: 0)

  /// - Parameters:
  ///   - message: id of the message whose `message.new` is expected.
  ///   - limit: timeout for all streams.
  init(
    message: String,
    streams: Int,
    within limit: TimeAmount,
    _ promise: EventLoopPromise<Outcome>,
    eventLoop: any EventLoop
  ) {
    self.message = message
    self.promise = promise
    received = Array(repeating: false, count: streams)
    let bound = NIOLoopBound(self, eventLoop: eventLoop)
    let timeout = eventLoop.scheduleTask(in: limit) {
      let sink = bound.value
      sink.promise.fail(
        LoadError("\(message): timed out: only \(sink.count) of \(sink.received.count) streams received it")
      )
    }
    promise.futureResult.whenComplete { _ in timeout.cancel() }
  }

  func received(_ event: EventBlock, stream: Int, now: UInt64) throws(LoadError) {
    guard event.isType("message.new"), !received[stream],
      event.text(after: #""message":{"id":""#)?.equals(message) == true
    else { throw LoadError("\(message): wrong or duplicate event: \(event.summary)") }
    received[stream] = true
    count += 1
    if count == 1 { outcome.first = now }
    if count == (received.count + 1) / 2 { outcome.median = now }
    guard count == received.count else { return }
    outcome.last = now
    promise.succeed(outcome)
  }

  func failed(_ error: LoadError) { promise.fail(error) }
}
