import Foundation
import LocalStack
import Operations
import TestPrograms
import TestSupport
import Testing

/// The tools that `make test` installs from PyPI (Clients/requirements.txt), beside the programs' folder.
enum PythonTools {
  static let directory =
    URL(fileURLWithPath: TestServices.binaries).deletingLastPathComponent().path + "/python/bin"
  static var areInstalled: Bool { FileManager.default.isExecutableFile(atPath: directory + "/schemathesis") }
}

extension RealProcesses {
  /// Checks Proto/openapi.yaml, and the real programs against it with schemathesis. schemathesis generates valid and
  /// invalid requests from the file, and checks every response.
  ///
  /// It speaks only HTTP/1.1, so nghttpx stands in front of the gateway. `make test` installs both; without PyPI
  /// these tests are skipped.
  @Suite(
    .needs(
      PythonTools.areInstalled,
      "schemathesis is not installed: `make test-deps` gets it from PyPI"
    )
  )
  struct OpenAPI {
    private static let checks = [
      "not_a_server_error", "status_code_conformance", "content_type_conformance",
      "response_headers_conformance",
      "response_schema_conformance",
    ]
    /// Operations that remove the objects of the other requests.
    private static let removals = [
      "delete_channel", "truncate_channel", "delete_user", "delete_message", "delete_consumer",
    ]

    @Test func specificationAndExamplesAreValid() async throws {
      let output = try await Command.run(
        PythonTools.directory + "/python",
        [TestServices.client("API/schema_check.py"), TestServices.packageRoot + "/Proto/openapi.yaml"]
      )
      #expect(output.status == 0, "\(output.out)\(output.error)")
    }

    @Test func answersConformToSpecification() async throws {
      let seed = TestRun.printedSeed(of: "answers as openapi.yaml has them")
      try await TestServices.with(storeFlags: ["--feed-retention", "1h"]) { services in
        try await Self.prepare(services)
        let port = try LoopbackPorts.free(1)[0].port
        guard let program = Executables.find("nghttpx") else { throw Unexpected("nghttpx is not installed") }
        let proxy = try ChildProcess(
          name: "nghttpx",
          executable: program,
          arguments: [
            "--conf=/dev/null", "--workers=1", "--accesslog-file=/dev/null",
            "--frontend=127.0.0.1,\(port);no-tls",
            "--backend=127.0.0.1,\(services.h2cPort);;proto=h2",
          ],
          logFile: services.stack.files.log(of: "nghttpx")
        )
        do {
          let url = "http://127.0.0.1:\(port)"
          let ready = try await Command.run(
            "curl",
            [
              "-sSf", "--retry", "50", "--retry-delay", "1", "--retry-connrefused", "-o", "/dev/null",
              url + "/v1/openapi.yaml",
            ]
          )
          guard ready.status == 0 else { throw Unexpected("nghttpx does not serve: \(ready.error)") }
          // A user's run comes first: with a user's rights it removes nothing that the server's run needs. The
          // server's run changes settings and deletes objects.
          let bob = try await services.token("bob")
          // A stream of events or of the feed does not end, so each one would run until the time-out. Other tests
          // cover their errors and content.
          let finite = ["events", "read_feed"].flatMap { ["--exclude-operation-id", $0] }
          let kept = finite + Self.removals.flatMap { ["--exclude-operation-id", $0] }
          let removed = Self.removals.flatMap { ["--include-operation-id", $0] }
          for (name, token, routes) in [
            ("a user", bob, finite), ("a server", services.serverToken, kept),
            ("a server that removes", services.serverToken, removed),
          ] {
            let output = try await Self.ask(url, token, routes, seed, services)
            // The summary is at the end; the failures come before it, each with its request.
            print(output.out.suffix(700))
            #expect(output.status == 0, "\(name): TIDEMARK_SEED=\(seed)\n\(output.out)\(output.error)")
          }
        } catch {
          await proxy.stop(grace: .seconds(1))
          throw error
        }
        await proxy.stop(grace: .seconds(1))
      }
    }

    private static func ask(
      _ url: String,
      _ token: String,
      _ routes: [String],
      _ seed: Int,
      _ services: TestServices
    ) async throws -> Command.Output {
      try await Command.run(
        PythonTools.directory + "/schemathesis",
        [
          "--config-file", TestServices.client("API/schemathesis.toml"), "run", url + "/v1/openapi.yaml",
          "--no-color",
          "--header", "authorization: Bearer \(token)", "--seed", "\(seed)", "--max-examples",
          "\(TestRun.count(5, long: 200))",
          "--phases", "examples,coverage,fuzzing", "--checks", checks.joined(separator: ","),
          "--continue-on-failure",
          "--no-shrink", "--generation-database", "none", "--request-timeout", "20", "--warnings", "off",
        ] + routes,
        // schemathesis writes files to its working directory.
        directory: services.directory,
        environment: ["PYTHONPATH": TestServices.client("API")]
      )
    }

    /// Create the objects that the file's examples name.
    private static func prepare(_ services: TestServices) async throws {
      let server = services.serverToken
      try await services.expect(
        200,
        "PUT",
        "/v1/channel-types/messaging",
        token: server,
        json: #"{"kept_steps":64}"#
      )
      for (cid, members) in [
        ("messaging:general", #"["alice","bob","carol"]"#), ("messaging:random", #"["bob"]"#),
      ] {
        try await services.expect(
          201,
          "PUT",
          "/v1/channels/\(cid)",
          token: server,
          json: #"{"members":\#(members)}"#
        )
      }
      for message in [
        #"{"id":"m1","user_id":"alice"}"#, #"{"id":"m2","user_id":"alice","receipt":true}"#,
        #"{"id":"r1","user_id":"alice","parent_id":"m1"}"#,
      ] {
        try await services.expect(
          201,
          "POST",
          "/v1/channels/messaging:general/messages",
          token: server,
          json: message
        )
      }
      for user in ["bob", "carol"] {
        try await services.expect(
          201,
          "POST",
          "/v1/channels/delivered",
          token: server,
          json: #"{"latest_delivered_messages":[{"cid":"messaging:general","id":"m1"}],"user_id":"\#(user)"}"#
        )
      }
      try await services.expect(
        200,
        "POST",
        "/v1/channels/messaging:general/read",
        token: server,
        json: #"{"message_id":"m1","user_id":"bob"}"#
      )
      try await services.expect(
        201,
        "PUT",
        "/v1/feed/consumers/search-index",
        token: server,
        json: #"{"from":"earliest","types":["read","delivered"],"channel_types":["messaging"]}"#
      )
    }
  }
}
