internal import ReceiptModel

/// Consistency check of the effects from which a channel or a thread is loaded: assigning an inconsistent effect would
/// trap. Effects come in page order: rows before messages.
struct LoadedParts {
  private let isThread: Bool
  private var rows: UInt32 = 0
  private(set) var newest: UInt32 = 0
  /// Messages up to here are truncated.
  private(set) var truncated: UInt32 = 0
  /// Highest position that a row names; valid once all effects were checked.
  private(set) var named: UInt32 = 0

  init(isThread: Bool) { self.isThread = isThread }

  /// Return whether an effect is consistent with those before it. The part that it assigns must exist; further
  /// conditions stand here. ``LoadedContent`` takes effects on threads apart.
  mutating func accepts(_ effect: ChannelEffect) -> Bool {
    switch effect {
    case .rowAssigned(let row, let record):
      guard isThread || record.hasLeft || !record.user.isEmpty else { return false }
      guard isThread || record.role.utf8.count <= Identifier.roleLengthMax else { return false }
      // Rows are written into buffers that are sized for the longest ids.
      guard row.rawValue <= rows, record.user.utf8.count <= Identifier.userLengthMax else { return false }
      rows = max(rows, row.rawValue + 1)
      named = max(named, record.joined.rawValue, record.read.rawValue, record.delivered.rawValue)
      named = max(named, record.marker?.rawValue ?? 0)
    case .messageAssigned(let sequence, let record):
      guard sequence.rawValue <= newest || sequence.rawValue - 1 == newest else { return false }
      guard record.id.utf8.count <= Identifier.messageLengthMax else { return false }
      // Replies have no acknowledgement requests.
      guard !isThread || !record.flags.contains(.requestsAcknowledgement) else { return false }
      newest = max(newest, sequence.rawValue)
    case .readMoved(_, let sequence, _, _), .deliveredMoved(_, let sequence, _, _),
      .deliveredAcked(_, let sequence, _, _, _), .acknowledgedThrough(_, let sequence):
      named = max(named, sequence.rawValue)
    case .markerAssigned(_, let marker, _, _):
      named = max(named, marker?.rawValue ?? 0)
    case .acknowledged(_, let acknowledgement):
      guard acknowledgement.row.rawValue < rows else { return false }
    case .acknowledgementForgotten(_, let row):
      guard row.rawValue < rows else { return false }
    case .stepsTrimmed(_, let first):
      guard first < StepTable.segmentsMax else { return false }
    case .stepTailAssigned(_, let record):
      // None of a thread's steps are on storage.
      guard record.isWhole, !isThread || record.ends.isEmpty else { return false }
    case .stepTailCut:
      // The steps of a thread are never sealed, so this effect never names one.
      guard !isThread else { return false }
    case .stepsSealed(_, let segment, let bytes):
      guard segment < StepTable.segmentsMax, StepBytes.areWhole(bytes) else { return false }
    case .membershipAssigned(_, let membership):
      guard membership.cid.utf8.count <= Identifier.cidLengthMax,
        membership.row != nil || !membership.isMember
      else { return false }
    case .truncated(let through, _):
      // The segments follow later in page order.
      truncated = max(truncated, through.rawValue)
    case .inThread, .channelDeleted: return false
    // Nothing beyond their part.
    case .channelAssigned, .optionsChanged, .rowLeft, .roleAssigned, .muteAssigned, .unreadFlagAssigned,
      .messageDeleted, .messageCountsAssigned, .segmentFlagsAssigned, .deletionBegun, .rowErased, .senderErased,
      .membershipRemoved:
      break
    }
    return has(effect.part)
  }

  private func has(_ part: ChannelEffect.Part) -> Bool {
    switch part {
    case .head: true
    case .row(let row): row.rawValue < rows
    case .stepState(let rowPage), .stepSegment(let rowPage, _): rowPage * PageID.rowsPerPage < rows
    case .message(let sequence), .acknowledgement(let sequence): sequence.rawValue <= newest
    case .membership(let position): position < MembershipTable.positionsMax
    }
  }
}
