internal import ReceiptModel

/// Counts of a ``LargeChannel``'s plan on a shard in this process, without frames, sockets and HTTP.
struct ShardCounting: ~Copyable {
  private var state = ShardState(id: ShardID(0))
  private let slot: ChannelSlot
  private let plan: MovePlan

  init(_ plan: MovePlan, hiding: Int = 0) {
    self.plan = plan
    let number = ChannelNumber(1)
    let time = Timestamp(milliseconds: 1)
    slot = state.insert(number, cid: "messaging:large", created: time, own: OptionPatch())
    for member in 0..<plan.members {
      let row = MemberOrdinal(UInt32(member))
      state.assign(
        .rowAssigned(row, RowRecord(user: "member-\(member)", joined: .zero, joinedAt: time)),
        to: slot
      )
    }
    for message in 1...plan.messageCount {
      let record = MessageRecord(id: "m\(message)", sender: "", flags: [], registeredAt: time)
      state.assign(.messageAssigned(SequenceNumber(UInt32(message)), record), to: slot)
    }
    for member in 0..<plan.members {
      let row = MemberOrdinal(UInt32(member))
      let (read, delivered) = (UInt32(plan.read(member)), UInt32(plan.delivered(member)))
      state.assign(.readMoved(row, to: SequenceNumber(read), at: time), to: slot)
      state.assign(.deliveredMoved(row, to: SequenceNumber(delivered), at: time), to: slot)
    }
    for member in 0..<hiding {
      state.assign(.userAssigned(UInt32(member), UserSettings(user: "member-\(member)", hidesRead: true)))
    }
    state.refresh(slot)
  }

  /// Time counts.
  ///
  /// - Throws: ``LoadError`` for inconsistent counts.
  func measure(_ times: Int) throws -> Latencies {
    var latencies = Latencies()
    for number in 0..<times {
      let message = SequenceNumber(UInt32(1 + number * 37 % plan.messageCount))
      let start = MonotonicClock.now
      let status = state.status(slot, message)
      latencies.record(since: start)
      guard status.readCount <= status.deliveredCount, status.deliveredCount <= status.memberCount else {
        throw LoadError("message \(message.rawValue): inconsistent counts")
      }
    }
    return latencies
  }
}
