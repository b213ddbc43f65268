internal import HTTP2Session
internal import LocalStack
internal import NIOCore
internal import NIOPosix
internal import Operations

/// Generator that makes the requests of a plan and measures their responses.
enum LoadGenerator {
  /// Run a plan. A cancelled run stops at once and throws.
  ///
  /// - Parameter tick: called each second with the responses so far, those of the warm-up included.
  static func run(
    _ plan: LoadPlan,
    tick: @escaping @Sendable (_ responses: Int, _ seconds: Double) -> Void = { _, _ in }
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
    let eventLoops = Array(group.makeIterator())
    var loops: [NIOLoopBound<LoadLoop>] = []
    var counts: [ResponseCount] = []
    var results: [EventLoopFuture<LoopResult>] = []
    for (index, eventLoop) in eventLoops.enumerated() {
      let connectionCount = share(plan.connections.count, of: index, among: eventLoops.count)
      // The first loop measures CPU time for all; they start and end within milliseconds.
      let meter = ProcessCPUMeter(processIDs: index == 0 ? plan.processes.map(\.processID) : [])
      let count = ResponseCount()
      let promise = eventLoop.makePromise(of: LoopResult.self)
      let requests = share(plan.requests, of: index, among: eventLoops.count)
      let warmup = share(plan.warmup, of: index, among: eventLoops.count)
      let bound = try await eventLoop.submit {
        NIOLoopBound(
          LoadLoop(
            plan: plan,
            connectionCount: connectionCount,
            requests: requests,
            warmup: warmup,
            meter: meter,
            published: count,
            promise: promise
          ),
          eventLoop: eventLoop
        )
      }.get()
      loops.append(bound)
      counts.append(count)
      results.append(promise.futureResult)
    }
    let (made, responseCounts) = (loops, counts)
    let abort: @Sendable () -> Void = {
      for loop in made { loop.eventLoop.execute { loop.value.abort() } }
    }
    let start = MonotonicClock.now
    let ticker = Task {
      while true {
        try await Task.sleep(for: .seconds(1))
        tick(responseCounts.reduce(0) { $0 + $1.value }, Double(MonotonicClock.now - start) / 1e9)
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
        for result in results { _ = try? await result.get() }
        throw error
      }
      var loopResults: [LoopResult] = []
      for result in results { loopResults.append(try await result.get()) }
      return LoadReport(plan: plan, loops: loopResults)
    } onCancel: {
      abort()
    }
  }

  private static func share(_ total: Int, of index: Int, among count: Int) -> Int {
    total / count + (index < total % count ? 1 : 0)
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
