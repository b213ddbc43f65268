internal import ReceiptModel
internal import ReceiptWire

/// One phase of an index rebuild, running in one shard. The first phase scans every channel and queues its memberships
/// again; the second scans every index and removes unconfirmed entries. It scans memory first, by slot, then the rest,
/// by number: each is read by number for its name, then loaded by name as for a request.
struct RebuildScan {
  enum Step {
    /// Find the next slot or number.
    case looking
    /// Reading a channel by number, for its name.
    case naming(ChannelNumber)
    /// Loading a channel by name.
    case loading([UInt8], ChannelNumber)
    case queuing(ChannelSlot, ChannelNumber, ShardState.MembershipScan)
    case sweeping(ChannelSlot, ChannelNumber, position: UInt32)
    /// The scan is complete; changes up to this one must still reach the index.
    case sending(through: UInt64)
  }

  var phase: RebuildIndexReply.Phase
  var epoch: UInt64
  /// Channels with numbers below this are scanned; later ones already have the new epoch.
  let end: UInt64
  var step = Step.looking
  var nextSlot = 0
  var nextNumber: UInt64 = 1
  /// Numbers that were found nowhere, and are scanned once more: a channel of the log's tail that was loaded meanwhile
  /// may be in memory only, in a slot that the scan has passed.
  var missing: [UInt64] = []
  var isSecondRound = false
  /// Completed numbers, one bit each.
  private var done: [UInt64]
  private(set) var doneCount: UInt64 = 0
  var entries: UInt64 = 0
  /// When to retry a failed read, in the loop's elapsed time.
  var retryAt: Int64 = 0

  init(phase: RebuildIndexReply.Phase, epoch: UInt64, end: ChannelNumber) {
    self.phase = phase
    self.epoch = epoch
    self.end = end.rawValue
    done = Array(repeating: 0, count: Int(end.rawValue / 64) + 1)
  }

  /// The slot that is being scanned, which must stay in memory.
  var slot: ChannelSlot? {
    switch step {
    case .queuing(let slot, _, _), .sweeping(let slot, _, _): slot
    case .looking, .naming, .loading, .sending: nil
    }
  }

  func isDone(_ number: UInt64) -> Bool { done[Int(number / 64)] >> (number % 64) & 1 != 0 }

  mutating func markDone(_ number: UInt64) {
    guard !isDone(number) else { return }
    done[Int(number / 64)] |= 1 << (number % 64)
    doneCount += 1
  }

  var fields: RebuildIndexReply {
    RebuildIndexReply(phase: phase, epoch: epoch, channelsDone: doneCount, channels: end - 1, entries: entries)
  }
}
