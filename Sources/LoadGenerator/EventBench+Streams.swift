internal import NIOCore

extension EventBench {
  /// For one event to reach all of them.
  private static let eventLimit = TimeAmount.seconds(20)

  /// Opens streams, looks at the gateway's memory before, after, and after a heartbeat to each, then sends events to
  /// all of them.
  func measureStreams(_ rig: Rig, _ note: @escaping @Sendable (String) -> Void) async throws
    -> (EventReport.Idle, EventReport.FanOut)
  {
    try await rig.world.makeViewers(streams, channelsEach: channelsEach, note)
    note("making tokens")
    let requests = try await rig.world.viewerRequests(streams)
    let before = try resident(rig)
    let began = MonotonicClock.now
    let opened = try await EventStreams.open(
      requests,
      at: rig.endpoint,
      connections: connections,
      on: rig.timed
    ) { [streams] in note("\(Figures.count($0)) of \(Figures.count(streams)) streams open") }
    let seconds = Double(MonotonicClock.now - began) / 1e9
    do {
      let open = try resident(rig)
      let known = try await rig.gatewayMetric("tidemark_gateway_event_streams")
      guard Int(known) == streams else {
        throw LoadError("the gateway has \(Int(known)) streams, not \(streams)")
      }
      if awaitsHeartbeat { try await waitForHeartbeats(opened, note) }
      let idle = EventReport.Idle(
        streams: streams,
        connections: connections,
        openSeconds: seconds,
        bytesBefore: before,
        bytesOpen: open,
        bytesAfterHeartbeat: awaitsHeartbeat ? try resident(rig) : nil
      )
      let fanOut = try await tellAll(opened, rig, note)
      await opened.close()
      return (idle, fanOut)
    } catch {
      await opened.close()
      throw error
    }
  }

  private func waitForHeartbeats(_ opened: EventStreams, _ note: @Sendable (String) -> Void) async throws {
    note("waiting for a heartbeat of each stream")
    for _ in 0..<60 {
      if try await opened.heartbeats >= 1 { return }
      try await Task.sleep(for: .seconds(1))
    }
    throw LoadError("a stream has had no heartbeat in 60 s")
  }

  private func resident(_ rig: Rig) throws -> Int {
    guard let bytes = ProcessFigures.residentBytes(of: rig.gatewayID) else {
      throw LoadError("the gateway has ended")
    }
    return bytes
  }

  private func tellAll(
    _ opened: EventStreams,
    _ rig: Rig,
    _ note: @escaping @Sendable (String) -> Void
  ) async throws -> EventReport.FanOut {
    let meter = ProcessCPUMeter(processIDs: rig.processes.map(\.processID))
    let from = meter.sample()
    var times: [(first: Double, median: Double, last: Double)] = []
    for number in 1...events {
      note("event \(number) of \(events) to \(Figures.count(streams)) streams")
      let message = "to-all-\(number)"
      let (streams, timed) = (streams, rig.timed)
      let listening = try await opened.listen { promise in
        EventFanOut(message: message, streams: streams, within: Self.eventLimit, promise, eventLoop: timed)
      }
      let began = MonotonicClock.now
      try await rig.world.register(message, in: EventWorld.everybody)
      let outcome = try await listening.outcome()
      func microseconds(_ time: UInt64) -> Double { Double(time - began) / 1_000 }
      times.append((microseconds(outcome.first), microseconds(outcome.median), microseconds(outcome.last)))
      try await Task.sleep(for: .milliseconds(20))
    }
    let used = zip(meter.sample(), from).map { ($0 ?? 0) - ($1 ?? 0) }
    func perEvent(_ seconds: Double) -> Double { seconds * 1e6 / Double(events) }
    return EventReport.FanOut(
      viewers: streams,
      events: events,
      firstMicroseconds: ComparisonTable.median(times.map(\.first)) ?? 0,
      medianMicroseconds: ComparisonTable.median(times.map(\.median)) ?? 0,
      lastMicroseconds: ComparisonTable.median(times.map(\.last)) ?? 0,
      lastMaxMicroseconds: times.map(\.last).max() ?? 0,
      clientMicroseconds: perEvent(used[0]),
      gatewayMicroseconds: perEvent(used[1]),
      storeMicroseconds: perEvent(used[2])
    )
  }
}
