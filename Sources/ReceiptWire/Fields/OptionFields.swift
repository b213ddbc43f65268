package import NIOCore
package import ReceiptModel

/// The option numbers of Proto/frames.md.
package enum OptionNumber: UInt64, CaseIterable, Sendable {
  case readEvents = 1
  case deliveryEvents = 2
  case markUnread = 3
  case history = 4
  case readAcksReceipts = 5
  case receiptTTL = 6
  case receiptMembersMax = 7
  case receiptDailyLimit = 8
  case receiptRequestRoles = 9
  case countsVisibleTo = 10
  case statusRule = 11
  case keptSteps = 12
  case reminders = 13

  /// The name in Proto/frames.md and in the API.
  package var name: String {
    switch self {
    case .readEvents: "read_events"
    case .deliveryEvents: "delivery_events"
    case .markUnread: "mark_unread"
    case .history: "history"
    case .readAcksReceipts: "read_acks_receipts"
    case .receiptTTL: "receipt_ttl"
    case .receiptMembersMax: "receipt_max_members"
    case .receiptDailyLimit: "receipt_daily_limit"
    case .receiptRequestRoles: "receipt_request_roles"
    case .countsVisibleTo: "counts_visible_to"
    case .statusRule: "status_rule"
    case .keptSteps: "kept_steps"
    case .reminders: "reminders"
    }
  }
}

extension FieldReader {
  /// Read list(varint option; string value), rising, each at most once. Options of later versions are refused as
  /// ``WireError/badValue(_:)`` of `option`. A value that its option does not allow, or that has trailing bytes, is
  /// refused as `optionValue`.
  @_lifetime(self: copy self)
  package mutating func optionPatch() throws(WireError) -> OptionPatch {
    var patch = OptionPatch()
    var last: UInt64 = 0
    for _ in 0..<(try count(elementBytesMin: 2)) {
      let number = try varint()
      guard number > last else { throw .badValue(.option) }
      last = number
      guard let option = OptionNumber(rawValue: number) else { throw .badValue(.option) }
      var value = FieldReader(try string())
      do throws(WireError) {
        try value.option(option, into: &patch)
        try value.end()
      } catch {
        // The payload continues after the value, so any failure is the value's.
        throw .badValue(.optionValue)
      }
    }
    return patch
  }

  /// Read one option's value.
  @_lifetime(self: copy self)
  private mutating func option(_ option: OptionNumber, into patch: inout OptionPatch) throws(WireError) {
    switch option {
    case .readEvents: patch.readEvents = try choice { $0 <= 1 ? $0 == 1 : nil }
    case .deliveryEvents: patch.deliveryEvents = try choice { $0 <= 1 ? $0 == 1 : nil }
    case .markUnread: patch.markUnread = try choice(MarkUnreadOption.init)
    case .history: patch.history = try choice(HistoryOption.init)
    case .readAcksReceipts: patch.readAcksReceipts = try choice(ReadAcksOption.init)
    case .receiptTTL:
      let seconds = try optional32()
      guard seconds != 0 else { throw .badValue(.optionValue) }
      patch.receiptTTL = Nullable(seconds)
    case .receiptMembersMax: patch.receiptMembersMax = Nullable(try optional32())
    case .receiptDailyLimit: patch.receiptDailyLimit = Nullable(try optional32())
    case .receiptRequestRoles: patch.receiptRequestRoles = Nullable(try requestRoles())
    case .countsVisibleTo: patch.countsVisibleTo = try choice(CountsVisibleOption.init)
    case .statusRule: patch.statusRule = try statusRule()
    case .keptSteps:
      let steps = try varint()
      guard steps <= ChannelTypeOptions.keptStepsMax else { throw .badValue(.optionValue) }
      patch.keptSteps = UInt16(steps)
    case .reminders: patch.reminders = try reminderRules()
    }
  }

  @_lifetime(self: copy self)
  private mutating func choice<Choice>(_ make: (UInt8) -> Choice?) throws(WireError) -> Choice {
    guard let choice = make(try byte()) else { throw .badValue(.optionValue) }
    return choice
  }

  @_lifetime(self: copy self)
  private mutating func requestRoles() throws(WireError) -> [String]? {
    guard try choice({ $0 <= 1 ? $0 == 1 : nil }) else { return nil }
    let count = try count(elementBytesMin: 2)
    guard count <= ChannelTypeOptions.requestRolesMax else { throw .badValue(.optionValue) }
    var roles: [String] = []
    for _ in 0..<count {
      let role = try string()
      guard Identifier.isRole(role) else { throw .badValue(.optionValue) }
      roles.append(role.withUnsafeBytes { String(decoding: $0, as: UTF8.self) })
    }
    return roles
  }

  @_lifetime(self: copy self)
  private mutating func statusRule() throws(WireError) -> StatusRule {
    switch try byte() {
    case 0: return .any
    case 1: return .all
    case 2:
      let count = try varint32()
      guard count > 0 else { throw .badValue(.optionValue) }
      return .count(count)
    case 3:
      let percentage = try byte()
      guard (1...100).contains(percentage) else { throw .badValue(.optionValue) }
      return .percentage(percentage)
    default: throw .badValue(.optionValue)
    }
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
    var values = OptionValues()
    if let value = patch.readEvents { values.add(.readEvents) { $0.writeFlag(value) } }
    if let value = patch.deliveryEvents {
      values.add(.deliveryEvents) { $0.writeFlag(value) }
    }
    if let value = patch.markUnread { values.add(.markUnread) { $0.writeByte(value.rawValue) } }
    if let value = patch.history { values.add(.history) { $0.writeByte(value.rawValue) } }
    if let value = patch.readAcksReceipts {
      values.add(.readAcksReceipts) { $0.writeByte(value.rawValue) }
    }
    if let value = patch.receiptTTL {
      values.add(.receiptTTL) { $0.writeOptional(value.value.map(UInt64.init)) }
    }
    if let value = patch.receiptMembersMax {
      values.add(.receiptMembersMax) { $0.writeOptional(value.value.map(UInt64.init)) }
    }
    if let value = patch.receiptDailyLimit {
      values.add(.receiptDailyLimit) { $0.writeOptional(value.value.map(UInt64.init)) }
    }
    if let value = patch.receiptRequestRoles {
      values.add(.receiptRequestRoles) { buffer in
        buffer.writeByte(value.value == nil ? 0 : 1)
        guard let roles = value.value else { return }
        buffer.writeVarint(roles.count)
        for role in roles { buffer.writeField(role) }
      }
    }
    if let value = patch.countsVisibleTo {
      values.add(.countsVisibleTo) { $0.writeByte(value.rawValue) }
    }
    if let value = patch.statusRule { values.add(.statusRule) { $0.writeStatusRule(value) } }
    if let value = patch.keptSteps { values.add(.keptSteps) { $0.writeVarint(UInt64(value)) } }
    if let value = patch.reminders { values.add(.reminders) { $0.writeReminderRules(value) } }
    writeVarint(values.count)
    writeImmutableBuffer(values.bytes)
  }

  private mutating func writeStatusRule(_ rule: StatusRule) {
    switch rule {
    case .any: writeByte(0)
    case .all: writeByte(1)
    case .count(let count):
      writeByte(2)
      writeVarint(count)
    case .percentage(let percentage):
      writeByte(3)
      writeInteger(percentage)
    }
  }

  /// Write only the options that differ from the defaults.
  package mutating func writeOptions(_ options: ChannelTypeOptions) { writeOptionPatch(options.asPatch) }

  package mutating func writeChannelTypeRecord(_ record: ChannelTypeRecord) {
    writeField(record.name)
    writeVarint(record.version)
    writeOptions(record.options)
  }
}

/// Options with their values, counted while they are written.
private struct OptionValues {
  private(set) var bytes = ByteBuffer()
  private(set) var count = 0

  mutating func add(_ number: OptionNumber, _ value: (inout ByteBuffer) -> Void) {
    var encoded = ByteBuffer()
    value(&encoded)
    bytes.writeVarint(number.rawValue)
    bytes.writeVarint(encoded.readableBytes)
    bytes.writeImmutableBuffer(encoded)
    count += 1
  }
}
