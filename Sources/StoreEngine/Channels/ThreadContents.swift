internal import ReceiptModel

/// Consistency check of a channel's threads while the channel loads. A thread's rows come before its replies
/// (``PageID/sortKey``), and both after the channel's messages.
struct ThreadContents {
  private var threads: [SequenceNumber: LoadedParts] = [:]

  /// First thread with a row that names a missing reply; valid once all effects were checked.
  var firstBroken: SequenceNumber? {
    threads.filter { $0.value.named > $0.value.newest }.keys.min()
  }

  /// Return whether an effect on a thread is consistent with those before it; assigning an inconsistent one would trap.
  mutating func follows(_ effect: ChannelEffect, _ parent: SequenceNumber) -> Bool {
    guard effect.traits.contains(.threadable) else { return false }
    switch effect {
    case .messageAssigned(_, let record):
      guard !record.flags.contains(.requestsAcknowledgement) else { return false }
    case .stepTailAssigned(_, let record):
      // None of its steps are on storage.
      guard record.ends.isEmpty else { return false }
    case .stepTailCut:
      // The steps of a thread are never sealed, so this effect never names one.
      return false
    default: break
    }
    return threads[parent, default: LoadedParts()].follows(effect)
  }
}
