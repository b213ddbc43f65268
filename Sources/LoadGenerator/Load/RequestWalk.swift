/// Form of the requests of a walk.
package enum RequestForm: Sendable, Hashable {
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
  package var successStatus: Int { self == .register ? 201 : 200 }

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

/// Names of a bench's channels and messages. Numbers have a fixed width, so that a request is made from the one before
/// it by overwriting digits.
package struct BenchNames: Sendable, Hashable {
  /// Limit of channels with four digits.
  package static let channelsMax = 10_000
  /// Limit of messages per channel with six digits.
  package static let messagesMax = 1_000_000

  /// Prefix of one run, so that runs do not share channels.
  package let prefix: String

  package init(prefix: String) { self.prefix = prefix }

  /// Return names with a random prefix.
  package static func random() -> BenchNames {
    BenchNames(prefix: "b" + String(UInt32.random(in: 0x1000_0000...UInt32.max), radix: 16))
  }

  /// Return the cid of a channel, from 0.
  package func channel(_ channel: Int) -> String {
    "messaging:" + channelID(channel)
  }

  /// Return the id of a message, from 0, of a channel; with the connection for messages that are registered in the run.
  package func message(_ message: Int, of channel: Int, by connection: Int? = nil) -> String {
    let channelDigits = Self.digits(channel, width: DigitTemplate.channelWidth)
    let by = connection.map { "r\($0)-" } ?? ""
    return "\(prefix)-\(by)\(channelDigits)-\(Self.digits(message, width: DigitTemplate.messageWidth))"
  }

  /// Return the user of a connection, from 0.
  package func user(_ connection: Int) -> String { "\(prefix)-user-\(connection)" }

  /// Return the Redis key of a channel's watermarks: the channel's id.
  func redisKey(_ channel: Int) -> String { channelID(channel) }

  /// Return the id of a channel, without its type.
  private func channelID(_ channel: Int) -> String {
    "\(prefix)-" + Self.digits(channel, width: DigitTemplate.channelWidth)
  }

  static func digits(_ number: Int, width: Int) -> String {
    let text = String(number)
    return String(repeating: "0", count: width - text.utf8.count) + text
  }
}

/// Bytes with placeholders for the digits of a channel and of a message.
struct DigitTemplate: Sendable {
  static let channelWidth = 4
  static let messageWidth = 6

  private(set) var bytes: [UInt8] = []
  private var channelOffsets: [Int] = []
  private var messageOffsets: [Int] = []

  /// - Parameter text: text in which `{c}` stands for a channel and `{m}` for a message.
  init(_ text: String) {
    var rest = Substring(text)
    while let first = rest.first {
      if rest.hasPrefix("{c}") {
        channelOffsets.append(bytes.count)
        bytes += Array(repeating: UInt8(ascii: "0"), count: Self.channelWidth)
        rest = rest.dropFirst(3)
      } else if rest.hasPrefix("{m}") {
        messageOffsets.append(bytes.count)
        bytes += Array(repeating: UInt8(ascii: "0"), count: Self.messageWidth)
        rest = rest.dropFirst(3)
      } else {
        bytes += Array(String(first).utf8)
        rest = rest.dropFirst()
      }
    }
  }

  /// Overwrite the digits and pass the bytes.
  @inline(__always)
  mutating func fill(channel: Int, message: Int, _ use: (UnsafeRawBufferPointer) -> Void) {
    bytes.withUnsafeMutableBytes { target in
      for offset in channelOffsets { Self.write(channel, Self.channelWidth, into: target, at: offset) }
      for offset in messageOffsets { Self.write(message, Self.messageWidth, into: target, at: offset) }
      use(UnsafeRawBufferPointer(target))
    }
  }

  @inline(__always)
  private static func write(
    _ number: Int,
    _ width: Int,
    into bytes: UnsafeMutableRawBufferPointer,
    at offset: Int
  ) {
    var rest = UInt32(truncatingIfNeeded: number)
    var index = offset + width
    while index > offset {
      index -= 1
      let (quotient, remainder) = rest.quotientAndRemainder(dividingBy: 10)
      bytes[index] = UInt8(truncatingIfNeeded: remainder) &+ UInt8(ascii: "0")
      rest = quotient
    }
  }
}

/// Walk of one connection through the messages of all channels: each request names the next message of its channel, so
/// that each mark moves the watermark and each registration is of a new message.
///
/// The channels are divided among the connection's streams, and a stream makes its next request after the response to
/// its last one. So at most one mark per user and channel is in flight, and the result does not depend on any order.
package struct RequestWalk: Sendable {
  package let names: BenchNames
  package let form: RequestForm
  /// Number of the connection in the plan and of its user.
  package let connection: Int
  package let channelCount: Int
  package let messageCount: Int

  /// Number from 1 of the last acknowledged message by channel, which is the expected watermark.
  package private(set) var acknowledged: [UInt32]

  struct Position: Sendable {
    var channel: Int
    var message: Int
  }

  private let streams: Int
  /// Position of each stream's request in flight, or of its next one.
  private var positions: [Position]
  private var path: DigitTemplate
  private var body: DigitTemplate

  /// - Precondition: there are at least as many channels as streams.
  package init(
    names: BenchNames,
    form: RequestForm,
    connection: Int,
    channelCount: Int,
    messageCount: Int,
    streams: Int
  ) {
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
    case .query:
      path = DigitTemplate("/v1/channels/\(cid)/read?message_id=\(message)")
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
