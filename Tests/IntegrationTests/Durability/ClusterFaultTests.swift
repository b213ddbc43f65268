import Foundation
import GatewayClient
import LocalStack
import Operations
import TestPrograms
import TestSupport
import Testing

extension RealProcesses {
  /// Faults of a cluster whose programs run on machines of their own (docs/contribute/cluster-design.md, "Invariants"):
  /// three nodes, three servers of etcd, and one machine with the gateway and the clients. Nodes, gateway and etcd
  /// speak TLS with each other.
  ///
  /// `make test` has three faults of each kind, `make test-long` 20 (`TIDEMARK_FAULTS`), and five times as many killed
  /// owners and moves. `TIDEMARK_FAULT_KINDS` names kinds, separated by commas, in their order.
  @Suite struct ClusterFaults {
    /// What happens to a machine, a program or a group, and ends after some time.
    enum Fault: String, CaseIterable, CustomTestStringConvertible {
      case ownerKilled, ownerSuspended, ownerDisconnected
      case etcdLeaderKilled, etcdLeaderSuspended, etcdLeaderDisconnected, etcdMajoritySuspended
      case ownerDoesNotReachEtcd, etcdDoesNotReachOwner
      case gatewayDoesNotReachOwner, ownerDoesNotReachGateway
      case ownerDoesNotReachNodes
      case clockSetForward, clockSetBack
      case ownerDiskFull, followerDiskFull
      // Actions of an operator
      case ownerRestarted, groupMoved

      var testDescription: String { rawValue }

      /// How long the fault lasts, in milliseconds. A majority of etcd has to return before the deadline of a request,
      /// 5 s.
      var milliseconds: ClosedRange<Int> {
        switch self {
        case .ownerKilled, .etcdLeaderKilled, .ownerRestarted: 0...3_000
        case .groupMoved: 0...0
        case .ownerSuspended: 500...10_000
        case .ownerDisconnected, .etcdLeaderDisconnected, .etcdLeaderSuspended: 500...6_000
        case .etcdMajoritySuspended: 300...1_500
        case .ownerDoesNotReachEtcd, .etcdDoesNotReachOwner, .ownerDoesNotReachNodes: 500...6_000
        case .clockSetForward, .clockSetBack: 500...6_000
        case .ownerDiskFull, .followerDiskFull: 500...6_000
        // No other node takes over, so requests wait for this node.
        case .gatewayDoesNotReachOwner, .ownerDoesNotReachGateway: 500...2_500
        }
      }

      /// Pause before the next fault, so that two do not add up. TCP sends lost packets again with growing pauses, and
      /// a node leaves out a server of etcd that has failed for up to a second.
      var recovery: Duration {
        switch self {
        case .gatewayDoesNotReachOwner, .ownerDoesNotReachGateway: .seconds(3)
        case .etcdLeaderKilled, .etcdLeaderSuspended, .etcdLeaderDisconnected, .etcdMajoritySuspended,
          .ownerDoesNotReachEtcd, .etcdDoesNotReachOwner:
          .seconds(2)
        case .ownerKilled, .ownerSuspended, .ownerDisconnected, .ownerDoesNotReachNodes, .clockSetForward,
          .clockSetBack, .ownerDiskFull, .followerDiskFull, .ownerRestarted, .groupMoved:
          .milliseconds(500)
        }
      }
    }

    /// The programs of a cluster, each on a machine of its own.
    private final class Cluster {
      static let groupCount = 3
      private static let gateway = 7

      let machines: Machines
      let directory: String
      /// Of etcd's servers.
      private let serverDirectory: String
      private var programs: [Machines.ID: ChildProcess] = [:]
      /// Of the nodes.
      private var clocks: [Machines.ID: FakeClock] = [:]
      /// Of the nodes.
      private var disks: [Machines.ID: SmallDisk] = [:]
      private var moves = 0

      init(_ machines: Machines, directory: String, serverDirectory: String) async throws {
        self.machines = machines
        self.directory = directory
        self.serverDirectory = serverDirectory
        for id in Self.nodes {
          try FileManager.default.createDirectory(atPath: file("clock\(id)"), withIntermediateDirectories: true)
          clocks[id] = try await FakeClock(in: file("clock\(id)"))
          disks[id] = try await SmallDisk(at: file("\(id)"))
        }
        for name in ["secret", "jwt"] {
          let secret = (0..<32).map { _ in String(format: "%02x", UInt8.random(in: .min ... .max)) }.joined()
          try Data(secret.utf8).write(to: URL(fileURLWithPath: file(name)))
          try FileManager.default.setAttributes([.posixPermissions: 0o600], ofItemAtPath: file(name))
        }
        let script = TestServices.packageRoot + "/Deploy/link-certificates.sh"
        let names = (1...7).map { "IP:\(Machines.address($0))" }.joined(separator: ",")
        let made = try await Command.run("/bin/bash", [script, directory, "link", names])
        try #require(made.status == 0, "\(made)")
      }

      func file(_ name: String) -> String { directory + "/" + name }

      /// The machines of the nodes and of the log's servers.
      static let nodes = 1...3
      static let servers = 4...6

      func start(_ id: Machines.ID) throws {
        let (program, arguments) =
          switch id {
          case Self.nodes: (TestServices.binaries + "/tidemark-store", nodeArguments(id))
          case Self.servers: ("/usr/bin/etcd", serverArguments(id))
          default: (TestServices.binaries + "/tidemark-gateway", gatewayArguments)
          }
        let command = machines.command(on: id, program, arguments)
        programs[id] = try ChildProcess(
          name: "machine \(id)",
          executable: command.executable,
          arguments: command.arguments,
          logFile: file("\(id).log"),
          variables: clocks[id]?.variables ?? [:]
        )
      }

      func startAll() throws {
        for id in 1...machines.count { try start(id) }
      }

      private func serverArguments(_ id: Machines.ID) -> [String] {
        let client = "https://\(Machines.address(id)):2379"
        let peer = "http://\(Machines.address(id)):2380"
        let cluster = Self.servers.map { "e\($0)=http://\(Machines.address($0)):2380" }.joined(separator: ",")
        return [
          "--name", "e\(id)", "--data-dir", "\(serverDirectory)/\(id)", "--listen-client-urls", client,
          "--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
          "--initial-cluster", cluster, "--heartbeat-interval", "50", "--election-timeout", "500",
          "--snapshot-count", "2000", "--max-request-bytes", "4194304", "--logger", "zap", "--log-level", "warn",
          "--cert-file", file("link-cert.pem"), "--key-file", file("link-key.pem"), "--client-cert-auth",
          "--trusted-ca-file", file("link-ca.pem"),
        ]
      }

      private func nodeArguments(_ id: Machines.ID) -> [String] {
        let log = Self.servers.map { "https://\(Machines.address($0)):2379" }.joined(separator: ",")
        return [
          "--cluster", "test", "--node", "\(id)", "--groups", "\(Self.groupCount)", "--shards", "8", "--log", log,
          "--log-cert", file("link-cert.pem"), "--log-key", file("link-key.pem"), "--log-ca", file("link-ca.pem"),
          "--tls-cert", file("link-cert.pem"), "--tls-key", file("link-key.pem"), "--tls-ca", file("link-ca.pem"),
          "--data", file("\(id)"), "--listen", "\(Machines.address(id)):7410", "--admin", "127.0.0.1:7411",
          "--secret-file", file("secret"),
        ]
      }

      private var gatewayArguments: [String] {
        let stores = Self.nodes.map { "\(Machines.address($0)):7410" }.joined(separator: ",")
        return [
          "--listen", "127.0.0.1:8080", "--h2c", "--store", stores, "--tls-ca", file("link-ca.pem"),
          "--store-tls-cert", file("link-cert.pem"), "--store-tls-key", file("link-key.pem"),
          "--secret-file", file("secret"), "--jwt-secret-file", file("jwt"),
        ]
      }

      func kill(_ id: Machines.ID) async {
        programs[id]?.kill()
        await programs[id]?.waitForExit()
      }

      func endAll() async {
        for id in programs.keys { await kill(id) }
        for disk in disks.values { await disk.unmount() }
      }

      func printLogs() {
        for id in programs.keys.sorted() {
          let log = (try? String(contentsOfFile: file("\(id).log"), encoding: .utf8)) ?? ""
          print("machine \(id): \(log.split(separator: "\n").suffix(6).joined(separator: "\n"))")
        }
      }

      // MARK: State

      private func curl(_ id: Machines.ID, _ arguments: [String]) async throws -> String {
        let command = machines.command(on: id, "/usr/bin/curl", ["-s", "-m", "1"] + arguments)
        return try await Command.run(command.executable, command.arguments).out
      }

      /// The number of groups that each node owns.
      private func owned() async throws -> [Machines.ID: Int] {
        var owned: [Machines.ID: Int] = [:]
        for id in Self.nodes {
          let text = try await curl(id, ["http://127.0.0.1:7411/metrics"])
          owned[id] = Int(MetricText.sum("tidemark_store_owned_groups", in: text))
        }
        return owned
      }

      /// Wait until nodes own all groups; return the number of each node's.
      @discardableResult
      func waitForOwners(_ what: String) async throws -> [Machines.ID: Int] {
        var owned: [Machines.ID: Int] = [:]
        try await eventually("\(what): all groups have owners") {
          owned = try await self.owned()
          return owned.values.reduce(0, +) == Self.groupCount
        }
        return owned
      }

      /// The log's leader.
      private func leader() async throws -> Machines.ID {
        var leader: Machines.ID?
        try await eventually("the log has a leader") {
          for id in Self.servers {
            let text = try await curl(
              id,
              [
                "--cacert", file("link-ca.pem"), "--cert", file("link-cert.pem"), "--key", file("link-key.pem"),
                "https://\(Machines.address(id)):2379/metrics",
              ]
            )
            if MetricText.sum("etcd_server_is_leader", in: text) == 1 { leader = id }
          }
          return leader != nil
        }
        return try #require(leader)
      }

      // MARK: Faults

      /// Make a fault, and mend it after a time. Return the machines that it was on.
      func make(_ fault: Fault, milliseconds: Int) async throws -> [Machines.ID] {
        let owned = try await waitForOwners("before \(fault)")
        let owner = try #require(owned.max { ($0.value, $1.key) < ($1.value, $0.key) }).key
        let pause = Duration.milliseconds(milliseconds)
        switch fault {
        case .ownerKilled: try await restart(owner, after: pause)
        case .ownerRestarted:
          _ = await programs[owner]?.stop()
          try await Task.sleep(for: pause)
          try start(owner)
        case .groupMoved: return [try await moveGroup(to: owner % 3 + 1)]
        case .ownerSuspended: try await suspend([owner], for: pause)
        case .ownerDisconnected: try await disconnect(owner, for: pause)
        case .etcdLeaderKilled:
          let leader = try await leader()
          try await restart(leader, after: pause)
          return [leader]
        case .etcdLeaderSuspended:
          let leader = try await leader()
          try await suspend([leader], for: pause)
          return [leader]
        case .etcdLeaderDisconnected:
          let leader = try await leader()
          try await disconnect(leader, for: pause)
          return [leader]
        case .etcdMajoritySuspended:
          try await suspend([4, 5], for: pause)
          return [4, 5]
        case .ownerDoesNotReachEtcd: try await cut(Self.servers.map { (owner, $0) }, for: pause)
        case .etcdDoesNotReachOwner: try await cut(Self.servers.map { ($0, owner) }, for: pause)
        case .gatewayDoesNotReachOwner: try await cut([(Self.gateway, owner)], for: pause)
        case .ownerDoesNotReachGateway: try await cut([(owner, Self.gateway)], for: pause)
        case .clockSetForward:
          // Above --clock-jump-max: the store takes no commands.
          try clocks[owner]?.set(aheadSeconds: 7_200)
          try await eventually("its groups have moved") { try await self.owned()[owner] == 0 }
          try await Task.sleep(for: pause)
          try clocks[owner]?.set(aheadSeconds: 0)
        case .clockSetBack:
          try clocks[owner]?.set(aheadSeconds: -3_600)
          try await Task.sleep(for: pause)
          try clocks[owner]?.set(aheadSeconds: 0)
        case .ownerDiskFull: try await fillDisk(of: owner, for: pause)
        case .followerDiskFull:
          let follower = owner % 3 + 1
          try await fillDisk(of: follower, for: pause)
          return [follower]
        case .ownerDoesNotReachNodes:
          try await cut(Self.nodes.filter { $0 != owner }.map { (owner, $0) }, for: pause)
        }
        return [owner]
      }

      /// Run a command of `tidemark cluster`.
      private func operate(_ arguments: [String]) async throws -> Command.Output {
        let log = Self.servers.map { "https://\(Machines.address($0)):2379" }.joined(separator: ",")
        let command = machines.command(
          on: Self.gateway,
          TestServices.binaries + "/tidemark",
          ["cluster"] + arguments + [
            "--cluster", "test", "--log", log, "--log-cert", file("link-cert.pem"), "--log-key", file("link-key.pem"),
            "--log-ca", file("link-ca.pem"),
          ]
        )
        return try await Command.run(command.executable, command.arguments)
      }

      /// Each group's last record, and how far its members have reported, such as `0: 261 (1: 261, 2: 240, 3: 259)`.
      func positions() async throws -> String {
        struct Status: Decodable {
          struct Group: Decodable {
            struct Member: Decodable {
              var node: Int
              var position: UInt64?
            }
            var group: Int
            var last_record: UInt64?
            var members: [Member]
          }
          var groups: [Group]
        }
        let output = try await operate(["status", "--json"])
        try #require(output.status == 0, "\(output)")
        let status = try JSONDecoder().decode(Status.self, from: Data(output.out.utf8))
        func text(_ position: UInt64?) -> String { position.map { "\($0)" } ?? "?" }
        return status.groups.map { group in
          let members = group.members.sorted { $0.node < $1.node }.map { "\($0.node): \(text($0.position))" }
          return "\(group.group): \(text(group.last_record)) (\(members.joined(separator: ", ")))"
        }.joined(separator: "; ")
      }

      /// Move a group in the way of an operator.
      private func moveGroup(to node: Machines.ID) async throws -> Machines.ID {
        moves += 1
        // On a busy machine the node may lag: then the command says what to wait for, and an operator repeats it.
        try await eventually("group \(moves % Self.groupCount) moves to node \(node)") {
          let output = try await operate(["move", "\(moves % Self.groupCount)", "\(node)"])
          try #require(output.status == 0 || output.error.contains("lacks records"), "\(output)")
          return output.status == 0
        }
        return node
      }

      private func restart(_ id: Machines.ID, after pause: Duration) async throws {
        await kill(id)
        try await Task.sleep(for: pause)
        try start(id)
      }

      private func suspend(_ ids: [Machines.ID], for pause: Duration) async throws {
        for id in ids { programs[id]?.signal(SIGSTOP) }
        try await Task.sleep(for: pause)
        for id in ids { programs[id]?.signal(SIGCONT) }
      }

      private func fillDisk(of id: Machines.ID, for pause: Duration) async throws {
        try await disks[id]?.fill()
        try await Task.sleep(for: pause)
        try disks[id]?.free()
      }

      private func disconnect(_ id: Machines.ID, for pause: Duration) async throws {
        try await machines.setConnected(id, false)
        try await Task.sleep(for: pause)
        try await machines.setConnected(id, true)
      }

      private func cut(_ directions: [(Machines.ID, Machines.ID)], for pause: Duration) async throws {
        for (from, to) in directions { try await machines.cut(from, to: to) }
        try await Task.sleep(for: pause)
        for (from, to) in directions { try await machines.mend(from, to: to) }
      }

      // MARK: Clients

      /// Start a client that marks messages through the gateway, one request after the other.
      func startClient(_ name: String) async throws -> Companion {
        let token = try await TokenIssuer(secretFile: file("jwt")).server(lifetime: .seconds(7_200))
        let script = TestServices.client("Durability/cluster_marks.py")
        let command = machines.command(on: Self.gateway, TestServices.python, [script, "8080", token, "0.2", name])
        let client = try Companion(command.executable, command.arguments, limit: .seconds(7_200))
        var line = await client.line()
        while line?.hasPrefix("slow ") == true { line = await client.line() }
        try #require(line == "begun", "\(client.errors)")
        return client
      }
    }

    private func withCluster(_ body: (Cluster) async throws -> Void) async throws {
      let directory = NSTemporaryDirectory() + "tidemark-faults-\(UUID().uuidString)"
      try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
      defer { try? FileManager.default.removeItem(atPath: directory) }
      let serverDirectory = EtcdProcesses.parentDirectory() + "tidemark-faults-etcd-\(UUID().uuidString)"
      defer { try? FileManager.default.removeItem(atPath: serverDirectory) }
      let machines = try await Machines(7)
      let cluster = try await Cluster(machines, directory: directory, serverDirectory: serverDirectory)
      var failure: (any Error)?
      do {
        try cluster.startAll()
        try await cluster.waitForOwners("start")
        try await body(cluster)
      } catch {
        cluster.printLogs()
        failure = error
      }
      await cluster.endAll()
      await machines.remove()
      if let failure { throw failure }
    }

    /// The faults of a run. It traps on a name that is no fault, as ``TestRun/number(_:)`` does on what is no number.
    private static let faults: [Fault] = {
      if let kinds = ProcessInfo.processInfo.environment["TIDEMARK_FAULT_KINDS"] {
        let named = kinds.split(separator: ",", omittingEmptySubsequences: false)
          .map { name -> Fault in
            guard let fault = Fault(rawValue: String(name)) else {
              preconditionFailure("TIDEMARK_FAULT_KINDS names an unknown fault: \(name)")
            }
            return fault
          }
        return (0..<(TestRun.number("TIDEMARK_FAULTS") ?? 1)).flatMap { _ in named }
      }
      guard TestRun.isLong else { return Fault.allCases }
      let more = [Fault.ownerKilled, .groupMoved].flatMap { Array(repeating: $0, count: 4) }
      return (0..<(TestRun.number("TIDEMARK_FAULTS") ?? 20)).flatMap { _ in Fault.allCases + more }
    }()

    /// Clients see slow requests and no error. Every message gets the next sequence number, and every mark-unread
    /// the next unread epoch.
    @Test(
      .secondProcessLane,
      .needs(EtcdProcesses.isInstalled && Machines.canBeMade, "needs root, iproute2 and Debian's etcd-server")
    )
    func faultsCostLatencyAndNoCommand() async throws {
      var random = SplitMix64(printingSeedOf: "faults of a cluster")
      try await withCluster { cluster in
        let clients = [try await cluster.startClient("a"), try await cluster.startClient("b")]
        defer { for client in clients { client.end() } }
        let began = Date().timeIntervalSince1970
        var made: [(fault: Fault, machines: [Machines.ID], at: Double, milliseconds: Int)] = []
        var positions = try await cluster.positions()
        for fault in Self.faults {
          // Shorter in `make test`, but longer than a take-over.
          let longest = TestRun.isLong ? fault.milliseconds.upperBound : min(3_000, fault.milliseconds.upperBound)
          let milliseconds = random.number(in: fault.milliseconds.lowerBound...longest)
          let at = Date().timeIntervalSince1970
          let machines = try await cluster.make(fault, milliseconds: milliseconds)
          made.append((fault, machines, at, milliseconds))
          try await cluster.waitForOwners("after \(fault)")
          try await Task.sleep(for: fault.recovery)
          let after = try await cluster.positions()
          print("faults of a cluster: \(fault) on \(machines): records from \(positions) to \(after)")
          positions = after
        }
        var slow: [(ended: Double, seconds: Double)] = []
        for client in clients {
          client.send("stop")
          var isDone = false
          while let line = await client.line() {
            let words = line.split(separator: " ")
            if words.first == "slow", words.count == 4, let ended = Double(words[1]), let seconds = Double(words[2]) {
              slow.append((ended, seconds))
            } else {
              #expect(line.hasPrefix("ok "), "\(line) \(client.errors)")
              print("faults of a cluster: \(line)")
              isDone = true
              break
            }
          }
          #expect(isDone, "a request failed: \(client.errors)")
        }
        var longestOfKind: [Fault: [Double]] = [:]
        for (index, fault) in made.enumerated() {
          let end = index + 1 < made.count ? made[index + 1].at : .infinity
          let longest = slow.filter { (fault.at..<end).contains($0.ended) }.map(\.seconds).max()
          longestOfKind[fault.fault, default: []].append(longest ?? 0)
          print(
            "faults of a cluster: at \(Int(fault.at - began)) s \(fault.fault) on \(fault.machines) for "
              + "\(fault.milliseconds) ms: longest request \(longest.map { "\($0) s" } ?? "below 0.2 s")"
          )
        }
        for (kind, times) in longestOfKind.sorted(by: { $0.key.rawValue < $1.key.rawValue }) {
          let sorted = times.sorted()
          print(
            "faults of a cluster: \(kind) \(sorted.count) times: longest request median \(sorted[sorted.count / 2]) s, "
              + "maximum \(sorted[sorted.count - 1]) s"
          )
        }
      }
    }
  }
}
