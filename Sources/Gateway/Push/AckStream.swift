internal import HTTP2Session
internal import NIOCore
internal import ReceiptWire
internal import StoreClient

/// `POST /v1/push/acks` as lines (API.md, "Push"): each is an acknowledgement, and gets its answer in its turn while
/// others still come.
///
/// What is under way is bounded by its ``AckOrder``: where that has no room, or the client takes no answers, no more of
/// the body is read, and HTTP/2's window stops the client.
final class AckStream: RequestStream {
  private enum State {
    case reading
    /// Nothing more is taken: what is under way is answered, then comes this code, if there is one, then the end.
    case ending(ProblemCode?)
  }

  private static let lineFeed = UInt8(ascii: "\n")

  private var state = State.reading
  private var lines = AckLines()
  private var order: AckOrder

  init(_ context: RequestContext, _ limits: GatewayLimits) {
    order = AckOrder(limits: limits.acks)
    super.init(context, .acknowledgePushes)
  }

  override var isReading: Bool {
    if case .reading = state { true } else { false }
  }

  override var isWaiting: Bool { order.waiting > 0 }

  override func replied(
    _ request: PendingRequest,
    _ kind: FrameKind,
    _ payload: RawSpan,
    on loop: GatewayLoop
  ) {
    if let code = loop.finish(request.entry, payload, kind, separator: Self.lineFeed, in: &order) {
      loop.refuse(request.entry, code, separator: Self.lineFeed, in: &order)
    }
  }

  override func failed(_ request: PendingRequest, _ failure: StoreFailure, on loop: GatewayLoop) {
    let code = GatewayLoop.code(failure, isByName: request.isServer)
    loop.refuse(request.entry, code, separator: Self.lineFeed, in: &order)
  }

  override func end(_ reason: StreamEnd) {
    guard case .reading = state else { return }
    switch reason {
    case .tokenExpired: state = .ending(.tokenExpired)
    case .tokenRevoked: state = .ending(.tokenRevoked)
    // The lines that have no answer were not looked at.
    case .draining: state = .ending(nil)
    }
  }

  // MARK: Lines

  override func read(_ loop: GatewayLoop) {
    loop.readBody(self) { bytes, isEnd in
      var taken = 0
      while hasRoom(), loop.mayAsk(self) {
        switch lines.next(bytes, from: taken, isEnd: isEnd) {
        case .line(let line, let end):
          loop.drawForStream(self)
          take(bytes.extracting(line), loop)
          taken = end
        case .tooLong(let end):
          loop.drawForStream(self)
          refuse(.lineTooLong, loop)
          taken = end
        case .needsMore(let end):
          if isEnd { state = .ending(nil) }
          hasPart = end < bytes.byteCount
          return end
        }
      }
      return taken
    }
  }

  private func hasRoom() -> Bool {
    lacksRoom = !order.hasRoom()
    return !lacksRoom
  }

  private func take(_ line: RawSpan, _ loop: GatewayLoop) {
    let tape = loop.tape
    do throws(JSONSyntaxError) {
      let value = try tape.parse(line)
      do throws(Problem) { try value.check(.pushAck) } catch { return refuse(error.code, loop) }
      do throws(ProblemCode) {
        send(try PushAck(value), loop)
      } catch {
        refuse(error, loop)
      }
    } catch {
      refuse(.invalidJSON, loop)
    }
  }

  private func send(_ ack: borrowing PushAck, _ loop: GatewayLoop) {
    let entry = order.nextEntry
    let code = loop.send(ack, source: nil, wantsNames: true, in: &order) { isByName in
      loop.keep(self, .streamedAck, entry: entry, isByName: isByName)
    } forget: {
      loop.forget(streamed: $0)
    }
    if let code { loop.refuse(entry, code, separator: Self.lineFeed, in: &order) }
  }

  /// Answers a line that is no acknowledgement.
  private func refuse(_ code: ProblemCode, _ loop: GatewayLoop) {
    let entry = order.nextEntry
    var labels = AckLabels()
    labels.source = .worker
    order.begin(labels)
    loop.refuse(entry, code, separator: Self.lineFeed, in: &order)
  }

  // MARK: Answers

  override func write(_ loop: GatewayLoop) {
    guard order.inTurn.readableBytes > 0 else { return }
    isFull = !loop.write(self, order.inTurn)
    if !isFull { order.taken() }
  }

  override func finish(_ loop: GatewayLoop) {
    guard case .ending(let code) = state, order.waiting == 0 else { return }
    if let code {
      state = .ending(nil)
      refuse(code, loop)
      write(loop)
    }
    if order.inTurn.readableBytes == 0 { loop.finish(self) }
  }
}
