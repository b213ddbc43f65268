internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// Backup requests of one connection: at most ``BackupLimits/inFlightMax`` unanswered. The backup ends if its client is
/// silent for too long.
final class BackupFrames {
  /// Idle timeout. A client asks for the next part right after the last one, or compares 16 MiB of its own meanwhile.
  static let silenceMax = TimeAmount.minutes(2)

  private let backups: BackupServer
  private let connection: CurrentBackup.ConnectionID
  private let eventLoop: any EventLoop
  private let replies: PartReplies

  /// - Parameter write: writes to the connection.
  init(backups: BackupServer, eventLoop: any EventLoop, write: @escaping (ByteBuffer) -> Void) {
    self.backups = backups
    self.eventLoop = eventLoop
    let connection = backups.makeConnectionID()
    self.connection = connection
    replies = PartReplies(
      eventLoop: eventLoop,
      silenceMax: Self.silenceMax,
      timedOut: { backups.end(connection, reason: "its client was silent") },
      write: write
    )
  }

  /// Receive one request. Throws where its payload does not parse.
  func receive(_ header: FrameHeader, _ payload: RawSpan, _ serving: ServingState) throws(WireError) {
    guard replies.unanswered < BackupLimits.inFlightMax else {
      let detail = "at most \(BackupLimits.inFlightMax) requests of a backup at once"
      return replies.refuse(header, PartRefusal(code: .busy, detail: detail, retryAfterMilliseconds: 100))
    }
    let bound = NIOLoopBound(replies, eventLoop: eventLoop)
    let eventLoop = eventLoop
    switch header.kind {
    case .backupBegin:
      try FieldReader(payload).end()
      replies.begin()
      backups.begin(connection, serving.current()?.hosts ?? []) { result in
        eventLoop.execute { bound.value.reply(header, result) { $0.write(into: &$1) } }
      }
    case .backupRead:
      let part = try BackupPart(payload)
      replies.begin()
      backups.read(connection, part) { result in
        eventLoop.execute {
          bound.value.reply(header, result) { value, buffer in
            buffer.writeBytes(value.1)
            buffer.writeImmutableBuffer(value.0)
          }
        }
      }
    case .backupDigest:
      let part = try BackupPart(payload)
      replies.begin()
      backups.digest(connection, part) { result in
        eventLoop.execute { bound.value.reply(header, result) { $1.writeBytes($0) } }
      }
    case .backupEnd:
      try FieldReader(payload).end()
      replies.begin()
      backups.end(connection, reason: "done") {
        eventLoop.execute { bound.value.reply(header, Result<Void, PartRefusal>.success(())) { _, _ in } }
      }
    default: throw .unknownKind(header.kind.rawValue)
    }
  }

  /// End the backup of a closed connection.
  func close() {
    replies.cancelTimer()
    backups.end(connection, reason: "its connection was closed")
  }
}
