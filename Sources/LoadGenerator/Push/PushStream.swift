internal import HTTP2Session
internal import NIOCore
internal import Operations

/// One request whose body and answer are streamed at the same time, over HTTP/2 without TLS, on one event loop.
struct PushStream: Sendable {
  /// Duration and CPU time of a stream.
  struct Outcome: Sendable {
    var seconds: Double
    var cpu: ServiceCPUMeter.Seconds
  }

  /// Idle timeout of the stream.
  private static let silenceMax = TimeAmount.seconds(60)

  let endpoint: Endpoint
  let token: String
  let mode: PushMode
  let meter: ServiceCPUMeter

  /// Send the body and compare the responses.
  ///
  /// - Throws: ``LoadError`` for the first wrong answer.
  func run(_ bodies: PushBodies, on eventLoop: any EventLoop) async throws -> Outcome {
    let promise = eventLoop.makePromise(of: Outcome.self)
    let connection = try await eventLoop.submit {
      NIOLoopBound(PushConnection(self, bodies, promise), eventLoop: eventLoop)
    }.get()
    let watchdog = eventLoop.scheduleRepeatedTask(initialDelay: Self.silenceMax, delay: Self.silenceMax) {
      _ in
      connection.value.checkProgress()
    }
    defer { watchdog.cancel() }
    let channel: any Channel
    do {
      channel = try await BenchConnection.connect(to: endpoint, on: eventLoop, readBytesMax: 262_144) { _ in
        (connection.value, HTTP2ClientResources())
      }.get()
    } catch {
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

/// Connection of a ``PushStream``. Used on its event loop only.
private final class PushConnection: HTTP2ClientDelegate {
  /// More of the body is written when fewer bytes than this wait for the gateway's flow-control window.
  private static let queuedByteCountMin = 64 * 1024
  private static let problemByteCountMax = 400

  private let stream: PushStream
  private let template: HTTP2RequestTemplate
  private var bodies: PushBodies
  private var answers: any PushResults
  private let promise: EventLoopPromise<PushStream.Outcome>
  private var handle: HTTP2StreamHandle?
  private var began: UInt64 = 0
  private var cpuStart: ServiceCPUMeter.Start?
  private var problem: [UInt8] = []
  /// The response is a problem document, so no more of the body is sent.
  private var isRefused = false
  private var isOver = false
  /// Number of responses at the last check.
  private var countSeen = -1

  init(_ stream: PushStream, _ bodies: PushBodies, _ promise: EventLoopPromise<PushStream.Outcome>) {
    self.stream = stream
    self.bodies = bodies
    self.promise = promise
    answers = stream.mode.usesFrames ? PushReplies(bodies.walk, stream.mode) : PushLines(bodies.walk)
    template = HTTP2RequestTemplate(
      method: .post,
      scheme: "http",
      authority: "\(stream.endpoint)",
      authorization: "Bearer \(stream.token)",
      contentType: stream.mode.contentType
    )
  }

  /// Fail if there was no response since the last check.
  func checkProgress() {
    if answers.count == countSeen {
      fail(LoadError("\(answers.count) answers, then timed out after a minute without one"))
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
    cpuStart = stream.meter.start()
    began = MonotonicClock.now
    handle = connection.submit(template, path: stream.mode.path, tag: 0, streaming: true, hasMoreBody: true)
    if handle == nil { fail(LoadError("the connection accepts no requests")) }
    fill(connection)
  }

  func http2ReadComplete(on connection: HTTP2ClientConnection<PushConnection>) { fill(connection) }

  func http2ResponsePart(
    tag: UInt64,
    response: borrowing HTTP2ClientResponse,
    on connection: HTTP2ClientConnection<PushConnection>
  ) {
    read(response)
  }

  func http2ResponseReceived(
    tag: UInt64,
    response: borrowing HTTP2ClientResponse,
    on connection: HTTP2ClientConnection<PushConnection>
  ) {
    read(response)
    guard !isOver else { return }
    guard response.status == 200 else {
      let text = String(decoding: problem, as: UTF8.self)
      return fail(LoadError("POST \(stream.mode.path) was answered \(response.status): \(text)"))
    }
    guard let cpuStart else { return }
    do throws(LoadError) {
      try answers.end()
      let cpu = try stream.meter.seconds(since: cpuStart)
      isOver = true
      promise.succeed(PushStream.Outcome(seconds: MonotonicClock.seconds(since: began), cpu: cpu))
    } catch {
      fail(error)
    }
  }

  func http2StreamFailed(tag: UInt64, errorCode: UInt32, on connection: HTTP2ClientConnection<PushConnection>) {
    fail(LoadError("after \(answers.count) answers the stream was reset with HTTP/2 error \(errorCode)"))
  }

  func http2ConnectionClosed(_ connection: HTTP2ClientConnection<PushConnection>) {
    fail(LoadError("after \(answers.count) answers the connection was closed"))
  }

  private func read(_ response: borrowing HTTP2ClientResponse) {
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
