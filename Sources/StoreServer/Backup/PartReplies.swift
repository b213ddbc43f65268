internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// Refusal of a request for a backup or a snapshot.
struct PartRefusal: Error {
  var code: ErrorCode
  var detail: String
  var retryAfterMilliseconds: UInt32 = 0
}

/// Replies to one connection's requests for a backup or a snapshot: counts what is unanswered, and ends the transfer
/// when the other side is silent for too long.
final class PartReplies {
  private let eventLoop: any EventLoop
  private let silenceMax: TimeAmount
  /// Ends the transfer.
  private let timedOut: @Sendable () -> Void
  /// Writes to the connection.
  private let write: (ByteBuffer) -> Void
  private(set) var unanswered = 0
  private var silence: Scheduled<Void>?

  init(
    eventLoop: any EventLoop,
    silenceMax: TimeAmount,
    timedOut: @escaping @Sendable () -> Void,
    write: @escaping (ByteBuffer) -> Void
  ) {
    self.eventLoop = eventLoop
    self.silenceMax = silenceMax
    self.timedOut = timedOut
    self.write = write
  }

  /// Count a request that ``reply(_:_:_:)`` will answer.
  func begin() {
    unanswered += 1
    cancelTimer()
  }

  /// Answer a request with the fields of its reply, or refuse it.
  func reply<Value>(
    _ header: FrameHeader,
    _ result: Result<Value, PartRefusal>,
    _ fields: (Value, inout ByteBuffer) -> Void
  ) {
    unanswered -= 1
    if unanswered == 0 { silence = eventLoop.scheduleTask(in: silenceMax, timedOut) }
    switch result {
    case .failure(let refusal): refuse(header, refusal)
    case .success(let value):
      var buffer = ByteBuffer()
      buffer.writeFrame(header.reply) { fields(value, &$0) }
      write(buffer)
    }
  }

  /// Refuse a request that was not counted.
  func refuse(_ header: FrameHeader, _ refusal: PartRefusal) {
    var buffer = ByteBuffer()
    buffer.writeError(
      refusal.code,
      correlation: header.correlation,
      retryAfterMilliseconds: refusal.retryAfterMilliseconds,
      detail: refusal.detail
    )
    write(buffer)
  }

  /// Stop waiting for the next request: silence no longer ends the transfer.
  func cancelTimer() {
    silence?.cancel()
    silence = nil
  }
}
