package import HTTP2Session
package import NIOCore
import NIOPosix
package import Operations

/// Run a delegate's server on a free loopback port while `body` runs.
package func withServer<Delegate: HTTP2ServerDelegate & SendableMetatype, Value>(
  _ delegate: @escaping @Sendable () -> Delegate,
  streamedContentTypes: [HTTP2ContentType] = [],
  _ body: (Endpoint, NIOLoopBound<Delegate>) async throws -> Value
) async throws -> Value {
  let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
  let loop = group.next()
  let shared = try await loop.submit {
    NIOLoopBound(
      (delegate(), HTTP2ServerResources(streamedContentTypes: streamedContentTypes)),
      eventLoop: loop
    )
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
  let bound = try await loop.submit { NIOLoopBound(shared.value.0, eventLoop: loop) }.get()
  let result: Result<Value, any Error>
  do {
    let endpoint = Endpoint(host: "127.0.0.1", port: server.localAddress?.port ?? 0)
    result = .success(try await body(endpoint, bound))
  } catch {
    result = .failure(error)
  }
  try await server.close()
  try await group.shutdownGracefully()
  return try result.get()
}
