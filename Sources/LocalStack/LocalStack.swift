internal import Foundation
internal import NIOCore
package import Operations

/// Configuration of a store and its gateways.
package struct StackPlan: Sendable {
  /// One gateway process.
  package struct Gateway: Sendable {
    /// Name for messages and for its log file.
    package var name: String
    /// Address for clients.
    package var listen: Endpoint
    /// Address for readiness and metrics.
    package var admin: Endpoint
    /// True: TLS with the stack's certificate; false: h2c.
    package var usesTLS: Bool
    /// Additional flags.
    package var flags: [String] = []

    package init(name: String, listen: Endpoint, admin: Endpoint, usesTLS: Bool, flags: [String] = []) {
      self.name = name
      self.flags = flags
      self.listen = listen
      self.admin = admin
      self.usesTLS = usesTLS
    }
  }

  /// Address for gateways.
  package var store: Endpoint
  /// Address for readiness and metrics.
  package var storeAdmin: Endpoint
  /// Nodes instead of the store; the first has the store's addresses.
  package var cluster: ClusterPlan?
  /// Gateways; at least one.
  package var gateways: [Gateway]
  /// `--log-level` of all processes.
  package var logLevel: String
  /// Additional flags of the store.
  package var storeFlags: [String] = []
  /// Additional environment variables of the store.
  package var storeVariables: [String: String] = [:]

  package init(store: Endpoint, storeAdmin: Endpoint, gateways: [Gateway], logLevel: String = "info") {
    self.store = store
    self.storeAdmin = storeAdmin
    self.gateways = gateways
    self.logLevel = logLevel
  }

  /// Addresses of the store, or of all nodes.
  /// The store's addresses for the first node of a cluster.
  package var firstNode: ClusterPlan.Node { ClusterPlan.Node(listen: store, admin: storeAdmin) }
  var storeAddresses: [Endpoint] { cluster?.nodes.map(\.listen) ?? [store] }

  /// Create a plan for a store and gateways, one by default, on ports that are currently free.
  package static func onFreePorts(
    usesTLS: Bool,
    logLevel: String = "info",
    gateways count: Int = 1
  ) throws(StackError) -> StackPlan {
    let ports = try LoopbackPorts.free(2 + 2 * count)
    let gateways = (0..<count).map { number in
      Gateway(
        name: number == 0 ? "tidemark-gateway" : "tidemark-gateway-\(number + 1)",
        listen: ports[2 + 2 * number],
        admin: ports[3 + 2 * number],
        usesTLS: usesTLS
      )
    }
    return StackPlan(store: ports[0], storeAdmin: ports[1], gateways: gateways, logLevel: logLevel)
  }
}

/// The real store and gateways as children of this process. The caller that starts it must stop it, even when
/// cancelled.
package actor LocalStack {
  /// Timeout for a process to become ready.
  package static let readinessDurationMax = Duration.seconds(20)

  /// Files of the processes.
  package nonisolated let files: StackFiles
  /// Addresses of the processes.
  package nonisolated let plan: StackPlan
  private var storeFlags: [String]

  private let executables: Executables
  private var store: ChildProcess?
  private let cluster: LocalCluster?
  private var gateways: [ChildProcess] = []

  /// Create a stack without starting any process.
  package init(plan: StackPlan, files: StackFiles, executables: Executables) {
    self.plan = plan
    self.storeFlags = plan.storeFlags
    self.files = files
    self.executables = executables
    cluster = plan.cluster.map {
      LocalCluster(plan: $0, files: files, executables: executables, logLevel: plan.logLevel)
    }
  }

  /// The store's process, if it was started.
  package var storeProcess: ChildProcess? { store }
  /// The gateways' processes in the plan's order, as far as they were started.
  package var gatewayProcesses: [ChildProcess] { gateways }

  /// Create missing files, start every process, and return when all are ready.
  package func start() async throws {
    try files.prepare()
    if let cluster, let plan = plan.cluster {
      try await cluster.start()
      for (child, node) in zip(await cluster.nodeProcesses, plan.nodes) { try await waitUntilReady(child, node.admin) }
    } else {
      try await startStore()
    }
    for gateway in plan.gateways { gateways.append(try process(of: gateway)) }
    for (child, gateway) in zip(gateways, plan.gateways) { try await waitUntilReady(child, gateway.admin) }
  }

  /// Start or restart the store and return when it is ready.
  ///
  /// - Parameters:
  ///   - limit: timeout for it to become ready.
  ///   - untilReady: false: return at once.
  package func startStore(within limit: Duration = readinessDurationMax, untilReady: Bool = true) async throws {
    let child = try ChildProcess(
      name: "tidemark-store",
      executable: executables.store,
      arguments: [
        "--data", files.data, "--listen", "\(plan.store)", "--secret-file", files.frameSecret,
        "--admin", "\(plan.storeAdmin)", "--log-level", plan.logLevel,
      ] + storeFlags,
      logFile: files.log(of: "tidemark-store"),
      variables: plan.storeVariables
    )
    store = child
    guard untilReady else { return }
    try await waitUntilReady(child, plan.storeAdmin, within: limit)
  }

  /// Kill the store without warning, as a power cut would.
  package func killStore() async {
    store?.signal(9)
    await store?.waitForExit()
  }

  /// Kill a gateway without warning, like ``killStore()``.
  ///
  /// - Parameter number: its index in the plan, as in the methods below.
  package func killGateway(_ number: Int) async {
    gateways[number].signal(9)
    await gateways[number].waitForExit()
  }

  /// Stop a gateway gracefully: requests in flight are answered.
  package func stopGateway(_ number: Int) async { await gateways[number].stop() }

  /// Restart a gateway and return when it is ready.
  package func startGateway(_ number: Int) async throws {
    gateways[number] = try process(of: plan.gateways[number])
    try await waitUntilReady(gateways[number], plan.gateways[number].admin)
  }

  /// Set the store's flags for its next start.
  package func setStoreFlags(_ flags: [String]) { storeFlags = flags }

  /// Stop the store gracefully: gateways are notified, and requests in flight are answered.
  package func stopStore() async { await store?.stop() }

  /// Wait until every gateway is ready, for example connected to a restarted store.
  package func waitUntilGatewaysAreReady() async throws {
    for (child, gateway) in zip(gateways, plan.gateways) { try await waitUntilReady(child, gateway.admin) }
  }

  /// Stop every process, gateways first, so that their requests in flight are answered.
  package func stop() async {
    await withTaskGroup(of: Void.self) { group in
      for gateway in gateways { group.addTask { await gateway.stop() } }
    }
    await store?.stop()
    await cluster?.stop()
    gateways = []
    store = nil
  }

  /// Start a cluster's nodes that end again, until ``stop()``.
  ///
  /// - Parameter note: gets a line for each.
  package func keepNodesRunning(note: @escaping @Sendable (String) -> Void) async {
    await cluster?.keepRunning(note: note)
  }

  /// Kill a node of the cluster without warning, like ``killStore()``.
  ///
  /// - Parameter index: its index in the plan, as in the methods below.
  package func killNode(_ index: Int) async { await cluster?.kill(index) }

  /// Stop a node gracefully: other nodes take its groups over.
  package func stopNode(_ index: Int) async { await cluster?.stop(index) }

  /// Start a node again and return when it is ready.
  package func startNode(_ index: Int) async throws {
    guard let cluster, let plan = plan.cluster else { return }
    try await waitUntilReady(try await cluster.start(index), plan.nodes[index].admin)
  }

  /// Process ids of etcd's servers.
  package var etcdProcessIDs: [Int32] {
    get async { await cluster?.etcdProcesses.map(\.processID) ?? [] }
  }

  /// Process ids of a cluster's nodes, in the order of their numbers.
  package var nodeProcessIDs: [Int32] {
    get async { await cluster?.nodeProcesses.map(\.processID) ?? [] }
  }

  /// Wait until one of the processes ends by itself, and describe it; nodes of a cluster may end. May return nil after
  /// cancellation.
  package func waitForUnexpectedExit() async -> String? {
    var children = gateways + (store.map { [$0] } ?? [])
    if let cluster, await cluster.isLostWithEtcd { children += await cluster.etcdProcesses }
    let files = files
    return await withTaskGroup(of: String?.self) { group in
      for child in children {
        group.addTask {
          // Polled, because waiting for an exit cannot be cancelled.
          while child.isRunning {
            do { try await Task.sleep(for: .milliseconds(100)) } catch { return nil }
          }
          let status = await child.waitForExit()
          return "\(child.name) \(status); its log is \(files.log(of: child.name))"
        }
      }
      let first = await group.next() ?? nil
      group.cancelAll()
      return first
    }
  }

  private func process(of gateway: StackPlan.Gateway) throws(StackError) -> ChildProcess {
    try ChildProcess(
      name: gateway.name,
      executable: executables.gateway,
      arguments: arguments(of: gateway),
      logFile: files.log(of: gateway.name)
    )
  }

  private func arguments(of gateway: StackPlan.Gateway) -> [String] {
    let transport = gateway.usesTLS ? ["--tls-cert", files.certificate, "--tls-key", files.key] : ["--h2c"]
    return ["--listen", "\(gateway.listen)"] + transport + [
      "--store", plan.storeAddresses.map(\.description).joined(separator: ","), "--secret-file", files.frameSecret,
      "--jwt-secret-file", files.jwtSecret,
      "--ticket-secret-file", files.ticketSecret, "--admin", "\(gateway.admin)", "--log-level", plan.logLevel,
    ] + gateway.flags
  }

  private func waitUntilReady(
    _ child: ChildProcess,
    _ admin: Endpoint,
    within limit: Duration = readinessDurationMax
  ) async throws {
    let clock = ContinuousClock()
    let deadline = clock.now + limit
    var last = ""
    while clock.now < deadline {
      try Task.checkCancellation()
      guard child.isRunning else {
        let status = await child.waitForExit()
        throw StackError("\(child.name) \(status)\(tail(of: child))")
      }
      let check = await HealthCheck.run("http://\(admin)/ready", timeout: .seconds(2))
      if check.exitCode == 0 { return }
      last = check.line
      try await Task.sleep(for: .milliseconds(20))
    }
    let seconds = limit.components.seconds
    throw StackError("\(child.name) was not ready after \(seconds) s (\(last))\(tail(of: child))")
  }

  /// Return the last lines of a process's log, for error messages.
  private func tail(of child: ChildProcess) -> String {
    let path = files.log(of: child.name)
    let data = FileManager.default.contents(atPath: path)?.dropFirst(child.logOffset) ?? Data()
    guard !data.isEmpty else { return "; it printed nothing" }
    let lines = String(decoding: data.suffix(4096), as: UTF8.self).split(separator: "\n").suffix(5)
    return ". Its last lines, from \(path):\n" + lines.map { "  \($0)" }.joined(separator: "\n")
  }
}
