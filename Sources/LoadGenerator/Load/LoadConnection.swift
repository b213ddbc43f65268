internal import HTTP2Session
internal import NIOCore

/// HTTP/2 connection that keeps a request in flight on each of its streams. The tag of a request is the number of its
/// stream, so that a response needs no lookup and no allocation.
final class LoadConnection: HTTP2ClientDelegate, PacedDriver {
  let number: Int
  // Strong: an unowned reference would be retained and released for every request. The loop breaks the cycle.
  private let loop: LoadLoop
  /// Set while the connection is ready.
  private var http: HTTP2ClientConnection<LoadConnection>?
  private let template: HTTP2RequestTemplate
  private let getPath: [UInt8]
  private let successStatus: Int
  private(set) var walk: RequestWalk?
  private(set) var sampler = ResponseSampler()
  /// Time in nanoseconds at which each stream's request was made, or was due.
  private var startedAt: [UInt64]
  /// Idle streams of a paced run, the one that has waited longest first; nil if the run is not paced.
  private var idle: CircularBuffer<Int>?

  init(
    number: Int,
    loop: LoadLoop,
    plan: LoadPlan.Connection,
    scheme: String,
    authority: String,
    streams: Int,
    isPaced: Bool
  ) {
    self.number = number
    self.loop = loop
    idle = isPaced ? CircularBuffer(0..<streams) : nil
    startedAt = Array(repeating: 0, count: streams)
    switch plan.work {
    case .get(let path):
      getPath = Array(path.utf8)
      successStatus = 200
      template = HTTP2RequestTemplate(
        method: .get,
        scheme: scheme,
        authority: authority,
        authorization: plan.authorization
      )
    case .walk(let walk):
      getPath = []
      self.walk = walk
      successStatus = walk.form.successStatus
      template = HTTP2RequestTemplate(
        method: walk.form.isPost ? .post : .get,
        scheme: scheme,
        authority: authority,
        authorization: plan.authorization,
        contentType: walk.form.hasBody ? "application/json" : ""
      )
    }
  }

  func begin(now: UInt64) {
    guard let http else { return }
    for stream in startedAt.indices { submit(stream, now, on: http) }
    http.flushIfNeeded()
  }

  func close() {
    http?.close()
    http = nil
  }

  func makeOne(dueAt: UInt64) -> Bool {
    guard let http, let stream = idle?.popFirst() else { return false }
    // A stream at the end of its walk does not become idle again.
    return submit(stream, dueAt, on: http)
  }

  func flush() { http?.flushIfNeeded() }

  @discardableResult
  @inline(__always)
  private func submit(_ stream: Int, _ now: UInt64, on connection: HTTP2ClientConnection<LoadConnection>) -> Bool {
    guard loop.takeRequest() else { return false }
    var isSubmitted: Bool
    if walk == nil {
      isSubmitted = getPath.withUnsafeBytes { path in
        connection.submit(template, path: path, tag: UInt64(stream)) != nil
      }
    } else {
      isSubmitted = false
      // Exclusive access to the walk while the request is queued: `submit` makes no callbacks.
      _ = walk?.next(stream: stream) { path, body in
        isSubmitted = connection.submit(template, path: path, body: body, tag: UInt64(stream)) != nil
      }
    }
    if isSubmitted {
      startedAt[stream] = now
    } else {
      loop.returnRequest()
    }
    return isSubmitted
  }

  func http2ConnectionReady(_ connection: HTTP2ClientConnection<LoadConnection>) {
    guard loop.isWaiting else { return }
    http = connection
    loop.connectionReady(self)
  }

  func http2ResponseReceived(
    tag: UInt64,
    response: borrowing HTTP2ClientResponse,
    on connection: HTTP2ClientConnection<LoadConnection>
  ) {
    let stream = Int(truncatingIfNeeded: tag)
    let status = response.status
    if sampler.countResponse(), status == successStatus, let walk {
      response.body.withUnsafeBytes { sampler.keep($0, walk.position(of: stream)) }
    }
    // One reading of the clock ends a request and begins the next.
    let now = MonotonicClock.now
    walk?.answered(stream: stream, isAcknowledged: status == successStatus)
    loop.answered(status: status, nanoseconds: now &- startedAt[stream], now: now)
    if idle != nil { idle?.append(stream) } else { submit(stream, now, on: connection) }
  }

  func http2StreamFailed(tag: UInt64, errorCode: UInt32, on connection: HTTP2ClientConnection<LoadConnection>) {
    // Not repeated: the outcome of a mark without a response is unknown, so the walk ends.
    loop.failed(errorCode: errorCode)
  }

  func http2ReadComplete(on connection: HTTP2ClientConnection<LoadConnection>) { loop.readComplete() }

  func http2ConnectionClosed(_ connection: HTTP2ClientConnection<LoadConnection>) { loop.connectionClosed() }
}
