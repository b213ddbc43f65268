internal import GatewayClient
internal import HTTP2Session
internal import NIOCore
internal import Operations
internal import TLSSession

/// Stream of one partition's lines on a connection of its own. While nobody reads lines, the connection is not read
/// either, so unread records wait at the gateway.
package final class FeedStream: Sendable {
  private let channel: any Channel
  private let connection: NIOLoopBound<HTTP2ClientConnection<FeedConnection>>

  private init(_ channel: any Channel, _ connection: NIOLoopBound<HTTP2ClientConnection<FeedConnection>>) {
    self.channel = channel
    self.connection = connection
  }

  /// Connect and request a stream.
  ///
  /// - Throws: ``GatewayError`` if there is no connection. A refusal ends the stream, see ``endReason()``.
  package static func open(_ gateway: FeedGateway, path: String) async throws -> FeedStream {
    let token = try await gateway.credential.token()
    let (url, tls) = (gateway.url, gateway.tls)
    do {
      let (channel, connection) = try await HTTP2ClientConnection<FeedConnection>.connect(
        to: url.endpoint,
        tls: tls
      ) { channel in
        let template = url.requestTemplate(.get, token: token, headers: [("accept", "application/x-ndjson")])
        return FeedConnection(channel: channel, template: template, path: path)
      } makeErrorHandler: { delegate in
        ConnectionErrorHandler { delegate.end(ErrorText.of($0)) }
      }
      return FeedStream(channel, connection)
    } catch {
      throw GatewayError("no connection to the gateway: \(ErrorText.of(error))")
    }
  }

  /// Return the lines that have arrived, at least one; nil at the end of the stream.
  package func next() async -> [FeedLine]? {
    try? await channel.eventLoop.flatSubmit { [connection] in connection.value.delegate.next() }.get()
  }

  /// Why the stream has ended.
  package func endReason() async -> String {
    (try? await channel.eventLoop.submit { [connection] in connection.value.delegate.endReason }.get()) ?? "closed"
  }

  /// End the stream; a waiting ``next()`` returns nil.
  package func close() {
    channel.eventLoop.execute { [connection] in connection.value.delegate.end("closed by the reader") }
  }
}

/// Delegate of one connection. Used only on its event loop.
private final class FeedConnection: HTTP2ClientDelegate {
  /// Maximum size of a line in bytes.
  private static let lineByteCountMax = 1 << 20
  /// Size in bytes of unread lines from which the connection is not read.
  private static let unreadByteCountMax = 256 * 1_024
  private static let problemByteCountMax = 64 * 1_024
  /// A stream without a byte for this long counts as lost: the gateway sends a heartbeat every 15 s.
  private static let silenceMax = TimeAmount.seconds(45)

  private(set) var endReason = ""

  private let channel: any Channel
  private let template: HTTP2RequestTemplate
  private let path: String
  private var line: [UInt8] = []
  private var lines: [FeedLine] = []
  private var unreadByteCount = 0
  private var waiter: EventLoopPromise<[FeedLine]?>?
  private var isReading = true
  private var hasEnded = false
  private var problem: [UInt8] = []
  private var silence: Scheduled<Void>?

  init(channel: any Channel, template: HTTP2RequestTemplate, path: String) {
    self.channel = channel
    self.template = template
    self.path = path
  }

  /// Return a future of the next lines; nil at the end.
  func next() -> EventLoopFuture<[FeedLine]?> {
    precondition(waiter == nil, "one reader at a time")
    guard lines.isEmpty, !hasEnded else {
      let result = take()
      return channel.eventLoop.makeSucceededFuture(result)
    }
    let promise = channel.eventLoop.makePromise(of: [FeedLine]?.self)
    waiter = promise
    setReading(true)
    // Before the first byte, the gateway's SETTINGS included.
    if silence == nil { waitForBytes() }
    return promise.futureResult
  }

  /// Return the unread lines; nil if there are none.
  private func take() -> [FeedLine]? {
    defer {
      lines = []
      unreadByteCount = 0
    }
    return lines.isEmpty ? nil : lines
  }

  private func deliver() {
    guard let waiter, !lines.isEmpty || hasEnded else { return }
    self.waiter = nil
    waiter.succeed(take())
  }

  private func setReading(_ reads: Bool) {
    guard reads != isReading, !hasEnded else { return }
    isReading = reads
    try? channel.syncOptions?.setOption(.autoRead, value: reads)
    if reads { channel.read() }
    waitForBytes()
  }

  private func waitForBytes() {
    silence?.cancel()
    guard isReading, !hasEnded else { return }
    let bound = NIOLoopBound(self, eventLoop: channel.eventLoop)
    silence = channel.eventLoop.scheduleTask(in: Self.silenceMax) { bound.value.end("no heartbeat for 45 s") }
  }

  func end(_ reason: String) {
    guard !hasEnded else { return }
    hasEnded = true
    endReason = reason
    silence?.cancel()
    deliver()
    channel.close(promise: nil)
  }

  func http2ConnectionReady(_ connection: HTTP2ClientConnection<FeedConnection>) {
    waitForBytes()
    if connection.submit(template, path: path, tag: 0, streaming: true) == nil {
      end("the connection takes no requests")
    }
    connection.flushIfNeeded()
  }

  func http2ResponsePart(
    tag: UInt64,
    response: borrowing HTTP2ClientResponse,
    on connection: HTTP2ClientConnection<FeedConnection>
  ) {
    receive(response)
  }

  func http2ResponseReceived(
    tag: UInt64,
    response: borrowing HTTP2ClientResponse,
    on connection: HTTP2ClientConnection<FeedConnection>
  ) {
    receive(response)
    guard response.status != 200 else { return end("the gateway ended the stream") }
    let (code, detail) = ProblemDocument.parts(of: problem)
    end("the gateway answered " + ["\(response.status)", code, detail].filter { !$0.isEmpty }.joined(separator: " "))
  }

  func http2StreamFailed(tag: UInt64, errorCode: UInt32, on connection: HTTP2ClientConnection<FeedConnection>) {
    end("the stream was reset with HTTP/2 error code \(errorCode)")
  }

  func http2ConnectionClosed(_ connection: HTTP2ClientConnection<FeedConnection>) {
    end("the connection was closed")
  }

  private func receive(_ response: borrowing HTTP2ClientResponse) {
    guard !hasEnded else { return }
    let bytes = response.body.withUnsafeBytes { Array($0) }
    guard response.status == 200 else {
      problem += bytes.prefix(max(Self.problemByteCountMax - problem.count, 0))
      return
    }
    waitForBytes()
    unreadByteCount += bytes.count
    var rest = bytes[...]
    while let feed = rest.firstIndex(of: UInt8(ascii: "\n")) {
      line += rest[..<feed]
      rest = rest[(feed + 1)...]
      defer { line.removeAll(keepingCapacity: true) }
      guard !line.isEmpty else { continue }
      do throws(FeedLine.Fault) {
        lines.append(try FeedLine(line[...]))
      } catch {
        let reason = error.code.map { "the gateway ended the stream: \($0)" }
        return end(reason ?? "the gateway sent a line that is no record")
      }
    }
    guard line.count + rest.count <= Self.lineByteCountMax else { return end("a line is longer than 1 MiB") }
    line += rest
    deliver()
    if unreadByteCount > Self.unreadByteCountMax { setReading(false) }
  }
}
