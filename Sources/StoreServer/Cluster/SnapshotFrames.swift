internal import NIOCore
internal import Operations
internal import ReceiptModel
internal import ReceiptWire

/// Requests for a snapshot or for record keys on one connection, one at a time.
final class SnapshotFrames {
  /// Idle timeout. A node asks for the next part as soon as it has written the last one.
  static let silenceMax = TimeAmount.seconds(30)

  private let snapshots: SnapshotServer
  private let connection: SnapshotServer.ConnectionID
  private let eventLoop: any EventLoop
  /// Whether the connection may carry users' data in plain text: it has TLS, or does not leave the machine.
  private let isProtected: Bool
  private let replies: PartReplies

  /// - Parameters:
  ///   - isTLS: whether the connection has TLS.
  ///   - peer: the other node's address.
  ///   - write: writes to the connection.
  init(
    snapshots: SnapshotServer,
    eventLoop: any EventLoop,
    isTLS: Bool,
    peer: SocketAddress?,
    write: @escaping (ByteBuffer) -> Void
  ) {
    self.snapshots = snapshots
    self.eventLoop = eventLoop
    isProtected = isTLS || peer.flatMap { PeerAddress($0) }?.isLoopback == true
    let connection = snapshots.makeConnectionID()
    self.connection = connection
    replies = PartReplies(
      eventLoop: eventLoop,
      silenceMax: Self.silenceMax,
      timedOut: { snapshots.end(connection, reason: "the other node was silent") },
      write: write
    )
  }

  /// Receive one request. Throws where its payload does not parse.
  func receive(_ header: FrameHeader, _ payload: RawSpan, _ serving: ServingState) throws(WireError) {
    guard isProtected else {
      return replies.refuse(
        header,
        PartRefusal(code: .unavailable, detail: "snapshots and record keys need TLS between nodes")
      )
    }
    guard replies.unanswered == 0 else {
      let detail = "one request at a time"
      return replies.refuse(header, PartRefusal(code: .busy, detail: detail, retryAfterMilliseconds: 100))
    }
    let bound = NIOLoopBound(replies, eventLoop: eventLoop)
    let eventLoop = eventLoop
    switch header.kind {
    case .snapshotBegin:
      let request = try SnapshotRequest(payload)
      replies.begin()
      snapshots.begin(connection, request, serving.current()) { result in
        eventLoop.execute { bound.value.reply(header, result) { $0.write(into: &$1) } }
      }
    case .snapshotRead:
      try FieldReader(payload).end()
      replies.begin()
      snapshots.read(connection) { result in
        let notBefore = (try? result.get().notBefore) ?? .now()
        eventLoop.scheduleTask(deadline: notBefore) {
          bound.value.reply(header, result) { $0.0.write(into: &$1) }
        }
      }
    case .recordKeys:
      let request = try RecordKeysRequest(payload)
      replies.begin()
      snapshots.keys(of: request.group, serving.current()) { result in
        eventLoop.execute { bound.value.reply(header, result) { $0.write(into: &$1) } }
      }
    default: throw .unknownKind(header.kind.rawValue)
    }
  }

  /// End the snapshot of a closed connection.
  func close() {
    replies.cancelTimer()
    snapshots.end(connection, reason: "its connection was closed")
  }
}
