import Foundation
import LocalStack
import TestPrograms
import Testing

extension Companion {
  /// Plays a case of a script of `Clients`: its last line has to begin with `ok`, and no gateway may have ended by
  /// itself.
  ///
  /// - Parameters:
  ///   - specification: what the script reads as JSON.
  ///   - body: hears the script to its end, and returns its last line.
  static func play(
    _ script: String,
    _ name: String,
    _ specification: [String: Any],
    _ pair: Pair,
    _ body: (Companion) async throws -> String
  ) async throws {
    try await play(script, name, specification, pair.stack, in: pair.directory, body)
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
    let companion = try Companion(Pair.python, [Pair.client(script), name, path])
    defer { companion.end() }
    let last = try await body(companion)
    #expect(last.hasPrefix("ok "), "\(name): \(last) \(companion.errors)")
    print(name, last)
    for gateway in await stack.gatewayProcesses { #expect(gateway.isRunning) }
  }

  /// Hears the script to its end.
  ///
  /// - Parameter pair: where the script says `restart`, the second gateway of this is killed and started again, and the
  ///   script told `done`.
  /// - Returns: its last line.
  func lastLine(restartingIn pair: Pair? = nil) async throws -> String {
    var last = ""
    for await line in lines {
      last = line
      guard let pair, line == "restart" else { continue }
      await pair.stack.killGateway(1)
      try await pair.stack.startGateway(1)
      send("done")
    }
    return last
  }
}
