internal import HTTP2Session
internal import NIOCore
internal import Operations
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// What happens to event streams as time passes: heartbeats, the ends of tokens, totals; and their end.
extension GatewayLoop {
  /// One timer looks after all streams. A heartbeat goes to a part of them with each tick, so that 50,000 are not
  /// written to at once.
  func startEvents() {
    let tick = min(limits.heartbeat, .seconds(1))
    let bound = NIOLoopBound(self, eventLoop: eventLoop)
    eventTicker = eventLoop.scheduleRepeatedTask(initialDelay: tick, delay: tick) { _ in
      bound.value.eventsTicked(
        parts: max(1, Int(bound.value.limits.heartbeat.nanoseconds / tick.nanoseconds))
      )
    }
  }

  func stopEvents() {
    eventTicker?.cancel()
    eventTicker = nil
  }

  private func eventsTicked(parts: Int) {
    let now = now
    let part = events.ticks % parts
    events.ticks &+= 1
    for (place, stream) in events.streams.enumerated() {
      guard let stream else { continue }
      if now >= stream.caller.expiresAt {
        expire(stream, .tokenExpired)
      } else if place % parts == part {
        beat(stream)
      }
    }
    events.hub.tick()
    performEvents()
    countTotals()
    endTurnSoon()
  }

  /// Ends a stream whose token may not be used any more.
  func expire(_ stream: EventStream, _ code: ProblemCode) {
    if stream.hasBegun {
      return end(stream, code == .tokenRevoked ? "the token has been revoked" : "the token has expired")
    }
    events.remove(stream)
    events.hub.close(stream.ref)
    guard let connection = connections.connection(stream.connection), connection.isOpen(stream.handle) else {
      return
    }
    connections.markDirty(stream.connection)
    answer(Problem(code), Route.events.rawValue, stream.handle, connection)
  }

  /// A comment, and the id up to which everything was told. What waits in the stream's queue comes before any newer id.
  func beat(_ stream: EventStream) {
    guard stream.hasBegun, stream.queue.isEmpty,
      let connection = connections.connection(stream.connection)
    else { return }
    // A client that takes nothing needs no more of them.
    guard connection.queuedBytes(stream.handle) ?? 0 < limits.eventStreamBytes / 2 else { return }
    let id = events.hub.hasID(stream.ref) ? events.hub.time : nil
    let bytes = finished(ByteBuffer(staticString: ":\n"), id: id)
    connection.write(stream.handle, bytes, queueBytesMax: limits.eventStreamBytes)
    connections.markDirty(stream.connection)
    endTurnSoon()
  }

  /// A stream's client has gone.
  func eventStreamAborted(_ handle: HTTP2StreamHandle) {
    guard let place = events.places[handle.rawValue], let stream = events.streams[Int(place)] else { return }
    events.remove(stream)
    events.hub.close(stream.ref)
    performEvents()
  }

  /// Ends all streams, so that their clients come again elsewhere; no other is begun.
  func drainEvents() {
    events.isDraining = true
    for stream in events.streams.compactMap({ $0 }) {
      if stream.hasBegun {
        end(stream, "this gateway goes away")
      } else {
        events.hub.fail(stream.ref, Problem(.storeBusy, "this gateway goes away"))
      }
    }
    performEvents()
  }

  // MARK: Totals

  /// An event was written that may have changed what is unread for the stream's user.
  func noteTotals(_ event: EventFields, _ stream: EventStream, isOwn: Bool) {
    guard let user = stream.totalsOf else { return }
    switch event {
    case .row: if !isOwn { return }
    case .channelUpdated, .status, .receipt: return
    case .messageNew, .messageDeleted, .truncated, .channelDeleted, .memberAdded, .memberRemoved: break
    }
    totalsMayHaveChanged(user)
  }

  func totalsMayHaveChanged(_ user: String) {
    events.totals.changed(user)
    countTotals()
  }

  /// Begins with those whose turn it is.
  private func countTotals() {
    guard store.shardCount > 0 else { return }
    while events.totals.countingCount < limits.totalsJobs, userJobs.count < limits.userJobs,
      let user = events.totals.next(at: now)
    {
      let count = events.totals.countingCount
      let walk = UserWalk(.count, users: [Array(user.utf8)], shardCount: store.shardCount)
      beginJob(UserJob(.totals(user: user), walk))
      // The store takes no more for now.
      if events.totals.countingCount < count { return }
    }
  }

  /// The totals were counted; nil: they could not be.
  func totalsCounted(_ user: String, _ totals: UnreadTotals?) {
    events.totals.counted(user, isDone: totals != nil)
    guard let totals else { return }
    let bytes = Array(user.utf8)
    let block = EventJSON.totals(totals, user: bytes.span.bytes, at: Timestamp(milliseconds: now))
    for ref in events.totals.streams(of: user) {
      guard let stream = events[ref] else { continue }
      write(block, stream) { StreamQueue.Key(.totals) }
    }
    countTotals()
  }

  // MARK: Metrics

  func collectEvents(into samples: inout MetricSamples) {
    let hub = events.hub
    let gauges: [(String, String, Int)] = [
      ("event_streams", "Streams of events open.", hub.streamCount),
      ("event_openings_waiting", "Streams of events that wait to be opened.", hub.waitingCount),
      ("event_channels", "Channels that streams of events have.", hub.channelCount),
    ]
    for (name, help, value) in gauges { samples.gauge("tidemark_gateway_\(name)", help: help, Double(value)) }
    samples.highest(
      "tidemark_gateway_event_queue_entries_max",
      help: "The most events that have waited for one stream since the start.",
      Double(events.queueCountMax)
    )
    let counters: [(String, String, UInt64)] = [
      ("event_streams_opened", "Streams of events begun.", events.opened),
      ("events_written", "Events written into streams.", events.eventsWritten),
      (
        "events_conflated", "Events that a later one replaced before they were written.",
        events.eventsConflated
      ),
      ("event_resets", "Streams that were told to ask anew.", events.resets),
      ("event_resumes", "Streams that went on from an id.", events.resumes),
    ]
    for (name, help, value) in counters {
      samples.counter("tidemark_gateway_\(name)_total", help: help, Int64(clamping: value))
    }
  }
}
