package import FeedClient
package import Logging
internal import NIOPosix
package import Operations
internal import ServiceLifecycle

/// What all jobs share.
struct PushContext: Sendable {
  let task: PushTask
  let gateway: FeedGateway
  /// Providers with the slots of their requests, by name.
  let providers: [String: (provider: any PushProvider, slots: Slots)]
  /// Slots of calls to the gateway: one connection carries them all.
  let gatewaySlots = Slots(64)
  let streams: PushStreams
  let stop = StopSignal()
  let metrics: PushMetrics
  let logger: Logger
  let throttle = LogThrottle()

  /// Log at most one line a second of a kind.
  func log(_ level: Logger.Level, _ message: Logger.Message, _ metadata: Logger.Metadata = [:]) {
    guard let count = throttle.occurrencesToLog("\(message)") else { return }
    var metadata = metadata
    if count > 1 { metadata["occurrences"] = "\(count)" }
    logger.log(level: level, message, metadata: metadata)
  }
}

/// Sends the jobs of an input or of the gateway's queue, and writes their results to an output.
///
/// A job is done when its last result is written. What the worker had not answered when it ended, the caller sends
/// again: a push may then come twice.
package final class PushWorker: Service {
  /// Limits of the jobs in flight. The reader waits while one of them is reached. The bytes bound the devices, too.
  private static let jobsMax = 256
  private static let bytesMax = 4 << 20

  private let context: PushContext
  private let usesQueue: Bool
  private let budget = JobBudget(jobsMax: jobsMax, bytesMax: bytesMax)

  /// - Parameters:
  ///   - usesQueue: whether jobs come from the gateway's queue; else from the input.
  ///   - lookup: the resolver of providers' hosts.
  package init(
    _ task: PushTask,
    usesQueue: Bool = false,
    gateway: FeedGateway,
    streams: PushStreams,
    metrics: MetricsRegistry,
    logger: Logger,
    lookup: @escaping HostResolver.Lookup = HostResolver.system
  ) {
    let counters = PushMetrics(providers: Array(task.providers.keys))
    context = PushContext(
      task: task,
      gateway: gateway,
      providers: task.providers.mapValues { ($0.makeProvider(lookup: lookup), Slots(task.requestsMax)) },
      streams: streams,
      metrics: counters,
      logger: logger
    )
    self.usesQueue = usesQueue
    metrics.register(on: MultiThreadedEventLoopGroup.singleton.next()) { counters.collect(into: &$0) }
  }

  /// Serve until the input ends, the process stops, or the output is closed. The requests in flight are finished.
  package func run() async throws {
    let result: Result<Void, any Error>
    do {
      try await withGracefulShutdownHandler {
        try await serve()
      } onGracefulShutdown: {
        self.stop()
      }
      result = .success(())
    } catch {
      result = .failure(error)
    }
    for (provider, _) in context.providers.values { await provider.shutDown() }
    await context.streams.close()
    await context.gateway.close()
    try result.get()
  }

  /// Read no more jobs, and finish those in flight without waiting for further attempts.
  package func stop() { context.stop.stop() }

  private func serve() async throws {
    if usesQueue { return try await JobQueue(context).serve() }
    let context = context
    let isStopped: @Sendable () -> Bool = { context.stop.isStopped }
    try await withThrowingDiscardingTaskGroup { group in
      var assembler = LineAssembler(byteCountMax: PushJob.lineByteCountMax)
      var number = 0
      var hasEnded = false
      while !hasEnded, !isStopped() {
        let bytes = try await context.streams.read(isStopped: isStopped)
        var lines = assembler.add(bytes)
        if bytes.isEmpty {
          hasEnded = true
          // A line that was cut off when the process stopped is not whole.
          if !isStopped(), let last = assembler.end() { lines.append(last) }
        }
        for line in lines {
          number += 1
          await budget.waitForRoom()
          guard !isStopped() else { break }
          begin(line, number: number, &group)
        }
      }
    }
  }

  /// Start a job. Blank lines are ignored.
  private func begin(
    _ line: LineAssembler.Line,
    number: Int,
    _ group: inout ThrowingDiscardingTaskGroup<any Error>
  ) {
    let (context, budget) = (context, budget)
    let bytes: [UInt8]
    switch line {
    case .tooLong: bytes = []
    case .text(let text):
      bytes = text
      if bytes.allSatisfy({ $0 == 0x20 || $0 == 0x09 || $0 == 0x0D }) { return }
    }
    budget.add(bytes: bytes.count)
    group.addTask {
      defer { budget.remove(bytes: bytes.count) }
      do {
        let job: PushJob
        do throws(PushJobError) {
          if line == .tooLong {
            throw PushJobError(
              code: "line_too_long",
              detail: "the line has more than \(PushJob.lineByteCountMax) bytes: split the job"
            )
          }
          job = try PushJob(parsing: bytes)
        } catch {
          context.metrics.jobEnded("invalid")
          return try await context.streams.write(PushResultLine.error(.line(number), error))
        }
        _ = try await JobRunner(context, job, .line(number), stop: context.stop).run()
      } catch {
        context.stop.stop()
        throw error
      }
    }
  }
}
