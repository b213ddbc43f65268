internal import HTTP2Session
internal import NIOCore
internal import ReceiptWire
internal import StoreClient

/// `POST /v1/push/acks` as NDJSON (Proto/openapi.yaml): each line is a push ack, answered in order while
/// further lines arrive.
///
/// The ``AckOrder`` bounds what is in flight. When it has no room, or the client reads no responses, the body is not
/// read further and HTTP/2's window stops the client.
final class AckStream: RequestStreamState, RequestStream {
  private enum State {
    case reading
    /// No line is read any more. Pending entries are answered, then comes this code, if any, then the end.
    case ending(ProblemCode?)
  }

  private static let lineFeed = UInt8(ascii: "\n")

  private var state = State.reading
  private var lines = BodyLines(byteCountMax: 4_096)
  private var order: AckOrder

  init(_ context: RequestContext, _ limits: GatewayLimits) {
    order = AckOrder(limits: limits.acks)
    super.init(context)
  }

  var isReading: Bool {
    if case .reading = state { true } else { false }
  }

  var hasRequestsInFlight: Bool { order.waiting > 0 }

  func completed(_ request: StreamStoreRequest, with result: StoreResult, on loop: GatewayLoop) {
    guard case .ack(let entry, let isByName) = request else {
      preconditionFailure("a reply to another stream")
    }
    let code: ProblemCode?
    switch result {
    case .reply(let kind, let payload):
      code = loop.push.finish(entry, payload, kind, separator: Self.lineFeed, in: &order)
    case .failure(let failure): code = PushPart.code(failure.reason, isByName: isByName)
    }
    if let code { loop.push.refuse(entry, code, separator: Self.lineFeed, in: &order) }
  }

  func end(_ reason: StreamEnd) {
    guard case .reading = state else { return }
    switch reason {
    case .tokenExpired: state = .ending(.tokenExpired)
    case .tokenRevoked: state = .ending(.tokenRevoked)
    // Unanswered lines were not processed.
    case .draining: state = .ending(nil)
    }
  }

  // MARK: Lines

  func read(_ loop: GatewayLoop) {
    loop.streams.readBody(self) { bytes, isEnd in
      var taken = 0
      while hasRoom(), loop.streams.canSend(self) {
        switch lines.next(bytes, from: taken, isEnd: isEnd) {
        case .line(let line, let end):
          itemsRead += 1
          loop.rates.chargeStream(self)
          handle(bytes.extracting(line), loop)
          taken = end
        case .tooLong(let end):
          itemsRead += 1
          loop.rates.chargeStream(self)
          refuse(.lineTooLong, loop)
          taken = end
        case .needsMore(let end):
          if isEnd { state = .ending(nil) }
          hasPartialItem = end < bytes.byteCount
          return end
        }
      }
      return taken
    }
  }

  private func hasRoom() -> Bool {
    lacksRoom = !order.hasRoom() || isTurnOver
    return !lacksRoom
  }

  private func handle(_ line: RawSpan, _ loop: GatewayLoop) {
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
    let code = loop.push.send(ack, source: nil, wantsNames: true, in: &order) { isByName in
      pendingRequest(.ack(entry: entry, isByName: isByName))
    }
    if let code {
      loop.push.refuse(entry, code, separator: Self.lineFeed, in: &order)
    } else {
      loop.streams.recordSent()
    }
  }

  /// Answer a line that is no valid push ack.
  private func refuse(_ code: ProblemCode, _ loop: GatewayLoop) {
    let entry = order.nextEntry
    var labels = AckLabels()
    labels.source = .worker
    order.begin(labels)
    loop.push.refuse(entry, code, separator: Self.lineFeed, in: &order)
  }

  // MARK: Responses

  func write(_ loop: GatewayLoop) {
    guard order.orderedResults.readableBytes > 0 else { return }
    isFull = !loop.streams.write(self, order.orderedResults)
    if !isFull { order.clearOrderedResults() }
  }

  func finish(_ loop: GatewayLoop) {
    guard case .ending(let code) = state, order.waiting == 0 else { return }
    if let code {
      state = .ending(nil)
      refuse(code, loop)
      write(loop)
    }
    if order.orderedResults.readableBytes == 0 { loop.streams.finish(self) }
  }
}
