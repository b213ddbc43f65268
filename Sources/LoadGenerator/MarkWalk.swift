/// How a mark-read names its message.
package enum MarkForm: String, Sendable, Hashable, CaseIterable {
  /// `POST …/read?message_id=ID`, no body.
  case query = "read-query"
  /// `POST …/read` with a JSON body.
  case body = "read-body"
}

/// The names of a bench's channels and messages. Numbers have a fixed width, so that a request is made from the one
/// before it by writing digits over digits.
package struct MarkNames: Sendable, Hashable {
  /// Most channels that four digits can tell apart.
  package static let channelsMax = 10_000
  /// Most messages per channel that six digits can tell apart.
  package static let messagesMax = 1_000_000

  /// Of one run, so that a run never meets the positions of another.
  package let prefix: String

  package init(prefix: String) { self.prefix = prefix }

  /// The cid of a channel, from 0.
  package func channel(_ channel: Int) -> String {
    "messaging:\(prefix)-" + Self.digits(channel, width: 4)
  }

  /// The id of a message, from 0, of a channel.
  package func message(_ message: Int, of channel: Int) -> String {
    "\(prefix)-\(Self.digits(channel, width: 4))-\(Self.digits(message, width: 6))"
  }

  /// The user of a connection, from 0.
  package func user(_ connection: Int) -> String { "\(prefix)-user-\(connection)" }

  private static func digits(_ number: Int, width: Int) -> String {
    let text = String(number)
    return String(repeating: "0", count: width - text.utf8.count) + text
  }
}

/// One user's way through the messages of all channels: each mark names the message after the last one that it named
/// in that channel, so that each moves the watermark.
///
/// The channels are dealt out to the connection's streams, and a stream makes its next request when its last one has
/// been answered. So of one user and channel one mark at a time is under way, and order needs no promise from anyone.
package struct MarkWalk: Sendable {
  package let names: MarkNames
  package let form: MarkForm
  package let channelCount: Int
  package let messageCount: Int

  /// By channel, the number from 1 of the last message whose mark was answered 200: where the watermark has to be.
  package private(set) var acknowledged: [UInt32]

  private struct Position {
    var channel: Int
    var message: Int
  }

  private let streams: Int
  /// What each stream's next mark is, or the one under way.
  private var positions: [Position]
  private var path: [UInt8]
  private var body: [UInt8]
  /// Where the digits are: each offset with the width of its number.
  private var channelOffsetsInPath: [Int]
  private var channelOffsetInBody: Int?
  private var messageOffset: Int

  /// A walk that has not begun. There have to be at least as many channels as streams.
  package init(names: MarkNames, form: MarkForm, channelCount: Int, messageCount: Int, streams: Int) {
    precondition(channelCount >= streams && channelCount <= MarkNames.channelsMax)
    precondition(messageCount <= MarkNames.messagesMax)
    self.names = names
    self.form = form
    self.channelCount = channelCount
    self.messageCount = messageCount
    self.streams = streams
    acknowledged = Array(repeating: 0, count: channelCount)
    positions = (0..<streams).map { Position(channel: $0, message: 0) }

    let start = Array("/v1/channels/\(names.channel(0))".utf8)
    let message = Array(names.message(0, of: 0).utf8)
    channelOffsetsInPath = [start.count - Self.channelWidth]
    // A message's id ends with channel, hyphen, number.
    let channelInMessage = message.count - Self.messageWidth - 1 - Self.channelWidth
    switch form {
    case .query:
      path = start + Array("/read?message_id=".utf8) + message
      body = []
      messageOffset = path.count - Self.messageWidth
      channelOffsetsInPath.append(path.count - message.count + channelInMessage)
      channelOffsetInBody = nil
    case .body:
      path = start + Array("/read".utf8)
      let opening = Array(#"{"message_id":""#.utf8)
      body = opening + message + Array(#""}"#.utf8)
      messageOffset = opening.count + message.count - Self.messageWidth
      channelOffsetInBody = opening.count + channelInMessage
    }
  }

  private static let channelWidth = 4
  private static let messageWidth = 6

  /// All marks that this walk has.
  package var markCount: Int { channelCount * messageCount }

  /// Hands out path and body of a stream's next mark, both valid during the call.
  ///
  /// - Returns: false if that stream has walked to the end of its channels.
  @inline(__always)
  mutating func next(
    stream: Int,
    _ send: (_ path: UnsafeRawBufferPointer, _ body: UnsafeRawBufferPointer) -> Void
  ) -> Bool {
    let position = positions[stream]
    guard position.message < messageCount else { return false }
    path.withUnsafeMutableBytes { path in
      for offset in channelOffsetsInPath {
        Self.write(position.channel, Self.channelWidth, into: path, at: offset)
      }
      switch form {
      case .query:
        Self.write(position.message, Self.messageWidth, into: path, at: messageOffset)
        send(UnsafeRawBufferPointer(path), UnsafeRawBufferPointer(start: nil, count: 0))
      case .body:
        body.withUnsafeMutableBytes { body in
          if let offset = channelOffsetInBody {
            Self.write(position.channel, Self.channelWidth, into: body, at: offset)
          }
          Self.write(position.message, Self.messageWidth, into: body, at: messageOffset)
          send(UnsafeRawBufferPointer(path), UnsafeRawBufferPointer(body))
        }
      }
    }
    return true
  }

  /// A stream's mark was answered; it goes on to its next channel, or, after its last, to the next message.
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
