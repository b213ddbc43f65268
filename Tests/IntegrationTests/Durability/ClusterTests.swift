import Foundation
import GatewayClient
import LocalStack
import Operations
import TestPrograms
import TestSupport
import Testing

extension RealProcesses {
  /// Three nodes over three servers of etcd, and a gateway that knows all of them (docs/operate/cluster.md).
  @Suite struct Clusters {
    /// Programs on loopback ports, in a directory of their own.
    private final class Cluster {
      static let groupCount = 3
      static let shardCount = 8

      let directory: String
      private var processes: [String: ChildProcess] = [:]
      private let etcd: EtcdProcesses
      private let storePorts: [Endpoint]
      private let adminPorts: [Endpoint]
      let gatewayPort: Endpoint

      init(directory: String, etcd: EtcdProcesses) throws {
        self.directory = directory
        self.etcd = etcd
        let ports = try LoopbackPorts.free(7)
        storePorts = Array(ports[0..<3])
        adminPorts = Array(ports[3..<6])
        gatewayPort = ports[6]
        for name in ["secret", "jwt"] {
          let secret = (0..<32).map { _ in String(format: "%02x", UInt8.random(in: .min ... .max)) }.joined()
          try Data(secret.utf8).write(to: URL(fileURLWithPath: file(name)))
          try FileManager.default.setAttributes([.posixPermissions: 0o600], ofItemAtPath: file(name))
        }
      }

      func file(_ name: String) -> String { directory + "/" + name }

      func start(_ name: String, _ executable: String, _ arguments: [String]) throws {
        processes[name] = try ChildProcess(
          name: name,
          executable: executable,
          arguments: arguments,
          logFile: file(name + ".log")
        )
      }

      /// - Parameter flags: further flags.
      func startNode(_ index: Int, _ flags: [String] = []) throws {
        try start(
          "node\(index)",
          TestServices.binaries + "/tidemark-store",
          [
            "--cluster", "test", "--log", etcd.servers.map { "http://\($0.client)" }.joined(separator: ","),
            "--node", "\(index + 1)", "--groups", "\(Self.groupCount)", "--shards", "\(Self.shardCount)", "--data",
            file("node\(index)"),
            "--listen", "\(storePorts[index])", "--admin", "\(adminPorts[index])",
            "--secret-file", file("secret"),
          ] + flags
        )
      }

      /// Start a store that is no node, with the directory and the address of the first one.
      func startSingleStore() throws {
        try start(
          "node0",
          TestServices.binaries + "/tidemark-store",
          [
            "--shards", "\(Self.shardCount)", "--data", file("node0"), "--listen", "\(storePorts[0])", "--admin",
            "\(adminPorts[0])",
            "--secret-file", file("secret"),
          ]
        )
      }

      /// - Parameter stores: number of the nodes that it knows.
      func startGateway(stores: Int = 3) throws {
        try start(
          "gateway",
          TestServices.binaries + "/tidemark-gateway",
          [
            "--listen", "\(gatewayPort)", "--h2c",
            "--store", storePorts.prefix(stores).map(\.description).joined(separator: ","),
            "--secret-file", file("secret"), "--jwt-secret-file", file("jwt"),
          ]
        )
      }

      func end(_ name: String) async {
        processes[name]?.kill()
        await processes[name]?.waitForExit()
      }

      /// Suspend a program for some time.
      func suspend(_ name: String, for pause: Duration) async throws {
        processes[name]?.signal(SIGSTOP)
        try await Task.sleep(for: pause)
        processes[name]?.signal(SIGCONT)
      }

      /// Start a client that reads from the nodes in frames.
      func startReader() async throws -> Companion {
        let token = try await TokenIssuer(secretFile: file("jwt")).server(lifetime: .seconds(3600))
        return try Companion(
          TestServices.python,
          [
            TestServices.client("Durability/cluster_stale.py"), "\(gatewayPort.port)", token, file("secret"),
            "\(Self.shardCount)",
          ] + storePorts.map { "\($0.port)" }
        )
      }

      /// Stop a program as a service manager does.
      func stop(_ name: String) async {
        _ = await processes[name]?.stop()
      }

      func endAll() async {
        for name in processes.keys { await end(name) }
      }

      /// The value of a metric of each node, its labels' values added up; nil: it does not run, or does not say.
      func metric(_ name: String) async -> [Double?] {
        var values: [Double?] = []
        for admin in adminPorts {
          let answer = try? await Command.run("curl", ["-s", "http://\(admin)/metrics"])
          values.append(answer.flatMap { $0.out.isEmpty ? nil : MetricText.sum(name, in: $0.out) })
        }
        return values
      }

      /// Run a command on the cluster's sets and its level.
      func clusterCommand(_ name: String) async throws -> Command.Output {
        let log = "http://\(etcd.servers[0].client)"
        return try await Command.run(
          TestServices.binaries + "/tidemark",
          ["cluster", name, "--cluster", "test", "--log", log]
        )
      }

      /// Give the cluster a level that none of its nodes supports, past every check.
      func force(level: UInt8) async throws {
        let etcdctl = "etcdctl --endpoints \(etcd.servers[0].client)"
        // The fifth byte of the value. An argument cannot have all bytes, the input can.
        let script = """
          set -e
          \(etcdctl) get --print-value-only /tm/test/cfg | head -c -1 > "$0"
          printf '\\\(String(level, radix: 8))' | dd of="$0" bs=1 seek=4 conv=notrunc status=none
          \(etcdctl) put /tm/test/cfg < "$0"
          """
        let output = try await Command.run("/bin/sh", ["-c", script, file("configuration")])
        try #require(output.status == 0, "\(output)")
      }

      /// Why a node is not ready.
      func notReady(_ index: Int) async throws -> String {
        try await Command.run("curl", ["-s", "http://\(adminPorts[index])/ready"]).out
      }

      /// The number of lines of a program's log with a text.
      func count(_ text: String, inLogOf name: String) -> Int {
        let log = (try? String(contentsOfFile: file(name + ".log"), encoding: .utf8)) ?? ""
        return log.split(separator: "\n").count { $0.contains(text) }
      }

      /// The rows of the channels of `cluster_marks.py`.
      func states(_ token: String) async throws -> [String] {
        var states: [String] = []
        for number in 0..<16 {
          let path = "/v1/channels/team:cluster-\(number)/read-state"
          let answer = try await Command.run(
            "curl",
            ["-sS", "--http2-prior-knowledge", "-H", "authorization: Bearer \(token)", "http://\(gatewayPort)\(path)"]
          )
          states.append(answer.out)
        }
        return states
      }

      /// What bob's event stream begins with, in the first second.
      ///
      /// - Parameter id: id of the last event that was received before.
      func events(_ token: String, after id: String? = nil) async throws -> String {
        let resume = id.map { ["-H", "last-event-id: \($0)"] } ?? []
        return try await Command.run(
          "curl",
          ["-sN", "-m", "1", "--http2-prior-knowledge", "-H", "authorization: Bearer \(token)"] + resume
            + ["http://\(gatewayPort)/v1/events?user_id=bob"]
        ).out
      }

      /// Run a command of `tidemark` that succeeds.
      func command(_ arguments: [String]) async throws {
        let output = try await Command.run(TestServices.binaries + "/tidemark", arguments)
        try #require(output.status == 0, "\(arguments): \(output)")
      }

      /// Copy a node's data while it runs.
      func backUp(_ index: Int) async throws {
        let secret = ["--secret-file", file("secret")]
        try await command(["backup", "--store", "\(storePorts[index])", file("backups")] + secret)
        try await command(["check", file("backups")])
      }

      /// The directories of nodes and of servers of etcd with a file that contains a text. RocksDB's tables may have
      /// overwritten values for some hours (docs/operate/operations.md).
      func directories(with text: String) async throws -> [String] {
        var found: [String] = []
        let nodes = (0..<3).map { (name: "node\($0)", path: file("node\($0)")) }
        for (name, path) in nodes + etcd.servers.map({ ($0.name, etcd.file($0.name)) }) {
          let output = try await Command.run("grep", ["-rlF", "--exclude=*.sst", text, path])
          if !output.out.isEmpty { found.append(name) }
        }
        return found
      }

      /// The number of groups that each node owns; nil: it does not run, or does not say.
      private func ownedGroups() async -> [Int?] {
        var owned: [Int?] = []
        for admin in adminPorts {
          let count = try? await Scrape.value("tidemark_store_owned_groups", of: admin)
          owned.append(count.map { Int($0) })
        }
        return owned
      }

      /// Wait until nodes own all groups; return the number of each node's.
      @discardableResult
      func owned(_ what: String) async throws -> [Int] {
        var owned: [Int?] = []
        try await eventually("\(what): all groups have owners") {
          owned = await self.ownedGroups()
          return owned.reduce(0) { $0 + ($1 ?? 0) } == Self.groupCount
        }
        return owned.map { $0 ?? 0 }
      }

      func printLogs() {
        for name in processes.keys.sorted() {
          let log = (try? String(contentsOfFile: file(name + ".log"), encoding: .utf8)) ?? ""
          print("\(name): \(log.split(separator: "\n").suffix(30).joined(separator: "\n"))")
        }
      }
    }

    /// - Parameter starts: whether the nodes and the gateway run when `body` does.
    private func withCluster(starts: Bool = true, _ body: (Cluster) async throws -> Void) async throws {
      let directory = NSTemporaryDirectory() + "tidemark-cluster-\(UUID().uuidString)"
      try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
      defer { try? FileManager.default.removeItem(atPath: directory) }
      try await EtcdProcesses.with(3) { etcd in
        let cluster = try Cluster(directory: directory, etcd: etcd)
        do {
          if starts {
            for index in 0..<3 { try cluster.startNode(index) }
            try cluster.startGateway()
          }
          try await body(cluster)
        } catch {
          cluster.printLogs()
          await cluster.endAll()
          throw error
        }
        await cluster.endAll()
      }
    }

    /// The time at which a request of a line `slow TIME SECONDS PATH` ended; nil: it is another line.
    private static func end(ofSlow line: String) -> Double? {
      let words = line.split(separator: " ")
      return words.first == "slow" && words.count == 4 ? Double(words[1]) : nil
    }

    /// Nodes that own groups are killed, one after the other. A client with a channel in each shard sees slow requests,
    /// and no error.
    @Test(.needs(EtcdProcesses.isInstalled, "needs Debian's etcd-server"))
    func killedOwnersCostLatencyAndNoCommand() async throws {
      try await withCluster { cluster in
        let before = try await cluster.owned("start")
        let client = try await self.client(of: cluster)
        defer { client.end() }
        var slow: [String] = []
        for _ in 0..<2 {
          let owned = try await cluster.owned("before a kill")
          let victim = try #require(owned.indices.max { owned[$0] < owned[$1] })
          let killed = Date().timeIntervalSince1970
          await cluster.end("node\(victim)")
          try await cluster.owned("after a kill")
          // The first line of a request that ended after the kill.
          var line = await client.line() ?? client.errors
          while let ended = Self.end(ofSlow: line), ended < killed { line = await client.line() ?? client.errors }
          #expect(Self.end(ofSlow: line) != nil, "\(line)")
          slow.append(line)
          try cluster.startNode(victim)
        }
        client.send("stop")
        let last = await result(of: client)
        print("cluster: \(before) groups, \(slow), \(last)")
        try #require(last.hasPrefix("ok "), "\(last)")
      }
    }

    /// Start a client that marks messages through the gateway, one request after the other.
    private func client(of cluster: Cluster) async throws -> Companion {
      let token = try await TokenIssuer(secretFile: cluster.file("jwt")).server(lifetime: .seconds(3600))
      let client = try Companion(
        TestServices.python,
        [TestServices.client("Durability/cluster_marks.py"), "\(cluster.gatewayPort.port)", token]
      )
      // The first command of a new cluster waits for a record key.
      var line = await client.line()
      while line?.hasPrefix("slow ") == true { line = await client.line() }
      #expect(line == "begun", "\(client.errors)")
      return client
    }

    /// The line of the client's result.
    private func result(of client: Companion) async -> String {
      var last = await client.line() ?? client.errors
      while last.hasPrefix("slow ") { last = await client.line() ?? client.errors }
      return last
    }

    /// Owners are suspended for less and for more than their lease, while readers speak frames with all nodes. What a
    /// node answers when it resumes is not older than what others have acknowledged before the query was sent (C4).
    @Test(.needs(EtcdProcesses.isInstalled, "needs Debian's etcd-server"))
    func suspendedOwnersShowNothingStale() async throws {
      try await withCluster { cluster in
        try await cluster.owned("start")
        let reader = try await cluster.startReader()
        defer { reader.end() }
        #expect(await reader.line() == "begun", "\(reader.errors)")
        let all = [500, 1_600, 2_500, 10_000]
        for milliseconds in TestRun.isLong ? Array(repeating: all, count: 10).flatMap(\.self) : [1_600, 4_000] {
          let owned = try await cluster.owned("before a pause")
          let owner = try #require(owned.indices.max { owned[$0] < owned[$1] })
          try await cluster.suspend("node\(owner)", for: .milliseconds(milliseconds))
          try await Task.sleep(for: .seconds(1))
        }
        try await cluster.owned("after the pauses")
        reader.send("stop")
        let last = await reader.line() ?? ""
        print("cluster: suspended owners, \(last)")
        #expect(last.hasPrefix("ok "), "\(last) \(reader.errors)")
        // Nodes that resumed have found queries.
        #expect(!last.contains(" 0 of them late") || !last.contains(" 0 refused"), "\(last)")
      }
    }

    /// All nodes are restarted, one after the other, under load.
    @Test(.needs(EtcdProcesses.isInstalled, "needs Debian's etcd-server"))
    func rollingRestartCostsNoRequest() async throws {
      try await withCluster { cluster in
        // The preferred owners, of which each node is one.
        let before = [1, 1, 1]
        try await eventually("each node owns its group") { try await cluster.owned("start") == before }
        let client = try await self.client(of: cluster)
        defer { client.end() }
        for index in 0..<3 {
          await cluster.stop("node\(index)")
          try await cluster.owned("node \(index + 1) is stopped")
          #expect(cluster.count("This node owns a group", inLogOf: "node\(index)") > 0)
          #expect(cluster.count("not handed over", inLogOf: "node\(index)") == 0)
          try cluster.startNode(index)
          // Each group moves back to its preferred owner.
          try await eventually("node \(index + 1) owns its group again") {
            try await cluster.owned("moving") == before
          }
        }
        client.send("stop")
        let last = await result(of: client)
        print("cluster: rolling restart, \(last)")
        try #require(last.hasPrefix("ok "), "\(last)")
      }
    }

    /// The level of a cluster is raised, and forced to one that no node supports. The nodes say so and go on; one that
    /// starts then does not.
    @Test(.needs(EtcdProcesses.isInstalled, "needs Debian's etcd-server"))
    func nodesDoNotFollowUnsupportedLevel() async throws {
      try await withCluster { cluster in
        try await cluster.owned("start")
        let raised = try await cluster.clusterCommand("raise")
        #expect(raised.out == #"{"cluster":"test","command":"raise","level":2}"# + "\n", "\(raised)")
        let client = try await self.client(of: cluster)
        defer { client.end() }
        try await cluster.force(level: 3)
        for index in 0..<3 {
          try await eventually("node \(index + 1) is not ready") {
            try await cluster.notReady(index).contains("the cluster has level 3, which this tidemark-store does not")
          }
          #expect(cluster.count("does not support the cluster's level", inLogOf: "node\(index)") == 1)
        }
        #expect(try await cluster.clusterCommand("status").out.contains("3 nodes running, level 3\n"))
        try await cluster.owned("after the raise")
        client.send("stop")
        #expect(await result(of: client).hasPrefix("ok "))
        await cluster.end("node0")
        try await cluster.owned("after an owner's end")
        try cluster.startNode(0)
        try await eventually("the node refuses to start") {
          cluster.count("test: has level 3, and this tidemark-store", inLogOf: "node0") == 1
        }
      }
    }

    /// A user is erased while a member is down, and an owner ends in the middle. Afterwards no file of any node or
    /// server of etcd has the user, except RocksDB's tables.
    @Test(.needs(EtcdProcesses.isInstalled, "needs Debian's etcd-server"))
    func erasedUserIsInNoFile() async throws {
      let user = "erased-user-of-the-cluster"
      var random = SplitMix64(printingSeedOf: "an owner's end within an erasure")
      try await withCluster { cluster in
        try await cluster.owned("start")
        let token = try await TokenIssuer(secretFile: cluster.file("jwt")).server(lifetime: .seconds(3600))
        let client = try Companion(
          TestServices.python,
          [TestServices.client("Durability/cluster_erasure.py"), "\(cluster.gatewayPort.port)", token, user]
        )
        defer { client.end() }
        #expect(await client.line() == "begun", "\(client.errors)")
        // Commits are stored within milliseconds, by followers too.
        try await eventually("all nodes have the user") {
          try await cluster.directories(with: user).filter { $0.hasPrefix("node") }.count == 3
        }
        await cluster.end("node2")
        try await cluster.owned("without a node")
        client.send("erase")
        // The erasure cannot end. The owner ends somewhere in it.
        try await Task.sleep(for: .milliseconds(random.number(in: 0...3_000)))
        #expect(try await cluster.directories(with: user).contains("node2"))
        await cluster.end("node0")
        try cluster.startNode(2)
        try await cluster.owned("after the owner's end")
        try cluster.startNode(0)
        #expect(await client.line() == "erased", "\(client.errors)")
        #expect(try await cluster.directories(with: user) == [])
      }
    }

    /// A node comes back with an empty disk, after the log was trimmed. Then it is the only one.
    @Test(.needs(EtcdProcesses.isInstalled, "needs Debian's etcd-server"))
    func lostDiskIsReplacedBySnapshots() async throws {
      try await withCluster { cluster in
        try await cluster.owned("start")
        let client = try await self.client(of: cluster)
        defer { client.end() }
        // 256 records, of which a group without commands has two in a second.
        for count in 1...Cluster.groupCount {
          try await eventually("\(count) of the groups' logs are trimmed") {
            let trims = await cluster.metric("tidemark_store_log_trims_total")
            return trims.reduce(0) { $0 + ($1 ?? 0) } >= Double(count)
          }
        }
        await cluster.end("node2")
        try FileManager.default.removeItem(atPath: cluster.file("node2"))
        try cluster.startNode(2)
        let installed = "snapshot of a group is installed"
        try await eventually("the node has a snapshot of each group") {
          cluster.count(installed, inLogOf: "node2") >= Cluster.groupCount
        }
        try await cluster.owned("after the snapshots")
        for index in 0..<2 {
          await cluster.end("node\(index)")
          try await cluster.owned("after a kill")
        }
        #expect(await cluster.metric("tidemark_store_owned_groups")[2] == Double(Cluster.groupCount))
        client.send("stop")
        let last = await result(of: client)
        print("cluster: \(cluster.count(installed, inLogOf: "node2")) snapshots, \(last)")
        try #require(last.hasPrefix("ok "), "\(last)")
      }
    }

    /// A node is copied right after commands, most of which it has as a follower. A single store starts with the copy.
    @Test(.needs(EtcdProcesses.isInstalled, "needs Debian's etcd-server"))
    func backupOfNodeIsSingleStore() async throws {
      try await withCluster { cluster in
        try await cluster.owned("start")
        let token = try await TokenIssuer(secretFile: cluster.file("jwt")).server(lifetime: .seconds(3600))
        let client = try await self.client(of: cluster)
        defer { client.end() }
        client.send("stop")
        #expect(await result(of: client).hasPrefix("ok "))
        let before = try await cluster.states(token)
        try await cluster.backUp(1)
        await cluster.endAll()
        try FileManager.default.removeItem(atPath: cluster.file("node0"))
        try await cluster.command(["restore", cluster.file("backups"), cluster.file("node0")])
        try cluster.startSingleStore()
        try cluster.startGateway(stores: 1)
        try await eventually("the restored store answers") {
          try await cluster.states(token) == before
        }
      }
    }

    /// Gateways would take the data for that of another store.
    @Test(.needs(EtcdProcesses.isInstalled, "needs Debian's etcd-server"))
    func onlyTheFirstNodeAdopts() async throws {
      try await withCluster(starts: false) { cluster in
        try cluster.startSingleStore()
        try await eventually("the directory is there") { cluster.count("listening", inLogOf: "node0") > 0 }
        await cluster.end("node0")
        try cluster.startNode(1)
        try await eventually("the cluster is begun") { cluster.count("Nodes of the cluster", inLogOf: "node1") > 0 }
        try cluster.startNode(0, ["--adopt"])
        try await eventually("the directory is refused") {
          cluster.count("was begun without --data", inLogOf: "node0") == 1
        }
      }
    }

    /// A single store's directory becomes a cluster's, and the other nodes get it.
    @Test(.needs(EtcdProcesses.isInstalled, "needs Debian's etcd-server"))
    func singleStoreIsAdopted() async throws {
      try await withCluster(starts: false) { cluster in
        try cluster.startSingleStore()
        try cluster.startGateway()
        let token = try await TokenIssuer(secretFile: cluster.file("jwt")).server(lifetime: .seconds(3600))
        let client = try await self.client(of: cluster)
        defer { client.end() }
        let events = try await cluster.events(token)
        let id = try #require(events.matches(of: /id: *(\S+)/).last?.1, "\(events)")
        // Requests wait meanwhile, and none fails. The other nodes need the cluster that the first one makes.
        await cluster.end("node0")
        try cluster.startNode(0, ["--adopt"])
        try await eventually("the cluster exists") { cluster.count("is the cluster's now", inLogOf: "node0") == 1 }
        for index in 1..<3 { try cluster.startNode(index) }
        try await cluster.owned("adopted")
        client.send("stop")
        let last = await result(of: client)
        print("cluster: adopted under load, \(last)")
        try #require(last.hasPrefix("ok "), "\(last)")
        // Event ids stay valid: the gateways continue with what they know.
        let resumed = try await cluster.events(token, after: String(id))
        #expect(resumed.contains("message.read") && !resumed.contains("stream.reset"), "\(resumed)")
        let before = try await cluster.states(token)
        #expect(before.allSatisfy { $0.contains("\"bob\"") }, "\(before)")
        for index in 1..<3 {
          try await eventually("node \(index + 1) has a snapshot of each group") {
            cluster.count("snapshot of a group is installed", inLogOf: "node\(index)") >= Cluster.groupCount
          }
        }
        await cluster.end("node0")
        try await cluster.owned("without the node that had the data")
        #expect(try await cluster.states(token) == before)
        // The directory is the cluster's already.
        try cluster.startNode(0, ["--adopt"])
        try await eventually("the node follows") {
          cluster.count("follow the shared log", inLogOf: "node0") >= 2
        }
      }
    }
  }
}
