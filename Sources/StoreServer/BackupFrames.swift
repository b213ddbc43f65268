internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// Backup requests of one connection: at most ``BackupLimits/inFlightMax`` unanswered. The backup ends if its client is
/// silent for too long.
final class BackupFrames {
  /// Idle timeout. A client asks for the next part right after the last one, or compares 16 MiB of its own meanwhile.
  static let silenceMax = TimeAmount.minutes(2)

  private let backups: BackupServer
  private let owner: BackupOwnership.Owner
  private let eventLoop: any EventLoop
  /// Writes to the connection.
  private let write: (ByteBuffer) -> Void
  private var unanswered = 0
  private var silence: Scheduled<Void>?

  init(backups: BackupServer, eventLoop: any EventLoop, write: @escaping (ByteBuffer) -> Void) {
    self.backups = backups
    self.eventLoop = eventLoop
    self.write = write
    owner = backups.makeOwner()
  }

  /// Receive one request. Throws where its payload does not parse.
  func receive(_ header: FrameHeader, _ payload: RawSpan, _ serving: ServingState) throws(WireError) {
    guard unanswered < BackupLimits.inFlightMax else {
      let detail = "at most \(BackupLimits.inFlightMax) requests of a backup at once"
      return refuse(header, BackupRefusal(code: .busy, detail: detail, retryAfterMilliseconds: 100))
    }
    let bound = NIOLoopBound(self, eventLoop: eventLoop)
    let eventLoop = eventLoop
    switch header.kind {
    case .backupBegin:
      try FieldReader(payload).end()
      countRequest()
      backups.begin(owner, serving.current()?.hosts ?? []) { result in
        eventLoop.execute { bound.value.reply(header, result) { $0.write(into: &$1) } }
      }
    case .backupRead:
      let part = try BackupPart(payload)
      countRequest()
      backups.read(owner, part) { result in
        eventLoop.execute {
          bound.value.reply(header, result) { value, buffer in
            buffer.writeBytes(value.1)
            buffer.writeImmutableBuffer(value.0)
          }
        }
      }
    case .backupDigest:
      let part = try BackupPart(payload)
      countRequest()
      backups.digest(owner, part) { result in
        eventLoop.execute { bound.value.reply(header, result) { $1.writeBytes($0) } }
      }
    case .backupEnd:
      try FieldReader(payload).end()
      countRequest()
      backups.end(owner, reason: "done") {
        eventLoop.execute { bound.value.reply(header, Result<Void, BackupRefusal>.success(())) { _, _ in } }
      }
    default: throw .unknownKind(header.kind.rawValue)
    }
  }

  /// End the backup of a closed connection.
  func close() {
    silence?.cancel()
    backups.end(owner, reason: "its connection was closed")
  }

  private func countRequest() {
    unanswered += 1
    silence?.cancel()
    silence = nil
  }

  private func reply<Value>(
    _ header: FrameHeader,
    _ result: Result<Value, BackupRefusal>,
    _ fields: (Value, inout ByteBuffer) -> Void
  ) {
    unanswered -= 1
    if unanswered == 0 { waitForMore() }
    switch result {
    case .failure(let refusal): refuse(header, refusal)
    case .success(let value):
      var buffer = ByteBuffer()
      buffer.writeFrame(FrameHeader(header.kind.reply, correlation: header.correlation)) {
        fields(value, &$0)
      }
      write(buffer)
    }
  }

  private func waitForMore() {
    let backups = backups
    let owner = owner
    silence = eventLoop.scheduleTask(in: Self.silenceMax) {
      backups.end(owner, reason: "its client was silent")
    }
  }

  private func refuse(_ header: FrameHeader, _ refusal: BackupRefusal) {
    var buffer = ByteBuffer()
    buffer.writeError(
      refusal.code,
      correlation: header.correlation,
      retryAfterMilliseconds: refusal.retryAfterMilliseconds,
      detail: refusal.detail
    )
    write(buffer)
  }
}
