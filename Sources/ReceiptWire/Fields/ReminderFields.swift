package import NIOCore
package import ReceiptModel

// Reminders and timers (R9, R22): the fields of Proto/frames.md, "Fields" and "The log and the pages".

extension FieldReader {
  /// Read list(varint seconds; byte condition; varint members): the rules of a channel type or a message. A list that
  /// is too long, or a value out of range, is refused as ``WireError/badValue(_:)`` of `optionValue`.
  @_lifetime(self: copy self)
  package mutating func reminderRules() throws(WireError) -> [ReminderRule] {
    let count = try count(elementBytesMin: 3)
    guard count <= ReminderRule.countMax else { throw .badValue(.optionValue) }
    var rules: [ReminderRule] = []
    for _ in 0..<count {
      let after = try varint32()
      let condition = ReminderCondition(rawValue: try byte())
      let membersMax = try varint32()
      guard let condition, (1...ReminderRule.afterMax).contains(after),
        (1...ReminderRule.membersMaxMax).contains(membersMax)
      else { throw .badValue(.optionValue) }
      rules.append(ReminderRule(after: after, condition, membersMax: membersMax))
    }
    return rules
  }

  @_lifetime(self: copy self)
  mutating func timerNumber() throws(WireError) -> UInt64 {
    let number = try varint()
    guard number > 0, number / PageID.timersPerPage <= UInt64(UInt32.max) else { throw .badValue(.effect) }
    return number
  }

  @_lifetime(self: copy self)
  mutating func timer() throws(WireError) -> MessageTimer {
    let channel = ChannelNumber(try varint())
    let thread = try sequence()
    let message = try sequence()
    let dueAt = try time()
    let after = try varint32()
    let byte = try byte()
    let purpose: MessageTimer.Purpose
    if byte == ByteBuffer.expiryPurpose {
      purpose = .expiry
    } else {
      guard let condition = ReminderCondition(rawValue: byte) else { throw .badValue(.effect) }
      purpose = .reminder(condition, membersMax: try varint32())
    }
    return MessageTimer(channel: channel, thread: thread, message: message, dueAt: dueAt, after: after, purpose)
  }
}

extension ByteBuffer {
  /// The purpose byte of an expiry; a reminder has its condition there.
  fileprivate static let expiryPurpose: UInt8 = 0xFF

  package mutating func writeReminderRules(_ rules: [ReminderRule]) {
    writeVarint(rules.count)
    for rule in rules {
      writeVarint(rule.after)
      writeByte(rule.condition.rawValue)
      writeVarint(rule.membersMax)
    }
  }

  mutating func writeTimer(_ timer: MessageTimer) {
    writeVarint(timer.channel.rawValue)
    writeSequence(timer.thread)
    writeSequence(timer.message)
    writeTime(timer.dueAt)
    writeVarint(timer.after)
    switch timer.purpose {
    case .expiry: writeByte(Self.expiryPurpose)
    case .reminder(let condition, let membersMax):
      writeByte(condition.rawValue)
      writeVarint(membersMax)
    }
  }
}
