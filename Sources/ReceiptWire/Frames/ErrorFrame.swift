package import NIOCore
package import ReceiptModel

/// The codes of an error frame (Proto/frames.md, "Errors").
package enum ErrorCode: UInt16, Sendable, CaseIterable {
  case malformedFrame = 1
  case frameTooLarge = 2
  case unsupportedVersion = 3
  case authenticationFailed = 4
  case unknownKind = 5
  case sessionExpired = 6
  case handshakeRequired = 7
  case handshakeTimeout = 8
  case superseded = 9
  case wrongShard = 20
  case busy = 21
  case unavailable = 22
  case outcomeUnknown = 23
  case notImplemented = 24
  case clockJump = 25
  case dataDirectoryLost = 26
  case notOwner = 27
  case invalidField = 30
  case channelNotFound = 31
  case notAMember = 32
  case messageNotFound = 33
  case messageDeleted = 34
  case markUnreadOff = 35
  case limitReached = 36
  case tokenRevoked = 37
  case orderNotAvailable = 38
  case countsNotVisible = 39
  case receiptNotRequested = 40
  case ownMessage = 41
  case receiptExpired = 42
  case notExpected = 43
  case invalidCursor = 44
  case userErased = 45
  case ticketInvalid = 46
  case ticketExpired = 47
  case messageConflict = 48
  case notInThread = 49
  case feedOff = 50
  case consumerNotFound = 51
  case consumerConflict = 52
  case leaseLost = 53
  case backupUnderWay = 61
  case backupNotFound = 62
  case backupFailed = 63
  case importConflict = 70
  case importGap = 71
  case importOrder = 72
  case timeInFuture = 73

  /// Whether the sender closes the connection after this error.
  package var endsConnection: Bool { rawValue < 20 }

  /// The name in documentation, logs and `tidemark probe`.
  package var name: String {
    switch self {
    case .malformedFrame: "malformed_frame"
    case .frameTooLarge: "frame_too_large"
    case .unsupportedVersion: "unsupported_version"
    case .authenticationFailed: "authentication_failed"
    case .unknownKind: "unknown_kind"
    case .sessionExpired: "session_expired"
    case .handshakeRequired: "handshake_required"
    case .handshakeTimeout: "handshake_timeout"
    case .superseded: "superseded"
    case .wrongShard: "wrong_shard"
    case .busy: "busy"
    case .unavailable: "unavailable"
    case .outcomeUnknown: "outcome_unknown"
    case .notImplemented: "not_implemented"
    case .clockJump: "clock_jump"
    case .dataDirectoryLost: "data_directory_lost"
    case .notOwner: "not_owner"
    case .invalidField: "invalid_field"
    case .channelNotFound: "channel_not_found"
    case .notAMember: "not_a_member"
    case .messageNotFound: "message_not_found"
    case .messageDeleted: "message_deleted"
    case .markUnreadOff: "mark_unread_off"
    case .limitReached: "limit_reached"
    case .tokenRevoked: "token_revoked"
    case .orderNotAvailable: "order_not_available"
    case .countsNotVisible: "counts_not_visible"
    case .receiptNotRequested: "receipt_not_requested"
    case .ownMessage: "own_message"
    case .receiptExpired: "receipt_expired"
    case .notExpected: "not_expected"
    case .invalidCursor: "invalid_cursor"
    case .userErased: "user_erased"
    case .ticketInvalid: "ticket_invalid"
    case .ticketExpired: "ticket_expired"
    case .messageConflict: "message_conflict"
    case .notInThread: "not_in_thread"
    case .feedOff: "feed_off"
    case .consumerNotFound: "consumer_not_found"
    case .consumerConflict: "consumer_conflict"
    case .leaseLost: "lease_lost"
    case .backupUnderWay: "backup_under_way"
    case .backupNotFound: "backup_not_found"
    case .backupFailed: "backup_failed"
    case .importConflict: "import_conflict"
    case .importGap: "import_gap"
    case .importOrder: "import_order"
    case .timeInFuture: "time_in_future"
    }
  }
}

/// An error frame's fields.
package struct ErrorFrame: Hashable, Sendable {
  /// The code as sent; ``code`` is set if this build knows it.
  package var rawCode: UInt64
  package var retryAfterMilliseconds: UInt32
  package var detail: String

  package var code: ErrorCode? { UInt16(exactly: rawCode).flatMap(ErrorCode.init(rawValue:)) }

  package init(_ payload: RawSpan) throws(WireError) {
    var reader = FieldReader(payload)
    self.rawCode = try reader.varint()
    self.retryAfterMilliseconds = try reader.varint32()
    self.detail = try reader.text()
    try reader.end()
  }
}

extension ByteBuffer {
  /// Maximum length of an error's detail, in bytes.
  private static let detailBytesMax = 256

  /// Write an error frame; truncate the detail to 256 bytes, at the boundary of a Unicode scalar.
  package mutating func writeError(
    _ code: ErrorCode,
    shard: ShardID = ShardID(0),
    correlation: UInt32 = 0,
    retryAfterMilliseconds: UInt32 = 0,
    detail: String = ""
  ) {
    writeFrame(FrameHeader(.error, shard: shard, correlation: correlation)) { buffer in
      buffer.writeVarint(UInt64(code.rawValue))
      buffer.writeVarint(retryAfterMilliseconds)
      buffer.writeField(Self.truncatedDetail(detail))
    }
  }

  private static func truncatedDetail(_ detail: String) -> String {
    guard detail.utf8.count > detailBytesMax else { return detail }
    var end = detail.utf8.index(detail.startIndex, offsetBy: detailBytesMax)
    while end.samePosition(in: detail.unicodeScalars) == nil { end = detail.utf8.index(before: end) }
    return String(detail[..<end])
  }
}
