internal import NIOCore

/// One event that all streams are to have: when the first, the middle and the last of them has it.
final class EventFanOut: EventSink {
  /// Nanoseconds of ``MonotonicClock``.
  struct Outcome: Sendable {
    var first: UInt64
    var median: UInt64
    var last: UInt64
  }

  private let message: String
  private let promise: EventLoopPromise<Outcome>
  private var has: [Bool]
  private var count = 0
  private var outcome = Outcome(first: 0, median: 0, last: 0)

  /// - Parameters:
  ///   - message: the id of the message whose `message.new` is awaited.
  ///   - limit: how long all of them may take.
  init(
    message: String,
    streams: Int,
    within limit: TimeAmount,
    _ promise: EventLoopPromise<Outcome>,
    eventLoop: any EventLoop
  ) {
    self.message = message
    self.promise = promise
    has = Array(repeating: false, count: streams)
    let bound = NIOLoopBound(self, eventLoop: eventLoop)
    let timeout = eventLoop.scheduleTask(in: limit) {
      let sink = bound.value
      sink.promise.fail(
        LoadError("\(message): only \(sink.count) of \(sink.has.count) streams were told in time")
      )
    }
    promise.futureResult.whenComplete { _ in timeout.cancel() }
  }

  func received(_ event: EventBlock, stream: Int, now: UInt64) throws(LoadError) {
    guard event.isType("message.new"), !has[stream],
      event.text(after: #""message":{"id":""#)?.equals(message) == true
    else { throw LoadError("\(message): not its event, or once too often: \(event.summary)") }
    has[stream] = true
    count += 1
    if count == 1 { outcome.first = now }
    if count == (has.count + 1) / 2 { outcome.median = now }
    guard count == has.count else { return }
    outcome.last = now
    promise.succeed(outcome)
  }

  func failed(_ error: LoadError) { promise.fail(error) }
}
