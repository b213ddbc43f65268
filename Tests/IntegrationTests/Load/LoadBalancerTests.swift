import Foundation
import GatewayClient
import Glibc
import LocalStack
import Operations
import TestPrograms
import TestSupport
import Testing

extension RealProcesses {
  /// The real services behind a real HAProxy with the deployed configuration.
  @Suite struct LoadBalancer {
    static let channel = "/v1/channels/messaging:balanced"

    /// A receipt from a client's TLS to the store and back. Both gateways take part.
    @Test func receiptsPassThroughHAProxy() async throws {
      try await LoadBalancedServices.with { services in
        try await Self.prepare(services)
        let alice = try await services.tokenIssuer.user("alice", lifetime: .seconds(3600))
        let bob = try await services.tokenIssuer.user("bob", lifetime: .seconds(3600))
        let before = try await services.expect(
          200,
          "GET",
          Self.channel + "/messages/m1/status",
          token: alice
        )
        #expect(before.contains(#""status":"sent""#), "\(before)")
        let row = try await services.expect(
          200,
          "POST",
          Self.channel + "/read",
          token: bob,
          json: #"{"message_id":"m1"}"#
        )
        #expect(row.contains(#""last_read_message_id":"m1""#), "\(row)")
        // Round robin: both gateways get requests, and a change through one is visible through the other.
        for _ in 0..<4 {
          let after = try await services.expect(
            200,
            "GET",
            Self.channel + "/messages/m1/status",
            token: alice
          )
          #expect(after.contains(#""status":"read""#), "\(after)")
        }
        for index in 0...1 {
          #expect(
            try await services.answered(byGateway: index) >= 2,
            "gateway \(index + 1) got no traffic"
          )
        }
        // A gateway's error document passes through unchanged.
        let refused = try await services.curl("GET", Self.channel, token: "nonsense")
        #expect(
          refused.status == 401 && refused.body.contains(#""code":"token_malformed""#),
          "\(refused)"
        )
        // A caller without HTTP/2 is served as well.
        let old = try await services.curl(
          "GET",
          Self.channel,
          token: services.serverToken,
          arguments: ["--http1.1"]
        )
        #expect(old.version == "1.1" && old.status == 200, "\(old)")
      }
    }

    /// A gateway that dies or drains under load costs no request: requests that it refused or did not answer go to
    /// the other.
    @Test(arguments: [SIGKILL, SIGTERM])
    func gatewayLossCostsNoRequest(signal: Int32) async throws {
      try await LoadBalancedServices.with { services in
        try await Self.prepare(services)
        let total = 40_000
        async let load = Command.run(
          "h2load",
          [
            "-n", "\(total)", "-c", "4", "-m", "8", "-N", "30", "-d", try Self.body(services),
            "-H",
            "authorization: Bearer \(services.serverToken)", "-H", "content-type: application/json",
            services.url + Self.channel + "/read",
          ]
        )
        let gateway = await services.stack.gatewayProcesses[0]
        let atFirst = try await services.answered(byGateway: 0)
        // In the middle of the load, by the gateway's own count.
        try await eventually("gateway-1 has answered 500 requests") {
          try await services.answered(byGateway: 0) >= atFirst + 500
        }
        gateway.signal(signal)
        let status = try await within("the end of the gateway") { await gateway.waitForExit() }
        let output = try await load
        #expect(status == (signal == SIGTERM ? .exited(code: 0) : .signalled(signal)))
        #expect(
          output.out.contains("\(total) succeeded, 0 failed, 0 errored, 0 timeout"),
          "\(output)"
        )
        #expect(output.out.contains("status codes: \(total) 2xx"), "\(output)")
        // The gateway was gone before the end: the other one answered most of the requests.
        #expect(try await services.answered(byGateway: 1) > total / 2)

        try await services.wait(for: "gateway-1", toBe: "DOWN")
        #expect(try await services.state(of: "gateway-2") == "UP")
        for _ in 0..<6 { try await services.expect(200, "GET", Self.channel, token: services.serverToken) }
      }
    }

    /// One address has a tenth of HAProxy's connections; the others are closed at once, and other addresses are served.
    @Test func oneAddressCannotTakeAllConnections() async throws {
      try await LoadBalancedServices.with { services in
        try await Self.prepare(services)
        let script = TestServices.client("Load/many_connections.py")
        let crowd = try Companion(TestServices.python, [script, "\(services.listen.port)", "450", "50"])
        defer { crowd.end() }
        let counts = try await within("the count of closed connections") {
          for await line in crowd.lines { return line }
          return crowd.errors
        }
        #expect(counts == "open 400 closed 50")
        try await services.expect(200, "GET", Self.channel, token: services.serverToken)
      }
    }

    /// Without any gateway, and before HAProxy has noticed, callers get the API's own errors; no request hangs.
    @Test func withoutGatewaysCallersGetErrors() async throws {
      try await LoadBalancedServices.with { services in
        try await Self.prepare(services)
        for gateway in await services.stack.gatewayProcesses {
          gateway.signal(SIGKILL)
          _ = try await within("the end of the gateway") { await gateway.waitForExit() }
        }
        for _ in 0...1 {
          for json in [nil, #"{"user_id":"bob"}"#] {
            let response = try await services.curl(
              json == nil ? "GET" : "POST",
              json == nil ? Self.channel : Self.channel + "/read",
              token: services.serverToken,
              json: json
            )
            #expect(response.status == 503 && response.failure.isEmpty, "\(response)")
            #expect(response.body.contains(#""code":"gateway_unavailable""#), "\(response)")
            #expect(response.headers.contains("content-type: application/problem+json"), "\(response)")
            #expect(response.headers.contains("retry-after: 1"), "\(response)")
          }
          for name in ["gateway-1", "gateway-2"] { try await services.wait(for: name, toBe: "DOWN") }
        }
        let health = try await Command.run(
          "curl",
          ["-sS", "-w", " %{http_code}", "http://\(services.operations)/health"]
        )
        #expect(health.out.hasSuffix(" 503"), "\(health)")
      }
    }

    /// The headers that gateways get beside the request. nghttpd takes a gateway's place, behind an nghttpx that
    /// accepts the PROXY header.
    @Test func gatewaysGetForwardedHeaders() async throws {
      let directory = NSTemporaryDirectory() + "tidemark-test-\(UUID().uuidString)"
      try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
      defer { try? FileManager.default.removeItem(atPath: directory) }
      let files = StackFiles(directory: directory)
      try files.prepare()
      // A file to serve under /ready, for HAProxy's check. Python's server speaks HTTP/1.1, as the operations
      // listener does.
      try files.write("ready", to: directory + "/ready")
      let ports = try LoopbackPorts.free(7)
      guard let nghttpd = Executables.find("nghttpd"), let nghttpx = Executables.find("nghttpx") else {
        throw Unexpected("nghttpd or nghttpx is not installed")
      }
      var children: [ChildProcess] = []
      func finish() async { for child in children { await child.stop(grace: .seconds(1)) } }
      do {
        children.append(
          try ChildProcess(
            name: "nghttpd",
            executable: nghttpd,
            arguments: ["-v", "--no-tls", "-a", "127.0.0.1", "-d", directory, "\(ports[6].port)"],
            logFile: files.log(of: "nghttpd")
          )
        )
        children.append(
          try ChildProcess(
            name: "nghttpx",
            executable: nghttpx,
            arguments: [
              "--frontend=127.0.0.1,\(ports[0].port);no-tls;proxyproto",
              "--backend=127.0.0.1,\(ports[6].port);;proto=h2",
              "--no-add-x-forwarded-proto", "--no-strip-incoming-x-forwarded-proto",
            ],
            logFile: files.log(of: "nghttpx")
          )
        )
        children.append(
          try ChildProcess(
            name: "python",
            executable: TestServices.python,
            arguments: [
              "-m", "http.server", "--bind", "127.0.0.1", "--directory", directory, "\(ports[1].port)",
            ],
            logFile: files.log(of: "python")
          )
        )
        let haproxy = try LoadBalancedServices.start(
          gateways: [(ports[0], ports[1].port), (ports[2], ports[3].port)],
          listen: ports[4],
          operations: ports[5],
          files: files
        )
        children.append(haproxy)
        let tokenIssuer = try await TokenIssuer(secretFile: files.jwtSecret)
        let stack = LocalStack(
          plan: StackPlan(store: ports[2], storeAdmin: ports[3], gateways: []),
          files: files,
          executables: try Executables(directory: TestServices.binaries)
        )
        let services = LoadBalancedServices(
          stack: stack,
          haproxy: haproxy,
          listen: ports[4],
          operations: ports[5],
          directory: directory,
          serverToken: "",
          tokenIssuer: tokenIssuer
        )
        try await services.wait(for: "gateway-1", toBe: "UP")
        let response = try await services.curl(
          "GET",
          "/ready?access_token=private",
          arguments: ["-H", "x-forwarded-for: 203.0.113.7", "-H", "x-forwarded-proto: gopher"]
        )
        #expect(response.status == 200, "\(response)")
        // A failing request, for the log: HAProxy logs the failure without the path.
        _ = try await services.curl("GET", "/nowhere?access_token=private")
      } catch {
        await finish()
        throw error
      }
      await finish()
      let seen = try String(contentsOfFile: files.log(of: "nghttpd"), encoding: .utf8)
      #expect(seen.contains("x-forwarded-for: 127.0.0.1"), "\(seen)")
      #expect(seen.contains("x-forwarded-proto: https"), "\(seen)")
      #expect(!seen.contains("203.0.113.7") && !seen.contains("gopher"), "\(seen)")
      let log = try String(contentsOfFile: files.log(of: "haproxy"), encoding: .utf8)
      #expect(!log.isEmpty && !log.contains("private") && !log.contains("nowhere"), "\(log)")
    }

    private static func prepare(_ services: LoadBalancedServices) async throws {
      try await services.expect(
        201,
        "PUT",
        channel,
        token: services.serverToken,
        json: #"{"members":["alice","bob"]}"#
      )
      try await services.expect(
        201,
        "POST",
        channel + "/messages",
        token: services.serverToken,
        json: #"{"id":"m1","user_id":"alice"}"#
      )
    }

    private static func body(_ services: LoadBalancedServices) throws -> String {
      let path = services.directory + "/body.json"
      try services.stack.files.write(#"{"user_id":"bob"}"#, to: path)
      return path
    }
  }
}
