internal import CommandOutput
internal import Foundation
internal import GatewayClient
internal import HTTP2Session
internal import LocalStack
internal import Operations
internal import TLSSession

/// The push provider of the demo, a sandbox that stands in for APNs, with a simulated phone; and the worker that sends
/// to it what the backend queues (docs/api/push-send.md).
struct DemoPush {
  /// Address of the simulated phone, for the jobs of the queue.
  let deviceToken: String
  private let sandbox: ChildProcess
  private let worker: ChildProcess

  /// The command that a person would type, shortened: without the gateway and its secret.
  static let commandLine = "tidemark-worker push --queue --config tasks.yaml"

  private struct Device: Decodable { var token: String }

  /// Start sandbox and worker.
  ///
  /// - Parameter directory: the directory that contains `tidemark-worker`.
  static func start(_ stack: LocalStack, programs directory: String) async throws -> DemoPush {
    let program = directory + "/tidemark-worker"
    guard FileManager.default.isExecutableFile(atPath: program) else {
      throw StackError("\(program) is not there: build it into the directory of the others (make build)")
    }
    let files = stack.files
    let gateway = [
      "--gateway", "https://\(stack.plan.gateways[0].listen)", "--gateway-ca", files.certificate,
    ]
    let endpoint = try LoopbackPorts.free(1)[0]
    let own = files.directory + "/sandbox"
    let sandbox = try ChildProcess(
      name: "sandbox",
      executable: program,
      arguments: ["sandbox", "--listen", "\(endpoint)", "--directory", own] + gateway,
      logFile: files.log(of: "sandbox")
    )
    do {
      // Written once it listens.
      let tasks = own + "/tasks.yaml"
      try await waitForFile(tasks, of: sandbox)
      let token = try await makeDevice(at: endpoint, authority: own + "/ca.pem")
      let worker = try ChildProcess(
        name: "tidemark-worker",
        executable: program,
        arguments: ["push", "--queue", "--config", tasks, "--jwt-secret-file", files.jwtSecret] + gateway,
        logFile: files.log(of: "tidemark-worker")
      )
      return DemoPush(deviceToken: token, sandbox: sandbox, worker: worker)
    } catch {
      await sandbox.stop()
      throw error
    }
  }

  func stop() async {
    await worker.stop()
    await sandbox.stop()
  }

  private static func waitForFile(_ path: String, of process: ChildProcess) async throws {
    for _ in 0..<600 {
      if FileManager.default.fileExists(atPath: path) { return }
      try await Task.sleep(for: .milliseconds(50))
    }
    throw StackError("\(process.name) does not listen after 30 s")
  }

  /// Make a simulated iPhone.
  ///
  /// - Returns: its device token.
  private static func makeDevice(at sandbox: Endpoint, authority: String) async throws -> String {
    let tls = try TLSContext(client: TLSClientConfiguration(authorityFile: authority))
    let caller = try await AsyncHTTP2Client.connect(to: sandbox, tls: tls)
    let response = try await caller.call(.post, "/sandbox/devices", body: Array(#"{"kind":"apns"}"#.utf8))
    await caller.close()
    guard let device = try? JSONDecoder().decode(Device.self, from: Data(response.body)) else {
      throw StackError("the sandbox answered \(response.status): \(response.text)")
    }
    return device.token
  }
}

extension Demo {
  /// Act 4: show a push from the backend's job to the tick: the queue, the worker, a stand-in for APNs, and a phone
  /// that posts the ticket of the push.
  func playQueuedPush(_ stack: LocalStack, programs: String, _ conversation: Conversation, _ style: TextStyle)
    async throws
  {
    try await conversation.narrate(
      "the backend queues a push to carol's phone; the worker sends it through a sandbox that stands in for APNs"
    )
    conversation.printLine(style.grey("$ " + DemoPush.commandLine))
    let push = try await DemoPush.start(stack, programs: programs)
    try await withCleanup {
      try await conversation.client.queuePush(of: "alice-4", to: "carol", device: push.deviceToken)
      conversation.printLine("carol's phone gets it, and posts the ticket that came with it")
      try await conversation.show(
        "read by bob and carol, delivered to dan",
        "read by alice and carol, delivered to dan",
        "read by alice and bob, delivered to dan",
        "delivered to carol and dan"
      )
    } cleanUp: {
      await push.stop()
    }
  }
}
