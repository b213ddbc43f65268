internal import HTTP2Session
internal import LocalStack
internal import NIOCore
internal import NIOPosix
internal import Operations

/// One request whose body and answer flow at once, over HTTP/2 in the clear, on one event loop.
struct PushStream: Sendable {
  /// What it came to.
  struct Outcome: Sendable {
    var seconds: Double
    /// CPU time of this process and of those that were named, in seconds.
    var cpuSeconds: [Double]
  }

  /// A stream on which nothing comes for so long is given up.
  private static let silenceMax = TimeAmount.seconds(60)

  let endpoint: Endpoint
  let token: String
  let way: PushWay
  let meter: ProcessCPUMeter

  /// Sends the bodies and compares what is answered.
  ///
  /// - Throws: ``LoadError`` with the first thing that was not as it has to be.
  func run(_ bodies: PushBodies, on eventLoop: any EventLoop) async throws -> Outcome {
    let promise = eventLoop.makePromise(of: Outcome.self)
    let connection = try await eventLoop.submit {
      NIOLoopBound(PushConnection(self, bodies, promise), eventLoop: eventLoop)
    }.get()
    let watchdog = eventLoop.scheduleRepeatedTask(initialDelay: Self.silenceMax, delay: Self.silenceMax) {
      _ in
      connection.value.look()
    }
    defer { watchdog.cancel() }
    let bootstrap = ClientBootstrap(group: eventLoop)
      .connectTimeout(.seconds(10))
      .channelOption(ChannelOptions.tcpOption(.tcp_nodelay), value: 1)
      .channelOption(
        ChannelOptions.recvAllocator,
        value: AdaptiveRecvByteBufferAllocator(minimum: 16_384, initial: 65_536, maximum: 262_144)
      )
      .channelInitializer { channel in
        channel.eventLoop.makeCompletedFuture {
          try channel.pipeline.syncOperations.addHandler(
            HTTP2ClientConnection(delegate: connection.value, resources: HTTP2ClientResources())
          )
        }
      }
    let channel: any Channel
    do {
      channel = try await bootstrap.connect(host: endpoint.host, port: endpoint.port).get()
    } catch {
      let error = LoadError("\(endpoint): no connection: \(HTTP2Caller.reason(error))")
      promise.fail(error)
      throw error
    }
    let outcome = await withTaskCancellationHandler {
      await promise.futureResult.asResult()
    } onCancel: {
      promise.fail(CancellationError())
    }
    try? await channel.close().get()
    return try outcome.get()
  }
}

extension EventLoopFuture where Value: Sendable {
  fileprivate func asResult() async -> Result<Value, any Error> {
    do { return .success(try await get()) } catch { return .failure(error) }
  }
}

/// The connection of a ``PushStream``, on its event loop only.
private final class PushConnection: HTTP2ClientDelegate {
  /// More of the body is handed over where less than this waits for the gateway's window.
  private static let queuedByteCountMin = 64 * 1024
  private static let problemByteCountMax = 400

  private let stream: PushStream
  private let template: HTTP2RequestTemplate
  private var bodies: PushBodies
  private var answers: any PushAnswers
  private let promise: EventLoopPromise<PushStream.Outcome>
  private var handle: HTTP2StreamHandle?
  private var began: UInt64 = 0
  private var cpuBefore: [Double?] = []
  private var problem: [UInt8] = []
  /// It is answered by a problem: no more of the body is wanted.
  private var isRefused = false
  private var isOver = false
  /// At the last look.
  private var countSeen = -1

  init(_ stream: PushStream, _ bodies: PushBodies, _ promise: EventLoopPromise<PushStream.Outcome>) {
    self.stream = stream
    self.bodies = bodies
    self.promise = promise
    answers = stream.way.usesFrames ? PushReplies(bodies.walk, stream.way) : PushLines(bodies.walk)
    template = HTTP2RequestTemplate(
      method: .post,
      scheme: "http",
      authority: "\(stream.endpoint)",
      authorization: "Bearer \(stream.token)",
      contentType: stream.way.contentType
    )
  }

  /// Gives it up where nothing has come since the last look.
  func look() {
    if answers.count == countSeen {
      fail(LoadError("\(answers.count) answers, and then nothing for a minute"))
    }
    countSeen = answers.count
  }

  private func fail(_ error: LoadError) {
    guard !isOver else { return }
    isOver = true
    promise.fail(error)
  }

  private func fill(_ connection: HTTP2ClientConnection<PushConnection>) {
    guard let handle, !isOver else { return }
    if isRefused {
      connection.finish(handle)
      return
    }
    while let queued = connection.queuedBytes(handle), queued < Self.queuedByteCountMin {
      guard let piece = bodies.next() else {
        connection.finish(handle)
        return
      }
      connection.write(handle, piece)
    }
  }

  func http2ConnectionReady(_ connection: HTTP2ClientConnection<PushConnection>) {
    cpuBefore = stream.meter.sample()
    began = MonotonicClock.now
    handle = connection.submit(template, path: stream.way.path, token: 0, streaming: true, endsLater: true)
    if handle == nil { fail(LoadError("the connection takes no requests")) }
    fill(connection)
  }

  func http2ReadComplete(on connection: HTTP2ClientConnection<PushConnection>) { fill(connection) }

  func http2ResponsePart(
    token: UInt64,
    response: borrowing HTTP2ClientResponse,
    on connection: HTTP2ClientConnection<PushConnection>
  ) {
    take(response)
  }

  func http2ResponseReceived(
    token: UInt64,
    response: borrowing HTTP2ClientResponse,
    on connection: HTTP2ClientConnection<PushConnection>
  ) {
    take(response)
    guard !isOver else { return }
    guard response.status == 200 else {
      let text = String(decoding: problem, as: UTF8.self)
      return fail(LoadError("POST \(stream.way.path) was answered \(response.status): \(text)"))
    }
    do throws(LoadError) {
      try answers.end()
    } catch {
      return fail(error)
    }
    isOver = true
    let cpu = zip(stream.meter.sample(), cpuBefore).map { ($0 ?? 0) - ($1 ?? 0) }
    promise.succeed(
      PushStream.Outcome(seconds: Double(MonotonicClock.now - began) / 1e9, cpuSeconds: cpu)
    )
  }

  func http2StreamFailed(
    token: UInt64,
    errorCode: UInt32,
    on connection: HTTP2ClientConnection<PushConnection>
  ) {
    fail(LoadError("after \(answers.count) answers the stream was reset with HTTP/2 error \(errorCode)"))
  }

  func http2ConnectionClosed(_ connection: HTTP2ClientConnection<PushConnection>) {
    fail(LoadError("after \(answers.count) answers the connection was closed"))
  }

  private func take(_ response: borrowing HTTP2ClientResponse) {
    guard !isOver else { return }
    guard response.status == 200 else {
      isRefused = true
      response.body.withUnsafeBytes { bytes in
        problem += bytes.prefix(max(0, Self.problemByteCountMax - problem.count))
      }
      return
    }
    var failure: LoadError?
    response.body.withUnsafeBytes { bytes in
      do throws(LoadError) {
        try answers.read(bytes)
      } catch {
        failure = error
      }
    }
    if let failure { fail(failure) }
  }
}
