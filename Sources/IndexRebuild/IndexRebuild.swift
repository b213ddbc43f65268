package import LinkSecurity
internal import Logging
internal import NIOCore
internal import NIOPosix
package import Operations
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// Rebuild of a store's index of users' channels: the implementation of `tidemark rebuild-index`. It waits until the
/// store is done.
package struct IndexRebuild: Sendable {
  package var store: Endpoint
  /// The shared secret, then the one it replaces; empty: the store need not prove a secret.
  package var secrets: [[UInt8]]
  /// Nil: without TLS.
  package var tls: LinkTLS?
  /// Timeout for an unresponsive store or shard.
  package var responseTimeout: Duration = .seconds(60)
  /// Interval between progress requests to shards.
  package var pollInterval: Duration = .milliseconds(200)

  package init(store: Endpoint, secrets: [[UInt8]]) {
    self.store = store
    self.secrets = secrets
  }

  /// Run the rebuild until every shard is done. Throws ``RebuildFailure``, or the error of the task's cancellation. The
  /// store then continues the stages already requested, which does no harm.
  ///
  /// - Parameter note: receives the progress.
  package func run(note: @escaping @Sendable (RebuildProgress) -> Void) async throws -> RebuildSummary {
    let eventLoop = MultiThreadedEventLoopGroup.singleton.next()
    let ended = eventLoop.makePromise(of: RebuildSummary.self)
    let run = try await eventLoop.submit {
      let run = RebuildRun(self, on: eventLoop, ended: ended, note: note)
      run.start()
      return NIOLoopBound(run, eventLoop: eventLoop)
    }.get()
    return try await withTaskCancellationHandler {
      try await ended.futureResult.get()
    } onCancel: {
      eventLoop.execute { run.value.end(.failure(CancellationError())) }
    }
  }
}

/// Executes the machine's actions, on one event loop.
private final class RebuildRun: StoreClientDelegate {
  private let rebuild: IndexRebuild
  private let eventLoop: any EventLoop
  private let ended: EventLoopPromise<RebuildSummary>
  private let note: (RebuildProgress) -> Void
  private let beganAt = NIODeadline.now()
  private var machine: RebuildMachine
  private var client: StoreClient<RebuildRun>?
  private var ticker: RepeatedTask?

  init(
    _ rebuild: IndexRebuild,
    on eventLoop: any EventLoop,
    ended: EventLoopPromise<RebuildSummary>,
    note: @escaping (RebuildProgress) -> Void
  ) {
    self.rebuild = rebuild
    self.eventLoop = eventLoop
    self.ended = ended
    self.note = note
    machine = RebuildMachine(responseTimeout: rebuild.responseTimeout)
  }

  private var now: Duration { .nanoseconds((NIODeadline.now() - beganAt).nanoseconds) }

  func start() {
    // Standard output is reserved for the result.
    var logger = Logger(label: "tidemark.rebuild-index") { LogLines.handler(label: $0) }
    logger.logLevel = .warning
    var configuration = StoreClientConfiguration(
      addresses: [.init(host: rebuild.store.host, port: rebuild.store.port)],
      secrets: rebuild.secrets,
      name: "tidemark-rebuild-index",
      logger: logger
    )
    configuration.transport = rebuild.tls.map { .tls($0) }
    let client = StoreClient(eventLoop: eventLoop, configuration: configuration, delegate: self)
    self.client = client
    let bound = NIOLoopBound(self, eventLoop: eventLoop)
    let interval = TimeAmount(rebuild.pollInterval)
    ticker = eventLoop.scheduleRepeatedTask(initialDelay: interval, delay: interval) { _ in
      let run = bound.value
      run.perform(run.machine.tick(now: run.now))
      run.client?.flush()
      run.reportProgress()
    }
    client.start()
    reportProgress()
  }

  /// End the run with its first result.
  func end(_ result: Result<RebuildSummary, any Error>) {
    guard let client else { return }
    self.client = nil
    ticker?.cancel()
    let ended = ended
    let bound = NIOLoopBound(client, eventLoop: eventLoop)
    // Deferred: the caller may be a callback of the client.
    eventLoop.execute { bound.value.close().whenComplete { _ in ended.completeWith(result) } }
  }

  private func reportProgress() {
    if client != nil { note(machine.progress) }
  }

  private func perform(_ action: RebuildMachine.Action) {
    switch action {
    case .send(let requests): for request in requests { send(request) }
    case .finish(let summary):
      // Report the progress of the last reply.
      reportProgress()
      end(.success(summary))
    case .fail(let failure): end(.failure(failure))
    }
  }

  private func send(_ request: RebuildRequest) {
    guard let client else { return }
    let isMade = client.send(
      .rebuildIndex,
      to: .shard(request.shard, name: nil),
      tag: UInt64(request.shard.rawValue)
    ) {
      $0.writeRebuildIndex(phase: request.kind.rawValue, epoch: request.epoch)
    }
    // The window is full: retry with the next tick.
    if !isMade { machine.requestFailed(request.shard) }
  }

  func storeReplied(_ tag: UInt64, kind: FrameKind, payload: RawSpan) {
    let shard = ShardID(UInt16(truncatingIfNeeded: tag))
    let fields: RebuildIndexReply
    do throws(WireError) {
      fields = try RebuildIndexReply(payload)
    } catch {
      return perform(machine.refused(shard, .malformedFrame, detail: "the reply does not parse: \(error)", now: now))
    }
    perform(machine.replied(shard, fields, now: now))
  }

  func storeFailed(_ tag: UInt64, _ failure: StoreFailure) {
    let shard = ShardID(UInt16(truncatingIfNeeded: tag))
    switch failure {
    case .refused(let code, _, let detail): perform(machine.refused(shard, code, detail: detail, now: now))
    case .busy, .unavailable, .outcomeUnknown: machine.requestFailed(shard)
    }
  }

  func storeReadComplete() {
    client?.flush()
    reportProgress()
  }

  func storeConnectionFailed(_ failure: LinkFailure) {
    // The store may be restarting, which the client bridges; a wrong secret stays wrong.
    if failure.isSecretMismatch { end(.failure(RebuildFailure.wrongSecret)) }
  }

  func storeReadinessChanged(_ isReady: Bool) {
    guard isReady, let client else { return machine.connectionLost() }
    perform(machine.connected(shardCount: client.shardCount, now: now))
  }
}
