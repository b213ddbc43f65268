package import NIOCore

/// Turns of the connections and streams of one event loop that have more to do than one turn allows, as with more
/// output than ``HTTP2Limits/maxWriteBytes``. Each turn proceeds with a few of them, and then leaves the loop to its
/// other events: a peer that reads large answers as fast as they come does not delay others.
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
      // The pause begins after the turn, and after the tasks that it has submitted, however long those take: a task
      // that is due by then would run at once.
      if self.isScheduled { eventLoop.assumeIsolated().execute { self.schedule(eventLoop) } }
    }
  }
}
