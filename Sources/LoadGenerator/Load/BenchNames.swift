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

  /// Names with a random prefix.
  package static func random() -> BenchNames {
    BenchNames(prefix: "b" + String(UInt32.random(in: 0x1000_0000...UInt32.max), radix: 16))
  }

  /// Cid of a channel, from 0.
  package func channel(_ channel: Int) -> String {
    "messaging:" + channelID(channel)
  }

  /// Id of a message, from 0, of a channel; with the connection for messages that are registered in the run.
  package func message(_ message: Int, of channel: Int, by connection: Int? = nil) -> String {
    let channelDigits = Self.digits(channel, width: DigitTemplate.channelWidth)
    let by = connection.map { "r\($0)-" } ?? ""
    return "\(prefix)-\(by)\(channelDigits)-\(Self.digits(message, width: DigitTemplate.messageWidth))"
  }

  /// User of a connection, from 0.
  package func user(_ connection: Int) -> String { "\(prefix)-user-\(connection)" }

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
