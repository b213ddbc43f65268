import DequeModule
import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine
import TestSupport

/// Reads and commits of the simulated storage.
extension Simulation {
  func fate(steps: Int) -> SimulatedLoop.CommitOutcome {
    faultsAreOff || !random.oneIn(150) ? .success : .failure(after: random.below(steps + 1))
  }

  func completePeek(_ target: SimulatedLoop) {
    guard !target.peeks.isEmpty else { return }
    let peek = target.peeks.remove(at: random.below(target.peeks.count))
    target.setClock(clock)
    target.loop.peeked(peek.request, peek.early ?? peek.request.perform(on: target.disk))
  }

  /// A loop has closed its batches.
  func closed(_ commit: LoopCommit, by target: SimulatedLoop) {
    for shard in 0..<Self.shardCount where shard % Self.loopCount == target.number {
      // A promoted loop's commit begins with batches that it has followed.
      let batch = commit.batches.dropFirst(commit.followedCount).first { Int($0.shard.rawValue) == shard }
      let isCausedByRequest = batch.map { batch in
        let content = try? LogBatch(batch.bytes.readableBytesSpan)
        return content?.effects.contains { self.isCausedByRequest($0, in: shard) } ?? true
      }
      if isCausedByRequest ?? false != oracles[shard].hasOpen {
        faults.append(
          "shard \(shard): \(batch == nil ? "a change is in no batch" : "a batch without a change")"
            + (batch.flatMap { try? LogBatch($0.bytes.readableBytesSpan) }.map { ": \($0.effects)" } ?? "")
        )
      }
      guard let batch else { continue }
      oracles[shard].closed(batch.index.rawValue)
      guard let content = try? LogBatch(batch.bytes.readableBytesSpan) else {
        faults.append("a batch does not parse")
        continue
      }
      for effect in content.effects {
        if case .channel(let number, .channelAssigned(let cid, _, _)) = effect {
          oracles[shard].names[number] = cid
        }
        if case .channel(let number, .deletionBegun) = effect {
          oracles[shard].begunDeletions.insert(number)
          count("deletions in slices")
        }
      }
    }
    if commit.followedCount > 0 { count("followed batches in an owner's commit") }
    if commit.batches.isEmpty { count("commits of pages only") }
  }

  func commitStep(_ target: SimulatedLoop) {
    guard let commit = target.commit else { return }
    if case .failure(let after) = commit.fate, commit.done >= after {
      target.commit = nil
      target.loop.committed(.failure(.failed("as the simulation wants it")))
    } else if commit.done < commit.steps.count {
      target.commit!.done += 1
      persist(commit.steps[commit.done], by: target)
    } else {
      target.commit = nil
      target.setClock(clock)
      target.loop.committed(.success(()))
    }
  }

  func persist(_ step: SimulatedDisk.Step, by target: SimulatedLoop) {
    target.disk.perform(step)
    guard !target.isFollower, case .batch(let batch) = step, sharedLog[target.number].append(batch) else {
      return
    }
    oracles[Int(batch.shard.rawValue)].persisted(batch.index.rawValue)
  }

  func completeLoad(_ target: SimulatedLoop) {
    completePeek(target)
    guard !target.loads.isEmpty else { return }
    let load = target.loads.remove(at: random.below(target.loads.count))
    let isFailing = !faultsAreOff && random.oneIn(25)
    if isFailing { count("failed reads") }
    target.setClock(clock)
    closingConnections = []
    target.loop.loaded(
      load.request,
      as: load.reference,
      isFailing
        ? .failure(.failed("as the simulation wants it"))
        : .success(load.early ?? target.read(load.request))
    )
    checkLookedUp(target)
  }
}
