import Foundation
import GatewayClient
import LocalStack
import Operations
import TestPrograms
import TestSupport
import Testing

extension RealProcesses {
  /// Maintenance of a running installation behind the shipped HAProxy costs no request: the steps of
  /// docs/operate/deploy.md and docs/operate/operations.md, under load.
  @Suite struct Restarts {
    private static let channel = "/v1/channels/messaging:restarts"

    /// The number of store restarts.
    private static let restarts = TestRun.number("TIDEMARK_RESTARTS") ?? TestRun.count(3, long: 20)

    /// How long the store is unavailable: HAProxy notices an unready gateway within 2.5 s, and a request waits for 5 s.
    private static let away = Duration.milliseconds(2_800)

    /// A stopped or killed store that is back before a command's deadline costs no request.
    @Test func storeRestartCostsNoRequest() async throws {
      try await LoadBalancedServices.with { services in
        let body = try await Self.prepare(services)
        var short = 0
        var attempts = 0
        while short < Self.restarts, attempts < 3 * Self.restarts {
          attempts += 1
          let load = BalancedLoad.streams(services, path: Self.channel + "/read", body: body)
          try await Self.moreAnswers(load)
          let left = ContinuousClock.now
          if attempts % 2 == 0 { await services.stack.killStore() } else { await services.stack.stopStore() }
          try await Task.sleep(for: Self.away)
          try await services.stack.startStore()
          try await Self.moreAnswers(load)
          let away = ContinuousClock.now - left
          let result = try await load.end()
          // On a busy machine a restart may take longer than the guarantee covers: such a round proves nothing.
          if away < .milliseconds(4_500) {
            short += 1
            #expect(result.faults.isEmpty, "restart \(short), away \(away): \(result)")
          } else {
            // HAProxy may have taken gateways out: the next round begins with both.
            for name in ["gateway-1", "gateway-2"] { try await services.wait(for: name, toBe: "UP") }
          }
        }
        #expect(short == Self.restarts, "only \(short) of \(attempts) restarts were short")
        print("\(short) store restarts behind HAProxy under load")
      }
    }

    /// The order in docs/operate/operations.md: gateways get the new secret, then the store, then all drop the old one.
    @Test func frameSecretRotates() async throws {
      try await LoadBalancedServices.with { services in
        let body = try await Self.prepare(services)
        let files = services.stack.files
        let old = try String(contentsOfFile: files.frameSecret, encoding: .utf8)
        let new = "a-frame-secret-that-was-not-there-before\n"
        let load = BalancedLoad.streams(services, path: Self.channel + "/read", body: body)
        func restart(gateway number: Int) async throws {
          let answered = load.result.answered
          await services.stack.stopGateway(number)
          try await services.stack.startGateway(number)
          try await services.wait(for: "gateway-\(number + 1)", toBe: "UP")
          try await Self.moreAnswers(load, than: answered)
        }
        func restartStore() async throws {
          let answered = load.result.answered
          await services.stack.stopStore()
          try await services.stack.startStore()
          try await Self.moreAnswers(load, than: answered)
        }
        try await Self.moreAnswers(load)
        try files.write(new + old, to: files.frameSecret)
        for number in 0...1 { try await restart(gateway: number) }
        try await restartStore()
        try files.write(new, to: files.frameSecret)
        try await restartStore()
        for number in 0...1 { try await restart(gateway: number) }
        let result = try await load.end()
        #expect(result.faults.isEmpty, "\(result)")
      }
    }

    /// A reload with a new certificate: meanwhile no connection is refused, and an open stream stays open.
    @Test func certificateReloads() async throws {
      try await LoadBalancedServices.with { services in
        let body = try await Self.prepare(services)
        let files = services.stack.files
        let events = try ChildProcess(
          name: "curl",
          executable: "/usr/bin/env",
          arguments: [
            "curl", "-sSN", "--http2", "--cacert", services.certificate, "-H",
            "authorization: Bearer \(services.serverToken)",
            services.url + "/v1/events?channels=messaging:restarts",
          ],
          logFile: files.log(of: "events")
        )
        defer { events.signal(SIGKILL) }
        func streamContains(_ text: String) -> Bool {
          (try? String(contentsOfFile: files.log(of: "events"), encoding: .utf8))?.contains(text) == true
        }
        try await eventually("the stream of events is open") { streamContains(":") }

        let load = BalancedLoad.connections(services, path: Self.channel + "/read", body: body)
        try await Self.moreAnswers(load)
        let new = try LoopbackCertificate.makeSelfSigned(now: Date())
        let certificate = services.directory + "/new-certificate.pem"
        try files.write(new.certificate, to: certificate)
        func accepted(_ trusted: String) async throws -> Bool {
          let arguments = ["-sS", "-o", "/dev/null", "--max-time", "30", "--cacert", trusted, services.url]
          return try await Command.run("curl", arguments).status == 0
        }
        #expect(try await accepted(services.certificate))
        #expect(try await !accepted(certificate))
        try files.write(
          new.certificate + "\n" + new.key + "\n",
          to: LoadBalancedServices.certificateAndKey(files)
        )
        services.haproxy.signal(SIGUSR2)
        try await eventually("HAProxy shows the new certificate") { try await accepted(certificate) }
        #expect(try await !accepted(services.certificate))
        try await Self.moreAnswers(load)
        let result = try await load.end()
        #expect(result.faults.isEmpty, "\(result)")

        let registered = try await services.curl(
          "POST",
          Self.channel + "/messages",
          token: services.serverToken,
          json: #"{"id":"after-the-reload","user_id":"alice"}"#,
          arguments: ["--cacert", certificate]
        )
        #expect(registered.status == 201, "\(registered)")
        try await eventually("the stream from before the reload continues") {
          streamContains("after-the-reload")
        }
        #expect(events.isRunning)
      }
    }

    /// The standby of docs/api/availability.md. After the store is lost, another process at another address takes over
    /// its data directory. Gateways that know both addresses reconnect to it. A mark sent in between is answered.
    @Test func standbyTakesOverDataDirectory() async throws {
      let directory = NSTemporaryDirectory() + "tidemark-test-\(UUID().uuidString)"
      try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
      defer { try? FileManager.default.removeItem(atPath: directory) }
      let ports = try LoopbackPorts.free(6)
      let gateway = StackPlan.Gateway(
        name: "tidemark-gateway",
        listen: ports[2],
        admin: ports[3],
        usesTLS: false,
        flags: ["--store", "\(ports[0]),\(ports[4])"]
      )
      let executables = try Executables(directory: TestServices.binaries)
      let stack = LocalStack(
        plan: StackPlan(store: ports[0], storeAdmin: ports[1], gateways: [gateway]),
        files: StackFiles(directory: directory),
        executables: executables
      )
      var standby: ChildProcess?
      do {
        try await stack.start()
        let token = try await TokenIssuer(secretFile: stack.files.jwtSecret).server(lifetime: .seconds(3600))
        func call(_ method: String, _ path: String, _ json: String? = nil) async throws -> String {
          let body = json.map { ["-H", "content-type: application/json", "-d", $0] } ?? []
          let output = try await Command.run(
            "curl",
            [
              "-sS", "--max-time", "30", "--http2-prior-knowledge", "-X", method, "-H",
              "authorization: Bearer \(token)", "http://\(ports[2])" + path,
            ] + body
          )
          return output.out + output.error
        }
        _ = try await call("PUT", Self.channel, #"{"members":["alice","bob"]}"#)
        _ = try await call("POST", Self.channel + "/messages", #"{"id":"m1","user_id":"alice"}"#)
        await stack.killStore()
        async let marked = call("POST", Self.channel + "/read", #"{"message_id":"m1","user_id":"bob"}"#)
        standby = try ChildProcess(
          name: "standby",
          executable: executables.store,
          arguments: [
            "--data", stack.files.data, "--listen", "\(ports[4])", "--secret-file", stack.files.frameSecret,
            "--admin",
            "\(ports[5])",
          ],
          logFile: stack.files.log(of: "standby")
        )
        let row = try await marked
        #expect(row.contains(#""last_read_message_id":"m1""#), "\(row)")
        let status = try await call("GET", Self.channel + "/messages/m1/status")
        #expect(status.contains(#""status":"read""#), "\(status)")
      } catch {
        await standby?.stop()
        await stack.stop()
        throw error
      }
      await standby?.stop()
      await stack.stop()
    }

    /// Wait until the load has received more responses.
    private static func moreAnswers(_ load: BalancedLoad, than before: Int? = nil) async throws {
      let start = before ?? load.result.answered
      try await eventually("the load gets more answers: \(load.result)") {
        load.result.answered > start || !load.result.faults.isEmpty
      }
    }

    /// Make the channel and a message; return the path of a file with the body of a read mark.
    private static func prepare(_ services: LoadBalancedServices) async throws -> String {
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
      let path = services.directory + "/body.json"
      try services.stack.files.write(#"{"user_id":"bob"}"#, to: path)
      return path
    }
  }
}
