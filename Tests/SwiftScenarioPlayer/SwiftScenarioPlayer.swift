import Foundation

/// Plays SDK/scenario.json with TidemarkClient: the same steps and expected states as other SDKs.
///
/// `SwiftScenarioPlayer <settings.json> <scenario.json>`: settings are `{ "url", "jwtSecretFile", "admin" }`, the last
/// one the gateway's operations listener. The system has to trust the gateway's certificate. Steps of the host, such as
/// a gateway that is killed, are printed as `@name`; the host answers `done`. Exits with 1 at the first state that is
/// not as expected within 60 s.
@main struct SwiftScenarioPlayer {
  private struct Scenario: Decodable {
    var steps: [[String: [String: JSONValue]]]
  }

  static func main() async {
    do {
      guard CommandLine.arguments.count == 3 else { throw Failure("usage: SwiftScenarioPlayer SETTINGS SCENARIO") }
      let settings = try read(Settings.self, CommandLine.arguments[1])
      let scenario = try read(Scenario.self, CommandLine.arguments[2])
      try await Player(Backend(settings)).play(scenario.steps)
      write("\(scenario.steps.count) steps, all as expected")
    } catch {
      write("\(error)")
      exit(1)
    }
  }

  private static func read<Value: Decodable>(_: Value.Type, _ path: String) throws -> Value {
    try JSONDecoder().decode(Value.self, from: Data(contentsOf: URL(fileURLWithPath: path)))
  }
}
