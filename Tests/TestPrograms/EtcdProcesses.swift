import Foundation
import LocalStack
package import Operations
import Synchronization
import TestSupport
import Testing

/// Real etcd servers on loopback, in a temporary directory. They end with the body of
/// ``with(_:tls:onDisk:flags:body:)``.
package final class EtcdProcesses: Sendable {
  package struct Server: Sendable {
    package let name: String
    package let client: Endpoint
    package let peer: Endpoint
  }

  private static let executable = "/usr/bin/etcd"
  package static let isInstalled = FileManager.default.isExecutableFile(atPath: executable)

  package let servers: [Server]
  private let directory: String
  package let hasTLS: Bool
  private let flags: [String]
  private let processes: Mutex<[ChildProcess?]>

  /// Start servers, run `body`, and end them, also if it fails.
  ///
  /// - Parameters:
  ///   - onDisk: whether the data is on a disk: for measurements of syncs.
  ///   - flags: further flags of each server.
  package static func with(
    _ count: Int,
    tls: Bool = false,
    onDisk: Bool = false,
    flags: [String] = [],
    body: (EtcdProcesses) async throws -> Void
  ) async throws {
    let parent = onDisk ? NSTemporaryDirectory() : parentDirectory()
    let directory = parent + "tidemark-etcd-\(UUID().uuidString)"
    try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(atPath: directory) }
    if tls {
      for name in ["server", "client"] {
        let script = packageRoot.path + "/Deploy/link-certificates.sh"
        let made = try await Command.run("/bin/bash", [script, directory, name, "DNS:\(name),IP:127.0.0.1"])
        try #require(made.status == 0, "\(made)")
      }
    }
    let processes = try EtcdProcesses(count, directory: directory, hasTLS: tls, flags: flags)
    do {
      for index in 0..<count { try processes.start(index) }
      try await processes.waitUntilReady()
      try await body(processes)
    } catch {
      processes.printLogs()
      await processes.end()
      throw error
    }
    await processes.end()
  }

  /// The directory in which servers of etcd have their data: in memory, if the machine has such a file system with
  /// room. A test ends processes and not the machine, so the data is as safe there; and a disk that other programs use
  /// stalls for a second now and then, which with a take-over is longer than the deadline of a request.
  package static func parentDirectory() -> String {
    let memory = "/dev/shm"
    let attributes = try? FileManager.default.attributesOfFileSystem(forPath: memory)
    let free = (attributes?[.systemFreeSize] as? NSNumber)?.uint64Value ?? 0
    return free >= 2 << 30 && access(memory, W_OK) == 0 ? memory + "/" : NSTemporaryDirectory()
  }

  private init(_ count: Int, directory: String, hasTLS: Bool, flags: [String]) throws {
    let ports = try LoopbackPorts.free(2 * count)
    servers = (0..<count).map { Server(name: "e\($0)", client: ports[2 * $0], peer: ports[2 * $0 + 1]) }
    self.directory = directory
    self.hasTLS = hasTLS
    self.flags = flags
    processes = Mutex(Array(repeating: nil, count: count))
  }

  /// A file in the servers' directory.
  package func file(_ name: String) -> String { directory + "/" + name }

  // MARK: Processes

  /// Start a server, with the data of its earlier run.
  package func start(_ index: Int) throws {
    let server = servers[index]
    let scheme = hasTLS ? "https" : "http"
    let clients = "\(scheme)://\(server.client)"
    let peers = "http://\(server.peer)"
    var arguments = [
      "--name", server.name, "--data-dir", file(server.name), "--listen-client-urls", clients,
      "--advertise-client-urls", clients, "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers,
      "--initial-cluster", servers.map { "\($0.name)=http://\($0.peer)" }.joined(separator: ","),
      "--heartbeat-interval", "100", "--election-timeout", "1000", "--snapshot-count", "2000",
      "--max-request-bytes", "4194304", "--logger", "zap", "--log-level", "warn",
    ]
    if hasTLS {
      arguments += [
        "--cert-file", file("server-cert.pem"), "--key-file", file("server-key.pem"), "--client-cert-auth",
        "--trusted-ca-file", file("link-ca.pem"),
      ]
    }
    let process = try ChildProcess(
      name: server.name,
      executable: Self.executable,
      arguments: arguments + flags,
      logFile: file(server.name + ".log")
    )
    processes.withLock { $0[index] = process }
  }

  package func signal(_ index: Int, _ number: Int32) {
    processes.withLock { $0[index]?.signal(number) }
  }

  /// Kill a server and wait for its end.
  package func kill(_ index: Int) async {
    guard let process = processes.withLock({ $0[index] }) else { return }
    process.kill()
    await process.waitForExit()
  }

  private var processIDs: [Int32] { processes.withLock { $0.compactMap { $0?.processID } } }

  private func end() async {
    for index in servers.indices { await kill(index) }
  }

  // MARK: State

  /// Wait until every server that runs has a leader.
  package func waitUntilReady() async throws {
    let running = processes.withLock { processes in processes.map { $0?.isRunning == true } }
    for (server, isRunning) in zip(servers, running) where isRunning {
      try await eventually("\(server.name) has a leader") {
        try await self.metrics(server).contains("\netcd_server_has_leader 1\n")
      }
    }
  }

  /// The leader's index.
  ///
  /// - Parameter stopped: a server that is not asked.
  package func leader(besides stopped: Int? = nil) async throws -> Int {
    for _ in 0..<100 {
      for index in servers.indices where index != stopped {
        if try await isLeader(index) { return index }
      }
    }
    throw NoLeader()
  }

  private struct NoLeader: Error {}

  /// Whether a server takes itself for the leader.
  package func isLeader(_ index: Int) async throws -> Bool {
    MetricText.value("etcd_server_is_leader", in: try await metrics(servers[index])) == 1
  }

  private func metrics(_ server: Server) async throws -> String {
    let tls = [
      "--cacert", file("link-ca.pem"), "--cert", file("client-cert.pem"), "--key", file("client-key.pem"),
    ]
    let url = "\(hasTLS ? "https" : "http")://\(server.client)/metrics"
    return try await Command.run("curl", ["-sS", "--max-time", "5"] + (hasTLS ? tls : []) + [url]).out
  }

  private func printLogs() {
    for server in servers {
      let log = (try? String(contentsOfFile: file(server.name + ".log"), encoding: .utf8)) ?? ""
      print("\(server.name): \(log.split(separator: "\n").suffix(5).joined(separator: "\n"))")
    }
  }
}

extension EtcdProcesses {
  /// The number of compactions that the first server has carried out.
  package func compactions() async throws -> Int {
    let name = "etcd_debugging_mvcc_db_compaction_keys_total"
    return Int(MetricText.value(name, in: try await metrics(servers[0])) ?? 0)
  }
}

/// Resources of the servers that run.
extension EtcdProcesses {
  /// User and system CPU time of all servers since their start.
  package func cpuSeconds() -> Double {
    let ticks = processIDs.compactMap { id -> Double? in
      guard let text = try? String(contentsOfFile: "/proc/\(id)/stat", encoding: .utf8) else { return nil }
      let fields = text.split(separator: ")").last?.split(separator: " ") ?? []
      // Fields 14 and 15 of proc(5); the first one here is 3.
      guard fields.count > 12, let user = Double(fields[11]), let system = Double(fields[12]) else { return nil }
      return user + system
    }
    return ticks.reduce(0, +) / Double(sysconf(Int32(_SC_CLK_TCK)))
  }

  package func residentMebibytes() -> [Int] {
    processIDs.map { id in
      let text = (try? String(contentsOfFile: "/proc/\(id)/statm", encoding: .utf8)) ?? ""
      let pages = text.split(separator: " ").dropFirst().first.flatMap { Int($0) } ?? 0
      return (pages * sysconf(Int32(_SC_PAGESIZE))) >> 20
    }
  }

  package func databaseMebibytes() -> [Int] {
    servers.map { server in
      let attributes = try? FileManager.default.attributesOfItem(atPath: file(server.name) + "/member/snap/db")
      return ((attributes?[.size] as? Int) ?? 0) >> 20
    }
  }
}
