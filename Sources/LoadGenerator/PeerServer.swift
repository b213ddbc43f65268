internal import Foundation
internal import HTTP2Session
internal import LocalStack
internal import Operations

/// nghttpd, the measure: nghttp2's own server, one thread, answering a file of twelve bytes.
struct PeerServer: Sendable {
  static let name = "nghttpd"
  static let path = "/12.txt"
  private static let content = "hello world\n"

  let endpoint: Endpoint
  let process: ChildProcess

  /// Starts it; a later ``ChildProcess/stop(grace:)`` is the caller's.
  static func start(directory: String) async throws -> PeerServer {
    guard let program = Executables.find(name) else {
      throw LoadError("nghttpd is not installed: apt-get install nghttp2-server")
    }
    let documents = directory + "/www"
    try FileManager.default.createDirectory(atPath: documents, withIntermediateDirectories: true)
    try Data(content.utf8).write(to: URL(fileURLWithPath: documents + path))
    let endpoint = try LoopbackPorts.free(1)[0]
    let process = try ChildProcess(
      name: name,
      executable: program,
      arguments: ["--no-tls", "-d", documents, "-a", endpoint.host, "\(endpoint.port)"],
      logFile: directory + "/nghttpd.log"
    )
    let server = PeerServer(endpoint: endpoint, process: process)
    do {
      try await server.waitUntilReady()
    } catch {
      await process.stop()
      throw error
    }
    return server
  }

  private func waitUntilReady() async throws {
    for _ in 0..<200 where process.isRunning {
      if let caller = try? await HTTP2Caller.connect(to: endpoint) {
        let answer = try await caller.call(.get, Self.path)
        await caller.close()
        guard answer.status == 200, answer.text == Self.content else {
          throw LoadError("nghttpd answered its file with \(answer.status)")
        }
        return
      }
      try await Task.sleep(for: .milliseconds(20))
    }
    throw LoadError("nghttpd did not start")
  }
}
