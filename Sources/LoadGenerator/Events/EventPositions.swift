internal import NIOCore

/// Positions that the first member's stream reports while the members of a ``GatewayBench`` make marks. The gateway
/// merges the events of a slow client, so a mark may have no event of its own; but positions never fall, and the last
/// ones are those that were acknowledged.
final class EventPositions: EventSink {
  struct Outcome: Sendable, Equatable {
    /// Received events.
    var count: Int
  }

  private let names: BenchNames
  private let promise: EventLoopPromise<Outcome>
  private let eventLoop: any EventLoop
  private var count = 0
  /// Positions by member, then by channel.
  private var positions: [[Int]]
  /// Final positions; nil while marks are made.
  private var expected: [[Int]]?

  init(
    _ names: BenchNames,
    members: Int,
    channels: Int,
    _ promise: EventLoopPromise<Outcome>,
    eventLoop: any EventLoop
  ) {
    self.names = names
    self.promise = promise
    self.eventLoop = eventLoop
    positions = Array(repeating: Array(repeating: 0, count: channels), count: members)
  }

  func received(_ event: EventBlock, stream: Int, now: UInt64) throws(LoadError) {
    if event.isType("notification.mark_read"),
      event.text(after: #""user":{"id":""#)?.equals(names.user(0)) == true
    {
      count += 1
      return
    }
    guard event.isType("message.read"), let channel = event.text(after: #""cid":""#)?.trailingNumber,
      let member = event.text(after: #""user":{"id":""#)?.trailingNumber,
      let position = event.number(after: #""last_read_seq":"#), positions.indices.contains(member),
      positions[member].indices.contains(channel),
      event.text(after: #""cid":""#)?.equals(names.channel(channel)) == true
    else { throw LoadError("an unexpected event: \(event.summary)") }
    // A row may be repeated unchanged.
    guard position >= positions[member][channel] else {
      throw LoadError("a position has fallen from \(positions[member][channel]): \(event.summary)")
    }
    count += 1
    positions[member][channel] = position
    if expected?[member][channel] == position { endIfComplete() }
  }

  /// Complete when the positions are these.
  ///
  /// - Parameters:
  ///   - acknowledged: positions by member, then by channel.
  ///   - limit: timeout.
  func expect(_ acknowledged: [[Int]], within limit: TimeAmount) {
    expected = acknowledged
    endIfComplete()
    let bound = NIOLoopBound(self, eventLoop: eventLoop)
    eventLoop.scheduleTask(in: limit) {
      let sink = bound.value
      sink.promise.fail(LoadError(sink.difference ?? "timed out waiting for the last event"))
    }
  }

  /// First position that differs from the expected one; nil without difference.
  var difference: String? {
    guard let expected else { return nil }
    for (member, channels) in expected.enumerated() {
      for (channel, position) in channels.enumerated() where positions[member][channel] != position {
        return """
          \(names.channel(channel)): the last event for \(names.user(member)) has position \
          \(positions[member][channel]), acknowledged was \(position)
          """
      }
    }
    return nil
  }

  private func endIfComplete() {
    if difference == nil { promise.succeed(Outcome(count: count)) }
  }

  func failed(_ error: LoadError) { promise.fail(error) }
}
