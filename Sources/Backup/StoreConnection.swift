internal import LinkSecurity
internal import Logging
internal import NIOCore
internal import NIOPosix
internal import Operations
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient
internal import TLSSession

/// Single connection to a store. Its requests belong to it, and are not resent on another.
struct StoreConnection: Sendable {
  private let requests: NIOLoopBound<ConnectionRequests>

  /// Connect and authenticate both sides with the secret.
  static func open(_ store: Endpoint, secrets: [[UInt8]], tls: LinkTLS?) async throws -> StoreConnection {
    let eventLoop = MultiThreadedEventLoopGroup.singleton.next()
    return try await eventLoop.flatSubmit {
      let requests = ConnectionRequests(store, eventLoop)
      let bound = NIOLoopBound(requests, eventLoop: eventLoop)
      return requests.open(secrets: secrets, tls: tls).map { StoreConnection(requests: bound) }
    }.get()
  }

  /// Send a request and return its reply's payload.
  ///
  /// - Parameter timeout: the connection is closed if there is no reply within it.
  func request(
    _ kind: FrameKind,
    timeout: TimeAmount = .seconds(60),
    _ fields: @escaping @Sendable (inout ByteBuffer) -> Void = { _ in }
  ) async throws -> ByteBuffer {
    let requests = requests
    return try await requests.eventLoop.flatSubmit {
      requests.value.send(kind, timeout: timeout, fields)
    }.get()
  }

  func close() async {
    let requests = requests
    try? await requests.eventLoop.flatSubmit { requests.value.close() }.get()
  }
}

/// Requests of one connection, on its event loop. They use the gateway's ``StoreClient``, which is closed at the first
/// failure of the connection instead of reconnecting.
private final class ConnectionRequests: StoreClientDelegate {
  private struct Pending {
    var promise: EventLoopPromise<ByteBuffer>
    var timeout: Scheduled<Void>
  }

  private static let lost = BackupFailure("the connection to the store was lost; run this again")

  private let store: Endpoint
  private let eventLoop: any EventLoop
  private let opened: EventLoopPromise<Void>
  private var client: StoreClient<ConnectionRequests>?
  /// Unanswered requests by tag.
  private var pending: [UInt64: Pending] = [:]
  private var lastTag: UInt64 = 0

  init(_ store: Endpoint, _ eventLoop: any EventLoop) {
    self.store = store
    self.eventLoop = eventLoop
    opened = eventLoop.makePromise()
  }

  func open(secrets: [[UInt8]], tls: LinkTLS?) -> EventLoopFuture<Void> {
    var configuration = StoreClientConfiguration(
      addresses: [.init(host: store.host, port: store.port)],
      secrets: secrets,
      name: "tidemark-backup",
      // The command itself reports failures.
      logger: Logger(label: "tidemark.backup") { _ in SwiftLogNoOpLogHandler() }
    )
    configuration.usesOneNode = true
    configuration.connectTimeout = .seconds(10)
    // Each request has its own timeout.
    configuration.requestDeadline = .hours(1)
    configuration.pingInterval = .minutes(1)
    let bound = NIOLoopBound(self, eventLoop: eventLoop)
    configuration.transport = tls.map { tls in
      StoreTransport(
        makeHandlers: { [try tls.clientHandler(store: $0.host)] },
        handlesError: { error, _ in bound.value.handlesTransportError(error) }
      )
    }
    let client = StoreClient(eventLoop: eventLoop, configuration: configuration, delegate: self)
    self.client = client
    client.start()
    return opened.futureResult
  }

  func send(_ kind: FrameKind, timeout: TimeAmount, _ fields: (inout ByteBuffer) -> Void) -> EventLoopFuture<ByteBuffer>
  {
    lastTag += 1
    let tag = lastTag
    let promise = eventLoop.makePromise(of: ByteBuffer.self)
    let bound = NIOLoopBound(self, eventLoop: eventLoop)
    let scheduled = eventLoop.scheduleTask(in: timeout) {
      bound.value.fail(BackupFailure("the store did not answer within \(timeout.nanoseconds / 1_000_000_000) s"))
    }
    // Before the send: the connection can fail within `flush`, which fails all pending requests.
    pending[tag] = Pending(promise: promise, timeout: scheduled)
    if let client, client.send(kind, to: .shard(ShardID(0), name: nil), tag: tag, fields) {
      client.flush()
    } else {
      complete(tag, .failure(Self.lost))
    }
    return promise.futureResult
  }

  func close() -> EventLoopFuture<Void> {
    guard let client else { return eventLoop.makeSucceededVoidFuture() }
    self.client = nil
    let bound = NIOLoopBound(client, eventLoop: eventLoop)
    // Deferred: the caller may be a callback of the client.
    return eventLoop.flatSubmit { bound.value.close() }
  }

  /// End the connection and all its requests.
  private func fail(_ failure: BackupFailure) {
    opened.fail(failure)
    for tag in Array(pending.keys) { complete(tag, .failure(failure)) }
    _ = close()
  }

  private func complete(_ tag: UInt64, _ result: Result<ByteBuffer, any Error>) {
    guard let request = pending.removeValue(forKey: tag) else { return }
    request.timeout.cancel()
    request.promise.completeWith(result)
  }

  /// Fail with the explanation of a TLS error; return whether there is one.
  private func handlesTransportError(_ error: any Error) -> Bool {
    guard let error = error as? TLSError, let explanation = HandshakeFailures.explanation(of: error, at: .gateway)
    else { return false }
    fail(BackupFailure("\(explanation.reason): \(explanation.remedy)"))
    return true
  }

  // MARK: - Calls of the client

  func storeReplied(_ tag: UInt64, kind: FrameKind, payload: RawSpan) {
    var reply = ByteBuffer()
    reply.writeRaw(payload)
    complete(tag, .success(reply))
  }

  func storeFailed(_ tag: UInt64, _ failure: StoreFailure) {
    switch failure {
    case .refused(let code, _, let detail): complete(tag, .failure(Self.failure(code, detail)))
    case .busy, .unavailable, .outcomeUnknown: complete(tag, .failure(Self.lost))
    }
  }

  func storeReadComplete() {}

  func storeReadinessChanged(_ isReady: Bool) {
    if isReady { opened.succeed() }
  }

  func storeConnectionFailed(_ failure: LinkFailure) {
    switch failure {
    case .connectFailed:
      fail(BackupFailure("\(store): cannot connect to a store: check --store, and the store's /ready"))
    case .handshakeTimeout: fail(BackupFailure("the handshake was not done in time: is this a store's port?"))
    case .drained: fail(BackupFailure("the store is shutting down; run this again when it is back"))
    case .unauthenticated: fail(BackupFailure("the store has a different secret: compare --secret-file on both sides"))
    case .refused(let error):
      fail(error.code.map { Self.failure($0, error.detail) } ?? Self.unreadable("error \(error.rawCode)"))
    case .malformed(let error): fail(Self.unreadable("\(error)"))
    case .unexpected(let kind): fail(BackupFailure("the store sent an unexpected \(kind) frame"))
    case .version, .limits, .otherStore, .unmatchedReply: fail(Self.unreadable(failure.name))
    case .connectionLost, .transportFailed, .silent: fail(Self.lost)
    }
  }

  private static func failure(_ code: ErrorCode, _ detail: String) -> BackupFailure {
    switch code {
    case .backupUnderWay: BackupFailure("backup_under_way: another backup of this store is under way; wait for it")
    case .unknownKind: BackupFailure("the store does not support backups: upgrade it first")
    default: BackupFailure("\(code.name): \(detail)")
    }
  }

  private static func unreadable(_ reason: String) -> BackupFailure {
    BackupFailure("the store's answer cannot be read (\(reason)): is it a store's --listen port, and of this version?")
  }
}
