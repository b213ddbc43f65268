import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine
import TestSupport

/// The committed batches of a loop, in order, and their sessions and times.
struct SharedLog {
  private(set) var batches: [LoopCommit.Batch] = []
  private var lasts: [ShardID: LogIndex] = [:]
  private var sessions: [ShardID: [SessionID: SessionRecord]] = [:]
  private var times: [ShardID: Int64] = [:]
  /// Channels whose deletion is begun and not finished.
  private var unfinishedDeletions: [ShardID: Set<ChannelNumber>] = [:]

  /// Adds a batch. Returns false for one that is here already: a promoted loop writes those that it has followed.
  mutating func append(_ batch: LoopCommit.Batch) -> Bool {
    guard batch.index > lasts[batch.shard] ?? .zero else { return false }
    lasts[batch.shard] = batch.index
    batches.append(batch)
    if let content = try? LogBatch(batch.bytes.readableBytesSpan) {
      times[batch.shard] = max(times[batch.shard] ?? 0, content.time.milliseconds)
      for record in content.sessions { sessions[batch.shard, default: [:]][record.session] = record }
      for effect in content.effects {
        if case .channel(let number, .deletionBegun) = effect {
          unfinishedDeletions[batch.shard, default: []].insert(number)
        }
        if case .channel(let number, .channelDeleted(_)) = effect {
          unfinishedDeletions[batch.shard]?.remove(number)
        }
      }
    }
    return true
  }

  /// The deletions of a shard that a promoted loop continues.
  func unfinishedDeletions(_ shard: ShardID) -> Set<ChannelNumber> { unfinishedDeletions[shard] ?? [] }

  /// The session records and the time of a shard, which a promoted loop starts from.
  func logged(_ shard: ShardID) -> (sessions: [SessionID: SessionRecord], time: Int64) {
    (sessions[shard] ?? [:], times[shard] ?? 0)
  }
}

/// A follower beside each loop, which becomes the owner instead of a restart.
extension Simulation {
  /// Other settings of page writes, and less or more memory than the owners.
  static func followerConfiguration(
    _ configuration: StoreLoopConfiguration,
    _ random: inout SplitMix64
  ) -> StoreLoopConfiguration {
    var configuration = configuration
    configuration.pageWriteAgeMilliseconds = random.pick([0, 20, 300, 3_000])
    configuration.pageWriteLogBytes = random.pick([400, 5_000, 16 << 20])
    configuration.pageWriteSliceBytes = random.pick([1, 2_000, 256 << 10])
    configuration.trimBatchesMin = random.pick([1, 3, 50])
    configuration.tailLoadsMax = random.pick([1, 2, 8])
    configuration.residentBytesMax = random.pick([.max, 1, 4_000, 12_000])
    configuration.evictionScanMax = random.pick([1, 16, 256])
    configuration.followWaitingBytesMax = random.pick([1, 5_000, 16 << 20])
    return configuration
  }

  func startFollowers() throws(StorageError) {
    followers = []
    for number in 0..<Self.loopCount { followers.append(try follower(number)) }
  }

  /// A follower that recovers from its disk, and follows on from there.
  private func follower(_ number: Int) throws(StorageError) -> SimulatedLoop {
    let follower = try SimulatedLoop(
      number,
      simulation: self,
      configuration: followerConfiguration,
      disk: followerDisk,
      follows: true
    )
    follower.setClock(clock)
    let lasts = Dictionary(uniqueKeysWithValues: follower.loop.followedIndexes.map { ($0.shard, $0.index) })
    follower.position =
      sharedLog[number].batches.firstIndex { $0.index > lasts[$0.shard] ?? .zero }
      ?? sharedLog[number].batches.count
    return follower
  }

  /// One step of a random follower.
  func followerStep() {
    let follower = random.pick(followers)
    switch random.below(20) {
    case 0..<8: follow(follower, atMost: 1 + random.below(8))
    case 8..<14: commitStep(follower)
    case 14..<17: completeFollowersLoad(follower)
    case 17: tick(follower)
    case 18: follower.slice()
    default:
      guard !faultsAreOff, random.oneIn(12) else { return }
      count("followers' crashes")
      if follower.commit != nil { count("followers' crashes within a commit") }
      follower.loop.stop()
      do throws(StorageError) {
        followers[follower.number] = try self.follower(follower.number)
      } catch {
        faults.append("recovery of a follower: \(error)")
      }
    }
  }

  /// Follows some batches, of which several come together like the commits of an owner.
  private func follow(_ follower: SimulatedLoop, atMost most: Int) {
    let log = sharedLog[follower.number].batches
    let end = min(follower.position + most, log.count)
    guard follower.position < end else { return }
    if !follower.loop.hasRoomToFollow { count("followers without room") }
    follower.setClock(clock)
    let batches = Array(log[follower.position..<end])
    follower.position = end
    do throws(FollowError) { try follower.loop.follow(batches) } catch {
      faults.append("following: \(error)")
    }
  }

  /// Lets the followers follow everything and load the channels of their tails. A promoted loop refuses requests as
  /// `busy` while it loads many channels, and the last check of a run asks only once.
  func runFollowersUntilIdle() {
    for follower in followers {
      follow(follower, atMost: .max - follower.position)
      for _ in 0..<20_000 where follower.commit != nil || follower.loop.gauges.tailChannels > 0 {
        commitStep(follower)
        completeFollowersLoad(follower)
        follower.slice()
        if follower.commit == nil, follower.loads.isEmpty {
          pass(milliseconds: 10)
          tick(follower)
        }
      }
    }
  }

  private func completeFollowersLoad(_ follower: SimulatedLoop) {
    guard !follower.loads.isEmpty else { return }
    let load = follower.loads.remove(at: random.below(follower.loads.count))
    follower.kept.append(load)
    follower.setClock(clock)
    let isFailing = !faultsAreOff && random.oneIn(25)
    follower.loop.loaded(
      load.request,
      as: load.reference,
      isFailing
        ? .failure(.failed("as the simulation wants it"))
        : .success(load.early ?? follower.read(load.request))
    )
  }

  /// The owners are gone. Their followers follow the rest of the log and take over, with their commits and reads still
  /// under way. New followers start from empty disks: a former owner's head page has counters that were never logged,
  /// of which the naive model does not know.
  func takeOver() {
    sinceStart = 0
    count("take-overs")
    for follower in followers {
      follow(follower, atMost: .max - follower.position)
      if follower.commit != nil { count("take-overs within a commit") }
      if follower.loop.gauges.tailChannels > 0 { count("take-overs with a tail") }
      follower.setClock(clock)
      follower.promote()
    }
    loops = followers
    disk = followerDisk
    followerDisk = SimulatedDisk()
    for shard in oracles.indices {
      let target = loops[shard % Self.loopCount]
      let isLoaded = { (cid: String) in
        let bytes = Array(cid.utf8)
        return target.loop.isLoaded(ShardID(UInt16(shard)), cid: bytes.span.bytes)
      }
      for cid in oracles[shard].live.channels.keys where isLoaded(cid) { oracles[shard].recordLoaded(cid) }
      oracles[shard].unfinishedDeletions = oracles[shard].unfinishedDeletions.filter { !isLoaded($0.value) }
    }
    do throws(StorageError) { try startFollowers() } catch {
      faults.append("recovery of a follower: \(error)")
    }
  }
}
