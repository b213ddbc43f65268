import ReceiptModel
import StoreEngine

/// A failure, with the seed and step that reproduce it.
struct SimulationFault: Error, CustomStringConvertible {
  var seed: UInt64
  var step: Int
  var text: String

  var description: String {
    "step \(step): \(text)\nreplay with TIDEMARK_SEED=\(seed) TIDEMARK_STEPS=\(step)"
  }
}

extension Simulation {
  /// Run random steps, then finish all work: all requests are answered, all pages written, the logs trimmed. A last
  /// start reads the pages alone, and its replies are compared with the model's.
  func run(steps: Int) throws(SimulationFault) {
    for number in 1...max(1, steps) {
      step()
      try check(number)
    }
    try runUntilIdle(steps)
    try idle(steps)
    if hasFollowers { runFollowersUntilIdle() }
    restart(isCrash: true)
    audit(isComplete: true)
    try runUntilIdle(steps)
    checkIndexes()
    try check(steps)
    tally["pages"] = disk.pageWrites
    tally["log trims"] = disk.logTrims
    tally["longest log"] = disk.logLengthMost
    for channel in oracles.flatMap(\.live.channels.values) {
      if channel.messages.count > 256 { count("messages over 256") }
      if channel.rows.count > 256 { count("rows over 256") }
    }
  }

  private func check(_ step: Int) throws(SimulationFault) {
    guard let fault = faults.first else { return }
    throw SimulationFault(seed: seed, step: step, text: fault)
  }

  /// Turn faults off, and complete every open request.
  private func runUntilIdle(_ step: Int) throws(SimulationFault) {
    faultsAreOff = true
    for _ in 0..<4000 {
      for gateway in gateways.indices where gateways[gateway].connection == nil { connect(gateway) }
      for _ in 0..<8 {
        receiveFrames(20)
        deliverFrames(20)
        for target in loops {
          commitStep(target)
          completeLoad(target)
          target.slice()
        }
        deliverMessages()
        readReplies(50)
      }
      self.step()
      for target in loops { tick(target) }
      try check(step)
      for gateway in gateways.indices where gateways[gateway].connection?.isEnded == true { cut(gateway) }
      if gateways.allSatisfy(\.outstanding.isEmpty) { return }
    }
    let left = gateways.enumerated().filter { !$1.outstanding.isEmpty }.map { number, gateway in
      let connection = gateway.connection
      return """
        gateway \(number): \(gateway.outstanding.count) open, first \(gateway.outstanding[0]), \
        ended \(connection?.isEnded as Any), \
        lanes closed \(connection?.lanes.map(\.isClosed) as Any), wire \(connection?.wire.count as Any), \
        inboxes \(connection?.inboxes.map(\.count) as Any), expected \(connection?.expected.count as Any)
        """
    }
    throw SimulationFault(seed: seed, step: step, text: "never answered: \(left.joined(separator: "\n"))")
  }

  /// Let time pass without requests.
  private func idle(_ step: Int) throws(SimulationFault) {
    for _ in 0..<4000 {
      pass(milliseconds: 500)
      for target in loops {
        target.setClock(clock)
        tick(target)
        while target.commit != nil { commitStep(target) }
        completeLoad(target)
        target.slice()
      }
      while !mail.isEmpty { deliverMessages() }
      try check(step)
      let lengths = (0..<Self.shardCount).map { disk.logLength(ShardID(UInt16($0))) }
      if lengths.allSatisfy({ $0 == 0 }),
        loops.allSatisfy({ $0.loop.gauges.dirtyPages == 0 && $0.loop.gauges.changesPending == 0 })
      {
        return
      }
    }
    let lengths = (0..<Self.shardCount).map { disk.logLength(ShardID(UInt16($0))) }
    throw SimulationFault(seed: seed, step: step, text: "the log is not trimmed: \(lengths)")
  }
}
