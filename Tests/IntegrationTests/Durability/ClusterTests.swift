import Foundation
import LocalStack
import Operations
import TestPrograms
import TestSupport
import Testing

extension RealProcesses {
  /// Three nodes over three servers of etcd, and a gateway that knows all of them (docs/cluster.md).
  @Suite struct Clusters {
    /// Programs on loopback ports, in a directory of their own.
    private final class Cluster {
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

      func startNode(_ index: Int) throws {
        try start(
          "node\(index)",
          TestServices.binaries + "/tidemark-store",
          [
            "--cluster", "test", "--log", etcd.servers.map { "http://\($0.client)" }.joined(separator: ","),
            "--node", "\(index + 1)", "--groups", "2", "--shards", "8", "--data", file("node\(index)"),
            "--listen", "\(storePorts[index])", "--admin", "\(adminPorts[index])",
            "--secret-file", file("secret"),
          ]
        )
      }

      func startGateway() throws {
        try start(
          "gateway",
          TestServices.binaries + "/tidemark-gateway",
          [
            "--listen", "\(gatewayPort)", "--h2c",
            "--store", storePorts.map(\.description).joined(separator: ","),
            "--secret-file", file("secret"), "--jwt-secret-file", file("jwt"),
          ]
        )
      }

      func end(_ name: String) async {
        processes[name]?.kill()
        await processes[name]?.waitForExit()
      }

      func endAll() async {
        for name in processes.keys { await end(name) }
      }

      /// Wait for a node, other than `previous`, that owns the shards.
      func owner(otherThan previous: Int? = nil) async throws -> Int {
        var owner: Int?
        try await eventually("a node owns the shards") {
          for index in 0..<3 where index != previous {
            let url = "http://\(self.adminPorts[index])/ready"
            let answer = try? await Command.run("curl", ["-s", "-o", "/dev/null", "-w", "%{http_code}", url])
            if answer?.out == "200" { owner = index }
          }
          return owner != nil
        }
        return try #require(owner)
      }

      func printLogs() {
        for name in processes.keys.sorted() {
          let log = (try? String(contentsOfFile: file(name + ".log"), encoding: .utf8)) ?? ""
          print("\(name): \(log.split(separator: "\n").suffix(8).joined(separator: "\n"))")
        }
      }
    }

    private func withCluster(_ body: (Cluster) async throws -> Void) async throws {
      let directory = NSTemporaryDirectory() + "tidemark-cluster-\(UUID().uuidString)"
      try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
      defer { try? FileManager.default.removeItem(atPath: directory) }
      try await EtcdProcesses.with(3) { etcd in
        let cluster = try Cluster(directory: directory, etcd: etcd)
        do {
          for index in 0..<3 { try cluster.startNode(index) }
          try cluster.startGateway()
          try await body(cluster)
        } catch {
          cluster.printLogs()
          await cluster.endAll()
          throw error
        }
        await cluster.endAll()
      }
    }

    /// The owner is killed twice. Each time a client sees one slow request, and no error.
    @Test(.needs(EtcdProcesses.isInstalled, "needs Debian's etcd-server"))
    func killedOwnerCostsLatencyAndNoCommand() async throws {
      try await withCluster { cluster in
        let owner = try await cluster.owner()
        let token = try await TokenIssuer(secretFile: cluster.file("jwt")).server(lifetime: .seconds(3600))
        let client = try Companion(
          TestServices.python,
          [TestServices.client("Durability/cluster_marks.py"), "\(cluster.gatewayPort.port)", token]
        )
        defer { client.end() }
        #expect(await client.line() == "begun", "\(client.errors)")
        await cluster.end("node\(owner)")
        let second = try await cluster.owner(otherThan: owner)
        let slow = await client.line() ?? client.errors
        #expect(slow.hasPrefix("slow "), "\(slow)")
        try cluster.startNode(owner)
        await cluster.end("node\(second)")
        _ = try await cluster.owner(otherThan: second)
        let slowAgain = await client.line() ?? client.errors
        #expect(slowAgain.hasPrefix("slow "), "\(slowAgain)")
        client.send("stop")
        let last = await client.line() ?? client.errors
        print("cluster: \(slow), \(slowAgain), \(last)")
        #expect(last.hasPrefix("ok "), "\(last)")
      }
    }
  }
}
