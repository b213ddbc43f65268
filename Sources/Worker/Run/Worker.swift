package import FeedClient
package import Logging
internal import NIOPosix
package import Operations
internal import ServiceLifecycle

/// The worker: delivers the feed's records to the webhooks of a tasks file. Any number of workers may run with the same
/// file; they share the partitions.
package final class Worker: Service {
  private let runners: [WebhookRunner]
  private let gateway: FeedGateway

  /// - Parameters:
  ///   - name: this worker's name among those that share partitions.
  ///   - lookup: the resolver of endpoints' hosts.
  package init(
    _ tasks: TasksFile,
    gateway: FeedGateway,
    name: String,
    readiness: Readiness,
    metrics: MetricsRegistry,
    logger: Logger,
    lookup: @escaping HostResolver.Lookup = HostResolver.system
  ) {
    self.gateway = gateway
    let webhooks = tasks.webhooks.map { WebhookMetrics($0.name) }
    runners = zip(tasks.webhooks, webhooks).map { task, metrics in
      let context = WebhookContext(
        task: task,
        gateway: gateway,
        endpoint: WebhookEndpoint(task, lookup: lookup),
        metrics: metrics,
        logger: logger
      )
      return WebhookRunner(context, worker: name, readiness: readiness)
    }
    metrics.register(on: MultiThreadedEventLoopGroup.singleton.next()) { samples in
      for webhook in webhooks { webhook.collect(into: &samples) }
    }
    readiness.set("process", nil)
  }

  /// Deliver until the service group shuts down. The requests in flight are finished, and their positions committed.
  package func run() async throws {
    await withGracefulShutdownHandler {
      await withDiscardingTaskGroup { group in
        for runner in runners { group.addTask { await runner.run() } }
      }
    } onGracefulShutdown: {
      self.stop()
    }
    await gateway.close()
  }

  /// End ``run()`` as at a graceful shutdown.
  package func stop() {
    for runner in runners { runner.stop() }
  }
}
