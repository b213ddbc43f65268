/// Form of the requests of a walk.
enum RequestForm: Sendable, Hashable {
  /// `POST …/read?message_id=ID`, no body.
  case query
  /// `POST …/read` with a JSON body.
  case body
  /// `mark_read` as a frame to the store.
  case frame
  /// `POST …/messages` with a new message.
  case register
  /// `GET …/read-state` of channels with this number of members.
  case readState(memberCount: Int)
  /// `GET …/messages/ID/status`.
  case status
  /// `GET /HSET/CHANNEL/USER/NUMBER` at webdis, as a self-made service would keep a watermark in Redis.
  case hashSet

  /// Status of a success.
  var successStatus: Int { self == .register ? 201 : 200 }

  /// Whether each request changes state: such a walk has an end, others start again.
  var isWrite: Bool {
    switch self {
    case .query, .body, .frame, .register, .hashSet: true
    case .readState, .status: false
    }
  }

  var hasBody: Bool { self == .body || self == .register }

  /// Whether the method is POST; otherwise it is GET.
  var isPost: Bool { self == .query || hasBody }
}

/// Walk of one connection through the messages of all channels: each request names the next message of its channel, so
/// that each mark moves the watermark and each registration is of a new message.
///
/// The channels are divided among the connection's streams, and a stream makes its next request after the response to
/// its last one. So at most one mark per user and channel is in flight, and the result does not depend on any order.
struct RequestWalk: Sendable {
  let names: BenchNames
  let form: RequestForm
  /// Number of the connection in the plan and of its user.
  let connection: Int
  let channelCount: Int
  let messageCount: Int

  /// Number from 1 of the last acknowledged message by channel, which is the expected watermark.
  private(set) var acknowledged: [UInt32]

  struct Position: Sendable {
    var channel: Int
    var message: Int
  }

  private let streams: Int
  /// Position of each stream's request in flight, or of its next one.
  private var positions: [Position]
  private var path: DigitTemplate
  private var body: DigitTemplate

  /// Return a number of channels that gives all streams equally many.
  static func channelCount(atLeast channels: Int, streams: Int) -> Int {
    (max(channels, streams) + streams - 1) / streams * streams
  }

  /// - Precondition: there are at least as many channels as streams.
  init(names: BenchNames, form: RequestForm, connection: Int, channelCount: Int, messageCount: Int, streams: Int) {
    precondition(channelCount >= streams && channelCount <= BenchNames.channelsMax)
    precondition(messageCount >= 1 && messageCount <= BenchNames.messagesMax)
    self.names = names
    self.form = form
    self.connection = connection
    self.channelCount = channelCount
    self.messageCount = messageCount
    self.streams = streams
    acknowledged = Array(repeating: 0, count: channelCount)
    positions = (0..<streams).map { Position(channel: $0, message: 0) }

    let cid = "messaging:\(names.prefix)-{c}"
    let message = "\(names.prefix)-{c}-{m}"
    var body = ""
    switch form {
    case .query: path = DigitTemplate("/v1/channels/\(cid)/read?message_id=\(message)")
    case .body:
      path = DigitTemplate("/v1/channels/\(cid)/read")
      body = #"{"message_id":"\#(message)"}"#
    case .frame:
      path = DigitTemplate(cid)
      body = message
    case .register:
      path = DigitTemplate("/v1/channels/\(cid)/messages")
      body = #"{"id":"\#(names.prefix)-r\#(connection)-{c}-{m}"}"#
    case .readState:
      path = DigitTemplate("/v1/channels/\(cid)/read-state")
    case .status:
      path = DigitTemplate("/v1/channels/\(cid)/messages/\(message)/status")
    case .hashSet:
      path = DigitTemplate("/HSET/\(names.prefix)-{c}/\(names.user(connection))/{m}")
    }
    self.body = DigitTemplate(body)
  }

  /// Pass path and body of a stream's next request, or cid and message of its next frame, valid during the call.
  ///
  /// - Returns: false at the end of the stream's walk.
  @inline(__always)
  mutating func next(
    stream: Int,
    _ send: (_ path: UnsafeRawBufferPointer, _ body: UnsafeRawBufferPointer) -> Void
  ) -> Bool {
    let position = positions[stream]
    guard position.message < messageCount else { return false }
    path.fill(channel: position.channel, message: position.message) { path in
      if body.bytes.isEmpty {
        send(path, UnsafeRawBufferPointer(start: nil, count: 0))
      } else {
        body.fill(channel: position.channel, message: position.message) { send(path, $0) }
      }
    }
    return true
  }

  /// Return the position of a stream's request in flight.
  func position(of stream: Int) -> Position { positions[stream] }

  /// Advance a stream after a response: to its next channel, or after the last one to the next message.
  @inline(__always)
  mutating func answered(stream: Int, isAcknowledged: Bool) {
    let channel = positions[stream].channel
    if isAcknowledged { acknowledged[channel] = UInt32(truncatingIfNeeded: positions[stream].message + 1) }
    let next = channel + streams
    if next < channelCount {
      positions[stream].channel = next
    } else {
      positions[stream].channel = stream
      positions[stream].message += 1
      if !form.isWrite && positions[stream].message == messageCount { positions[stream].message = 0 }
    }
  }
}
