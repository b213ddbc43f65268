import Foundation
import GatewayClient
import Glibc
import LocalStack
import Operations
import TestPrograms
import TestSupport
import Testing

/// The real programs on free loopback ports, with fresh data in a directory of its own, for one test.
struct TestServices: Sendable {
  let stack: LocalStack
  let directory: String
  let serverToken: String
  let tokenIssuer: TokenIssuer

  /// Base URL of the first gateway: TLS, by ALPN.
  var tlsURL: String { "https://localhost:\(stack.plan.gateways[0].listen.port)" }
  /// Base URL of the second gateway: h2c, by prior knowledge.
  var h2cURL: String { "http://127.0.0.1:\(h2cPort)" }
  var h2cPort: Int { stack.plan.gateways[1].listen.port }
  var certificate: String { stack.files.certificate }

  func token(_ user: String) async throws -> String {
    try await tokenIssuer.user(user, lifetime: .seconds(3600))
  }

  /// The log of a program so far.
  func log(of program: String) throws -> String {
    try String(contentsOfFile: stack.files.log(of: program), encoding: .utf8)
  }

  /// Start a store, a TLS gateway and an h2c gateway, run `body`, and always stop them.
  ///
  /// - Parameters:
  ///   - storeFlags: further flags of the store.
  ///   - storeVariables: added to the store's environment.
  ///   - gatewayFlags: further flags of both gateways.
  ///   - nodes: number of a cluster's nodes; 1: a single store.
  ///   - usesTLS: whether the first gateway uses TLS.
  ///   - prepare: writes files into the services' directory before any process starts.
  static func with(
    storeFlags: [String] = [],
    storeVariables: [String: String] = [:],
    gatewayFlags: [String] = [],
    nodes: Int = 1,
    usesTLS: Bool = true,
    prepare: (StackFiles) async throws -> Void = { _ in },
    _ body: (TestServices) async throws -> Void
  ) async throws {
    let directory = NSTemporaryDirectory() + "tidemark-test-\(UUID().uuidString)"
    try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(atPath: directory) }
    try await prepare(StackFiles(directory: directory))
    let ports = try LoopbackPorts.free(6)
    var plan = StackPlan(
      store: ports[0],
      storeAdmin: ports[1],
      gateways: [
        StackPlan.Gateway(name: "gateway-tls", listen: ports[2], admin: ports[3], usesTLS: usesTLS),
        StackPlan.Gateway(name: "gateway-h2c", listen: ports[4], admin: ports[5], usesTLS: false),
      ]
    )
    plan.storeFlags = storeFlags
    plan.storeVariables = storeVariables
    for index in plan.gateways.indices { plan.gateways[index].flags = gatewayFlags }
    if nodes > 1 {
      plan.cluster = try ClusterPlan(nodes: nodes, first: ClusterPlan.Node(listen: ports[0], admin: ports[1]))
    }
    let stack = LocalStack(
      plan: plan,
      files: StackFiles(directory: directory),
      executables: try Executables(directory: binaries)
    )
    do {
      try await stack.start()
      let tokenIssuer = try await TokenIssuer(secretFile: stack.files.jwtSecret)
      let server = try await tokenIssuer.server(lifetime: .seconds(3600))
      try await body(
        TestServices(stack: stack, directory: directory, serverToken: server, tokenIssuer: tokenIssuer)
      )
    } catch {
      await stack.stop()
      throw error
    }
    await stack.stop()
  }

  /// The folder of the built programs: TIDEMARK_BIN, or the build folder of this test's own package.
  static var binaries: String {
    ProcessInfo.processInfo.environment["TIDEMARK_BIN"] ?? packageRoot + "/.build/debug"
  }

  static let packageRoot = TestSupport.packageRoot.path

  /// Return the path of a file in `Clients`.
  static func client(_ name: String) -> String { packageRoot + "/Tests/IntegrationTests/Clients/" + name }

  /// Debian's own interpreter, for which the foreign HTTP/2 libraries are installed, with the modules of
  /// `Clients/Shared`.
  static let python = client("python")

  // MARK: curl

  /// Send one request with curl over h2c; return the status and the body.
  func curl(
    _ method: String,
    _ path: String,
    token: String? = nil,
    json: String? = nil,
    arguments: [String] = []
  ) async throws -> (status: Int, body: String) {
    var line = [
      "-sS", "--max-time", "20", "--http2-prior-knowledge", "-X", method, "-w", "\n%{http_code}",
      h2cURL + path,
    ]
    if let token { line += ["-H", "authorization: Bearer \(token)"] }
    if let json { line += ["-H", "content-type: application/json", "--data-binary", json] }
    let output = try await Command.run("curl", line + arguments)
    let lines = output.out.split(separator: "\n", omittingEmptySubsequences: false)
    return (Int(lines.last ?? "") ?? 0, lines.dropLast().joined(separator: "\n"))
  }

  /// The same request, which must be answered with `status`; returns the JSON object.
  @discardableResult
  func expect(
    _ status: Int,
    _ method: String,
    _ path: String,
    token: String? = nil,
    json: String? = nil,
    arguments: [String] = []
  ) async throws -> [String: Any] {
    let response = try await curl(method, path, token: token, json: json, arguments: arguments)
    guard response.status == status else {
      throw Unexpected("\(method) \(path): \(response.status), not \(status): \(response.body)")
    }
    return (try? JSONSerialization.jsonObject(with: Data(response.body.utf8)) as? [String: Any]) ?? [:]
  }

  /// Make a channel with members alice and bob, and a message by alice.
  func makeChannel(_ cid: String, message: String) async throws {
    let path = "/v1/channels/\(cid)"
    try await expect(201, "PUT", path, token: serverToken, json: #"{"members":["alice","bob"]}"#)
    let json = #"{"id":"\#(message)","user_id":"alice"}"#
    try await expect(201, "POST", path + "/messages", token: serverToken, json: json)
  }
}

extension TestServices {
  /// Wait for a response of the store's `/ready`.
  ///
  /// - Parameter text: a part of the response.
  func waitForStore(_ status: Int, saying text: String = "") async throws {
    let url = "http://\(stack.plan.storeAdmin)/ready"
    try await eventually("the store's /ready answers \(status) \(text)") {
      let response = try await Command.run("curl", ["-sS", "--max-time", "10", "-w", "\n%{http_code}", url])
        .out
      return response.hasSuffix("\n\(status)") && (text.isEmpty || response.contains(text))
    }
  }
}
