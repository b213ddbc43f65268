import ReceiptModel

/// Consistency check of a channel's threads while the channel loads. A thread's rows come before its replies
/// (``PageID/sortKey``), and both after the channel's messages.
struct ThreadContents {
  fileprivate struct Thread {
    var rows: UInt32 = 0
    var newest: UInt32 = 0
    /// Highest position that a row names.
    var named: UInt32 = 0
  }

  private var threads: [SequenceNumber: Thread] = [:]

  /// First thread with a row that names a missing reply; valid once all effects were checked.
  var firstBroken: SequenceNumber? {
    threads.filter { $0.value.named > $0.value.newest }.keys.min()
  }

  /// Whether an effect on a thread is consistent with those before it; assigning an inconsistent one would trap.
  mutating func follows(_ effect: ChannelEffect, _ parent: SequenceNumber) -> Bool {
    guard effect.traits.contains(.threadable) else { return false }
    return threads[parent, default: Thread()].follows(effect)
  }
}

extension ThreadContents.Thread {
  fileprivate mutating func follows(_ effect: ChannelEffect) -> Bool {
    switch effect {
    case .rowAssigned(let row, let record):
      guard row.rawValue <= rows, record.user.utf8.count <= Identifier.userLengthMax else { return false }
      rows = max(rows, row.rawValue + 1)
      named = max(named, record.joined.rawValue, record.read.rawValue, record.delivered.rawValue)
      named = max(named, record.marker?.rawValue ?? 0)
      return true
    case .readMoved(let row, let sequence, _, _), .deliveredMoved(let row, let sequence, _, _),
      .deliveredAcked(let row, let sequence, _, _, _):
      named = max(named, sequence.rawValue)
      return row.rawValue < rows
    case .markerAssigned(let row, let marker, _, _):
      named = max(named, marker?.rawValue ?? 0)
      return row.rawValue < rows
    case .rowLeft(let row, _), .rowErased(let row, _):
      return row.rawValue < rows
    case .messageAssigned(let sequence, let record):
      guard sequence.rawValue <= newest || sequence.rawValue - 1 == newest else { return false }
      guard record.id.utf8.count <= Identifier.messageLengthMax, !record.flags.contains(.receipt) else {
        return false
      }
      newest = max(newest, sequence.rawValue)
      return true
    case .messageDeleted(let sequence, _), .senderErased(let sequence):
      return sequence.rawValue <= newest
    case .stepsTrimmed(let rowPage, let first):
      return rowPage * PageID.rowsPerPage < rows && first < StepTable.segmentsMax
    case .stepTailAssigned(let rowPage, let record):
      // None of its steps are on storage.
      return rowPage * PageID.rowsPerPage < rows && record.isWhole && record.ends.isEmpty
    // The steps of a thread are never sealed, so its tail is never cut.
    case .stepTailCut, .stepsSealed:
      return false
    case .channelAssigned, .optionsChanged, .roleAssigned, .muteAssigned, .unreadFlagAssigned, .acknowledged,
      .acknowledgementForgotten, .acknowledgedThrough, .inThread, .truncated, .deletionBegun, .channelDeleted,
      .messageCountsAssigned, .segmentsNoted, .membershipAssigned, .membershipRemoved:
      return false
    }
  }
}
