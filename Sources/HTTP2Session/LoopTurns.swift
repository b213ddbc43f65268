package import NIOCore

/// A queue of work that the connections and streams of one event loop postpone, because they have more to do than one
/// turn of the loop allows, such as output beyond ``HTTP2Limits/writeBytesMax``. A turn runs a few entries; then the
/// loop handles other events. So a peer that reads large responses as fast as they come does not delay others.
///
/// A task that submits itself again, with `execute`, would keep the loop from reading: NIO runs all tasks that are due
/// before it looks at its sockets again.
package final class LoopTurns {
  /// Connections and streams that proceed in one turn.
  private static let entriesPerTurn = 16
  private static let pause = TimeAmount.microseconds(200)

  private var waiting: [() -> Void] = []
  private var isScheduled = false

  /// Call the closure in a later turn.
  package func append(_ proceed: @escaping () -> Void, on eventLoop: any EventLoop) {
    waiting.append(proceed)
    if !isScheduled { schedule(eventLoop) }
  }

  private func schedule(_ eventLoop: any EventLoop) {
    isScheduled = true
    eventLoop.assumeIsolated().scheduleTask(in: Self.pause) {
      let turn = Array(self.waiting.prefix(Self.entriesPerTurn))
      self.waiting.removeFirst(turn.count)
      for proceed in turn { proceed() }
      self.isScheduled = !self.waiting.isEmpty
      // From a task, so that the pause begins after this turn and the tasks that it has submitted. Otherwise a long
      // turn would use up the pause, and the next one would run at once.
      if self.isScheduled { eventLoop.assumeIsolated().execute { self.schedule(eventLoop) } }
    }
  }
}
