@testable import ReceiptModel

/// Push acknowledgements as a store performs them, in plain text and integers.
extension TestShard {
  func push(_ cid: String, _ user: String, _ message: String, acked: Int, clock: Int) -> Outcome {
    deciding(cid, clock) { slot, time, effects throws(Refusal) in
      let (user, message) = (Array(user.utf8), Array(message.utf8))
      let targetSlot = state.targetSlot(of: message.span.bytes, in: slot)
      let target = try state.pushTarget(targetSlot, user: user.span.bytes, message: message.span.bytes)
      return try deliver(target, acked: acked, time, &effects)
    }
  }

  /// Create a ticket, identified by its index among those of the cid.
  func makeTicket(_ cid: String, _ user: String, _ message: String, clock: Int) -> Outcome {
    deciding(cid, clock) { slot, _, _ throws(Refusal) in
      let (user, message) = (Array(user.utf8), Array(message.utf8))
      let targetSlot = state.targetSlot(of: message.span.bytes, in: slot)
      let target = try state.pushTarget(targetSlot, user: user.span.bytes, message: message.span.bytes)
      let ticket = try state.ticketPlace(target)
      apply([])
      tickets[cid, default: []].append(ticket)
      return .ticket(tickets[cid]!.count - 1)
    }
  }

  /// Acknowledge with the ticket's numbers alone.
  func redeem(_ cid: String, _ number: Int, acked: Int, clock: Int) -> Outcome {
    let ticket = tickets[cid]![number]
    guard let slot = state.slot(numbered: ticket.channel) else {
      pass(to: clock)
      apply([])
      return .refused(Refusal.channelNotFound.wireName)
    }
    state.refresh(slot)
    return deciding(String(decoding: state[slot].cid, as: UTF8.self), clock) {
      slot,
      time,
      effects throws(Refusal) in
      let target = try state.pushTarget(slot, ticket)
      return try deliver(target, acked: acked, time, &effects)
    }
  }

  private func deliver(
    _ target: ShardState.PushTarget,
    acked: Int,
    _ time: Timestamp,
    _ effects: inout [Effect]
  ) throws(Refusal) -> Outcome {
    state.refresh(target.slot)
    try state.decidePush(target, acked: Timestamp(milliseconds: Int64(acked)), at: time, into: &effects)
    let isMoved = !effects.isEmpty
    apply(effects)
    return .delivery(
      isMoved: isMoved,
      sentAt: Int(state.sentAt(target).milliseconds),
      deliveredAt: Int(state.deliveredAt(target).milliseconds)
    )
  }
}
