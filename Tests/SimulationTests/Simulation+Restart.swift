import DequeModule
import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine
import TestSupport

/// Restarts of the store, and the audit of its whole content.
extension Simulation {
  /// - Parameter isCrash: the process dies at once. Otherwise it stops after a failed commit, and storage operations in
  ///   flight complete.
  func restart(isCrash: Bool) {
    count("restarts")
    mail = []
    for target in loops {
      target.loop.stop()
      guard !isCrash, let commit = target.commit else { continue }
      var end = commit.steps.count
      if case .failure(let after) = commit.fate { end = after }
      for step in commit.steps[commit.done..<max(commit.done, end)] { persist(step, by: target) }
    }
    if loops.contains(where: { $0.commit != nil }), isCrash { count("crashes within a commit") }
    for connection in connections { connection.lanes.forEach { $0.isClosed = true } }
    for gateway in gateways.indices where gateways[gateway].connection != nil {
      // Data that the store has sent may still arrive.
      let connection = gateways[gateway].connection!
      for _ in 0..<random.below(connection.back.count + 1) { readReply(connection) }
      gateways[gateway].connection = nil
      gateways[gateway].outstanding.removeAll { if case .malformed = $0.content { true } else { false } }
    }
    connections = []
    for shard in oracles.indices {
      let (sessions, time) =
        hasFollowers
        ? sharedLog[shard % Self.loopCount].logged(ShardID(UInt16(shard)))
        : disk.recovered(ShardID(UInt16(shard)))
      let unanswered = gateways.flatMap { gateway in
        gateway.outstanding.filter { $0.counter > 0 && $0.shard == shard && isOwn($0) }
          .map { CommandKey(session: gateway.session, counter: $0.counter) }
      }
      if let fault = oracles[shard].restart(sessions, time: time, unanswered: unanswered) {
        faults.append(fault)
      }
      let id = ShardID(UInt16(shard))
      let unfinished =
        hasFollowers
        ? sharedLog[shard % Self.loopCount].unfinishedDeletions(id) : disk.unfinishedDeletions(id)
      oracles[shard].unfinishedDeletions = unfinished.reduce(into: [:]) { $0[$1] = oracles[shard].names[$1] }
      oracles[shard].begunDeletions = Set(oracles[shard].unfinishedDeletions.keys)
      if !oracles[shard].begunDeletions.isEmpty { count("restarts within a deletion") }
    }
    if hasFollowers { takeOver() } else { start() }
    enlarge()
    if gateways[gateways.count - 1].outstanding.count < 40 { audit(isComplete: false) }
  }

  private func isOwn(_ request: Request) -> Bool {
    guard let cid = request.content.cid else { return true }
    return Int(ShardID.owning(Array(cid.utf8).span.bytes, count: Self.shardCount).rawValue) == request.shard
  }

  func start() {
    sinceStart = 0
    do throws(StorageError) {
      // A crash during recovery changes nothing.
      for _ in 0...(random.oneIn(5) ? 1 : 0) {
        loops = []
        for number in 0..<Self.loopCount {
          loops.append(try SimulatedLoop(number, simulation: self, configuration: configuration, disk: disk))
        }
      }
      if hasFollowers { try startFollowers() }
    } catch {
      faults.append("recovery: \(error)")
    }
  }

  /// Query the whole content of the store; every reply is compared as usual.
  func audit(isComplete: Bool) {
    let auditor = gateways.count - 1
    for shard in oracles.indices {
      issue(.listTypes, to: shard, by: auditor)
      if shard == 0 { issue(.tokens(known: 0, after: 0), to: shard, by: auditor) }
      for key in oracles[shard].live.webhooks.keys.sorted() where isComplete {
        issue(.known(key: key), to: shard, by: auditor)
      }
      for (cid, channel) in oracles[shard].live.channels.sorted(by: { $0.key < $1.key }) {
        issue(.getChannel(cid: cid), to: shard, by: auditor)
        for first in stride(from: channel.rows.count, to: 0, by: -100) {
          let cursor = first == channel.rows.count ? nil : UInt32(first)
          issue(
            .readState(cid: cid, viewer: "", isServer: true, limit: 100, cursor: cursor),
            to: shard,
            by: auditor
          )
          if !isComplete { break }
        }
        let ids = channel.messages.map(\.id) + channel.threads.flatMap { $0.messages.map(\.id) }
        for first in stride(from: 0, to: ids.count, by: 100) where isComplete {
          issue(
            .statuses(cid: cid, ids: Array(ids[first..<min(first + 100, ids.count)])),
            to: shard,
            by: auditor
          )
        }
        if !isComplete, !ids.isEmpty {
          issue(.statuses(cid: cid, ids: (0..<5).map { _ in random.pick(ids) }), to: shard, by: auditor)
        }
      }
    }
  }
}
