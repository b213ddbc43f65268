internal import LinkSecurity
internal import Logging
internal import NIOCore
internal import Operations
internal import ReceiptWire
internal import StoreClient

/// Connection that keeps a mark_read command to the store in flight on each of its streams. It uses the gateway's
/// ``StoreClient``, with a session and resending, because these are part of a client's cost.
final class FrameConnection: StoreClientDelegate, LoadDriver {
  let number: Int
  // Strong: see LoadConnection. The loop breaks the cycle at its end.
  private let loop: LoadLoop
  private let eventLoop: any EventLoop
  private let endpoint: Endpoint
  /// The user of each frame.
  private let user: [UInt8]
  private(set) var walk: RequestWalk?
  private(set) var sampler = ResponseSampler()
  private var startedAt: [UInt64]
  private var client: StoreClient<FrameConnection>?
  private var timeout: Scheduled<Void>?

  init(number: Int, loop: LoadLoop, eventLoop: any EventLoop, endpoint: Endpoint, walk: RequestWalk, streams: Int) {
    self.number = number
    self.loop = loop
    self.eventLoop = eventLoop
    self.endpoint = endpoint
    self.walk = walk
    user = Array(walk.names.user(number).utf8)
    startedAt = Array(repeating: 0, count: streams)
  }

  /// Connect. On the event loop.
  ///
  /// - Parameter timeout: timeout in seconds for the store to become ready.
  func open(secrets: [[UInt8]], tls: LinkTLS?, timeout: Double) {
    var logger = Logger(label: "tidemark.bench")
    // The run reports failures itself; only the client knows of a wrong secret.
    logger.logLevel = .error
    var configuration = StoreClientConfiguration(
      addresses: [.init(host: endpoint.host, port: endpoint.port)],
      secrets: secrets,
      name: "tidemark-bench",
      logger: logger
    )
    configuration.transport = tls.map { .tls($0) }
    configuration.inFlightMax = startedAt.count
    let client = StoreClient(eventLoop: eventLoop, configuration: configuration, delegate: self)
    self.client = client
    loop.connectionOpening(self)
    let bound = NIOLoopBound(self, eventLoop: eventLoop)
    self.timeout = eventLoop.scheduleTask(in: .nanoseconds(Int64(timeout * 1e9))) {
      bound.value.loop.connectionFailed("no store was ready within \(timeout) s; does it share the secret?")
    }
    client.start()
  }

  func begin(now: UInt64) {
    for stream in startedAt.indices { submit(stream, now) }
    client?.flush()
  }

  func close() {
    timeout?.cancel()
    timeout = nil
    guard let client else { return }
    self.client = nil
    // Not within a callback of the client.
    let bound = NIOLoopBound(client, eventLoop: eventLoop)
    eventLoop.execute { _ = bound.value.close() }
  }

  @inline(__always)
  private func submit(_ stream: Int, _ now: UInt64) {
    guard let client, loop.takeRequest() else { return }
    var isSubmitted = false
    let user = user
    _ = walk?.next(stream: stream) { cid, message in
      let destination = StoreDestination.channel(RawSpan(_unsafeBytes: cid))
      isSubmitted = client.send(.markRead, to: destination, tag: UInt64(stream)) { buffer in
        buffer.writeMark(user: user.span.bytes, message: RawSpan(_unsafeBytes: message), epoch: nil)
      }
    }
    if isSubmitted {
      startedAt[stream] = now
    } else {
      loop.returnRequest()
    }
  }

  func storeReadinessChanged(_ isReady: Bool) {
    if isReady {
      guard loop.isWaiting else { return }
      timeout?.cancel()
      timeout = nil
      loop.connectionReady(self)
    } else if client != nil {
      loop.connectionClosed()
    }
  }

  func storeReplied(_ tag: UInt64, kind: FrameKind, payload: RawSpan) {
    let stream = Int(truncatingIfNeeded: tag)
    guard kind == .markRead else { return loop.failed(errorCode: UInt32(ErrorCode.unknownKind.rawValue)) }
    if sampler.countResponse(), let walk {
      payload.withUnsafeBytes { sampler.keep($0, walk.position(of: stream)) }
    }
    let now = MonotonicClock.now
    walk?.answered(stream: stream, isAcknowledged: true)
    // A reply counts as status 200.
    loop.answered(status: 200, nanoseconds: now &- startedAt[stream], now: now)
    submit(stream, now)
  }

  func storeFailed(_ tag: UInt64, _ failure: StoreFailure) {
    // Not repeated, as in LoadConnection.
    let code: ErrorCode =
      switch failure {
      case .refused(let code, _, _): code
      case .busy: .busy
      case .unavailable: .unavailable
      case .outcomeUnknown: .outcomeUnknown
      }
    loop.failed(errorCode: UInt32(code.rawValue))
  }

  func storeReadComplete() {
    client?.flush()
    loop.readComplete()
  }
}
