import Foundation
import LocalStack
import TestPrograms
import Testing

extension Companion {
  /// Run a case of a script in `Clients`: its last line must begin with `ok`, and no gateway may have exited by
  /// itself.
  ///
  /// - Parameters:
  ///   - specification: the JSON that the script reads.
  ///   - body: reads the script's output to its end, and returns its last line.
  static func play(
    _ script: String,
    _ name: String,
    _ specification: [String: Any],
    _ services: TestServices,
    _ body: (Companion) async throws -> String
  ) async throws {
    try await play(script, name, specification, services.stack, in: services.directory, body)
  }

  /// The same with other gateways than a pair's.
  static func play(
    _ script: String,
    _ name: String,
    _ specification: [String: Any],
    _ stack: LocalStack,
    in directory: String,
    _ body: (Companion) async throws -> String
  ) async throws {
    let path = directory + "/specification.json"
    try JSONSerialization.data(withJSONObject: specification).write(to: URL(fileURLWithPath: path))
    let companion = try Companion(TestServices.python, [TestServices.client(script), name, path])
    defer { companion.end() }
    let last = try await body(companion)
    #expect(last.hasPrefix("ok "), "\(name): \(last) \(companion.errors)")
    print(name, last)
    for gateway in await stack.gatewayProcesses { #expect(gateway.isRunning) }
  }

  /// Read the script's output to its end.
  ///
  /// - Parameter pair: on the line `restart`, this pair's second gateway is killed and restarted, and the script gets
  ///   `done`.
  /// - Returns: the last line.
  func lastLine(restartingIn services: TestServices? = nil) async throws -> String {
    var last = ""
    for await line in lines {
      last = line
      guard let services, line == "restart" else { continue }
      await services.stack.killGateway(1)
      try await services.stack.startGateway(1)
      send("done")
    }
    return last
  }
}
