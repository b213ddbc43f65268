package import Operations

/// Addresses of a cluster on this machine: servers of etcd, and nodes.
package struct ClusterPlan: Sendable {
  /// One node of the cluster.
  package struct Node: Sendable {
    /// Address for gateways and other nodes.
    package var listen: Endpoint
    /// Address for readiness and metrics.
    package var admin: Endpoint

    package init(listen: Endpoint, admin: Endpoint) {
      self.listen = listen
      self.admin = admin
    }
  }

  /// Name of the cluster.
  package static let name = "local"

  /// Servers of etcd: their addresses for clients, and for each other.
  package var etcd: [(client: Endpoint, peer: Endpoint)]
  /// In the order of their numbers, from 1.
  package var nodes: [Node]
  /// Number of groups of shards; nil: as many as nodes.
  package var groups: Int?

  /// Number the nodes from 1, the first at the given addresses, and the others on free ports.
  ///
  /// - Parameter etcd: addresses of etcd's servers; nil: one server, on free ports.
  package init(
    nodes count: Int,
    first: Node,
    etcd: [(client: Endpoint, peer: Endpoint)]? = nil
  ) throws(StackError) {
    self.etcd = if let etcd { etcd } else { try Self.freePairs(1).map { (client: $0.0, peer: $0.1) } }
    let taken = Set(self.etcd.flatMap { [$0.client.port, $0.peer.port] })
    nodes = [first] + (try Self.freePairs(count - 1, except: taken)).map { Node(listen: $0.0, admin: $0.1) }
  }

  /// Return free addresses, two for each process.
  package static func freePairs(
    _ count: Int,
    except taken: Set<Int> = []
  ) throws(StackError) -> [(Endpoint, Endpoint)] {
    let ports = try LoopbackPorts.free(2 * count, except: taken)
    return (0..<count).map { (ports[2 * $0], ports[2 * $0 + 1]) }
  }

  /// Names of etcd's servers, for messages and log files.
  package static func etcdNames(_ count: Int) -> [String] { count == 1 ? ["etcd"] : (1...count).map { "etcd-\($0)" } }

  /// Name of a node's process, for messages and log files.
  package static func nodeName(_ number: Int) -> String { "tidemark-store-\(number)" }

  /// URLs of etcd's servers, as `--log` has them.
  package var log: String { etcd.map { "http://\($0.client)" }.joined(separator: ",") }
}

/// etcd and the nodes of a cluster as children of this process. A node that ends is started again. The caller that
/// starts it must stop it.
actor LocalCluster {
  /// Pause before a node that has ended starts again: others take its groups over meanwhile.
  private static let restartPause = Duration.seconds(5)

  private let plan: ClusterPlan
  private let files: StackFiles
  private let executables: Executables
  private let logLevel: String
  private var etcd: [ChildProcess] = []
  private var nodes: [ChildProcess] = []
  private var restarts: Task<Void, Never>?

  init(plan: ClusterPlan, files: StackFiles, executables: Executables, logLevel: String) {
    self.plan = plan
    self.files = files
    self.executables = executables
    self.logLevel = logLevel
  }

  /// The processes, as far as they were started.
  var etcdProcesses: [ChildProcess] { etcd }
  var nodeProcesses: [ChildProcess] { nodes }

  /// Whether there is one server of etcd only.
  var isLostWithEtcd: Bool { plan.etcd.count == 1 }

  /// Start etcd and all nodes. They are not ready yet.
  func start() throws(StackError) {
    for index in plan.etcd.indices { etcd.append(try makeServer(index)) }
    for index in plan.nodes.indices { nodes.append(try makeNode(index)) }
  }

  func kill(_ index: Int) async {
    nodes[index].signal(9)
    await nodes[index].waitForExit()
  }

  func stop(_ index: Int) async { await nodes[index].stop() }

  func start(_ index: Int) throws(StackError) -> ChildProcess {
    nodes[index] = try makeNode(index)
    return nodes[index]
  }

  private func makeServer(_ index: Int) throws(StackError) -> ChildProcess {
    guard let executable = Executables.find("etcd") else {
      throw StackError("etcd is not installed: install Debian's etcd-server, or leave --nodes out")
    }
    let names = ClusterPlan.etcdNames(plan.etcd.count)
    let members = zip(names, plan.etcd).map { "\($0)=http://\($1.peer)" }.joined(separator: ",")
    let (name, server) = (names[index], plan.etcd[index])
    let (client, peer) = ("http://\(server.client)", "http://\(server.peer)")
    return try ChildProcess(
      name: name,
      executable: executable,
      arguments: [
        "--name", name, "--data-dir", "\(files.directory)/\(name)", "--listen-client-urls", client,
        "--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
        "--initial-cluster", members, "--heartbeat-interval", "50", "--election-timeout", "500",
        "--snapshot-count", "2000", "--max-request-bytes", "4194304", "--logger", "zap", "--log-level", "warn",
      ],
      logFile: files.log(of: name)
    )
  }

  private func makeNode(_ index: Int) throws(StackError) -> ChildProcess {
    let node = plan.nodes[index]
    let name = ClusterPlan.nodeName(index + 1)
    return try ChildProcess(
      name: name,
      executable: executables.store,
      arguments: [
        "--cluster", ClusterPlan.name, "--node", "\(index + 1)", "--members", "\(plan.nodes.count)",
        "--log", plan.log, "--data", files.data(ofNode: index + 1), "--listen", "\(node.listen)",
        "--secret-file", files.frameSecret, "--admin", "\(node.admin)", "--log-level", logLevel,
      ] + (plan.groups.map { ["--groups", "\($0)"] } ?? []),
      logFile: files.log(of: name)
    )
  }

  /// Start nodes that end again, until ``stop()``, and servers of etcd, if there are several.
  ///
  /// - Parameter note: gets a line for each.
  func keepRunning(note: @escaping @Sendable (String) -> Void) {
    func wait(for process: ChildProcess, _ name: String) async -> Bool {
      let status = await process.waitForExit()
      note("\(name) \(status): it starts again in \(Self.restartPause.components.seconds) s")
      try? await Task.sleep(for: Self.restartPause)
      return !Task.isCancelled
    }
    restarts = Task {
      while !Task.isCancelled {
        for index in nodes.indices where !nodes[index].isRunning {
          guard await wait(for: nodes[index], "node \(index + 1)") else { return }
          do { _ = try start(index) } catch { note("\(error)") }
        }
        for index in etcd.indices where !isLostWithEtcd && !etcd[index].isRunning {
          guard await wait(for: etcd[index], etcd[index].name) else { return }
          do { etcd[index] = try makeServer(index) } catch { note("\(error)") }
        }
        try? await Task.sleep(for: .milliseconds(100))
      }
    }
  }

  func stop() async {
    restarts?.cancel()
    await restarts?.value
    await withTaskGroup(of: Void.self) { group in
      for node in nodes { group.addTask { await node.stop() } }
    }
    for server in etcd { await server.stop() }
  }
}
