internal import Foundation
internal import NIOCore
package import Operations

/// Where the processes of a pair listen.
package struct StackPlan: Sendable {
  /// One gateway process.
  package struct Gateway: Sendable {
    /// A name for messages and for its log file.
    package var name: String
    /// For clients.
    package var listen: Endpoint
    /// For readiness and metrics.
    package var admin: Endpoint
    /// TLS with the stack's certificate, or h2c.
    package var usesTLS: Bool
    /// Further flags.
    package var flags: [String] = []

    package init(name: String, listen: Endpoint, admin: Endpoint, usesTLS: Bool, flags: [String] = []) {
      self.name = name
      self.flags = flags
      self.listen = listen
      self.admin = admin
      self.usesTLS = usesTLS
    }
  }

  /// For gateways.
  package var store: Endpoint
  /// For readiness and metrics.
  package var storeAdmin: Endpoint
  /// At least one.
  package var gateways: [Gateway]
  /// `--log-level` of all.
  package var logLevel: String
  /// Further flags of the store.
  package var storeFlags: [String] = []
  /// Added to the store's environment.
  package var storeVariables: [String: String] = [:]

  package init(store: Endpoint, storeAdmin: Endpoint, gateways: [Gateway], logLevel: String = "info") {
    self.store = store
    self.storeAdmin = storeAdmin
    self.gateways = gateways
    self.logLevel = logLevel
  }

  /// A store and gateways, one if nothing else is said, on ports that are free now.
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

/// The real store and gateways as children of this process. Whoever starts it stops it, also when cancelled.
package actor LocalStack {
  /// How long a process may take to become ready.
  package static let readinessDurationMax = Duration.seconds(20)

  /// The files that they work with.
  package nonisolated let files: StackFiles
  /// Where they listen.
  package nonisolated let plan: StackPlan
  private var storeFlags: [String]

  private let executables: Executables
  private var store: ChildProcess?
  private var gateways: [ChildProcess] = []

  /// Nothing is started yet.
  package init(plan: StackPlan, files: StackFiles, executables: Executables) {
    self.plan = plan
    self.storeFlags = plan.storeFlags
    self.files = files
    self.executables = executables
  }

  /// The store's process, if it was started.
  package var storeProcess: ChildProcess? { store }
  /// The gateways' processes, in the plan's order, as far as they were started.
  package var gatewayProcesses: [ChildProcess] { gateways }

  /// Makes what files are missing, starts every process, and returns when all are ready.
  package func start() async throws {
    try files.prepare()
    try await startStore()
    for gateway in plan.gateways { gateways.append(try process(of: gateway)) }
    for (child, gateway) in zip(gateways, plan.gateways) { try await waitUntilReady(child, gateway.admin) }
  }

  /// Starts the store (again) and returns when it is ready.
  ///
  /// - Parameters:
  ///   - limit: how long that may take.
  ///   - untilReady: false: it returns at once.
  package func startStore(
    within limit: Duration = readinessDurationMax,
    untilReady: Bool = true
  ) async throws {
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

  /// Ends the store as a power cut would end it for this machine's other processes: it hears nothing of it.
  package func killStore() async {
    store?.signal(9)
    await store?.waitForExit()
  }

  /// Ends a gateway as ``killStore()`` ends the store.
  ///
  /// - Parameter number: its place in the plan; so of the others.
  package func killGateway(_ number: Int) async {
    gateways[number].signal(9)
    await gateways[number].waitForExit()
  }

  /// Ends a gateway as an operator ends it: what is under way is answered.
  package func stopGateway(_ number: Int) async { await gateways[number].stop() }

  /// Starts a gateway again and returns when it is ready.
  package func startGateway(_ number: Int) async throws {
    gateways[number] = try process(of: plan.gateways[number])
    try await waitUntilReady(gateways[number], plan.gateways[number].admin)
  }

  /// Flags of the store from its next start on.
  package func setStoreFlags(_ flags: [String]) { storeFlags = flags }

  /// Ends the store as an operator ends it: gateways are told, what is under way is answered.
  package func stopStore() async { await store?.stop() }

  /// Waits until every gateway is ready: after the store was away, that they have found it again.
  package func waitUntilGatewaysAreReady() async throws {
    for (child, gateway) in zip(gateways, plan.gateways) { try await waitUntilReady(child, gateway.admin) }
  }

  /// Ends every process, gateways first, so that what they have under way is answered.
  package func stop() async {
    await withTaskGroup(of: Void.self) { group in
      for gateway in gateways { group.addTask { await gateway.stop() } }
    }
    await store?.stop()
    gateways = []
    store = nil
  }

  /// Waits until one of the processes ends by itself, and says which and how. After cancellation it may say nothing.
  package func firstDeath() async -> String? {
    let children = gateways + (store.map { [$0] } ?? [])
    let files = files
    return await withTaskGroup(of: String?.self) { group in
      for child in children {
        group.addTask {
          // Polled, for a waiter of an exit cannot be cancelled.
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
    let transport =
      gateway.usesTLS ? ["--tls-cert", files.certificate, "--tls-key", files.key] : ["--h2c"]
    return ["--listen", "\(gateway.listen)"] + transport + [
      "--store", "\(plan.store)", "--secret-file", files.frameSecret, "--jwt-secret-file", files.jwtSecret,
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
    throw StackError(
      "\(child.name) was not ready after \(seconds) s (\(last))\(tail(of: child))"
    )
  }

  /// The last lines that a process printed, for the person who would have to look there.
  private func tail(of child: ChildProcess) -> String {
    let path = files.log(of: child.name)
    let data = FileManager.default.contents(atPath: path)?.dropFirst(child.logOffset) ?? Data()
    guard !data.isEmpty else { return "; it printed nothing" }
    let lines = String(decoding: data.suffix(4096), as: UTF8.self).split(separator: "\n").suffix(5)
    return ". Its last lines, from \(path):\n" + lines.map { "  \($0)" }.joined(separator: "\n")
  }
}
