import Foundation
import LocalStack
import Testing
import TestPrograms

extension TestServices {
  /// Run a well-behaved client beside an attack (`Clients/Hostile/well_behaved_client.py`): 50 requests a second on one
  /// connection to the h2c gateway. Each must be answered with a status below 300, and no process of the services may
  /// end.
  ///
  /// - Parameters:
  ///   - method: the method of the request, which has no body.
  ///   - path: its path.
  ///   - token: its token.
  ///   - attack: what happens meanwhile.
  func withWellBehavedClient<Result>(
    _ method: String,
    _ path: String,
    token: String,
    beside name: String,
    _ attack: () async throws -> Result
  ) async throws -> Result {
    let pids = try await [gatewayProcess, storeProcess].map { Int($0.processID) }
    let specification: [String: Any] = [
      "port": h2cPort, "method": method, "path": path, "token": token, "pids": pids,
    ]
    let file = directory + "/well-behaved-client.json"
    try JSONSerialization.data(withJSONObject: specification).write(to: URL(fileURLWithPath: file))
    let client = try Companion(
      TestServices.python,
      [TestServices.client("Hostile/well_behaved_client.py"), file]
    )
    defer { client.end() }
    let first = await client.line()
    try #require(first == "ready", "\(first ?? "") \(client.errors)")
    let result = try await attack()
    client.closeInput()
    let last = await client.line() ?? "the client ended"
    #expect(last.hasPrefix("ok "), "beside \(name): \(last) \(client.errors)")
    print("beside", name, last)
    return result
  }
}
