/// Names of a bench's channels and messages. Numbers have a fixed width, so that a request is made from the one before
/// it by overwriting digits.
struct BenchNames: Sendable, Hashable {
  /// Limit of channels with four digits.
  static let channelsMax = 10_000
  /// Limit of messages per channel with six digits.
  static let messagesMax = 1_000_000

  /// Prefix of one run, so that runs do not share channels.
  let prefix: String

  /// Names with a random prefix.
  static func random() -> BenchNames {
    BenchNames(prefix: "b" + String(UInt32.random(in: 0x1000_0000...UInt32.max), radix: 16))
  }

  /// Cid of a channel, from 0.
  func channel(_ channel: Int) -> String {
    "messaging:" + channelID(channel)
  }

  /// Id of a message, from 0, of a channel; with the connection for messages that are registered in the run.
  func message(_ message: Int, of channel: Int, by connection: Int? = nil) -> String {
    let channelDigits = Self.digits(channel, width: DigitTemplate.channelWidth)
    let by = connection.map { "r\($0)-" } ?? ""
    return "\(prefix)-\(by)\(channelDigits)-\(Self.digits(message, width: DigitTemplate.messageWidth))"
  }

  /// User of a connection, from 0.
  func user(_ connection: Int) -> String { "\(prefix)-user-\(connection)" }

  /// Redis key of a channel's watermarks: the channel's id.
  func redisKey(_ channel: Int) -> String { channelID(channel) }

  /// Id of a channel, without its type.
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
  private static func write(_ number: Int, _ width: Int, into bytes: UnsafeMutableRawBufferPointer, at offset: Int) {
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
