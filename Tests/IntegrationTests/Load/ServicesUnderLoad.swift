import Foundation
import LocalStack
import Operations
import TestPrograms
import TestSupport
import Testing

/// Helpers of the tests under load.
extension TestServices {
  /// Make channels with members `user-0` and on, and messages `m1` and on.
  func makeChannels(_ channels: [String], messages: Int, users: Int) async throws {
    let members = (0..<users).map { "\"user-\($0)\"" }.joined(separator: ",")
    for cid in channels {
      try await expect(
        201,
        "PUT",
        "/v1/channels/\(cid)",
        token: serverToken,
        json: #"{"members":[\#(members)]}"#
      )
      for first in stride(from: 1, through: messages, by: 1000) {
        let entries = (first...min(first + 999, messages)).map { #"{"cid":"\#(cid)","id":"m\#($0)"}"# }
        let path = directory + "/batch.json"
        try #"{"messages":[\#(entries.joined(separator: ","))]}"#.write(
          toFile: path,
          atomically: true,
          encoding: .utf8
        )
        try await expect(200, "POST", "/v1/messages", token: serverToken, json: "@" + path)
      }
    }
  }

  /// Make the channels and the file that describes them to the clients; return its path.
  func prepareLoad(channels: [String], messages: Int, users: Int) async throws -> String {
    try await makeChannels(channels, messages: messages, users: users)
    var tokens: [String: String] = [:]
    for number in 0..<users { tokens["user-\(number)"] = try await token("user-\(number)") }
    let specification: [String: Any] = [
      "server": serverToken, "users": tokens, "channels": channels, "messages": messages,
    ]
    let path = directory + "/specification.json"
    try JSONSerialization.data(withJSONObject: specification).write(to: URL(fileURLWithPath: path))
    return path
  }

  /// Kill the store under load `rounds` times. A foreign client records what was acknowledged, and after each kill
  /// reads everything back.
  ///
  /// - Returns: the number of acknowledged marks.
  func expectKillsLoseNothing(_ rounds: Int, channels: [String], messages: Int, users: Int) async throws
    -> Int
  {
    let path = try await prepareLoad(channels: channels, messages: messages, users: users)
    let client = try Companion(
      TestServices.python,
      [TestServices.client("Load/marks_under_load.py"), "\(h2cPort)", path]
    )
    defer { client.end() }
    var generator = SplitMix64(printingSeedOf: "kills of the store under load")
    var last = 0
    for round in 1...rounds {
      try await Task.sleep(for: .milliseconds(generator.number(in: 50...400)))
      await stack.killStore()
      try await stack.startStore()
      try await stack.waitUntilGatewaysAreReady()
      client.send("check")
      let response = await client.line() ?? "the client ended"
      let acknowledged = response.hasPrefix("ok ") ? Int(response.dropFirst(3)) ?? 0 : -1
      #expect(acknowledged > last, "round \(round): \(response); before it \(last) were acknowledged")
      last = acknowledged
    }
    client.send("end")
    return last
  }

  /// Start strace to record the store's reads, writes and syncs for ``SyncTrace``. Return once it is attached.
  func traceStore(into trace: String) async throws -> ChildProcess {
    let log = directory + "/strace.log"
    let strace = try ChildProcess(
      name: "strace",
      executable: "/usr/bin/strace",
      arguments: [
        "-f", "-yy", "-xx", "-s", "65536", "-e",
        "trace=read,recvfrom,recvmsg,readv,write,writev,sendto,sendmsg,fdatasync,fsync", "-o", trace,
        "-p", "\(try await storeProcess.processID)",
      ],
      logFile: log
    )
    try await eventually("strace is attached to the store") {
      (try? String(contentsOfFile: log, encoding: .utf8))?.contains(" attached") ?? false
    }
    return strace
  }

  /// The process of the h2c gateway, which the clients use.
  var gatewayProcess: ChildProcess {
    get async throws {
      let processes = await stack.gatewayProcesses
      guard processes.count == 2 else { throw Unexpected("the gateways are not running") }
      return processes[1]
    }
  }

  var storeProcess: ChildProcess {
    get async throws {
      guard let process = await stack.storeProcess else { throw Unexpected("the store is not running") }
      return process
    }
  }

  /// The response of the h2c gateway's `/ready`.
  func readiness() async -> (status: Int, body: String)? {
    await HealthCheck.get("http://\(stack.plan.gateways[1].admin)/ready")
  }

  /// A metric of the h2c gateway, summed over its labels; nil if the gateway does not answer.
  func gatewayMetric(_ name: String) async -> Double? {
    try? await Scrape.sum(name, of: stack.plan.gateways[1].admin)
  }
}

/// Samples a process's resident memory ten times a second.
actor MemoryWatch {
  private let processID: Int32
  private(set) var first = 0
  private(set) var highest = 0
  private var task: Task<Void, Never>?

  init(_ process: ChildProcess) {
    processID = process.processID
    first = Self.residentBytes(process.processID)
  }

  func start() {
    task = Task {
      while !Task.isCancelled {
        sample()
        try? await Task.sleep(for: .milliseconds(100))
      }
    }
  }

  /// The largest growth of the process, in bytes.
  func stop() -> Int {
    task?.cancel()
    sample()
    return highest - first
  }

  private func sample() { highest = max(highest, Self.residentBytes(processID)) }

  private static func residentBytes(_ processID: Int32) -> Int {
    let status = (try? String(contentsOfFile: "/proc/\(processID)/status", encoding: .utf8)) ?? ""
    let line = status.split(separator: "\n").first { $0.hasPrefix("VmRSS:") }
    return
      (line?.split(whereSeparator: { $0 == " " || $0 == "\t" }).dropFirst().first.flatMap { Int($0) } ?? 0)
      << 10
  }
}
