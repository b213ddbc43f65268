internal import CommandOutput
internal import Foundation
internal import GatewayClient
package import LocalStack
package import Operations

/// `tidemark run`: a store or the nodes of a cluster, a gateway with TLS and one with h2c, which run until interrupted.
package struct RunSession: Sendable {
  /// Directory of all files; created if missing, and kept afterwards.
  package var directory: String
  package var logLevel: String
  /// Addresses of the processes.
  package var ports = RunPorts()
  /// Additional flags of both gateways.
  package var gatewayFlags: [String] = []
  /// Number of nodes of a cluster; 1: a single store.
  package var nodeCount = 1

  package init(directory: String, logLevel: String = "info") {
    self.directory = directory
    self.logLevel = logLevel
  }

  /// Validity of the tokens in the printed commands.
  private static let tokenLifetime = Duration.seconds(24 * 3600)

  /// Start all processes, print commands to try, and wait until cancelled or until a process ends.
  ///
  /// - Throws: ``StackError`` if a process ended by itself.
  package func run(executables: Executables) async throws {
    let files = StackFiles(directory: directory)
    try files.prepare()
    let page = try await DemoPage(files)
    let stack = LocalStack(plan: try plan(page, files), files: files, executables: executables)
    try await withCleanup {
      try await stack.start()
      try await writeTokens(files)
      Terminal.print(Self.welcome(stack.plan, files, page: page.lines(at: stack.plan.gateways[0].listen)))
      if let cluster = stack.plan.cluster {
        Terminal.print(Self.clusterLines(cluster, await stack.nodeProcessIDs))
        await stack.keepNodesRunning(note: Terminal.printError)
      }
      let death = await stack.waitForUnexpectedExit()
      if !Task.isCancelled, let death { throw StackError(death) }
    } cleanUp: {
      if Task.isCancelled { Terminal.printError("stopping") }
      await stack.stop()
    }
  }

  private func plan(_ page: DemoPage, _ files: StackFiles) throws(StackError) -> StackPlan {
    let etcd = nodeCount > 1 ? try Self.etcdAddresses(files) : []
    let taken = Set(etcd.flatMap { [$0.client.port, $0.peer.port] })
    let chosen = try ports.choose(
      spare: try LoopbackPorts.free(RunListener.allCases.count, except: taken),
      isFree: { !taken.contains($0) && LoopbackPorts.isFree($0) },
      note: Terminal.printError
    )
    var plan = StackPlan(
      store: chosen[.store],
      storeAdmin: chosen[.storeAdmin],
      gateways: [
        .init(
          name: "tidemark-gateway-tls",
          listen: chosen[.tls],
          admin: chosen[.tlsAdmin],
          usesTLS: true,
          flags: gatewayFlags + page.gatewayFlags
        ),
        .init(
          name: "tidemark-gateway-h2c",
          listen: chosen[.h2c],
          admin: chosen[.h2cAdmin],
          usesTLS: false,
          flags: gatewayFlags
        ),
      ],
      logLevel: logLevel
    )
    // For a try. A cluster has no feed yet.
    if nodeCount == 1 { plan.storeFlags = ["--feed-retention", "24h,1GiB"] }
    if nodeCount > 1 { plan.cluster = try ClusterPlan(nodes: nodeCount, first: plan.firstNode, etcd: etcd) }
    let stores = plan.cluster?.nodes.map(\.admin) ?? [plan.storeAdmin]
    plan.gateways[0].flags += ["--console", "--console-store-metrics"] + stores.map { "http://\($0)/metrics" }
    return plan
  }

  /// Number of etcd's servers: the fewest that work on while one is lost.
  private static let etcdServerCount = 3

  /// Return the addresses of etcd's servers in this directory. Chosen once, since the servers store each other's.
  static func etcdAddresses(
    _ files: StackFiles,
    isFree: (Int) -> Bool = LoopbackPorts.isFree
  ) throws(StackError) -> [(client: Endpoint, peer: Endpoint)] {
    let path = files.etcdAddresses
    guard let contents = FileManager.default.contents(atPath: path) else {
      guard !FileManager.default.fileExists(atPath: files.data(ofNode: 1)) else {
        throw StackError("\(path) is missing, and \(files.data(ofNode: 1)) is there: use another --directory")
      }
      let servers = try ClusterPlan.freePairs(etcdServerCount)
      try files.write(servers.map { "\($0.0) \($0.1)\n" }.joined(), to: path)
      return servers.map { (client: $0.0, peer: $0.1) }
    }
    let lines = String(decoding: contents, as: UTF8.self).split(separator: "\n")
    let servers = lines.compactMap { line -> (client: Endpoint, peer: Endpoint)? in
      let addresses = line.split(separator: " ").compactMap { Endpoint(String($0)) }
      return addresses.count == 2 ? (client: addresses[0], peer: addresses[1]) : nil
    }
    guard servers.count == lines.count, servers.count == etcdServerCount else {
      throw StackError("\(path): expected \(etcdServerCount) lines with two addresses: use another --directory")
    }
    for address in servers.flatMap({ [$0.client, $0.peer] }) where !isFree(address.port) {
      throw StackError(
        "\(address), an address of etcd in \(path), is in use: end the process there, or use another --directory"
      )
    }
    return servers
  }

  // MARK: Printed commands

  /// Return what to print of a cluster.
  static func clusterLines(_ cluster: ClusterPlan, _ processIDs: [Int32]) -> String {
    let nodes = zip(1..., zip(cluster.nodes, processIDs)).map { number, pair in
      let (node, process) = pair
      return "  node \(number)   frames \(node.listen)   operations http://\(node.admin)/metrics   process \(process)"
    }
    return """

      The store is a cluster of \(nodes.count) nodes, over \(cluster.etcd.count) servers of etcd:

      \(nodes.joined(separator: "\n"))

      To see it work, repeat the last commands above while you kill a node; it starts again after 5 s.

      \(program) cluster status --cluster \(ClusterPlan.name) --log \(cluster.log)
      kill -9 \(processIDs[0])
      """
  }

  private func writeTokens(_ files: StackFiles) async throws {
    let tokenIssuer = try await TokenIssuer(secretFile: files.jwtSecret)
    try files.write(
      try await tokenIssuer.server(lifetime: Self.tokenLifetime, id: TokenIssuer.randomID()) + "\n",
      to: Self.tokenFile("server", files)
    )
    for user in ["alice", "bob"] {
      try files.write(
        try await tokenIssuer.user(user, lifetime: Self.tokenLifetime) + "\n",
        to: Self.tokenFile(user, files)
      )
    }
  }

  private static func tokenFile(_ name: String, _ files: StackFiles) -> String {
    "\(files.directory)/\(name).token"
  }

  /// Return the addresses and commands to print. The commands work when pasted into another shell in the same
  /// directory.
  ///
  /// - Parameter page: the lines of the demo page.
  static func welcome(_ plan: StackPlan, _ files: StackFiles, page: String) -> String {
    let (tls, h2c) = (plan.gateways[0], plan.gateways[1])
    let stores =
      plan.cluster.map { ClusterPlan.etcdNames($0.etcd.count) + (1...$0.nodes.count).map(ClusterPlan.nodeName) }
      ?? ["tidemark-store"]
    let logs = (stores + plan.gateways.map(\.name)).map { files.log(of: $0) }
    let data = plan.cluster == nil ? files.data : files.directory
    return """
      Tidemark is up.

      \(page)

        HTTP/2 over TLS  https://\(tls.listen)   certificate \(files.certificate)
        h2c              http://\(h2c.listen)    prior knowledge
        frames           \(plan.store)           the store
        operations       http://\(tls.admin)/metrics  http://\(h2c.admin)/metrics  http://\(plan.storeAdmin)/metrics
        logs             \(logs.joined(separator: "\n                   "))

      For a link to the console, which is valid for 60 s:

      \(consoleCommand(plan, files))

      To try it, paste into another terminal in this directory (the tokens are valid for a day):

      \(lines(plan, files).joined(separator: "\n"))

      Ctrl-C stops it; what it stored stays in \(data).
      """
  }

  /// This program, as the first word of a command.
  private static var program: String { shellQuoted((try? Executables.ownPath()) ?? "tidemark") }

  /// Return the command that prints a link to the console.
  private static func consoleCommand(_ plan: StackPlan, _ files: StackFiles) -> String {
    "\(program) console --gateway https://\(plan.gateways[0].listen)"
      + " --ca \(shellQuoted(files.certificate)) --jwt-secret-file \(shellQuoted(files.jwtSecret))"
  }

  /// Return commands to paste, one per line.
  static func lines(_ plan: StackPlan, _ files: StackFiles) -> [String] {
    let tls = "https://\(plan.gateways[0].listen)/v1"
    let h2c = "http://\(plan.gateways[1].listen)/v1"
    func token(_ name: String) -> String {
      "\(name.uppercased())=\"authorization: Bearer $(cat \(shellQuoted(tokenFile(name, files))))\""
    }
    let certificate = shellQuoted(files.certificate)
    let json = "-H 'content-type: application/json'"
    let channel = "channels/messaging:team"
    return [
      token("server"), token("alice"), token("bob"),
      "call() { curl -sS --http2 --cacert \(certificate) \(json) \"$@\"; echo; }",
      "call -X PUT \(tls)/\(channel) -H \"$SERVER\" -d '{\"members\":[\"alice\",\"bob\"]}'",
      "call \(tls)/\(channel)/messages -H \"$SERVER\" -d '{\"id\":\"m1\",\"user_id\":\"alice\"}'",
      "call \(tls)/\(channel)/messages/m1/status -H \"$ALICE\"",
      "call \(tls)/\(channel)/read -H \"$BOB\" -d '{\"message_id\":\"m1\"}'",
      "curl -sS --http2-prior-knowledge \(h2c)/\(channel)/messages/m1/status -H \"$ALICE\"; echo",
      "curl -sS --http2-prior-knowledge \(h2c)/\(channel)/read-state -H \"$ALICE\"; echo",
    ]
  }

  /// Quote a path as one word of a POSIX shell.
  static func shellQuoted(_ text: String) -> String {
    let isPlain = text.utf8.allSatisfy { byte in
      switch byte {
      case UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "a")...UInt8(ascii: "z"),
        UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "/"), UInt8(ascii: "."), UInt8(ascii: "_"),
        UInt8(ascii: "-"):
        true
      default: false
      }
    }
    return isPlain && !text.isEmpty ? text : "'" + text.replacing("'", with: "'\\''") + "'"
  }
}

/// Listener of `tidemark run`.
package enum RunListener: Int, CaseIterable, Sendable {
  case store, storeAdmin, tls, tlsAdmin, h2c, h2cAdmin

  private var properties: (flag: String, defaultPort: Int, title: String) {
    switch self {
    case .store: ("store", 7410, "the store")
    case .storeAdmin: ("store-admin", 7411, "the store's operations listener")
    case .tls: ("tls", 8443, "HTTP/2 over TLS")
    case .tlsAdmin: ("tls-admin", 8444, "its operations listener")
    case .h2c: ("h2c", 8080, "h2c")
    case .h2cAdmin: ("h2c-admin", 8081, "its operations listener")
    }
  }

  /// Name of the flag that gives its address.
  package var flag: String { properties.flag }
  var defaultPort: Int { properties.defaultPort }
  var title: String { properties.title }
}

/// Addresses of the listeners of `tidemark run`.
package struct RunPorts: Sendable {
  /// Addresses given on the command line, port 0 for a free port. The others are the default, or a free port if the
  /// default is taken.
  package var given: [RunListener: Endpoint] = [:]
  /// False: addresses that were not given use free ports.
  package var usesDefaults = true

  package init() {}

  /// The complete set of addresses.
  struct Chosen {
    /// In the order of the listeners.
    fileprivate(set) var endpoints: [Endpoint] = []

    subscript(listener: RunListener) -> Endpoint { endpoints[listener.rawValue] }
  }

  /// Choose the addresses that were not given, without using a port twice.
  ///
  /// - Parameters:
  ///   - spare: as many free ports as there are listeners.
  ///   - isFree: whether a process could listen on a port of 127.0.0.1 now.
  ///   - note: called for each default port that is taken.
  /// - Throws: if two addresses were given the same port.
  func choose(spare: [Endpoint], isFree: (Int) -> Bool, note: (String) -> Void) throws(StackError) -> Chosen {
    // Given addresses come first: a default port gives way to them.
    var taken: [Int: String] = [:]
    for listener in RunListener.allCases {
      guard let port = given[listener]?.port, port != 0 else { continue }
      if let other = taken.updateValue(listener.flag, forKey: port) {
        throw StackError("--\(other) and --\(listener.flag) have the same port \(port)")
      }
    }
    var spare = spare.filter { taken[$0.port] == nil }
    var chosen = Chosen()
    for listener in RunListener.allCases {
      let given = given[listener]
      let port: Int
      if let given, given.port != 0 {
        port = given.port
      } else if given == nil, usesDefaults, taken[listener.defaultPort] == nil, isFree(listener.defaultPort) {
        port = listener.defaultPort
      } else {
        guard let other = spare.popLast() else { throw StackError("no free port for --\(listener.flag)") }
        port = other.port
        if given == nil && usesDefaults {
          note("port \(listener.defaultPort) is taken: \(listener.title) is on \(port)")
        }
      }
      chosen.endpoints.append(Endpoint(host: given?.host ?? LoopbackPorts.host, port: port))
    }
    return chosen
  }
}
