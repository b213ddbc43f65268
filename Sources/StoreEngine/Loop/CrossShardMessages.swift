internal import ReceiptModel

/// Messages to other shards, which leave at the end of the turn.
final class CrossShardMessages: LoopPart {
  private var deliveries: [MembershipDelivery] = []
  private var acknowledgements: [MembershipAcknowledgement] = []

  func deliver(_ delivery: MembershipDelivery) { deliveries.append(delivery) }

  func acknowledge(_ acknowledgement: MembershipAcknowledgement) { acknowledgements.append(acknowledgement) }

  /// Send the messages of this turn, with one call for all shards.
  func post() {
    guard !loop.isHalted else { return }
    if !deliveries.isEmpty {
      let leaving = deliveries
      deliveries = []
      loop.driver.deliver(leaving)
    }
    if !acknowledgements.isEmpty {
      let leaving = acknowledgements
      acknowledgements = []
      loop.driver.acknowledge(leaving)
    }
  }

  override func stop() {
    deliveries = []
    acknowledgements = []
  }
}
