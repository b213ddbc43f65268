import ReceiptModel
import ReceiptWire
import TestSupport
import Testing

@testable import IndexRebuild

/// The order of the requests to the shards, and the handling of failures.
struct RebuildMachineTests {
  /// A machine with two shards at a stage, and the requests that it sent on reaching it.
  private func machine(at stage: RebuildRequest.Kind, epoch: UInt64 = 4) -> RebuildMachine {
    var machine = RebuildMachine(responseTimeout: .seconds(60))
    #expect(
      machine.connected(shardCount: 2, now: .zero) == .send([request(.ask, 0), request(.ask, 1)])
    )
    if stage == .ask { return machine }
    #expect(machine.replied(ShardID(0), reply(.none, epoch - 1), now: .zero) == .send([]))
    #expect(
      machine.replied(ShardID(1), reply(.none, 0), now: .zero)
        == .send([request(.resend, 0, epoch), request(.resend, 1, epoch)])
    )
    if stage == .resend { return machine }
    #expect(machine.replied(ShardID(0), reply(.none, epoch, done: 5), now: .zero) == .send([]))
    #expect(
      machine.replied(ShardID(1), reply(.none, epoch, done: 6), now: .zero)
        == .send([request(.sweep, 0, epoch), request(.sweep, 1, epoch)])
    )
    return machine
  }

  private func request(_ kind: RebuildRequest.Kind, _ shard: UInt16, _ epoch: UInt64 = 0) -> RebuildRequest {
    RebuildRequest(kind, shard: ShardID(shard), epoch: epoch)
  }

  private func reply(_ phase: RebuildIndexReply.Phase, _ epoch: UInt64, done: UInt64 = 0) -> RebuildIndexReply {
    RebuildIndexReply(phase: phase, epoch: epoch, channelsDone: done, channels: done, entries: 10 * done)
  }

  @Test func wholeRebuildEndsWithSummary() {
    var machine = machine(at: .sweep, epoch: 9)
    #expect(machine.replied(ShardID(1), reply(.none, 9, done: 2), now: .zero) == .send([]))
    var summary = RebuildSummary()
    (summary.epoch, summary.shards, summary.channels) = (9, 2, 11)
    (summary.changes, summary.entries) = (110, 50)
    #expect(machine.replied(ShardID(0), reply(.none, 9, done: 3), now: .zero) == .finish(summary))
    #expect(
      summary.document == #"{"epoch":9,"shards":2,"channels":11,"changes":110,"entries":50}"#
    )
    // The rebuild is over: later replies cause no action.
    #expect(machine.replied(ShardID(0), reply(.none, 9), now: .zero) == .send([]))
    #expect(machine.tick(now: .seconds(1000)) == .send([]))
    #expect(machine.connected(shardCount: 2, now: .zero) == .send([]))
  }

  /// Each tick asks the shards that are working, with one request in flight each. Their replies give the progress.
  @Test func ticksPollWorkingShards() {
    var machine = machine(at: .resend)
    #expect(machine.tick(now: .seconds(1)) == .send([]))
    #expect(machine.replied(ShardID(0), reply(.resending, 4), now: .seconds(1)) == .send([]))
    #expect(machine.tick(now: .seconds(2)) == .send([request(.ask, 0)]))
    #expect(machine.tick(now: .seconds(3)) == .send([]))
    #expect(machine.replied(ShardID(0), reply(.resending, 4, done: 7), now: .seconds(3)) == .send([]))
    #expect(
      machine.progress.description
        == "phase 1 of 2, epoch 4: resending memberships, 0 of 2 shards done, 7 of 7 channels, 70 memberships"
    )
    // The second phase begins when the last shard has finished the first, whichever that is. A reply after the end of
    // a phase counts less than the last one before it.
    #expect(machine.replied(ShardID(1), reply(.none, 4), now: .seconds(3)) == .send([]))
    #expect(machine.progress.shardsDone == 1)
    #expect(machine.tick(now: .seconds(4)) == .send([request(.ask, 0)]))
    #expect(
      machine.replied(ShardID(0), reply(.none, 4), now: .seconds(4))
        == .send([request(.sweep, 0, 4), request(.sweep, 1, 4)])
    )
    #expect(machine.progress.stage == .sweeping && machine.progress.shardsDone == 0)
    _ = machine.replied(ShardID(0), reply(.none, 4), now: .seconds(4))
    guard case .finish(let summary) = machine.replied(ShardID(1), reply(.none, 4), now: .seconds(4)) else {
      Issue.record("not finished")
      return
    }
    #expect(summary.channels == 7 && summary.changes == 70 && summary.entries == 0)
  }

  /// A restarted store has forgotten its running phase, so the reply "no phase" does not mean that the phase is done.
  @Test func lostPhasesRestartAfterReconnecting() {
    for stage in [RebuildRequest.Kind.resend, .sweep] {
      let phase = stage == .sweep ? RebuildIndexReply.Phase.sweeping : .resending
      var machine = machine(at: stage)
      _ = machine.replied(ShardID(0), reply(phase, 4), now: .zero)
      _ = machine.replied(ShardID(1), reply(.none, 4), now: .zero)
      #expect(machine.tick(now: .seconds(1)) == .send([request(.ask, 0)]))
      machine.connectionLost()
      // The request was in flight, and the client resends it.
      #expect(
        machine.replied(ShardID(0), reply(.none, 4), now: .seconds(2)) == .send([request(stage, 0, 4)])
      )
      #expect(machine.progress.shardsDone == 1)
      // Without a request in flight, the tick restarts the phase.
      _ = machine.replied(ShardID(0), reply(phase, 4), now: .seconds(2))
      machine.connectionLost()
      #expect(machine.connected(shardCount: 2, now: .seconds(3)) == .send([]))
      #expect(machine.tick(now: .seconds(3)) == .send([request(stage, 0, 4)]))
      // Now the reply "no phase" does mean the end.
      let action = machine.replied(ShardID(0), reply(.none, 4), now: .seconds(3))
      if case .fail = action { Issue.record("\(action)") }
      #expect(action != .send([]))
    }
  }

  @Test func retryableErrorsAreRetried() {
    for stage in [RebuildRequest.Kind.ask, .resend, .sweep] {
      let epoch: UInt64 = stage == .ask ? 0 : 4
      var machine = machine(at: stage)
      for code in [ErrorCode.busy, .unavailable, .outcomeUnknown] {
        #expect(machine.refused(ShardID(1), code, detail: "", now: .zero) == .send([]))
        #expect(machine.tick(now: .seconds(1)) == .send([request(stage, 1, epoch)]))
      }
      machine.requestFailed(ShardID(0))
      #expect(machine.tick(now: .seconds(60)) == .send([request(stage, 0, epoch)]))
      #expect(machine.progress.shardsDone == 0)
    }
  }

  /// The timeout runs for each shard since its last success, and the error reports the replies in between.
  @Test func silentShardsTimeOut() {
    var machine = machine(at: .resend)
    _ = machine.replied(ShardID(1), reply(.resending, 4), now: .seconds(50))
    _ = machine.refused(ShardID(0), .unavailable, detail: "starting", now: .seconds(55))
    #expect(machine.tick(now: .seconds(60)) == .send([request(.resend, 0, 4), request(.ask, 1)]))
    #expect(machine.tick(now: .seconds(61)) == .fail(.silent(ShardID(0), .unavailable, .seconds(60))))

    machine = self.machine(at: .resend)
    _ = machine.replied(ShardID(0), reply(.resending, 4), now: .seconds(50))
    #expect(machine.tick(now: .seconds(61)) == .fail(.silent(ShardID(1), nil, .seconds(60))))

    // A finished shard has no timeout, and each phase starts with a new one.
    machine = self.machine(at: .resend)
    _ = machine.replied(ShardID(0), reply(.none, 4), now: .seconds(1))
    _ = machine.replied(ShardID(1), reply(.resending, 4), now: .seconds(55))
    #expect(machine.tick(now: .seconds(100)) == .send([request(.ask, 1)]))
    _ = machine.replied(ShardID(1), reply(.none, 4), now: .seconds(100))
    #expect(machine.tick(now: .seconds(160)) == .send([]))
    #expect(machine.tick(now: .seconds(161)) == .fail(.silent(ShardID(0), nil, .seconds(60))))

    // A busy shard is healthy: the machine waits for an interrupted rebuild that is still running, without a timeout.
    machine = self.machine(at: .resend)
    _ = machine.replied(ShardID(1), reply(.none, 4), now: .zero)
    for minute in 1...100 {
      _ = machine.refused(ShardID(0), .busy, detail: "another", now: .seconds(60 * minute))
      #expect(machine.tick(now: .seconds(60 * minute)) == .send([request(.resend, 0, 4)]))
    }
    #expect(
      machine.progress.description.hasSuffix("; waiting for 1 that are busy, perhaps with another rebuild")
    )
    _ = machine.replied(ShardID(0), reply(.resending, 4), now: .seconds(6_001))
    #expect(machine.progress.shardsBusy == 0)

    machine = RebuildMachine(responseTimeout: .seconds(60))
    #expect(machine.tick(now: .seconds(60)) == .send([]))
    #expect(machine.tick(now: .seconds(61)) == .fail(.unreachable(.seconds(60))))
  }

  struct End {
    var event: (inout RebuildMachine) -> RebuildMachine.Action
    var failure: RebuildFailure
    var says: [String]
  }

  private var ends: [End] {
    [
      End(
        event: { $0.refused(ShardID(1), .wrongShard, detail: "shard 1 is elsewhere", now: .zero) },
        failure: .refused(ShardID(1), .wrongShard, detail: "shard 1 is elsewhere"),
        says: ["shard 1", "wrong_shard", "shard 1 is elsewhere", "run this again"]
      ),
      End(
        event: { $0.refused(ShardID(0), .notImplemented, detail: "", now: .zero) },
        failure: .unsupportedByStore,
        says: ["does not support", "upgrade"]
      ),
      End(
        event: { $0.refused(ShardID(0), .unknownKind, detail: "", now: .zero) },
        failure: .unsupportedByStore,
        says: ["upgrade it first"]
      ),
      End(
        event: { [self] in $0.replied(ShardID(1), reply(.resending, 5), now: .zero) },
        failure: .superseded(ShardID(1), epoch: 5),
        says: ["shard 1", "epoch 5", "run this again"]
      ),
      End(
        event: { [self] in $0.replied(ShardID(1), reply(.sweeping, 4), now: .zero) },
        failure: .superseded(ShardID(1), epoch: 4),
        says: ["another rebuild"]
      ),
      End(
        event: { [self] in $0.replied(ShardID(1), reply(.resending, 3), now: .zero) },
        failure: .epochNotAdopted(ShardID(1)),
        says: ["shard 1", "run this again"]
      ),
      End(
        event: { $0.connected(shardCount: 3, now: .zero) },
        failure: .otherStore,
        says: ["another store", "--store"]
      ),
      End(
        event: { $0.tick(now: .seconds(61)) },
        failure: .silent(ShardID(0), nil, .seconds(60)),
        says: ["shard 0", "60.0 seconds", "log", "run this again"]
      ),
    ]
  }

  /// Each fatal error names the shard and the remedy, and ends the rebuild.
  @Test func fatalErrorsNameShardAndRemedy() {
    for end in ends {
      var machine = machine(at: .resend)
      #expect(end.event(&machine) == .fail(end.failure))
      for text in end.says { #expect(end.failure.description.contains(text), "\(end.failure)") }
      #expect(machine.tick(now: .seconds(1000)) == .send([]))
      #expect(machine.replied(ShardID(0), reply(.none, 4), now: .zero) == .send([]))
    }
  }

  @Test func lastEpochIsNotExceeded() {
    var machine = machine(at: .ask)
    _ = machine.replied(ShardID(0), reply(.none, .max), now: .zero)
    #expect(machine.replied(ShardID(1), reply(.none, 0), now: .zero) == .fail(.epochsExhausted))
  }

  /// Shards answer late and in any order; connections are lost and stores restart in between. In the end every shard
  /// has sent everything with the new epoch and then swept to it. No shard sweeps before all have sent.
  @Test(arguments: TestRun.seeds(200, long: 4_000))
  func randomReplyOrdersComplete(_ seed: UInt64) {
    var generator = SplitMix64(printing: seed, of: "replies to a rebuild in random order")
    let count = generator.number(in: 1...5)
    let epochs = (0..<count).map { _ in UInt64(generator.below(10)) }
    var store = FakeShards(epochs: epochs, channels: UInt64(generator.below(4)))
    var machine = RebuildMachine(responseTimeout: .seconds(1_000_000))
    // In flight: sent and not answered; the client resends them after a lost connection.
    var underWay: [RebuildRequest] = []
    var summary: RebuildSummary?
    var restarts = 0
    func perform(_ action: RebuildMachine.Action) {
      switch action {
      case .send(let requests):
        for request in requests {
          #expect(!underWay.contains { $0.shard == request.shard }, "seed \(seed): two at once")
          if request.kind == .sweep {
            #expect(store.shards.allSatisfy { $0.sent == request.epoch }, "seed \(seed): swept too early")
          }
        }
        underWay += requests
      case .finish(let found): summary = found
      case .fail(let failure): Issue.record("seed \(seed): \(failure)")
      }
    }
    perform(machine.connected(shardCount: count, now: .zero))
    var steps = 0
    while summary == nil, steps < 5_000 {
      steps += 1
      switch generator.below(10) {
      case 0..<6 where !underWay.isEmpty:
        let request = underWay.remove(at: generator.below(underWay.count))
        perform(machine.replied(request.shard, store.reply(request), now: .seconds(steps)))
      case 6 where !underWay.isEmpty && generator.oneIn(2):
        let request = underWay.remove(at: generator.below(underWay.count))
        perform(machine.refused(request.shard, .busy, detail: "", now: .seconds(steps)))
      case 7 where restarts < 10:
        restarts += 1
        if generator.oneIn(2) { store.restart() }
        machine.connectionLost()
        perform(machine.connected(shardCount: count, now: .seconds(steps)))
      default: perform(machine.tick(now: .seconds(steps)))
      }
    }
    let epoch = epochs.max()! + 1
    #expect(summary?.epoch == epoch && summary?.shards == count, "seed \(seed)")
    #expect(store.shards.allSatisfy { $0.sent == epoch && $0.swept == epoch }, "seed \(seed)")
    #expect(underWay.isEmpty, "seed \(seed)")
  }
}
