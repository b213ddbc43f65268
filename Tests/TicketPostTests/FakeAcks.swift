import HTTP2Session
import NIOCore
import NIOPosix
import Operations

/// A gateway that knows one route, and answers each request with the next of its answers.
final class FakeAcks: HTTP2ServerDelegate {
  struct Request: Hashable, Sendable {
    var path: String
    var authorization: String
    var contentType: String
    var body: String
  }

  private let answers: [(status: Int, body: String)]
  private(set) var requests: [Request] = []

  init(_ answers: [(status: Int, body: String)]) { self.answers = answers }

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
    guard requests.count <= answers.count else { return connection.fail(.internalError) }
    let answer = answers[requests.count - 1]
    connection.respond(stream, status: answer.status) { $0.writeString(answer.body) }
  }

  /// Plays the answers on a free loopback port while `body` runs. `body` can ask for the requests that came.
  static func run<Value>(
    _ answers: [(status: Int, body: String)],
    _ body: (Endpoint, () async throws -> [Request]) async throws -> Value
  ) async throws -> Value {
    let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
    let loop = group.next()
    let shared = try await loop.submit {
      NIOLoopBound((FakeAcks(answers), HTTP2ServerResources()), eventLoop: loop)
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
