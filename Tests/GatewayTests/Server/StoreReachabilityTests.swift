import NIOCore
import ReceiptModel
import Testing

@testable import Gateway

struct StoreReachabilityTests {
  private func time(_ seconds: Int64) -> NIODeadline {
    .uptimeNanoseconds(100_000_000_000) + .seconds(seconds)
  }

  /// Each row has a loop's connectivity, and the time from which the gateway is not ready; nil: it stays ready.
  @Test func gatewayStaysReadyForFiveSecondsAfterStoreLoss() {
    var reachability = StoreReachability(loopCount: 2)
    #expect(reachability.unreadyAt == .distantPast)
    let rows: [(loop: Int, reach: StoreConnectivity, unreadyAt: NIODeadline?)] = [
      // The gateway is not ready before every loop has connected once.
      (0, .connected, .distantPast),
      (1, .connected, nil),
      // The loop that has been cut off for longest determines the time.
      (1, .cutOff(since: time(1)), time(6)),
      (0, .cutOff(since: time(2)), time(6)),
      (1, .connected, time(7)),
      (1, .cutOff(since: time(3)), time(7)),
      (0, .connected, time(8)),
      (1, .connected, nil),
      // A silent store counts as lost since its last message, which may be five seconds ago already.
      (0, .cutOff(since: time(4)), time(9)),
      (0, .connected, nil),
    ]
    for row in rows {
      reachability.changed(row.loop, row.reach)
      #expect(reachability.unreadyAt == row.unreadyAt, "\(row)")
    }
  }

  /// Each row has the connectivity of two loops, and what `/ready` says.
  @Test func reasonNamesTheShardsWithoutOwner() {
    func shards(_ numbers: UInt16...) -> [ShardID] { numbers.map { ShardID($0) } }
    let rows: [([StoreConnectivity], String)] = [
      ([.starting(), .starting()], "no connection"),
      ([.starting(lacking: shards(3)), .connected], "no connection to an owner of shard 3"),
      ([.cutOff(since: time(1)), .connected], "no connection"),
      (
        [.cutOff(since: time(1), lacking: shards(7, 2, 3)), .cutOff(since: time(2), lacking: shards(3, 4, 9))],
        "no connection to an owner of shards 2-4, 7, 9"
      ),
    ]
    for (loops, reason) in rows {
      var reachability = StoreReachability(loopCount: 2)
      for (loop, reach) in loops.enumerated() { reachability.changed(loop, reach) }
      #expect(reachability.reason == reason)
    }
  }
}
