internal import CommandOutput
internal import NIOCore
internal import NIOPosix
internal import Operations

/// Generator that makes and measures the requests of a plan.
enum LoadGenerator {
  /// Run a plan. A cancelled run stops at once and throws.
  ///
  /// - Parameter tick: called each second with the answered requests so far, those of the warm-up included.
  static func run(
    _ plan: LoadPlan,
    tick: @escaping @Sendable (_ requests: Int, _ seconds: Double) -> Void = { _, _ in }
  ) async throws -> LoadReport {
    precondition(!plan.connections.isEmpty && plan.streams >= 1 && plan.requests >= 1)
    precondition(plan.rate == nil || plan.wireProtocol.isHTTP2)
    let group = MultiThreadedEventLoopGroup(numberOfThreads: plan.loopCount)
    return try await withCleanup {
      try await run(plan, on: group, tick: tick)
    } cleanUp: {
      try? await group.shutdownGracefully()
    }
  }

  private static func run(
    _ plan: LoadPlan,
    on group: MultiThreadedEventLoopGroup,
    tick: @escaping @Sendable (Int, Double) -> Void
  ) async throws -> LoadReport {
    let runs = try await makeLoops(plan, on: group)
    let loops = runs.map(\.loop)
    let abort: @Sendable () -> Void = {
      for loop in loops { loop.eventLoop.execute { loop.value.abort() } }
    }
    let start = MonotonicClock.now
    let ticker = Task {
      while true {
        try await Task.sleep(for: .seconds(1))
        tick(runs.reduce(0) { $0 + $1.answered.value }, Double(MonotonicClock.now - start) / 1e9)
      }
    }
    defer { ticker.cancel() }
    return try await withTaskCancellationHandler {
      do {
        for number in plan.connections.indices {
          try Task.checkCancellation()
          try await connect(number, of: plan, on: loops[number % loops.count])
        }
      } catch {
        abort()
        for run in runs { _ = try? await run.result.get() }
        throw error
      }
      var loopResults: [LoopResult] = []
      for run in runs { loopResults.append(try await run.result.get()) }
      return LoadReport(plan: plan, loops: loopResults)
    } onCancel: {
      abort()
    }
  }

  /// Loop of a run, its answered requests so far, and its result.
  private struct LoopRun: Sendable {
    var loop: NIOLoopBound<LoadLoop>
    var answered: AnsweredCount
    var result: EventLoopFuture<LoopResult>
  }

  private static func makeLoops(_ plan: LoadPlan, on group: MultiThreadedEventLoopGroup) async throws -> [LoopRun] {
    let eventLoops = Array(group.makeIterator())
    var runs: [LoopRun] = []
    for (index, eventLoop) in eventLoops.enumerated() {
      func share(_ total: Int) -> Int { total / eventLoops.count + (index < total % eventLoops.count ? 1 : 0) }
      let connectionCount = share(plan.connections.count)
      let (requests, warmup) = (share(plan.requests), share(plan.warmup))
      // The first loop measures CPU time for all; they start and end within milliseconds.
      let meter = ProcessCPUMeter(processIDs: index == 0 ? plan.processes.map(\.processID) : [])
      let answered = AnsweredCount()
      let promise = eventLoop.makePromise(of: LoopResult.self)
      let loop = try await eventLoop.submit {
        NIOLoopBound(
          LoadLoop(
            plan: plan,
            connectionCount: connectionCount,
            requests: requests,
            warmup: warmup,
            meter: meter,
            published: answered,
            promise: promise
          ),
          eventLoop: eventLoop
        )
      }.get()
      runs.append(LoopRun(loop: loop, answered: answered, result: promise.futureResult))
    }
    return runs
  }

  private static func connect(_ number: Int, of plan: LoadPlan, on loop: NIOLoopBound<LoadLoop>) async throws {
    let connection = plan.connections[number]
    if case .frames(let secrets) = plan.wireProtocol {
      guard case .walk(let walk) = connection.work, walk.form == .frame else {
        preconditionFailure("a store needs a walk of frames")
      }
      return try await loop.eventLoop.submit {
        FrameConnection(
          number: number,
          loop: loop.value,
          eventLoop: loop.eventLoop,
          endpoint: plan.endpoint,
          walk: walk,
          streams: plan.streams
        ).open(secrets: secrets, tls: plan.storeTLS, timeout: plan.handshakeTimeout)
      }.get()
    }
    _ = try await BenchConnection.connect(to: plan.endpoint, on: loop.eventLoop, tls: plan.tls) {
      loop.value.connectionFailed("the connection failed: \(ErrorText.of($0))")
    } _: { _ in
      let load = LoadConnection(
        number: number,
        loop: loop.value,
        plan: connection,
        scheme: plan.tls == nil ? "http" : "https",
        authority: "\(plan.endpoint)",
        streams: plan.streams,
        isPaced: plan.rate != nil
      )
      return (load, loop.value.resources)
    }.get()
  }
}
