import Foundation
import GatewayClient
import LocalStack
import Operations
import TestPrograms
import TestSupport
import Testing

/// A store, two h2c gateways, and HAProxy in front of them with the deployed configuration, on free loopback ports.
struct LoadBalancedServices: Sendable {
  /// One request's answer, as curl reports it.
  struct Response: Sendable {
    var version: String
    var status: Int
    var body: String
    var headers: String
    var failure: String
  }

  static let configuration = TestServices.packageRoot + "/Deploy/haproxy/haproxy.cfg"

  let stack: LocalStack
  let haproxy: ChildProcess
  let listen: Endpoint
  let operations: Endpoint
  let directory: String
  let serverToken: String
  let tokenIssuer: TokenIssuer

  var url: String { "https://localhost:\(listen.port)" }
  var certificate: String { stack.files.certificate }

  /// Start all processes, wait until HAProxy has found both gateways, run `body`, and always stop the processes.
  static func with(gatewayFlags: [String] = [], _ body: (LoadBalancedServices) async throws -> Void)
    async throws
  {
    let directory = NSTemporaryDirectory() + "tidemark-test-\(UUID().uuidString)"
    try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(atPath: directory) }
    let ports = try LoopbackPorts.free(8)
    var plan = StackPlan(
      store: ports[0],
      storeAdmin: ports[1],
      gateways: [
        StackPlan.Gateway(name: "gateway-1", listen: ports[2], admin: ports[3], usesTLS: false),
        StackPlan.Gateway(name: "gateway-2", listen: ports[4], admin: ports[5], usesTLS: false),
      ]
    )
    // HAProxy passes on the client address of each connection.
    let proxyFlags = ["--trusted-proxies", source, "--proxy-protocol"]
    for index in plan.gateways.indices { plan.gateways[index].flags = proxyFlags + gatewayFlags }
    let stack = LocalStack(
      plan: plan,
      files: StackFiles(directory: directory),
      executables: try Executables(directory: TestServices.binaries)
    )
    do {
      try await stack.start()
      let haproxy = try start(
        gateways: zip(plan.gateways.map(\.listen), plan.gateways.map(\.admin.port)).map { ($0, $1) },
        listen: ports[6],
        operations: ports[7],
        files: stack.files
      )
      do {
        let tokenIssuer = try await TokenIssuer(secretFile: stack.files.jwtSecret)
        let services = LoadBalancedServices(
          stack: stack,
          haproxy: haproxy,
          listen: ports[6],
          operations: ports[7],
          directory: directory,
          serverToken: try await tokenIssuer.server(lifetime: .seconds(3600)),
          tokenIssuer: tokenIssuer
        )
        for gateway in plan.gateways { try await services.wait(for: gateway.name, toBe: "UP") }
        try await body(services)
      } catch {
        await haproxy.stop(grace: .seconds(1))
        throw error
      }
      await haproxy.stop(grace: .seconds(1))
    } catch {
      await stack.stop()
      throw error
    }
    await stack.stop()
  }

  /// HAProxy with the committed file; the variables of the file set what differs from a deployment.
  static func start(
    gateways: [(listen: Endpoint, adminPort: Int)],
    listen: Endpoint,
    operations: Endpoint,
    files: StackFiles
  ) throws -> ChildProcess {
    guard let program = Executables.find("haproxy") else { throw Unexpected("haproxy is not installed") }
    return try ChildProcess(
      name: "haproxy",
      executable: "/usr/bin/env",
      arguments: try environment(gateways: gateways, listen: listen, operations: operations, files: files) + [
        // As the image's entry point does: a master process, which reloads the file and the certificate on SIGUSR2.
        program, "-W", "-db", "-f", configuration,
      ],
      logFile: files.log(of: "haproxy")
    )
  }

  /// The address from which HAProxy connects to the gateways.
  private static let source = "127.0.0.9"

  /// The file from which HAProxy loads its certificate.
  static func certificateAndKey(_ files: StackFiles) -> String { files.directory + "/haproxy.pem" }

  /// The file's variables, as arguments of env(1).
  static func environment(
    gateways: [(listen: Endpoint, adminPort: Int)],
    listen: Endpoint,
    operations: Endpoint,
    files: StackFiles
  ) throws -> [String] {
    let both = try [files.certificate, files.key].map { try String(contentsOfFile: $0, encoding: .utf8) }
    let pem = certificateAndKey(files)
    try files.write(both.joined(separator: "\n") + "\n", to: pem)
    var variables = [
      "LB_LISTEN=\(listen)", "LB_OPERATIONS=\(operations)", "LB_CERTIFICATE=\(pem)", "LB_MAXCONN=4000",
      "LB_SOURCE=\(source)",
    ]
    for (index, gateway) in gateways.enumerated() {
      variables += [
        "LB_GATEWAY_\(index + 1)=\(gateway.listen)", "LB_GATEWAY_\(index + 1)_ADMIN=\(gateway.adminPort)",
      ]
    }
    return variables
  }

  /// One request with curl through HAProxy. A request without a response fails after 30 s.
  func curl(
    _ method: String,
    _ path: String,
    token: String? = nil,
    json: String? = nil,
    arguments: [String] = []
  ) async throws -> Response {
    let headers = "\(directory)/\(UUID().uuidString).headers"
    var line = [
      "-sS", "--max-time", "30", "--http2", "--cacert", certificate, "-X", method, "-D", headers, "-w",
      "\n%{http_version} %{http_code}", url + path,
    ]
    if let token { line += ["-H", "authorization: Bearer \(token)"] }
    if let json { line += ["-H", "content-type: application/json", "--data-binary", json] }
    let output = try await Command.run("curl", line + arguments)
    let lines = output.out.split(separator: "\n", omittingEmptySubsequences: false)
    let last = (lines.last ?? "").split(separator: " ")
    return Response(
      version: String(last.first ?? ""),
      status: Int(last.last ?? "") ?? 0,
      body: lines.dropLast().joined(separator: "\n"),
      headers: ((try? String(contentsOfFile: headers, encoding: .utf8)) ?? "").lowercased(),
      failure: output.status == 0 ? "" : output.error
    )
  }

  /// The same request, which must be answered with `status` over HTTP/2; returns the body.
  @discardableResult
  func expect(
    _ status: Int,
    _ method: String,
    _ path: String,
    token: String? = nil,
    json: String? = nil
  ) async throws -> String {
    let response = try await curl(method, path, token: token, json: json)
    guard response.status == status, response.version == "2", response.failure.isEmpty else {
      throw Unexpected("\(method) \(path): \(response), not \(status)")
    }
    return response.body
  }

  /// HAProxy's state of one of its servers: `UP`, `DOWN` and so on.
  func state(of server: String) async throws -> String {
    let output = try await Command.run("curl", ["-sS", "--max-time", "5", "http://\(operations)/stats;csv"])
    let row = output.out.split(separator: "\n").first { $0.hasPrefix("gateways,\(server),") }
    let fields = row?.split(separator: ",", omittingEmptySubsequences: false) ?? []
    return fields.count > 17 ? String(fields[17]) : "not listed: \(output.error)"
  }

  func wait(for server: String, toBe wanted: String) async throws {
    var last = ""
    do {
      try await eventually("\(server) to be \(wanted) to HAProxy", pollInterval: .milliseconds(50)) {
        last = try await state(of: server)
        guard haproxy.isRunning else { throw Unexpected("HAProxy has exited") }
        return last == wanted
      }
    } catch {
      let log = (try? String(contentsOfFile: stack.files.log(of: "haproxy"), encoding: .utf8)) ?? ""
      throw Unexpected("\(server) is \(last) to HAProxy, not \(wanted): \(error): \(log.suffix(2000))")
    }
  }

  /// The number of requests that a gateway has answered, by its own count.
  func answered(byGateway index: Int) async throws -> Int {
    Int(try await Scrape.sum("tidemark_gateway_requests_total", of: stack.plan.gateways[index].admin))
  }
}
