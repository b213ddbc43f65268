import LocalStack
import TestPrograms
import TestSupport
import Testing

extension RealProcesses {
  /// Python scripts of `Clients/API` that check rules over HTTP against the real services.
  @Suite struct RouteScripts {
    /// A script, and the arguments that follow the gateway's URL and the file of the token secret.
    struct Script: CustomTestStringConvertible, Sendable {
      var name: String
      var arguments: [String] = []

      var testDescription: String { ([name] + arguments).joined(separator: " ") }

      /// Run the script against services of its own.
      func run() async throws -> Command.Output {
        var output: Command.Output?
        try await TestServices.with { services in
          output = try await Command.run(
            TestServices.python,
            [TestServices.client("API/\(name).py"), services.h2cURL, services.stack.files.jwtSecret] + arguments
          )
        }
        return try #require(output)
      }
    }

    private static let rules = [
      // The same id with other fields is a conflict.
      Script(name: "message_rules", arguments: ["conflicts"]),
      // R20: an acknowledgement's time lies between the registration and now.
      Script(name: "message_rules", arguments: ["impossible_times"]),
      // R4: `mark_unread: public` takes reads back, never deliveries.
      Script(name: "message_rules", arguments: ["public_unread"]),
      // R6 on every route and in events: two channels that differ only before a member joined under hidden history
      // look the same to that member.
      Script(name: "history_routes"),
      // A user's token gets the same answers whether an id of a channel or a user exists or not.
      Script(name: "existence_routes"),
      // Routes with which backends reconcile, and bulk queries and commands.
      Script(name: "rosters"),
    ]

    @Test(arguments: rules)
    func rulesHoldOnAllRoutes(_ script: Script) async throws {
      let output = try await script.run()
      #expect(output.status == 0 && output.out.hasPrefix("ok "), "\(output)")
      print(output.out, terminator: "")
    }

    /// R7 on every route: the reads of a hidden user appear in no other user's answers.
    @Test func hiddenActionsAreInvisible() async throws {
      let seed = TestRun.printedSeed(of: "leaks on routes")
      let output = try await Script(name: "leak_routes", arguments: ["\(seed)", "8"]).run()
      #expect(output.status == 0 && output.out.hasPrefix("ok "), "seed \(seed): \(output)")
      print(output.out, terminator: "")
    }

    /// The receipt features of the hosted products (docs/api/semantics.md, "Feature list"), and a member's own state
    /// with the effect of a send on its sender (R4, R5, R14). A script prints one line for each feature.
    @Test(arguments: [(Script(name: "hosted_features"), 32), (Script(name: "own_marks"), 8)])
    func hostedFeaturesAreAvailable(_ script: Script, _ featureCount: Int) async throws {
      let output = try await script.run()
      let lines = output.out.split(separator: "\n").map(String.init)
      for failure in lines where failure.hasPrefix("FAILED") { Issue.record("\(failure): \(output.error)") }
      #expect(output.status == 0, "\(output)")
      #expect(lines.count { $0.hasPrefix("ok ") } == featureCount, "\(output.out)")
    }
  }
}
