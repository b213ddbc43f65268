internal import HTTP2Session
internal import NIOCore
internal import Operations
internal import ReceiptModel

/// A feature of one ``GatewayLoop``: its state is private, and it sends to the store and answers through its loop.
class GatewayPart: OwnedPart {
  /// Unowned and unchecked, so that its use counts no references: the loop owns its parts, and outlives their calls.
  private unowned(unsafe) var owner: GatewayLoop?

  final var loop: GatewayLoop { owner.unsafelyUnwrapped }

  /// Attach the part to its loop; the loop's initialiser calls this once.
  final func attach(to loop: GatewayLoop) { owner = loop }

  final var isAttached: Bool { owner != nil }

  /// Run work on the event loop after a delay, unless the loop has closed by then. Until then the loop is retained.
  final func runLater(in delay: TimeAmount, _ work: @escaping () -> Void) {
    loop.eventLoop.assumeIsolated().scheduleTask(in: delay) { [loop] in
      if !loop.isClosed { work() }
    }
  }

  /// Run work in a later turn, after other events of the event loop, unless the loop has closed by then.
  final func runInLaterTurn(_ work: @escaping () -> Void) {
    loop.resources.turns.append({ [loop] in if !loop.isClosed { work() } }, on: loop.eventLoop)
  }

  // MARK: Called for each part, in the order of ``GatewayLoop/parts``

  /// Start the part's timers, before the loop connects to the store.
  func start() {}

  /// End what the part keeps open, before connections close.
  func drain() {}

  /// Stop the part's timers, and end what waits for them. The loop is closed.
  func stop() {}

  /// Collect the part's metrics for a scrape.
  func collect(into samples: inout MetricSamples) {}

  /// Perform the actions of a state machine in order, and then those they yield. A request that the store client does
  /// not take fails at once, and the machine answers with further actions.
  final func performAll<Action>(_ actions: [Action], _ perform: (Action) -> [Action]) {
    var due = actions[...]
    while let action = due.popFirst() { due += perform(action) }
  }
}
