/// The effect of a member's mark-unread on what others see (R4).
package enum MarkUnreadOption: UInt8, Sendable, CaseIterable {
  /// Others still see the watermark.
  case `private` = 0
  /// Others see the member's own position.
  case `public` = 1
  /// Mark-unread is refused with `mark_unread_off`.
  case off = 2
}

/// The position at which a new member starts (R6).
package enum HistoryOption: UInt8, Sendable, CaseIterable {
  /// Read up to the newest message.
  case visible = 0
  /// At 0, and nothing before the join counts as unread.
  case hidden = 1
}

/// The channels in which mark-read also acknowledges messages (R9).
package enum ReadAcksOption: UInt8, Sendable, CaseIterable {
  /// Only in two-member channels.
  case direct = 0
  case always = 1
  case never = 2
}

/// The members who see counts, lists and other members' rows (R10).
package enum CountsVisibleOption: UInt8, Sendable, CaseIterable {
  case members = 0
  /// Only the message's sender.
  case sender = 1
}

/// How many of the expected, non-hidden members must have a message for it to be delivered, or read (R19).
package enum StatusRule: Hashable, Sendable {
  /// One member.
  case any
  case all
  /// min(this, expected); at least 1.
  case count(UInt32)
  /// A share of the recipients, rounded up; 1 to 100.
  case percentage(UInt8)

  /// Return the number of members needed out of `expected`; at least 1.
  package func needed(of expected: UInt32) -> UInt32 {
    switch self {
    case .any: 1
    case .all: max(1, expected)
    case .count(let count): max(1, min(count, expected))
    case .percentage(let percentage): max(1, UInt32((UInt64(expected) * UInt64(percentage) + 99) / 100))
    }
  }
}

/// A value that a patch sets or clears.
package enum Nullable<Value: Hashable & Sendable>: Hashable, Sendable {
  case null
  case value(Value)

  package init(_ value: Value?) { self = value.map { .value($0) } ?? .null }

  package var value: Value? {
    if case .value(let value) = self { return value }
    return nil
  }
}

/// The effective options of a channel: its type's, overridden by the channel's own.
package struct ChannelTypeOptions: Hashable, Sendable {
  package var readEvents = true
  package var deliveryEvents = true
  package var markUnread = MarkUnreadOption.private
  package var history = HistoryOption.visible
  package var readAcksReceipts = ReadAcksOption.direct
  /// Seconds from registration until an incomplete acknowledgement request expires; nil: never (R9).
  package var receiptTTL: UInt32?
  /// How many acknowledgements of a message keep their time and note; nil: all (R9).
  package var receiptMembersMax: UInt32?
  /// How many messages with an acknowledgement request the channel accepts in a UTC day; nil: unlimited (R9).
  package var receiptDailyLimit: UInt32?
  /// Only members with one of these roles may request acknowledgement; nil: everybody (R9).
  package var receiptRequestRoles: [String]?
  package var countsVisibleTo = CountsVisibleOption.members
  package var statusRule = StatusRule.any
  /// How many moves of each of a member's watermarks keep their time, 0 to 4096 (R17).
  package var keptSteps: UInt16 = 64
  /// The reminders of messages without their own (R22); nil: none. Never empty.
  package var reminders: [ReminderRule]?

  package static let keptStepsMax = 4_096
  package static let requestRolesMax = 64

  /// The defaults of Proto/openapi.yaml.
  package init() {}

  /// Return these options with `patch` applied.
  package func applying(_ patch: OptionPatch) -> ChannelTypeOptions {
    var result = self
    if let value = patch.readEvents { result.readEvents = value }
    if let value = patch.deliveryEvents { result.deliveryEvents = value }
    if let value = patch.markUnread { result.markUnread = value }
    if let value = patch.history { result.history = value }
    if let value = patch.readAcksReceipts { result.readAcksReceipts = value }
    if let value = patch.receiptTTL { result.receiptTTL = value.value }
    if let value = patch.receiptMembersMax { result.receiptMembersMax = value.value }
    if let value = patch.receiptDailyLimit { result.receiptDailyLimit = value.value }
    if let value = patch.receiptRequestRoles { result.receiptRequestRoles = value.value }
    if let value = patch.countsVisibleTo { result.countsVisibleTo = value }
    if let value = patch.statusRule { result.statusRule = value }
    if let value = patch.keptSteps { result.keptSteps = value }
    if let value = patch.reminders { result.reminders = value.isEmpty ? nil : value }
    return result
  }

  /// The patch that turns the defaults into these options.
  package var asPatch: OptionPatch {
    let defaults = ChannelTypeOptions()
    var patch = OptionPatch()
    if readEvents != defaults.readEvents { patch.readEvents = readEvents }
    if deliveryEvents != defaults.deliveryEvents { patch.deliveryEvents = deliveryEvents }
    if markUnread != defaults.markUnread { patch.markUnread = markUnread }
    if history != defaults.history { patch.history = history }
    if readAcksReceipts != defaults.readAcksReceipts { patch.readAcksReceipts = readAcksReceipts }
    if receiptTTL != defaults.receiptTTL { patch.receiptTTL = Nullable(receiptTTL) }
    if receiptMembersMax != defaults.receiptMembersMax {
      patch.receiptMembersMax = Nullable(receiptMembersMax)
    }
    if receiptDailyLimit != defaults.receiptDailyLimit {
      patch.receiptDailyLimit = Nullable(receiptDailyLimit)
    }
    if receiptRequestRoles != defaults.receiptRequestRoles {
      patch.receiptRequestRoles = Nullable(receiptRequestRoles)
    }
    if countsVisibleTo != defaults.countsVisibleTo { patch.countsVisibleTo = countsVisibleTo }
    if statusRule != defaults.statusRule { patch.statusRule = statusRule }
    if keptSteps != defaults.keptSteps { patch.keptSteps = keptSteps }
    if reminders != defaults.reminders { patch.reminders = reminders }
    return patch
  }
}

/// A partial update of options: nil leaves an option unchanged.
package struct OptionPatch: Hashable, Sendable {
  package var readEvents: Bool?
  package var deliveryEvents: Bool?
  package var markUnread: MarkUnreadOption?
  package var history: HistoryOption?
  package var readAcksReceipts: ReadAcksOption?
  package var receiptTTL: Nullable<UInt32>?
  package var receiptMembersMax: Nullable<UInt32>?
  package var receiptDailyLimit: Nullable<UInt32>?
  package var receiptRequestRoles: Nullable<[String]>?
  package var countsVisibleTo: CountsVisibleOption?
  package var statusRule: StatusRule?
  package var keptSteps: UInt16?
  /// Empty: no reminders.
  package var reminders: [ReminderRule]?

  package init() {}

  /// Whether no option is set.
  package var isEmpty: Bool { self == OptionPatch() }

  /// Return this patch overridden by `later`.
  package func merging(_ later: OptionPatch) -> OptionPatch {
    var result = self
    if let value = later.readEvents { result.readEvents = value }
    if let value = later.deliveryEvents { result.deliveryEvents = value }
    if let value = later.markUnread { result.markUnread = value }
    if let value = later.history { result.history = value }
    if let value = later.readAcksReceipts { result.readAcksReceipts = value }
    if let value = later.receiptTTL { result.receiptTTL = value }
    if let value = later.receiptMembersMax { result.receiptMembersMax = value }
    if let value = later.receiptDailyLimit { result.receiptDailyLimit = value }
    if let value = later.receiptRequestRoles { result.receiptRequestRoles = value }
    if let value = later.countsVisibleTo { result.countsVisibleTo = value }
    if let value = later.statusRule { result.statusRule = value }
    if let value = later.keptSteps { result.keptSteps = value }
    if let value = later.reminders { result.reminders = value }
    return result
  }
}

/// A channel type's versioned options. Version 0: never set, every option has its default.
package struct ChannelTypeRecord: Hashable, Sendable {
  package var name: String
  package var version: UInt64
  package var options: ChannelTypeOptions
  /// In the type's home shard: every shard has this version.
  package var isSettled: Bool
  /// When this shard applied this version. Each shard has its own.
  package var appliedAt: Timestamp

  package init(
    name: String,
    version: UInt64 = 0,
    options: ChannelTypeOptions = ChannelTypeOptions(),
    isSettled: Bool = false,
    appliedAt: Timestamp = .none
  ) {
    self.name = name
    self.version = version
    self.options = options
    self.isSettled = isSettled
    self.appliedAt = appliedAt
  }
}

/// The channel types of a shard with their options. Types whose options were never set have the defaults; they are
/// known only because a channel has that type, and are neither logged nor listed.
package struct ChannelTypeTable: ~Copyable, Sendable {
  /// Maximum number of channel types with set options: a listing sends all of them in one frame.
  package static let typesMax = 1_024

  private var records: [ChannelTypeRecord] = []
  private var positions: [String: Int] = [:]
  /// By type index: the options before the last change, for channels with subscribers.
  private var optionsBefore: [Int: ChannelTypeOptions] = [:]

  /// A type's record, by its index.
  package subscript(position: Int) -> ChannelTypeRecord { records[position] }

  /// Whether no type is known.
  package var isEmpty: Bool { records.isEmpty }

  /// The types whose options were set. Other types have the defaults, and are known only because a channel has that
  /// type.
  package var setRecords: [ChannelTypeRecord] { records.filter { $0.version > 0 } }

  /// Whether another type can be set.
  package var hasRoom: Bool { setRecords.count < Self.typesMax }

  /// Return the record of a channel type; version 0 and the defaults if it was never set.
  package func record(_ name: String) -> ChannelTypeRecord {
    positions[name].map { records[$0] } ?? ChannelTypeRecord(name: name)
  }

  /// Return a type's options.
  @inline(__always)
  func options(_ position: Int) -> ChannelTypeOptions { records[position].options }

  /// Return a type's options before its last change since the shard was loaded.
  func optionsBefore(_ position: Int) -> ChannelTypeOptions {
    optionsBefore[position] ?? records[position].options
  }

  /// The effects that reproduce the types page.
  var effects: [Effect] {
    setRecords.flatMap { record -> [Effect] in
      let assigned = Effect.shard(.channelTypeAssigned(record))
      return record.isSettled
        ? [assigned, .shard(.typeSettled(name: record.name, version: record.version))] : [assigned]
    }
  }

  // MARK: Deciding

  /// Merge options into a channel type's: the home shard's part of a PUT.
  package func decidePatch(_ name: String, _ patch: OptionPatch, at time: Timestamp, into effects: inout [Effect]) {
    let current = record(name)
    let options = current.options.applying(patch)
    guard options != current.options || current.version == 0 else { return }
    let changed = ChannelTypeRecord(name: name, version: current.version + 1, options: options, appliedAt: time)
    effects.append(.shard(.channelTypeAssigned(changed)))
  }

  /// Apply a channel type's value from its home shard, unless this shard has a newer one.
  package func decideAssign(_ record: ChannelTypeRecord, at time: Timestamp, into effects: inout [Effect]) {
    guard record.version > self.record(record.name).version else { return }
    var applied = record
    applied.appliedAt = time
    effects.append(.shard(.channelTypeAssigned(applied)))
  }

  /// Settle a version of a channel type: every shard has it.
  ///
  /// - Returns: whether it is settled now; false if there is a newer version.
  package func decideSettle(_ name: String, version: UInt64, into effects: inout [Effect]) -> Bool {
    let current = record(name)
    guard current.version == version else { return false }
    if version > 0, !current.isSettled {
      effects.append(.shard(.typeSettled(name: name, version: version)))
    }
    return true
  }

  // MARK: Assignment

  /// Return the index of a type's record. Adds a record with the defaults for an unknown type.
  mutating func position(_ name: String) -> Int {
    if let position = positions[name] { return position }
    records.append(ChannelTypeRecord(name: name))
    positions[name] = records.count - 1
    return records.count - 1
  }

  mutating func assign(_ record: ChannelTypeRecord) {
    let position = position(record.name)
    optionsBefore[position] = records[position].options
    records[position] = record
  }

  /// Record that all shards have a version of a type.
  mutating func settle(_ name: String, version: UInt64) {
    let position = position(name)
    if records[position].version == version { records[position].isSettled = true }
  }
}
