import HTTP2Session
import NIOCore
import ReceiptModel
import ReceiptWire
import Synchronization
import TestSupport
import Testing

/// A request whose body is sent in pieces while its response is read.
final class TestRequestStream: Sendable {
  private struct State {
    var status = 0
    var contentType = ""
    var cacheControl = ""
    var received: [UInt8] = []
    var handle: HTTP2StreamHandle?
  }

  private let state = Mutex(State())
  private let pieces: AsyncStream<[UInt8]>
  private let continuation: AsyncStream<[UInt8]>.Continuation

  init() { (pieces, continuation) = AsyncStream.makeStream() }

  var handle: HTTP2StreamHandle? {
    get { state.withLock { $0.handle } }
    set { state.withLock { $0.handle = newValue } }
  }

  /// The status of the response; 0 before it.
  var status: Int { state.withLock { $0.status } }
  var contentType: String { state.withLock { $0.contentType } }
  var cacheControl: String { state.withLock { $0.cacheControl } }

  func received(_ response: borrowing HTTP2ClientResponse) {
    let (status, contentType) = (response.status, response.contentType.text)
    let cacheControl = response.header("cache-control")?.text ?? ""
    state.withLock {
      $0.status = status
      $0.contentType = contentType
      $0.cacheControl = cacheControl
    }
    continuation.yield(response.body.withUnsafeBytes { Array($0) })
  }

  func ended() { continuation.finish() }

  /// Wait until `find` returns a byte count, and take that many bytes; nil if the stream ends before.
  private func next(_ find: ([UInt8]) -> Int?) async -> [UInt8]? {
    while true {
      let count = state.withLock { find($0.received) }
      if let count {
        return state.withLock { state in
          defer { state.received.removeFirst(count) }
          return Array(state.received.prefix(count))
        }
      }
      let pieces = pieces
      let next = try? await within("more of the answer to a streamed request") {
        var iterator = pieces.makeAsyncIterator()
        return await iterator.next()
      }
      guard let piece = next ?? nil else { return nil }
      state.withLock { $0.received += piece }
    }
  }

  /// The next line, without its newline.
  func line() async -> String? {
    let line = await next { bytes in bytes.firstIndex(of: UInt8(ascii: "\n")).map { $0 + 1 } }
    return line.map { String(decoding: $0.dropLast(), as: UTF8.self) }
  }

  /// The next frame: its header and payload.
  func frame() async -> (FrameHeader, [UInt8])? {
    let frame = await next { bytes in
      guard case .frame(_, let count)? = try? FrameDecoder().next(bytes.span.bytes, at: 0) else { return nil }
      return FrameHeader.byteCount + count
    }
    guard let frame, case .frame(let header, _)? = try? FrameDecoder().next(frame.span.bytes, at: 0) else {
      return nil
    }
    return (header, Array(frame.dropFirst(FrameHeader.byteCount)))
  }

  /// The next frame, as in `7 markRead` for a reply or `7 invalid_field user: 1 to 128 …`; `end` after the last one.
  func verdict() async -> String {
    guard let (header, payload) = await frame() else {
      return state.withLock { $0.received.isEmpty } ? "end" : "cut"
    }
    guard header.kind == .error else {
      return "\(header.correlation) \(header.kind)\(header.isReply == header.kind.hasReply ? "" : ", no reply")"
    }
    guard let error = try? ErrorFrame(payload.span.bytes) else { return "an error that does not parse" }
    let detail = error.detail.isEmpty ? "" : " \(error.detail)"
    return "\(header.correlation) \(error.code?.name ?? "\(error.rawCode)")\(detail)"
  }

  func verdicts(_ count: Int) async -> [String] {
    var verdicts: [String] = []
    for _ in 0..<count { verdicts.append(await verdict()) }
    return verdicts
  }
}

extension TestClient {
  /// Begin a request whose body follows.
  func begin(
    _ path: String = "/v1/frames",
    contentType: String = "application/vnd.tidemark.frames",
    token: String? = TestTokens.server
  ) async throws -> TestRequestStream {
    let stream = TestRequestStream()
    try await open(.post, path, contentType: contentType, token: token, stream)
    return stream
  }

  func send(_ bytes: ByteBuffer, _ stream: TestRequestStream) async throws {
    try await onConnection { connection in
      if let handle = stream.handle { connection.write(handle, bytes) }
      connection.flushIfNeeded()
    }
  }

  /// End the body.
  func finish(_ stream: TestRequestStream) async throws {
    try await onConnection { connection in
      if let handle = stream.handle { connection.finish(handle) }
      connection.flushIfNeeded()
    }
  }

  func reset(_ stream: TestRequestStream) async throws {
    try await onConnection { connection in
      if let handle = stream.handle { connection.cancel(handle) }
    }
  }
}

/// Builds request frames.
struct TestFrames {
  var bytes = ByteBuffer()

  mutating func add(
    _ kind: FrameKind,
    _ correlation: UInt32,
    flags: FrameHeader.Flags = [],
    cid: String? = "messaging:c",
    _ fields: (inout ByteBuffer) -> Void = { _ in }
  ) {
    // The gateway ignores shard and counter.
    bytes.writeFrame(FrameHeader(kind, flags: flags, shard: ShardID(9), correlation: correlation)) {
      if let cid { $0.writeField(cid) }
      if kind.isCommand { $0.writeVarint(UInt64(0)) }
      fields(&$0)
    }
  }

  mutating func mark(
    _ correlation: UInt32,
    user: String = "bob",
    message: String = "",
    cid: String = "messaging:c"
  ) {
    add(.markRead, correlation, cid: cid) {
      $0.writeField(user)
      $0.writeField(message)
      $0.writeOptional(nil)
    }
  }
}
