internal import ReceiptModel
internal import ReceiptWire

/// Contents of a channel: per page its effects, then the newer effects of the tail for that page. Pages are
/// independent, but a segment must be complete before the next one begins.
struct LoadedContent {
  private(set) var effects: [ChannelEffect] = []
  /// Pages with effects that are only in the log, and the log index of each such effect.
  private(set) var newer: [(page: PageID, index: LogIndex)] = []
  private var parts = LoadedParts(isThread: false)
  private var threads = ThreadContents()
  /// Number of pages of a user's index so far; they must be consecutive.
  private var membershipPages: UInt32 = 0

  /// Throw where the effects are inconsistent, so that assigning them would trap.
  init(
    _ number: ChannelNumber,
    _ pages: [(page: PageID, content: Page)],
    _ tail: [(index: LogIndex, effect: ChannelEffect)],
    _ location: String
  ) throws(StorageError) {
    var tails: [PageID: [(index: LogIndex, effect: ChannelEffect)]] = [:]
    for item in tail { tails[item.effect.page, default: []].append(item) }
    var contents: [PageID: Page] = [:]
    for (page, content) in pages { contents[page] = content }
    for page in Set(contents.keys).union(tails.keys).sorted(by: { $0.sortKey < $1.sortKey }) {
      let included = contents[page]?.index ?? .zero
      if case .memberships(let number) = page {
        guard number == membershipPages else {
          throw .corrupt("\(location), page \(page): the previous page is missing")
        }
        membershipPages += 1
      }
      for effect in contents[page]?.effects ?? [] {
        guard case .channel(number, let effect) = effect, effect.page == page, accepts(effect) else {
          throw .corrupt("\(location), page \(page): an effect that does not belong to the page")
        }
        effects.append(effect)
      }
      for (index, effect) in tails[page] ?? [] where index > included {
        guard accepts(effect) else {
          throw .corrupt(
            "\(location), page \(page), log index \(index.rawValue): an earlier effect that it depends on is missing"
          )
        }
        effects.append(effect)
        newer.append((page, index))
      }
      // A segment may have been written while its channel's head was not yet.
      for (index, effect) in tails[page] ?? [] where effect.traits.contains(.changesMessageCounts) {
        if index > contents[.head]?.index ?? .zero { newer.append((.head, index)) }
      }
    }
    for (index, effect) in tail { recordEmptied(by: effect, at: index, contents) }
    guard parts.truncated <= parts.newest else {
      throw .corrupt("\(location): truncated up to message \(parts.truncated), there are \(parts.newest)")
    }
    guard parts.named <= parts.newest else {
      throw .corrupt("\(location): a row names message \(parts.named), there are \(parts.newest)")
    }
    if let parent = threads.firstBroken {
      throw .corrupt("\(location), thread of message \(parent.rawValue): a row names a reply that is not there")
    }
  }

  /// Record pages of acknowledgements that must be written again: a deleted message takes its acknowledgements with it,
  /// and their page may be older than the deletion.
  private mutating func recordEmptied(by effect: ChannelEffect, at index: LogIndex, _ contents: [PageID: Page]) {
    func isStale(_ page: PageID) -> Bool {
      contents[page].map { $0.index < index && !$0.effects.isEmpty } ?? false
    }
    guard let removed = effect.removedMessages else { return }
    guard removed.after.next < removed.through else {
      if isStale(.acknowledgements(removed.through)) { newer.append((.acknowledgements(removed.through), index)) }
      return
    }
    for page in contents.keys.sorted(by: { $0.sortKey < $1.sortKey }) where isStale(page) {
      guard case .acknowledgements(let sequence) = page, sequence > removed.after, sequence <= removed.through
      else { continue }
      newer.append((page, index))
    }
  }

  private mutating func accepts(_ effect: ChannelEffect) -> Bool {
    guard case .inThread(let parent, let effect) = effect else { return parts.accepts(effect) }
    return parent.rawValue <= parts.newest && threads.accepts(effect, parent)
  }
}

/// Consistency check of a channel's threads while the channel loads. A thread's rows come before its replies
/// (``PageID/sortKey``), and both after the channel's messages.
struct ThreadContents {
  private var threads: [SequenceNumber: LoadedParts] = [:]

  /// First thread with a row that names a missing reply; valid once all effects were checked.
  var firstBroken: SequenceNumber? {
    threads.filter { $0.value.named > $0.value.newest }.keys.min()
  }

  /// Return whether an effect on a thread is consistent with those before it; assigning an inconsistent one would trap.
  mutating func accepts(_ effect: ChannelEffect, _ parent: SequenceNumber) -> Bool {
    guard effect.traits.contains(.threadable) else { return false }
    return threads[parent, default: LoadedParts(isThread: true)].accepts(effect)
  }
}

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

  /// Return whether an effect is consistent with those before it. The part that it assigns must exist; each
  /// case adds its own conditions. ``LoadedContent`` unwraps effects on threads.
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
      .deliveredByPushAck(_, let sequence, _, _, _), .acknowledgedThrough(_, let sequence):
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
    case .stepsImported(_, let bytes):
      guard StepBytes.areWhole(bytes) else { return false }
    case .mentionsAssigned(_, let mentioned, _):
      guard mentioned.last.map({ $0 < rows }) ?? true else { return false }
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
    default: assert(!effect.traits.contains(.hasConditions))
    }
    return has(effect.target)
  }

  private func has(_ target: ChannelEffect.Target) -> Bool {
    switch target {
    case .head: true
    case .row(let row): row.rawValue < rows
    case .stepState(let rowPage), .stepSegment(let rowPage, _): rowPage * PageID.rowsPerPage < rows
    case .message(let sequence), .acknowledgement(let sequence): sequence.rawValue <= newest
    case .membership(let position): position < MembershipTable.positionsMax
    }
  }
}
