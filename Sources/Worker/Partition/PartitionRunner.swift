internal import FeedClient
internal import Logging
internal import NIOCore
internal import NIOPosix
internal import Operations
internal import Synchronization

/// What the partitions of a webhook share.
struct WebhookContext: Sendable {
  let task: WebhookTask
  let gateway: FeedGateway
  let endpoint: WebhookEndpoint
  let metrics: WebhookMetrics
  let pause = WebhookPause()
  let logger: Logger
  let throttle = LogThrottle()

  /// Log at most one line a second of a kind.
  func log(_ level: Logger.Level, _ message: Logger.Message, _ metadata: Logger.Metadata = [:]) {
    guard let count = throttle.occurrencesToLog("\(message)") else { return }
    var metadata = metadata
    metadata["webhook"] = "\(task.name)"
    if count > 1 { metadata["occurrences"] = "\(count)" }
    logger.log(level: level, message, metadata: metadata)
  }
}

/// Service of one partition, from one stream to the next, until the lease moves or the worker stops.
final class PartitionRunner: Sendable {
  /// Time in which the request in flight may finish when the partition stops.
  private static let stopGrace = TimeAmount.seconds(2)
  /// Delay before a stream is opened again, in milliseconds.
  private static let reopenDelay: ClosedRange<Int64> = 100...30_000
  /// Delay after a stream that cannot be used.
  private static let faultDelay: Int64 = 10_000

  private struct Control {
    var isStopping = false
    var session: AsyncStream<PartitionMachine.Event>.Continuation?
    var pauseBetweenStreams: Task<Void, Never>?
  }

  private let context: WebhookContext
  private let partition: String
  private let control = Mutex(Control())

  init(_ context: WebhookContext, partition: String) {
    self.context = context
    self.partition = partition
  }

  /// Finish the request in flight, and end.
  func stop() {
    let (session, pause) = control.withLock { control in
      control.isStopping = true
      return (control.session, control.pauseBetweenStreams)
    }
    pause?.cancel()
    guard let session else { return }
    session.yield(.stop)
    MultiThreadedEventLoopGroup.singleton.next().scheduleTask(in: Self.stopGrace) { session.yield(.abandon) }
  }

  /// Serve the partition. Cancellation ends it at once, without a commit.
  func run() async {
    context.metrics.partitionStarted()
    defer { context.metrics.partitionEnded(partition) }
    var delay = Self.reopenDelay.lowerBound
    while !Task.isCancelled, !control.withLock({ $0.isStopping }) {
      let (end, hadLease) = await serveStream()
      if hadLease { delay = Self.reopenDelay.lowerBound }
      switch end {
      case .stopped: return
      case .leaseLost:
        context.log(.info, "Lease lost: another stream of the partition was opened", ["partition": "\(partition)"])
        return
      case .failed(let reason):
        context.log(.error, "The stream cannot be used", ["partition": "\(partition)", "reason": "\(reason)"])
        delay = Self.faultDelay
      case .reopen: break
      }
      await sleep(Int64.random(in: delay / 2...delay))
      delay = min(delay * 2, Self.reopenDelay.upperBound)
    }
  }

  private func sleep(_ milliseconds: Int64) async {
    let pause = Task { _ = try? await Task.sleep(for: .milliseconds(milliseconds)) }
    let isStopping = control.withLock { control in
      control.pauseBetweenStreams = pause
      return control.isStopping
    }
    if isStopping { pause.cancel() }
    await withTaskCancellationHandler {
      await pause.value
    } onCancel: {
      pause.cancel()
    }
  }

  // MARK: One stream

  private func serveStream() async -> (end: PartitionMachine.End, hadLease: Bool) {
    let stream: FeedStream
    do {
      let path = "/v1/feed?consumer=\(context.task.name)&partition=\(partition)"
      stream = try await FeedStream.open(context.gateway, path: path)
    } catch {
      context.log(.warning, "No stream", ["partition": "\(partition)", "reason": "\(error)"])
      return (.reopen, false)
    }
    defer { stream.close() }
    let (events, sink) = AsyncStream.makeStream(of: PartitionMachine.Event.self)
    let isStopping = control.withLock { control in
      control.session = sink
      return control.isStopping
    }
    if isStopping { sink.yield(.stop) }
    let pausedUntil = context.pause.listen(partition, sink)
    defer {
      context.pause.forget(partition)
      control.withLock { $0.session = nil }
      sink.finish()
    }
    return await withDiscardingTaskGroup { group in
      var session = Session(
        context: context,
        partition: partition,
        stream: stream,
        sink: sink,
        machine: PartitionMachine(context.task, partition: partition, pausedUntil: pausedUntil)
      )
      session.perform(session.machine.start(now: Times.now), &group)
      var events = events.makeAsyncIterator()
      // Cancellation ends the sequence.
      while session.end == nil, let event = await events.next() {
        session.receive(event)
        session.perform(
          session.machine.handle(event, now: Times.now, jitter: Double.random(in: 0...1)),
          &group
        )
      }
      session.wake?.cancel()
      stream.close()
      group.cancelAll()
      return (session.end ?? .stopped, session.hadLease)
    }
  }

  /// Performs the actions of one stream's machine.
  private struct Session {
    let context: WebhookContext
    let partition: String
    let stream: FeedStream
    let sink: AsyncStream<PartitionMachine.Event>.Continuation
    var machine: PartitionMachine
    var end: PartitionMachine.End?
    var hadLease = false
    var wake: Scheduled<Void>?

    /// Note what the machine does not tell.
    mutating func receive(_ event: PartitionMachine.Event) {
      switch event {
      case .lines(let lines):
        if case .lease(let lease)? = lines.first {
          hadLease = true
          context.metrics.set(deadLetters: PartitionState(lease.state)?.deadLetters.count ?? 0, of: partition)
        }
      case .attempted(.delivered):
        if context.pause.set(nil) {
          context.metrics.set(isPaused: false)
          context.log(.notice, "The endpoint is back: delivery resumes")
        }
      case .committed(.done(let deadLetters?)): context.metrics.set(deadLetters: deadLetters, of: partition)
      case .attempted(.failed(let failure)):
        context.log(
          .warning,
          "Delivery failed; it is retried",
          ["partition": "\(partition)", "cause": "\(failure.cause)", "detail": "\(failure.detail)"]
        )
      case .committed, .woken, .paused, .streamEnded, .stop, .abandon: break
      }
    }

    mutating func perform(_ actions: [PartitionMachine.Action], _ group: inout DiscardingTaskGroup) {
      let (context, partition, stream, sink) = (context, partition, stream, sink)
      for action in actions {
        switch action {
        case .read:
          group.addTask {
            if let lines = await stream.next() {
              sink.yield(.lines(lines))
            } else {
              let reason = await stream.endReason()
              if !Task.isCancelled {
                context.log(.info, "A stream has ended", ["partition": "\(partition)", "reason": "\(reason)"])
              }
              sink.yield(.streamEnded)
            }
          }
        case .attempt(let batch):
          group.addTask {
            context.metrics.attemptStarted()
            let start = ContinuousClock.now
            let outcome = await context.endpoint.deliver(batch)
            let seconds = (ContinuousClock.now - start) / .seconds(1)
            context.metrics.attemptEnded(outcome, batch, seconds: seconds)
            sink.yield(.attempted(outcome))
          }
        case .commit(let commit):
          group.addTask { sink.yield(.committed(await Self.commit(commit, context, partition))) }
        case .wake(let time):
          wake?.cancel()
          wake = MultiThreadedEventLoopGroup.singleton.next()
            .scheduleTask(in: .milliseconds(max(time - Times.now, 1))) { _ = sink.yield(.woken) }
        case .report(let report): perform(report)
        case .end(let end): self.end = end
        }
      }
    }

    private func perform(_ report: PartitionMachine.Report) {
      switch report {
      case .gap(let from, let to):
        context.metrics.gapReceived()
        context.log(
          .error,
          "Records were no longer kept, and are lost to this webhook",
          ["partition": "\(partition)", "from": "\(from)", "to": "\(to)"]
        )
      case .deadLetter(let letter):
        context.metrics.deadLetterAdded(letter)
        context.log(
          .error,
          "A batch became a dead letter: `tidemark-worker replay` delivers it",
          [
            "partition": "\(partition)", "id": "\(letter.id(partition: partition))", "records": "\(letter.count)",
            "error": "\(letter.error)",
          ]
        )
      case .gone(let until):
        if context.pause.set(until) {
          context.metrics.set(isPaused: true)
          context.log(.error, "The endpoint is gone (410): delivery pauses, with an attempt every 10 min")
        }
      }
    }

    /// Commit, with the state merged into the stored one.
    private static func commit(
      _ commit: PartitionMachine.Commit,
      _ context: WebhookContext,
      _ partition: String
    ) async -> PartitionMachine.CommitResult {
      do {
        var state: PartitionState?
        if let change = commit.change {
          let stored = try await context.gateway.consumer(context.task.name).partitions
            .first { $0.partition == partition }
          guard let current = PartitionState(stored?.state) else { throw GatewayError("the stored state is damaged") }
          state = current.applying(change)
        }
        try await context.gateway.commit(
          context.task.name,
          partition: partition,
          epoch: commit.epoch,
          cursor: commit.cursor,
          state: state?.text
        )
        return .done(deadLetters: state?.deadLetters.count)
      } catch let error as GatewayError where error.code == "lease_lost" {
        return .leaseLost
      } catch {
        context.log(.warning, "A commit failed; it is retried", ["partition": "\(partition)", "reason": "\(error)"])
        return .failed
      }
    }
  }
}
