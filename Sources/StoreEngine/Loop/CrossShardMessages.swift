internal import ReceiptModel
internal import ReceiptWire

/// Messages to other shards, which leave at the end of the turn.
final class CrossShardMessages: LoopPart {
  private var deliveries: [MembershipDelivery] = []
  private var confirmations: [MembershipConfirmation] = []

  func deliver(_ delivery: MembershipDelivery) { deliveries.append(delivery) }

  func confirm(_ confirmation: MembershipConfirmation) { confirmations.append(confirmation) }

  /// Send the messages of this turn, with one call for all shards.
  func post() {
    guard !loop.isHalted else { return }
    if !deliveries.isEmpty {
      let leaving = deliveries
      deliveries = []
      loop.driver.deliver(leaving)
    }
    if !confirmations.isEmpty {
      let leaving = confirmations
      confirmations = []
      loop.driver.confirm(leaving)
    }
  }

  override func stop() {
    deliveries = []
    confirmations = []
  }
}
