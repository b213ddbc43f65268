import HTTP2Session
import NIOCore
import Operations
import TestPrograms

/// A fake gateway that answers each request for events with the next of its responses.
final class FakeEvents: HTTP2ServerDelegate {
  enum Response: Sendable {
    /// Pieces of an event stream, each in its own write; then the stream ends, or stays open.
    case stream([String], thenEnds: Bool)
    /// The stream is reset.
    case broken
    case problem(Int, String, retryAfter: String)
  }

  struct Request: Hashable, Sendable {
    var path: String
    var authorization: String
    var lastEventID: String
  }

  private let responses: [Response]
  private(set) var requests: [Request] = []

  init(_ responses: [Response]) { self.responses = responses }

  func http2RequestReceived(_ stream: HTTP2StreamHandle, on connection: HTTP2ServerConnection<FakeEvents>) {
    func text(_ span: RawSpan) -> String { span.withUnsafeBytes { String(decoding: $0, as: UTF8.self) } }
    let request = connection.withRequest(stream) { request in
      Request(
        path: text(request.path),
        authorization: text(request.authorization),
        lastEventID: request.header("last-event-id")?.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
          ?? ""
      )
    }
    guard let request else { return }
    requests.append(request)
    guard requests.count <= responses.count else { return connection.fail(.internalError) }
    switch responses[requests.count - 1] {
    case .stream(let pieces, let thenEnds):
      connection.startStreaming(stream, status: 200, contentType: .eventStream)
      for piece in pieces { connection.write(stream, ByteBuffer(string: piece)) }
      if thenEnds { connection.finish(stream) }
    case .broken: connection.reset(stream, .internalError)
    case .problem(let status, let body, let retryAfter):
      let headers = retryAfter.isEmpty ? [] : [HTTP2Header("retry-after", retryAfter)]
      connection.respond(stream, status: status, contentType: .problem, headers: headers) {
        $0.writeString(body)
      }
    }
  }

  /// Serve the responses on a free loopback port while `body` runs. `body` can ask for the received requests.
  static func run<Value>(
    _ responses: [Response],
    _ body: (Endpoint, () async throws -> [Request]) async throws -> Value
  ) async throws -> Value {
    try await withServer({ FakeEvents(responses) }) { endpoint, server in
      try await body(endpoint) { try await server.eventLoop.submit { server.value.requests }.get() }
    }
  }
}
