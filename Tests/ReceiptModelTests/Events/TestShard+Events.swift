@testable import ReceiptModel

/// Watches the channels of a shard, as a store does.
extension TestShard {
  /// Start watching all channels.
  func watch() { pending = [:] }

  /// The changes of a channel since the last call.
  func takeEvents(_ slot: ChannelSlot) -> [ChannelEvent] {
    guard let noted = pending?.removeValue(forKey: state[slot].number) else { return [] }
    return state.events(noted, in: slot)
  }

  func recordBeforeAssign(_ effect: Effect) {
    guard case .channel(let number, let effect) = effect, let slot = slots[number], !state[slot].isIndex
    else { return }
    if case .channelDeleted = effect {
      pending![number] = nil
      return
    }
    state.record(effect, in: slot, at: state.time, &pending![number, default: PendingChannelEvents()])
  }

  /// Note effects that belong to no channel but change some.
  func recordAfterAssign(_ effect: Effect) {
    for (number, slot) in slots where !state[slot].isIndex {
      switch effect {
      case .shard(.channelTypeAssigned(let record)):
        guard state.types[state[slot].type].name == record.name else { continue }
        state.recordOptionsChange(
          in: slot,
          at: state.time,
          &pending![number, default: PendingChannelEvents()]
        )
      case .shard(.userAssigned(_, let settings)):
        let user = Array(settings.user.utf8)
        state.recordSettingsChange(
          of: user.span.bytes,
          in: slot,
          at: state.time,
          &pending![number, default: PendingChannelEvents()]
        )
      default: return
      }
    }
  }
}

/// Events in words.
extension TestShard {
  /// The channel's slot, or the slot of the thread under a message; the channel's slot where that thread does not
  /// exist.
  func place(ofThread parent: SequenceNumber, in slot: ChannelSlot) -> ChannelSlot {
    parent == .zero ? slot : state[slot].threads.index(of: parent).map { slot.thread($0) } ?? slot
  }

  /// An event of an acknowledgement request, in words.
  func text(
    ofReceipt sequence: SequenceNumber,
    by row: MemberOrdinal?,
    at time: Timestamp,
    in slot: ChannelSlot
  ) -> String {
    let by = row.map { state[slot].users.text(state[slot].rows.user($0)) } ?? "nobody named"
    return
      "receipt of \(sequence): \(state[slot].acknowledgementStatus(sequence, at: time)) by \(by) at \(time)"
  }
}
