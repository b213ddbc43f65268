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
