internal import NIOCore

/// The first member's stream, while the members of a ``GatewayBench`` mark: where it has been told that each of them
/// is, in each channel. A client that is slow is told the latest only, so not every mark has its event; but positions
/// never fall, and in the end they are those that were acknowledged.
final class EventPositions: EventSink {
  /// What was seen once everything had come.
  struct Outcome: Sendable, Equatable {
    /// Events.
    var count: Int
  }

  private let names: BenchNames
  private let promise: EventLoopPromise<Outcome>
  private let eventLoop: any EventLoop
  private var count = 0
  /// By member, then by channel.
  private var positions: [[Int]]
  /// What they have to come to; nil while marks are made.
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
    else { throw LoadError("an event that no mark causes: \(event.summary)") }
    // A row that is told once more says the same again.
    guard position >= positions[member][channel] else {
      throw LoadError("a position has fallen from \(positions[member][channel]): \(event.summary)")
    }
    count += 1
    positions[member][channel] = position
    if expected?[member][channel] == position { endIfComplete() }
  }

  /// All marks were made: ends when the positions are these.
  ///
  /// - Parameters:
  ///   - acknowledged: by member, then by channel.
  ///   - limit: how long may pass until then.
  func expect(_ acknowledged: [[Int]], within limit: TimeAmount) {
    expected = acknowledged
    endIfComplete()
    let bound = NIOLoopBound(self, eventLoop: eventLoop)
    eventLoop.scheduleTask(in: limit) {
      let sink = bound.value
      sink.promise.fail(LoadError(sink.difference ?? "the last event came too late"))
    }
  }

  /// What is not as it has to be; nil if nothing is.
  var difference: String? {
    guard let expected else { return nil }
    for (member, channels) in expected.enumerated() {
      for (channel, position) in channels.enumerated() where positions[member][channel] != position {
        return """
          \(names.channel(channel)): of \(names.user(member)) position \(positions[member][channel]) was told, \
          \(position) was acknowledged
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
