internal import ReceiptModel
internal import ReceiptWire

/// One request while it is performed: its fields, its connection, its session and counter, and what earlier attempts at
/// it have found.
struct Request: ~Copyable, ~Escapable {
  let header: FrameHeader
  /// The whole payload, including the bytes after the fields of the kind.
  let payload: RawSpan
  /// The fields that are not read yet.
  var fields: FieldReader
  /// Unchecked for speed: the caller that performs a request retains its connection.
  unowned(unsafe) let lane: ReplyLane
  /// Issue time of the requesting user's token, in seconds since 1970; nil if the request carries none, so no token is
  /// checked.
  let issued: UInt32?
  /// Counter of a command, once it is known; nil for a query.
  private(set) var counter: UInt64?
  /// Index of the command's session in the shard's session table.
  private(set) var session: Int32 = -1
  /// The command counts as applied: it must not be applied again.
  private(set) var isDuplicate = false
  /// Number of the last membership change before the command.
  private(set) var outboxBefore: UInt64 = 0
  /// Effects that were decided for the command. The shard has their buffer while no command is performed.
  var effects: [Effect] = []
  /// The results of earlier attempts; nil for the first attempt.
  var attempt: RequestAttempt?

  @inline(__always)
  @_lifetime(copy payload)
  init(_ header: FrameHeader, _ payload: RawSpan, _ lane: ReplyLane) throws(WireError) {
    self.header = header
    self.payload = payload
    self.lane = lane
    guard header.flags.contains(.issued) else {
      issued = nil
      fields = FieldReader(payload)
      return
    }
    let count = payload.byteCount - FrameHeader.issuedByteCount
    guard count >= 0 else { throw .truncated }
    issued = UInt32(bigEndian: payload.unsafeLoadUnaligned(fromByteOffset: count, as: UInt32.self))
    fields = FieldReader(payload.extracting(first: count))
  }

  var kind: FrameKind { header.kind }

  /// Segments that were read for the request so far.
  var segments: ReadSegments { attempt?.segments ?? ReadSegments() }

  /// Record a command's counter, the index of its session, and the last membership change before it.
  @inline(__always)
  @_lifetime(self: copy self)
  mutating func begin(_ counter: UInt64, session: Int32, isDuplicate: Bool, outboxBefore: UInt64) {
    self.counter = counter
    self.session = session
    self.isDuplicate = isDuplicate
    self.outboxBefore = outboxBefore
  }

  /// Whether the command was looked up in its session.
  var isBegun: Bool { session >= 0 }

  /// Record the counter of a command that is not begun in this attempt.
  @_lifetime(self: copy self)
  mutating func recordCounter(_ counter: UInt64?) { self.counter = counter }

  /// Return a command's counter before its fields are read; nil for a query. The counter is the field after the name,
  /// or the first one in a ticket's command.
  func counterAhead() throws(WireError) -> UInt64? {
    guard kind.isCommand else { return nil }
    var reader = FieldReader(payload)
    if kind.traits.contains(.named) { _ = try reader.string() }
    return try Self.counter(&reader)
  }

  /// Read a command's counter. Counters begin at 1: in every session record 0 counts as applied, so a command with it
  /// would be answered like that.
  @inline(__always)
  static func counter(_ reader: inout FieldReader) throws(WireError) -> UInt64 {
    let counter = try reader.varint()
    guard counter > 0 else { throw .badValue(.counter) }
    return counter
  }
}

/// The results of earlier attempts at a request. Each attempt performs the request from its first byte, so every check
/// is repeated.
struct RequestAttempt {
  /// Progress of a long request.
  enum Progress {
    case list(MemberListScan)
    /// A record of the feed waits for this channel.
    case feedLookup(ChannelNumber)
    /// The list of channels waits for the name of the next one.
    case storedChannels(StoredChannelList)
    /// Statuses of the first `count` messages.
    case statuses([Result<ShownStatus, Refusal>], count: Int)
    /// A user is being erased; `hasAppliedEffects`: some effects are applied already.
    case erase(EraseScan, user: String, hasAppliedEffects: Bool)
  }

  var progress: Progress?
  /// Number of the request among those that wait, from its first wait on; 0: it has not waited.
  var number: UInt64 = 0
  /// Segments that were read for the request so far, and the number of reads.
  var segments = ReadSegments()
  var stepRounds = 0
}

/// How an attempt at a request has ended.
enum Outcome {
  /// The reply is in the lane, or goes there when it may leave.
  case answered
  case refused(RefusedRequest)
  /// The shard's ``WaitingRequests`` keep the request.
  case waits(WaitReason)

  static func refused(
    _ code: ErrorCode,
    retryAfterMilliseconds: UInt32 = 0,
    _ detail: String,
    _ replyTiming: ReplyLane.Timing = .now
  ) -> Outcome {
    .refused(RefusedRequest(code, retryAfterMilliseconds: retryAfterMilliseconds, detail, replyTiming))
  }

  /// Answers a duplicate that would change something now. Either its original was applied to something that is gone, or
  /// the original was refused and the session no longer remembers that.
  static var unknownOutcome: Outcome {
    .refused(.outcomeUnknown, "a command with this counter was received before; its outcome is unknown")
  }

  static func refused(_ fault: (code: ErrorCode, detail: String)) -> Outcome {
    .refused(fault.code, fault.detail)
  }
}

/// The error that answers a request, and when it may leave. A refused command is not applied: a resend is decided
/// again.
struct RefusedRequest: Error {
  var code: ErrorCode
  var retryAfterMilliseconds: UInt32
  var detail: String
  var replyTiming: ReplyLane.Timing

  init(
    _ code: ErrorCode,
    retryAfterMilliseconds: UInt32 = 0,
    _ detail: String,
    _ replyTiming: ReplyLane.Timing = .now
  ) {
    self.code = code
    self.retryAfterMilliseconds = retryAfterMilliseconds
    self.detail = detail
    self.replyTiming = replyTiming
  }
}
