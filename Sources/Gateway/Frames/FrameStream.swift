internal import HTTP2Session
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// `POST /v1/frames` (Proto/frames.md, "Over HTTP/2"): request frames come, each is read whole and goes to the store
/// with the gateway's own session, and reply frames go back in the order in which the store answers.
///
/// Per frame nothing is allocated here: fields are checked where HTTP/2 holds them and copied once, into the store
/// client's buffer; a reply is copied once, behind the others of its read.
final class FrameStream: RequestStream {
  private enum State {
    case reading
    /// Nothing more is taken: what is under way is answered, then comes the error, if there is one, then the end.
    case ending(ErrorCode?, correlation: UInt32, detail: String)
  }

  private let limits: GatewayLimits
  private let decoder: FrameDecoder
  private let rules = FrameRule.all
  private var state = State.reading
  private var inFlight = 0
  /// The most bytes that the answers under way can have.
  private var reserved = 0
  /// Answers that HTTP/2 has not been given.
  private var output = ByteBuffer()

  init(_ context: RequestContext, _ limits: GatewayLimits) {
    self.limits = limits
    decoder = FrameDecoder(lengthLimit: limits.frameLength)
    super.init(context, .frames)
  }

  override var isReading: Bool {
    if case .reading = state { true } else { false }
  }

  override var isWaiting: Bool { inFlight > 0 }

  override func end(_ reason: StreamEnd) {
    guard case .reading = state else { return }
    switch reason {
    case .tokenExpired: end(.authenticationFailed, "the token has expired")
    case .tokenRevoked: end(.authenticationFailed, "the token has been revoked")
    case .draining:
      output.writeFrame(FrameHeader(.drain)) { _ in }
      state = .ending(nil, correlation: 0, detail: "")
    }
  }

  private func end(_ code: ErrorCode, _ detail: String, correlation: UInt32 = 0) {
    state = .ending(code, correlation: correlation, detail: detail)
  }

  // MARK: Requests

  override func read(_ loop: GatewayLoop) {
    loop.readBody(self) { bytes, isEnd in
      var taken = 0
      while taken < bytes.byteCount, case .reading = state, hasRoom(loop) {
        switch next(bytes, at: taken) {
        case .frame(let header, let payloadCount):
          let start = taken + FrameHeader.byteCount
          taken = start + payloadCount
          loop.drawForStream(self)
          take(header, bytes.extracting(start..<taken), loop)
          continue
        case .needs:
          if isEnd { end(.malformedFrame, "the body ends within a frame") }
          hasPart = true
        case nil: break
        }
        break
      }
      // What stands behind a frame that cannot be read is nothing.
      guard case .reading = state else { return bytes.byteCount }
      if isEnd && taken == bytes.byteCount { state = .ending(nil, correlation: 0, detail: "") }
      return taken
    }
  }

  /// Whether one more request may be under way.
  private func hasRoom(_ loop: GatewayLoop) -> Bool {
    lacksRoom =
      inFlight >= limits.framesInFlight || reserved + output.readableBytes >= limits.streamAnswerBytes
    return !lacksRoom && loop.mayAsk(self)
  }

  /// The next frame; nil where it cannot be one, and the stream ends.
  private func next(_ bytes: RawSpan, at offset: Int) -> FrameDecoder.Next? {
    do throws(WireError) {
      return try decoder.next(bytes, at: offset)
    } catch .lengthTooLarge(let length) {
      end(.frameTooLarge, "the frame's length is \(length), the limit is \(limits.frameLength)")
    } catch .unknownKind(let kind) {
      end(.unknownKind, "there is no kind \(kind)")
    } catch {
      end(.malformedFrame, "\(error)")
    }
    return nil
  }

  private func take(_ header: FrameHeader, _ payload: RawSpan, _ loop: GatewayLoop) {
    do throws(WireError) {
      if let rule = rules[Int(header.kind.rawValue)] {
        try take(header, FrameRequest(header, payload, rule, limits), rule, loop)
      } else if header.kind == .presentTicket {
        try takeTicket(header, payload, loop)
      } else if header.kind == .ping {
        try answerPing(header, payload)
      } else {
        refuse(header.correlation, .notImplemented, "this kind is not taken here")
      }
    } catch {
      end(.malformedFrame, "\(error)", correlation: header.correlation)
    }
  }

  private func take(
    _ header: FrameHeader,
    _ request: borrowing FrameRequest,
    _ rule: FrameRule,
    _ loop: GatewayLoop
  ) {
    let isPush = header.kind == .acknowledgePush
    if let invalid = request.invalid {
      if isPush { count(.refused, .framePush, LabelNames.none, loop) }
      return refuse(header.correlation, .invalidField, "\(invalid)")
    }
    let fields = request.fields
    // Names in an answer are those of the request.
    let answerBytes = rule.replyBytesMax + (isPush ? request.nameBytes : 0)
    let shape = isPush ? ReplyShape.framePush : .frame
    let token = loop.keep(self, shape, entry: header.correlation, answerBytes: answerBytes)
    let isSent = loop.store.send(
      header.kind,
      cid: request.cid,
      token: token,
      issued: request.issued,
      thread: request.thread.isEmpty ? nil : request.thread
    ) { $0.writeRaw(fields) }
    sent(isSent, token, header.correlation, answerBytes, loop)
  }

  func sent(
    _ isSent: Bool,
    _ token: UInt64,
    _ correlation: UInt32,
    _ answerBytes: Int,
    _ loop: GatewayLoop
  ) {
    guard isSent else {
      if let request = loop.forget(streamed: token) { count(.failed, request, loop) }
      return refuse(correlation, .busy, retryAfterMilliseconds: Self.retryAfterMilliseconds)
    }
    inFlight += 1
    reserved += answerBytes
  }

  private func answerPing(_ header: FrameHeader, _ payload: RawSpan) throws(WireError) {
    guard payload.byteCount == 8 else { throw payload.byteCount < 8 ? .truncated : .trailingBytes }
    output.writeFrame(FrameHeader(.pong, correlation: header.correlation)) { $0.writeRaw(payload) }
  }

  // MARK: Answers

  override func replied(
    _ request: PendingRequest,
    _ kind: FrameKind,
    _ payload: RawSpan,
    on loop: GatewayLoop
  ) {
    answered(request)
    if request.shape != .frame { return acknowledged(request, kind, payload, loop) }
    answer(kind, request.entry) { $0.writeRaw(payload) }
  }

  @inline(__always)
  func answer(_ kind: FrameKind, _ correlation: UInt32, _ fields: (inout ByteBuffer) -> Void) {
    output.writeFrame(FrameHeader(kind, correlation: correlation), fields)
  }

  override func failed(_ request: PendingRequest, _ failure: StoreFailure, on loop: GatewayLoop) {
    answered(request)
    let refusal = FrameRefusal(failure)
    count(PushCounters.Outcome(refusedWith: refusal.code), request, loop)
    refuse(
      request.entry,
      refusal.code,
      refusal.detail,
      retryAfterMilliseconds: refusal.retryAfterMilliseconds
    )
  }

  private func answered(_ request: PendingRequest) {
    inFlight -= 1
    reserved -= Int(request.answerBytes)
  }

  static let retryAfterMilliseconds: UInt32 = 1_000

  func refuse(
    _ correlation: UInt32,
    _ code: ErrorCode,
    _ detail: String = "",
    retryAfterMilliseconds: UInt32 = 0
  ) {
    output.writeError(
      code,
      correlation: correlation,
      retryAfterMilliseconds: retryAfterMilliseconds,
      detail: detail
    )
  }

  /// Gives HTTP/2 what there is, in one piece.
  override func write(_ loop: GatewayLoop) {
    guard output.readableBytes > 0 else { return }
    isFull = !loop.write(self, output)
    // HTTP/2 keeps those bytes.
    if !isFull { output = ByteBuffer() }
  }

  override func finish(_ loop: GatewayLoop) {
    guard case .ending(let code, let correlation, let detail) = state, inFlight == 0, !isFull else { return }
    if let code {
      state = .ending(nil, correlation: 0, detail: "")
      refuse(correlation, code, detail)
      write(loop)
    }
    if !isFull { loop.finish(self) }
  }
}

/// What a failed request to the store means to a client of frames: a code that does not end the stream, for the store's
/// quarrels are the gateway's own.
struct FrameRefusal {
  var code: ErrorCode
  var retryAfterMilliseconds: UInt32 = 0
  var detail = ""

  init(_ failure: StoreFailure) {
    switch failure {
    case .busy: code = .busy
    case .unavailable: code = .unavailable
    case .outcomeUnknown: code = .outcomeUnknown
    case .refused(let refused, let retryAfter, let detail):
      retryAfterMilliseconds = retryAfter
      switch refused {
      case .wrongShard, .malformedFrame, .unsupportedVersion, .authenticationFailed, .unknownKind,
        .handshakeRequired, .handshakeTimeout, .frameTooLarge:
        code = .unavailable
      case .sessionExpired, .superseded: code = .outcomeUnknown
      case .invalidField, .limitReached, .notImplemented:
        code = refused
        self.detail = detail
      default: code = refused
      }
    }
    switch code {
    case .busy, .unavailable, .outcomeUnknown:
      if retryAfterMilliseconds == 0 { retryAfterMilliseconds = FrameStream.retryAfterMilliseconds }
    default: break
    }
  }
}

extension FrameRequest {
  /// Bytes of the names in it, and of what stands around them.
  fileprivate var nameBytes: Int { cid.byteCount + fields.byteCount }
}
