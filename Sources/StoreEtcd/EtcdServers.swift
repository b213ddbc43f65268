internal import HTTP2Session
internal import NIOCore
internal import Operations

/// The servers of one etcd cluster. Calls go to the current one. A failed call turns to the next; a server that cannot
/// be reached is left out for a while.
final class EtcdServers {
  private struct Server {
    let endpoint: Endpoint
    var connection: EtcdConnection?
    /// Connections that ended without an answered call, one after the other.
    var failures = 0
    var retryAt = NIODeadline.uptimeNanoseconds(0)
  }

  /// Largest exponent of a delay, so that it does not overflow.
  private static let doublingsMax = 10

  private let configuration: EtcdConfiguration
  private let eventLoop: any EventLoop
  private let resources: HTTP2ClientResources
  private let report: (EtcdFailure, Endpoint) -> Void
  private var servers: [Server]
  private var current = 0
  private var isClosed = false

  init(
    configuration: EtcdConfiguration,
    eventLoop: any EventLoop,
    report: @escaping (EtcdFailure, Endpoint) -> Void
  ) {
    self.configuration = configuration
    self.eventLoop = eventLoop
    self.report = report
    var limits = HTTP2ClientLimits()
    limits.bodyBytesMax = configuration.responseBytesMax
    limits.retainedBufferBytesMax = 256 << 10
    resources = HTTP2ClientResources(limits: limits)
    servers = configuration.endpoints.map { Server(endpoint: $0) }
  }

  /// Make a unary call at the current server. A response that does not parse is a failure like others.
  func call<Value>(
    _ method: EtcdMethod,
    _ body: ByteBuffer,
    parse: @escaping (ByteBuffer) throws(EtcdWireError) -> Value,
    done: @escaping (Result<Value, EtcdFailure>) -> Void
  ) {
    guard let (index, connection) = connection() else {
      eventLoop.assumeIsolated().execute { done(.failure(.noServer)) }
      return
    }
    connection.call(method, body) { [self] result in
      let result = result.flatMap { Self.parse($0, parse) }
      switch result {
      case .success: servers[index].failures = 0
      case .failure(let failure): failed(failure, index, connection)
      }
      done(result)
    }
  }

  /// Open a stream at the current server. A message that does not parse ends it.
  ///
  /// - Returns: a function that cancels the stream; nil if no server can be tried now.
  func open<Message>(
    _ method: EtcdMethod,
    _ body: ByteBuffer,
    parse: @escaping (ByteBuffer) throws(EtcdWireError) -> Message,
    receive: @escaping (EtcdStreamEvent<Message>) -> Void
  ) -> (() -> Void)? {
    guard let (index, connection) = connection() else { return nil }
    var token: UInt64 = 0
    func ended(_ failure: EtcdFailure) {
      failed(failure, index, connection)
      receive(.ended(failure))
    }
    token = connection.open(method, body) { event in
      switch event {
      case .ended(let failure): ended(failure)
      case .message(let bytes):
        switch Self.parse(bytes, parse) {
        case .success(let message): receive(.message(message))
        case .failure(let failure):
          connection.cancel(token)
          ended(failure)
        }
      }
    }
    return { connection.cancel(token) }
  }

  private static func parse<Value>(
    _ bytes: ByteBuffer,
    _ parse: (ByteBuffer) throws(EtcdWireError) -> Value
  ) -> Result<Value, EtcdFailure> {
    do throws(EtcdWireError) {
      return .success(try parse(bytes))
    } catch {
      return .failure(.malformed(error))
    }
  }

  /// Close all connections. Open calls fail.
  func close() {
    isClosed = true
    for index in servers.indices { servers[index].connection?.close(.connectionLost) }
  }

  /// Return the current server's connection, or the next server's that may be tried now.
  private func connection() -> (Int, EtcdConnection)? {
    guard !isClosed else { return nil }
    let now = eventLoop.now
    for offset in servers.indices {
      let index = (current + offset) % servers.count
      if let connection = servers[index].connection {
        current = index
        return (index, connection)
      }
      guard servers[index].retryAt <= now else { continue }
      current = index
      let connection = EtcdConnection(
        endpoint: servers[index].endpoint,
        configuration: configuration,
        resources: resources,
        eventLoop: eventLoop
      ) { [weak self] in self?.closed(index, $0, $1) }
      servers[index].connection = connection
      return (index, connection)
    }
    return nil
  }

  private func failed(_ failure: EtcdFailure, _ index: Int, _ connection: EtcdConnection) {
    guard failure.isOfServer, !isClosed else { return }
    // The end of a connection is reported once, not for each of its calls.
    if failure != .connectionLost { report(failure, servers[index].endpoint) }
    // Several calls that fail together turn once.
    if index == current, servers[index].connection === connection { current = (current + 1) % servers.count }
  }

  private func closed(_ index: Int, _ connection: EtcdConnection, _ failure: EtcdFailure) {
    guard servers[index].connection === connection else { return }
    servers[index].connection = nil
    guard !isClosed else { return }
    let doublings = min(servers[index].failures, Self.doublingsMax)
    let longest = min(configuration.backoffMax.nanoseconds, configuration.backoffMin.nanoseconds << doublings)
    servers[index].retryAt = eventLoop.now + .nanoseconds(Int64.random(in: longest / 2...longest))
    servers[index].failures += 1
    if index == current { current = (current + 1) % servers.count }
    if failure != .timedOut { report(failure, servers[index].endpoint) }
  }
}
