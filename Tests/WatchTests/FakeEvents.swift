import HTTP2Session
import NIOCore
import NIOPosix
import Operations

/// Answers each request for events with the next of its answers.
final class FakeEvents: HTTP2ServerDelegate {
  enum Answer: Sendable {
    /// Pieces of an event stream, each in a write of its own; then it ends, or stays open.
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

  private let answers: [Answer]
  private(set) var requests: [Request] = []

  init(_ answers: [Answer]) { self.answers = answers }

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
    guard requests.count <= answers.count else { return connection.fail(.internalError) }
    switch answers[requests.count - 1] {
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

  /// Plays the answers on a free loopback port while `body` runs. `body` can ask for the requests that came.
  static func run<Value>(
    _ answers: [Answer],
    _ body: (Endpoint, () async throws -> [Request]) async throws -> Value
  ) async throws -> Value {
    let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
    let loop = group.next()
    let shared = try await loop.submit {
      NIOLoopBound((FakeEvents(answers), HTTP2ServerResources()), eventLoop: loop)
    }.get()
    let server = try await ServerBootstrap(group: group)
      .childChannelInitializer { channel in
        channel.eventLoop.makeCompletedFuture {
          try channel.pipeline.syncOperations.addHandler(
            HTTP2ServerConnection(delegate: shared.value.0, resources: shared.value.1)
          )
        }
      }
      .bind(host: "127.0.0.1", port: 0).get()
    let result: Result<Value, any Error>
    do {
      let endpoint = Endpoint(host: "127.0.0.1", port: server.localAddress?.port ?? 0)
      let value = try await body(endpoint) { try await loop.submit { shared.value.0.requests }.get() }
      result = .success(value)
    } catch {
      result = .failure(error)
    }
    try await server.close()
    try await group.shutdownGracefully()
    return try result.get()
  }
}
