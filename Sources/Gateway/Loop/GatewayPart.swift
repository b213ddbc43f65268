internal import Operations

/// A feature of one ``GatewayLoop``: its state is private, and it sends to the store and answers through its loop.
class GatewayPart {
  /// Unowned and unchecked, so that its use counts no references: the loop owns its parts, and outlives their calls.
  private unowned(unsafe) var owner: GatewayLoop?

  final var loop: GatewayLoop { owner.unsafelyUnwrapped }

  /// Called once, by the loop's initialiser.
  final func attach(to loop: GatewayLoop) { owner = loop }

  /// Collect the part's metrics for a scrape.
  func collect(into samples: inout MetricSamples) {}

  /// Perform the steps of a state machine in order, and then those they yield. A request that the store client does
  /// not take fails at once, and the machine answers with further steps.
  final func performAll<Step>(_ steps: [Step], _ perform: (Step) -> [Step]) {
    var due = steps[...]
    while let step = due.popFirst() { due += perform(step) }
  }
}
