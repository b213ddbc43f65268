import HTTP2Session
import NIOCore
import Operations
import TestPrograms

/// A fake gateway with one route, which answers each request with the next of its responses.
final class FakeAcks: HTTP2ServerDelegate {
  struct Request: Hashable, Sendable {
    var path: String
    var authorization: String
    var contentType: String
    var body: String
  }

  private let responses: [(status: Int, body: String)]
  private(set) var requests: [Request] = []

  init(_ responses: [(status: Int, body: String)]) { self.responses = responses }

  func http2RequestReceived(_ stream: HTTP2StreamHandle, on connection: HTTP2ServerConnection<FakeAcks>) {
    func text(_ span: RawSpan) -> String { span.withUnsafeBytes { String(decoding: $0, as: UTF8.self) } }
    let request = connection.withRequest(stream) { request in
      Request(
        path: text(request.path),
        authorization: text(request.authorization),
        contentType: request.header("content-type")?.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
          ?? "",
        body: text(request.body)
      )
    }
    guard let request else { return }
    requests.append(request)
    guard requests.count <= responses.count else { return connection.fail(.internalError) }
    let response = responses[requests.count - 1]
    connection.respond(stream, status: response.status) { $0.writeString(response.body) }
  }

  /// Serve the responses on a free loopback port while `body` runs. `body` can ask for the received requests.
  static func run<Value>(
    _ responses: [(status: Int, body: String)],
    _ body: (Endpoint, () async throws -> [Request]) async throws -> Value
  ) async throws -> Value {
    try await withServer({ FakeAcks(responses) }) { endpoint, server in
      try await body(endpoint) { try await server.eventLoop.submit { server.value.requests }.get() }
    }
  }
}
