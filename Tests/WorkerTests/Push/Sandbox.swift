import Foundation
import Operations
import TestSupport

@testable import PushSandbox
@testable import Worker

/// A sandbox that runs while a test's body runs.
struct Sandbox: Sendable {
  let server: SandboxServer
  let files: SandboxFiles
  private let control: CheckedEndpoint

  static func with<Value>(_ body: (Sandbox) async throws -> Value) async throws -> Value {
    let folder = NSTemporaryDirectory() + "tidemark-push-sandbox-\(UUID().uuidString)"
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let files = SandboxFiles(directory: folder)
    let keys = try SandboxKeys.loadOrCreate(files)
    guard let endpoint = Endpoint("127.0.0.1:0") else { throw Unexpected("no endpoint") }
    let server = try await SandboxServer.start(at: endpoint, keys: keys, poster: nil)
    try files.writeTasks(port: server.port)
    guard let url = EndpointURL("https://localhost:\(server.port)") else { throw Unexpected("no URL") }
    let control = CheckedEndpoint(
      CheckedEndpoint.Settings(
        url: url,
        timeoutMilliseconds: 20_000,
        connectionCountMax: 1,
        allowsPrivateAddresses: true,
        authorityFile: files.authority,
        bodyByteCountMax: 1 << 20
      ),
      lookup: HostResolver.system
    )
    let sandbox = Sandbox(server: server, files: files, control: control)
    let result: Result<Value, any Error>
    do { result = .success(try await body(sandbox)) } catch { result = .failure(error) }
    await control.shutDown()
    await server.stop()
    return try result.get()
  }

  /// The section `push` of its tasks file.
  func task() throws -> PushTask {
    guard let task = try TasksFile.load(files.tasks, warn: { _ in }).push else { throw Unexpected("no push section") }
    return task
  }

  private func post(_ path: String, _ body: JSONValue) async throws -> JSONValue {
    let response = try await control.post(path, headers: [("content-type", "application/json")], body: body.bytes).get()
    guard (200..<300).contains(response.status), let value = JSONValue(parsing: response.body) else {
      throw Unexpected("\(path): \(response.status) \(String(decoding: response.body, as: UTF8.self))")
    }
    return value
  }

  func addDevice(_ kind: String) async throws -> JSONValue {
    try await post("/sandbox/devices", .object(["kind": .string(kind)]))
  }

  func addFault(_ fault: String, kind: String) async throws {
    _ = try await post("/sandbox/faults", .object(["fault": .string(fault), "kind": .string(kind)]))
  }

  /// The pushes that have reached a device.
  func deliveries() async throws -> [JSONValue] { server.deliveries.array ?? [] }
}
