internal import HTTP2Session
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// A store request of a ``FrameStream``.
struct FrameStoreRequest {
  enum Kind: UInt8 {
    case plain
    /// acknowledge_push.
    case push
    /// present_ticket.
    case ticket
  }

  var kind: Kind
  /// Of a push ack, for its counters.
  var labels = AckLabels()
  var correlation: UInt32
  /// Bytes reserved for the reply.
  var replyBytes: UInt32
}

/// `POST /v1/frames` (Proto/frames.md, "Over HTTP/2"). Each request frame is parsed as a whole and sent to the store in
/// the gateway's own session. Reply frames are written in the order in which the store answers.
///
/// This code allocates nothing per frame. Fields are checked in HTTP/2's buffer and copied once, into the store
/// client's buffer; a reply is copied once, after the others of its read.
final class FrameStream: RequestStreamState, RequestStream {
  private enum State {
    case reading
    /// No frame is read any more. Pending requests are answered, then comes the error, if any, then the end.
    case ending(ErrorCode?, correlation: UInt32, detail: String)
  }

  let limits: GatewayLimits
  private let decoder: FrameDecoder
  private let rules = FrameRule.all
  private var state = State.reading
  private var inFlight = 0
  /// Maximum total size in bytes of the pending replies.
  private var reserved = 0
  /// Replies not yet passed to HTTP/2.
  private var output = ByteBuffer()
  /// Whether the token and the connection may hold more replies, and how many bytes a stream keeps if not.
  private var mayHold = true
  private static let replyBytesMin = 16_384

  init(_ context: RequestContext, _ limits: GatewayLimits) {
    self.limits = limits
    decoder = FrameDecoder(lengthLimit: limits.frameLength)
    super.init(context)
  }

  var isReading: Bool {
    if case .reading = state { true } else { false }
  }

  var hasRequestsInFlight: Bool { inFlight > 0 }

  func end(_ reason: StreamEnd) {
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

  func read(_ loop: GatewayLoop) {
    loop.streams.readBody(self) { bytes, isEnd in
      var taken = 0
      while taken < bytes.byteCount, case .reading = state, hasRoom(loop) {
        switch next(bytes, at: taken) {
        case .frame(let header, let payloadCount):
          let start = taken + FrameHeader.byteCount
          taken = start + payloadCount
          itemsRead += 1
          loop.rates.chargeStream(self)
          handle(header, bytes.extracting(start..<taken), loop)
          continue
        case .needs:
          if isEnd { end(.malformedFrame, "the body ends within a frame") }
          hasPartialItem = true
        case nil: break
        }
        break
      }
      // Bytes after an unreadable frame are ignored.
      guard case .reading = state else { return bytes.byteCount }
      if isEnd && taken == bytes.byteCount { state = .ending(nil, correlation: 0, detail: "") }
      return taken
    }
  }

  /// Return whether one more request may be in flight.
  private func hasRoom(_ loop: GatewayLoop) -> Bool {
    let replyBytes = mayHold ? limits.streamReplyBytes : Self.replyBytesMin
    lacksRoom = inFlight >= limits.framesInFlight || reserved + output.readableBytes >= replyBytes || isTurnOver
    return !lacksRoom && loop.streams.canSend(self)
  }

  /// Decode the next frame; nil where it is malformed, which ends the stream.
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

  private func handle(_ header: FrameHeader, _ payload: RawSpan, _ loop: GatewayLoop) {
    do throws(WireError) {
      if header.isReply {
        refuse(header.correlation, .notImplemented, "this frame kind is not accepted here")
      } else if let rule = rules[Int(header.kind.rawValue)] {
        try send(header, FrameRequest(header, payload, rule: rule, limits: limits), rule: rule, on: loop)
      } else if header.kind == .presentTicket {
        try presentTicket(header, payload, loop)
      } else if header.kind == .ping {
        try replyToPing(header, payload)
      } else {
        refuse(header.correlation, .notImplemented, "this frame kind is not accepted here")
      }
    } catch {
      end(.malformedFrame, "\(error)", correlation: header.correlation)
    }
  }

  private func send(_ header: FrameHeader, _ request: borrowing FrameRequest, rule: FrameRule, on loop: GatewayLoop) {
    let isPush = header.kind == .acknowledgePush
    if let invalid = request.invalid {
      if isPush { count(.refused, AckLabels(.worker), loop) }
      return refuse(header.correlation, .invalidField, invalid.detail(limits))
    }
    let fields = request.fields
    // Names in a reply are the request's own.
    let replyBytes = rule.replyBytesMax + (isPush ? request.nameBytes : 0)
    let storeRequest = FrameStoreRequest(
      kind: isPush ? .push : .plain,
      labels: isPush ? labels(ofPush: fields, loop) : AckLabels(),
      correlation: header.correlation,
      replyBytes: UInt32(truncatingIfNeeded: replyBytes)
    )
    let isSent = loop.trySend(
      header.kind,
      to: .channel(request.cid, thread: request.thread.isEmpty ? nil : request.thread),
      pendingRequest(storeRequest),
      issued: request.issued
    ) { $0.writeRaw(fields) }
    sent(isSent, storeRequest, loop)
  }

  /// Return the registration of one of the stream's store requests.
  func pendingRequest(_ request: FrameStoreRequest) -> PendingRequest { pendingRequest(.frame(request)) }

  func sent(_ isSent: Bool, _ request: FrameStoreRequest, _ loop: GatewayLoop) {
    guard isSent else {
      count(.failed, request, loop)
      return refuse(request.correlation, .busy, retryAfterMilliseconds: Self.retryAfterMilliseconds)
    }
    loop.streams.recordSent()
    inFlight += 1
    reserved += Int(request.replyBytes)
  }

  private func replyToPing(_ header: FrameHeader, _ payload: RawSpan) throws(WireError) {
    guard payload.byteCount == 8 else { throw payload.byteCount < 8 ? .truncated : .trailingBytes }
    output.writeFrame(FrameHeader(.pong, correlation: header.correlation)) { $0.writeRaw(payload) }
  }

  // MARK: Replies

  func completed(_ request: StreamStoreRequest, with result: StoreResult, on loop: GatewayLoop) {
    guard case .frame(let request) = request else { preconditionFailure("a reply to another stream") }
    inFlight -= 1
    reserved -= Int(request.replyBytes)
    switch result {
    case .reply(let kind, let payload):
      if request.kind != .plain { return acknowledged(request, kind: kind, payload: payload, on: loop) }
      reply(kind, request.correlation) { $0.writeRaw(payload) }
    case .failure(let failure): failed(request, failure.reason, on: loop)
    }
  }

  @inline(__always)
  func reply(_ kind: FrameKind, _ correlation: UInt32, _ fields: (inout ByteBuffer) -> Void) {
    output.writeFrame(FrameHeader(replyTo: kind, correlation: correlation), fields)
  }

  private func failed(_ request: FrameStoreRequest, _ failure: StoreFailure, on loop: GatewayLoop) {
    let refusal = FrameRefusal(failure)
    count(PushCounters.Outcome(refusedWith: refusal.code), request, loop)
    refuse(request.correlation, refusal.code, refusal.detail, retryAfterMilliseconds: refusal.retryAfterMilliseconds)
  }

  static let retryAfterMilliseconds: UInt32 = 1_000

  func refuse(_ correlation: UInt32, _ code: ErrorCode, _ detail: String = "", retryAfterMilliseconds: UInt32 = 0) {
    output.writeError(code, correlation: correlation, retryAfterMilliseconds: retryAfterMilliseconds, detail: detail)
  }

  /// Pass the pending replies to HTTP/2, as one buffer.
  func write(_ loop: GatewayLoop) {
    guard output.readableBytes > 0 else { return }
    isFull = !loop.streams.write(self, output)
    // HTTP/2 retains the buffer.
    if !isFull { output = ByteBuffer() }
    if isFull || !mayHold { mayHold = loop.streams.setHeldBytes(self, output.readableBytes) }
  }

  func finish(_ loop: GatewayLoop) {
    guard case .ending(let code, let correlation, let detail) = state, inFlight == 0, !isFull else { return }
    if let code {
      state = .ending(nil, correlation: 0, detail: "")
      refuse(correlation, code, detail)
      write(loop)
    }
    if !isFull { loop.streams.finish(self) }
  }
}

extension FrameRequest {
  /// Bytes of the names in the request, with the fields around them.
  fileprivate var nameBytes: Int { cid.byteCount + fields.byteCount }
}

/// The error frame for a failed store request. It never ends the stream: errors between gateway and store are reported
/// as temporary failures.
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
