internal import NIOCore

/// Fan-out of one event to all streams: the times at which the first, the median and the last stream receive it.
final class EventFanOut: EventSink {
  /// Readings of ``MonotonicClock``.
  struct Outcome: Sendable {
    var first: UInt64
    var median: UInt64
    var last: UInt64
  }

  private let message: String
  private let promise: EventLoopPromise<Outcome>
  private var received: [Bool]
  private var count = 0
  private var outcome = Outcome(first: 0, median: 0, last: 0)

  /// - Parameters:
  ///   - message: id of the message whose `message.new` is expected.
  ///   - limit: timeout for all streams.
  init(
    message: String,
    streams: Int,
    within limit: TimeAmount,
    _ promise: EventLoopPromise<Outcome>,
    eventLoop: any EventLoop
  ) {
    self.message = message
    self.promise = promise
    received = Array(repeating: false, count: streams)
    let bound = NIOLoopBound(self, eventLoop: eventLoop)
    let timeout = eventLoop.scheduleTask(in: limit) {
      let sink = bound.value
      sink.promise.fail(
        LoadError("\(message): timed out: only \(sink.count) of \(sink.received.count) streams received it")
      )
    }
    promise.futureResult.whenComplete { _ in timeout.cancel() }
  }

  func received(_ event: EventBlock, stream: Int, now: UInt64) throws(LoadError) {
    guard event.isType("message.new"), !received[stream],
      event.text(after: #""message":{"id":""#)?.equals(message) == true
    else { throw LoadError("\(message): wrong or duplicate event: \(event.summary)") }
    received[stream] = true
    count += 1
    if count == 1 { outcome.first = now }
    if count == (received.count + 1) / 2 { outcome.median = now }
    guard count == received.count else { return }
    outcome.last = now
    promise.succeed(outcome)
  }

  func failed(_ error: LoadError) { promise.fail(error) }
}
