import Foundation
import LocalStack
import TestPrograms
import TestSupport
import Testing

/// Code blocks of a page of the docs, which run as printed.
enum CodeBlocks {
  /// All blocks of a language, in order.
  static func blocks(_ language: String, of page: String) throws -> [String] {
    let text = try String(contentsOfFile: TestServices.packageRoot + "/docs/" + page, encoding: .utf8)
    return try text.components(separatedBy: "\n```\(language)\n").dropFirst().map { block in
      guard let end = block.range(of: "\n```\n") else {
        throw Unexpected("docs/\(page) has a block of \(language) without an end")
      }
      return String(block[..<end.lowerBound])
    }
  }

  /// The only block of a language.
  static func block(_ language: String, of page: String) throws -> String {
    let blocks = try blocks(language, of: page)
    guard blocks.count == 1 else {
      throw Unexpected("docs/\(page) has \(blocks.count) blocks of \(language), not one")
    }
    return blocks[0]
  }

  /// Replace the document's ports and folders by a pair's; everything else stays as printed.
  static func here(_ text: String, _ services: TestServices) -> String {
    text.replacingOccurrences(of: "https://localhost:8443", with: services.tlsURL)
      .replacingOccurrences(of: "http://127.0.0.1:8080", with: services.h2cURL)
      .replacingOccurrences(of: ".tidemark/", with: services.directory + "/")
      .replacingOccurrences(of: ".build/debug", with: TestServices.binaries)
  }
}

extension RealProcesses {
  /// The examples of docs/api/events.md run: `tidemark watch`, curl over TLS and h2c, and Python's httpx over both.
  @Suite struct DocumentedStreams {
    private static let channel = "/v1/channels/messaging:tour"
    /// The time limit for a response.
    private static let secondsMax = 120

    @Test func documentedEventCommandsRun() async throws {
      try await Self.withTour { services in
        let lines = try CodeBlocks.block("sh", of: "api/events.md").split(separator: "\n").map(String.init)
        #expect(lines.count == 4)
        for (number, command) in lines.dropFirst().enumerated() {
          let script = CodeBlocks.here("\(lines[0])\nexec \(command)", services)
          let stream = try Companion("/bin/bash", ["-c", script], limit: .seconds(Self.secondsMax))
          defer { stream.end() }
          try await Self.waitUntilOpen(command.contains("http://") ? 1 : 0, services)
          let id = "m\(number)"
          try await Self.register(id, services)
          try await Self.readByBob(id, services)
          if command.contains("watch") {
            try await Self.wait(
              stream,
              for: ["message.read              bob read up to \(id) in messaging:tour"]
            )
            try await Self.wait(
              stream,
              for: ["message.status            alice's \(id) is read in messaging:tour"]
            )
          } else {
            let read = [
              #"data: {"type":"message.read""#, #""id":"bob""#, #""last_read_message_id":"\#(id)""#,
            ]
            try await Self.wait(stream, for: read)
            try await Self.wait(stream, for: ["id: "])
            try await Self.wait(stream, for: ["event: message.status"])
            try await Self.wait(stream, for: [#""last_message_id":"\#(id)","status":"read""#])
          }
        }
      }
    }

    /// The client resumes after its gateway was killed: events from the outage come first.
    @Test(arguments: [true, false])
    func httpxExampleResumesAfterGatewayKill(usesTLS: Bool) async throws {
      try await Self.withTour { services in
        let script = CodeBlocks.here(try CodeBlocks.block("python", of: "api/events.md"), services)
        let stream = try Companion(
          TestServices.python,
          ["-c", usesTLS ? script : script.replacingOccurrences(of: services.tlsURL, with: services.h2cURL)],
          limit: .seconds(Self.secondsMax)
        )
        defer { stream.end() }
        let gateway = usesTLS ? 0 : 1
        try await Self.waitUntilOpen(gateway, services)
        try await Self.register("m1", services)
        try await Self.wait(stream, for: ["message.new {"])
        await services.stack.killGateway(gateway)
        try await Self.readByBob("m1", services, overTLS: !usesTLS)
        try await services.stack.startGateway(gateway)
        try await Self.wait(
          stream,
          for: ["message.read {", "'user': {'id': 'bob'}", "'last_read_message_id': 'm1'"]
        )
      }
    }

    // MARK: Steps

    /// A pair as `make run` leaves it, with the channel of docs/guides/tour.md.
    private static func withTour(_ body: (TestServices) async throws -> Void) async throws {
      try await TestServices.with { services in
        try await (services.token("alice") + "\n").write(
          toFile: services.directory + "/alice.token",
          atomically: true,
          encoding: .utf8
        )
        let members = #"{"members":["alice","bob"]}"#
        try await services.expect(201, "PUT", channel, token: services.serverToken, json: members)
        try await body(services)
      }
    }

    /// Wait for a line that has all of these parts.
    private static func wait(_ stream: Companion, for parts: [String]) async throws {
      var lines: [String] = []
      while let line = await stream.line() {
        if parts.allSatisfy(line.contains) { return }
        lines.append(line)
      }
      throw Unexpected("no line with \(parts) among \(lines)")
    }

    /// Wait until the gateway has an open stream: only streams that are already open get new events.
    private static func waitUntilOpen(_ gateway: Int, _ services: TestServices) async throws {
      let admin = services.stack.plan.gateways[gateway].admin
      try await eventually("a stream of events is open") {
        try await Scrape.value("tidemark_gateway_event_streams", of: admin) == 1
      }
    }

    private static func register(_ id: String, _ services: TestServices) async throws {
      let message = #"{"id":"\#(id)","user_id":"alice"}"#
      try await services.expect(
        201,
        "POST",
        channel + "/messages",
        token: services.serverToken,
        json: message
      )
    }

    /// - Parameter overTLS: through the services' first gateway.
    private static func readByBob(_ id: String, _ services: TestServices, overTLS: Bool = false) async throws {
      let output = try await Command.run(
        "curl",
        [
          "-sSf", "--max-time", "20", overTLS ? "--http2" : "--http2-prior-knowledge", "--cacert",
          services.certificate, "-H", "authorization: Bearer \(try await services.token("bob"))", "-H",
          "content-type: application/json", "-d", #"{"message_id":"\#(id)"}"#,
          (overTLS ? services.tlsURL : services.h2cURL) + channel + "/read",
        ]
      )
      guard output.status == 0 else { throw Unexpected("bob cannot read \(id): \(output)") }
    }
  }
}
