internal import FeedClient
internal import Logging
internal import NIOCore
internal import NIOPosix
internal import Operations
internal import Synchronization

/// Service of one webhook: creates the consumer, takes part in the sharing of its partitions, and serves those that
/// are this worker's.
final class WebhookRunner: Sendable {
  private static let setupDelay = Duration.seconds(5)
  private static let tickInterval = TimeAmount.milliseconds(500)
  /// Time between queries of the lag, in milliseconds.
  private static let lagInterval: Int64 = 15_000

  private enum Event: Sendable {
    case tick
    case answered([String], sentAt: Int64)
    case callFailed(String)
    case ended(String)
    case stop
  }

  private let context: WebhookContext
  private let worker: String
  private let readiness: Readiness
  private let events: AsyncStream<Event>
  private let sink: AsyncStream<Event>.Continuation
  private let setup = Mutex<(isStopping: Bool, pause: Task<Void, Never>?)>((false, nil))

  init(_ context: WebhookContext, worker: String, readiness: Readiness) {
    self.context = context
    self.worker = worker
    self.readiness = readiness
    (events, sink) = AsyncStream.makeStream(of: Event.self)
    readiness.set(part, "not connected to the gateway")
  }

  private var part: String { "webhook \(context.task.name)" }

  /// Finish the requests in flight, leave the sharing, and end.
  func stop() {
    let pause = setup.withLock { setup in
      setup.isStopping = true
      return setup.pause
    }
    pause?.cancel()
    sink.yield(.stop)
  }

  /// Serve until ``stop()``. Cancellation ends everything at once.
  func run() async {
    while !Task.isCancelled, !setup.withLock({ $0.isStopping }) {
      do {
        try await prepare()
        break
      } catch {
        readiness.set(part, "\(error)")
        context.log(.error, "The webhook cannot start; it is tried again", ["reason": "\(error)"])
        await pauseSetup()
      }
    }
    if !setup.withLock({ $0.isStopping }) { await serve() }
    await context.endpoint.shutDown()
  }

  private func pauseSetup() async {
    let pause = Task { _ = try? await Task.sleep(for: Self.setupDelay) }
    let isStopping = setup.withLock { setup in
      setup.pause = pause
      return setup.isStopping
    }
    if isStopping { pause.cancel() }
    await withTaskCancellationHandler {
      await pause.value
    } onCancel: {
      pause.cancel()
    }
  }

  private func prepare() async throws {
    let retention = try await context.gateway.consumers().retentionSeconds
    if let reason = context.task.refusal(retentionSeconds: retention) { throw GatewayError(reason) }
    let task = context.task
    try await context.gateway.createConsumer(
      task.name,
      from: task.start.text,
      types: task.types,
      channelTypes: task.channelTypes
    )
    // A partition whose state cannot be read reports that when it is served.
    if let letters = try? await DeadLetterReplay.list(context.gateway, webhook: task.name), !letters.isEmpty {
      context.log(
        .warning,
        "The webhook has dead letters: `tidemark-worker dead-letters` lists them",
        ["dead_letters": "\(letters.count)"]
      )
    }
  }

  // MARK: Sharing

  private static var now: Int64 { Int64(NIODeadline.now().uptimeNanoseconds / 1_000_000) }

  private func serve() async {
    let sink = sink
    let ticks = MultiThreadedEventLoopGroup.singleton.next()
      .scheduleRepeatedTask(initialDelay: .zero, delay: Self.tickInterval) { _ in sink.yield(.tick) }
    defer { ticks.cancel() }
    await withDiscardingTaskGroup { group in
      var keeper = LeaseKeeper()
      var served: [String: Served] = [:]
      var nextCall = Self.now
      var nextLag = Self.now + Self.lagInterval
      var isCalling = false
      var isStopping = false
      var isConnected = false
      loop: for await event in events {
        let now = Self.now
        switch event {
        case .tick: break
        case .answered(let partitions, let sentAt):
          isCalling = false
          isConnected = true
          readiness.set(part, nil)
          if !isStopping { perform(keeper.answered(partitions, sentAt: sentAt), &served, &group) }
        case .callFailed(let reason):
          isCalling = false
          isConnected = false
          readiness.set(part, reason)
          context.log(.warning, "No answer about partitions", ["reason": "\(reason)"])
        case .ended(let partition):
          keeper.ended(partition)
          served[partition] = nil
        case .stop:
          isStopping = true
          perform(keeper.stopAll(), &served, &group)
        }
        perform(keeper.tick(now: now), &served, &group)
        // A call that is still under way would renew what leaving gives up.
        if isStopping, served.isEmpty, !isCalling { break loop }
        if !isCalling, !isStopping, now >= nextCall {
          isCalling = true
          nextCall = now + LeaseKeeper.intervalMilliseconds
          let held = keeper.held
          group.addTask { await self.call(held: held, sentAt: now) }
        }
        if now >= nextLag {
          nextLag = now + Self.lagInterval
          group.addTask { await self.updateLag() }
        }
      }
      // Here every partition has ended, or this task was cancelled.
      for one in served.values { one.task.cancel() }
      for one in served.values { await one.task.value }
      if isStopping, isConnected { await leave() }
      group.cancelAll()
    }
  }

  /// A partition that is served. Its task is not a child of the group, because it is cancelled by itself.
  private struct Served {
    var runner: PartitionRunner
    var task: Task<Void, Never>
  }

  private func perform(
    _ actions: [LeaseKeeper.Action],
    _ served: inout [String: Served],
    _ group: inout DiscardingTaskGroup
  ) {
    for action in actions {
      switch action {
      case .start(let partition):
        let runner = PartitionRunner(context, partition: partition)
        let sink = sink
        let task = Task {
          await runner.run()
          sink.yield(.ended(partition))
        }
        served[partition] = Served(runner: runner, task: task)
      case .stop(let partition): served[partition]?.runner.stop()
      case .cancel(let partition): served[partition]?.task.cancel()
      }
    }
  }

  private func call(held: [String], sentAt: Int64) async {
    do {
      let partitions = try await context.gateway.lease(
        context.task.name,
        worker: worker,
        partitionCount: context.task.partitionCount,
        held: held,
        ttlSeconds: LeaseKeeper.ttlSeconds
      )
      sink.yield(.answered(partitions.filter(context.task.partitions.contains), sentAt: sentAt))
    } catch {
      sink.yield(.callFailed("\(error)"))
    }
  }

  private func leave() async {
    _ = try? await context.gateway.lease(
      context.task.name,
      worker: worker,
      partitionCount: context.task.partitionCount,
      held: [],
      ttlSeconds: 0
    )
  }

  private func updateLag() async {
    guard
      let consumer = try? await context.gateway.consumers().consumers.first(where: { $0.name == context.task.name })
    else { return }
    context.metrics.set(
      lagSeconds: consumer.partitions.compactMap(\.lagSeconds).max() ?? 0,
      records: consumer.partitions.compactMap(\.lagRecords).reduce(0, +)
    )
  }
}
