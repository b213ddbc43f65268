package import NIOCore
package import ReceiptModel

/// The option numbers of Proto/frames.md.
enum OptionNumber: UInt64 {
  case readEvents = 1
  case deliveryEvents = 2
  case markUnread = 3
  case history = 4
}

extension FieldReader {
  /// list(varint option; string value), rising, each at most once. Options of later versions are refused as
  /// ``WireError/badValue(_:)`` of `option`.
  @_lifetime(self: copy self)
  package mutating func optionPatch() throws(WireError) -> OptionPatch {
    var patch = OptionPatch()
    var last: UInt64 = 0
    for _ in 0..<(try count(elementBytesMin: 2)) {
      let number = try varint()
      guard number > last else { throw .badValue(.option) }
      last = number
      guard let option = OptionNumber(rawValue: number) else { throw .badValue(.option) }
      guard try varint() == 1 else { throw .badValue(.optionValue) }
      let value = try byte()
      switch option {
      case .readEvents:
        guard value <= 1 else { throw .badValue(.optionValue) }
        patch.readEvents = value == 1
      case .deliveryEvents:
        guard value <= 1 else { throw .badValue(.optionValue) }
        patch.deliveryEvents = value == 1
      case .markUnread:
        guard let value = MarkUnreadOption(rawValue: value) else { throw .badValue(.optionValue) }
        patch.markUnread = value
      case .history:
        guard let value = HistoryOption(rawValue: value) else { throw .badValue(.optionValue) }
        patch.history = value
      }
    }
    return patch
  }

  @_lifetime(self: copy self)
  package mutating func options() throws(WireError) -> ChannelTypeOptions {
    ChannelTypeOptions().applying(try optionPatch())
  }

  @_lifetime(self: copy self)
  package mutating func channelTypeRecord() throws(WireError) -> ChannelTypeRecord {
    let name = try text()
    let version = try varint()
    return ChannelTypeRecord(name: name, version: version, options: try options())
  }
}

extension ByteBuffer {
  package mutating func writeOptionPatch(_ patch: OptionPatch) {
    var entries: [(OptionNumber, UInt8)] = []
    if let value = patch.readEvents { entries.append((.readEvents, value ? 1 : 0)) }
    if let value = patch.deliveryEvents { entries.append((.deliveryEvents, value ? 1 : 0)) }
    if let value = patch.markUnread { entries.append((.markUnread, value.rawValue)) }
    if let value = patch.history { entries.append((.history, value.rawValue)) }
    writeVarint(entries.count)
    for (number, value) in entries {
      writeVarint(number.rawValue)
      writeInteger(UInt8(1))
      writeInteger(value)
    }
  }

  /// Only what differs from the defaults.
  package mutating func writeOptions(_ options: ChannelTypeOptions) { writeOptionPatch(options.asPatch) }

  package mutating func writeChannelTypeRecord(_ record: ChannelTypeRecord) {
    writeField(record.name)
    writeVarint(record.version)
    writeOptions(record.options)
  }
}
