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
  func closed(_ group: CommitGroup, by target: SimulatedLoop) {
    for shard in 0..<Self.shardCount where shard % Self.loopCount == target.number {
      // A promoted loop's group begins with batches that it has followed.
      let batch = group.batches.dropFirst(group.followedCount).first { Int($0.shard.rawValue) == shard }
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
    if group.followedCount > 0 { count("followed batches in an owner's commit") }
    if group.batches.isEmpty { count("commits of pages only") }
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
    let shard = Int(load.request.shard.rawValue)
    let isFailing = !faultsAreOff && random.oneIn(25)
    target.setClock(clock)
    closingConnections = []
    let isExpected = oracles[shard].loading[load.reference] == .some(load.request.loadID)
    if isExpected { oracles[shard].loading.removeValue(forKey: load.reference) }
    let cid: String? =
      switch load.reference {
      case .cid(let bytes):
        isExpected && !IndexName.isIndex(bytes) ? String(decoding: bytes, as: UTF8.self) : nil
      case .number(let number): oracles[shard].names[number]
      case .head: nil
      }
    if isFailing {
      count("failed reads")
      if case .cid = load.reference, let cid {
        for item in oracles[shard].waiting.removeValue(forKey: cid) ?? [] {
          expect(.refused(NaiveShard.Code.unavailable), item.request, item.connection)
        }
      }
      target.loop.loaded(load.request, as: load.reference, .failure(.failed("as the simulation wants it")))
      return
    }
    if let cid {
      var isNew = true
      if case .number = load.reference {
        isNew = oracles[shard].live.channels[cid] != nil && !oracles[shard].loadedSinceStart.contains(cid)
        // Waiting requests find the channel while it is being deleted, and get not found.
        if case .number(let number) = load.reference, oracles[shard].unfinishedDeletions[number] != nil {
          isNew = true
        }
        if isNew, oracles[shard].loading.removeValue(forKey: .cid(Array(cid.utf8))) != nil {
          count("taken in by number")
        }
      }
      if isNew {
        oracles[shard].recordLoaded(cid)
        let isBeingDeleted = oracles[shard].unfinishedDeletions.contains { $0.value == cid }
        oracles[shard].unfinishedDeletions = oracles[shard].unfinishedDeletions.filter { $0.value != cid }
        for item in oracles[shard].waiting.removeValue(forKey: cid) ?? [] {
          if isBeingDeleted, item.request.content.isPut {
            if !isOver(item.request, item.connection, target) {
              expect(.refused(NaiveShard.Code.busy), item.request, item.connection)
            }
          } else {
            decide(item.request, item.connection, target)
          }
        }
      }
    }
    target.loop.loaded(load.request, as: load.reference, .success(load.early ?? target.read(load.request)))
  }
}
