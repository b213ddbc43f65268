internal import ReceiptModel
internal import ReceiptWire

/// The unread channels that one page shows (R14), in the order of the channel list, whose positions are its cursors.
/// Part of ``UserChannelScan``: while the scan counts, this keeps the first unread channels from the page's start on.
/// Then it looks up each of them.
///
/// The scan begins at the page's start and lists the channels before the start last. Only list frames have known
/// positions, single channels have none, so this order tells whether a channel stands before or after the start.
struct UnreadPage {
  /// The list position of the first channel to show; nil: the beginning.
  let start: UInt64?
  private let limit: Int

  /// Phase of the page.
  private enum State {
    /// Listing channels from the start on. Becomes `wrapped` where others may stand before it.
    case first
    /// Listing channels before the start.
    case wrapped
    /// Looking up the channels; that many answers are pending.
    case lookingUp(Int)
  }

  private var state = State.first
  /// The channels of the first list frame, which mark the end of the wrapped part.
  private var firstChannels: Set<[UInt8]> = []
  /// The start of each list frame: the number of channels before it in the scan, and its cursor.
  private var frames: [(position: Int, cursor: UInt64?)] = []
  /// In order; up to one more than the page shows.
  private var channels: [(position: Int, cid: [UInt8])] = []
  /// Details of each channel; nil: no longer the user's channel, or read meanwhile.
  private var details: [Detail?] = []
  /// Where the next page starts.
  private(set) var next: UInt64?

  struct Detail {
    let cid: [UInt8]
    let unread: UInt32
    let mentions: UInt32
    /// The channel is flagged unread as a whole (R4).
    let isFlagged: Bool
    let lastRead: Timestamp
    /// Empty: none.
    let lastReadMessage: [UInt8]
    let firstUnreadMessage: [UInt8]
  }

  /// - Parameter limit: 1 to 100.
  init(start: UInt64?, limit: Int) {
    self.start = start == 0 ? nil : start
    self.limit = limit
  }

  /// The rows of the page.
  var shown: [Detail] { details.compactMap { $0 } }

  var isWaiting: Bool {
    if case .lookingUp(let waiting) = state { return waiting > 0 }
    return false
  }

  // MARK: While channels are listed and counted

  /// Register a list frame; true where its channels may be shown.
  mutating func beginFrame(from cursor: UInt64?, order: Int) -> Bool {
    guard case .first = state else { return false }
    frames.append((order, cursor))
    return true
  }

  /// Return whether a listed channel is new to a scan whose page has a start.
  mutating func isNew(_ cid: [UInt8], isWanted: Bool) -> Bool {
    if !isWanted { return !firstChannels.contains(cid) }
    if frames.count == 1 { firstChannels.insert(cid) }
    return true
  }

  /// Return whether to read the list further from `next`.
  func hasMore(from next: UInt64) -> Bool {
    guard case .wrapped = state, let start else { return true }
    return next < start
  }

  /// Handle the end of the list; true where the list is now to be read from its beginning.
  mutating func wrap() -> Bool {
    guard case .first = state, start != nil else { return false }
    state = .wrapped
    return true
  }

  /// Add an unread channel.
  mutating func add(_ cid: [UInt8], pagePosition: Int) {
    if channels.count > limit {
      guard pagePosition < channels[limit].position else { return }
      channels.removeLast()
    }
    let at = channels.firstIndex { $0.position > pagePosition } ?? channels.count
    channels.insert((pagePosition, cid), at: at)
  }

  // MARK: Looking up

  /// Start the look-ups after counting: the next page's start, and each channel's row.
  mutating func beginDetails() -> [UserChannelScan.Action] {
    switch state {
    case .lookingUp: return []
    case .first, .wrapped: break
    }
    var actions: [UserChannelScan.Action] = []
    if channels.count > limit {
      channels.removeLast()
      // A list that ends with the last shown channel returns the position behind it.
      if let last = channels.last, let frame = frames.last(where: { $0.position <= last.position }) {
        actions.append(.locate(cursor: frame.cursor, limit: last.position - frame.position + 1))
        next = frame.cursor ?? 0
      }
    }
    details = Array(repeating: nil, count: channels.count)
    for index in channels.indices { actions.append(.detail(index)) }
    state = .lookingUp(actions.count)
    return actions
  }

  func channel(_ index: Int) -> [UInt8] { channels[index].cid }

  /// Handle a list that should end with the last shown channel. If memberships have changed meanwhile, the next page
  /// starts at the list frame: showing a channel twice is better than missing one.
  mutating func located(_ reader: inout FieldReader) throws(WireError) {
    var isLast = false
    let position = try reader.channelList { channel in
      isLast = channels.last.map { channel.cid.equals($0.cid.span.bytes) } ?? false
    }
    if isLast { next = position }
    answered()
  }

  /// Handle a read state that contains the user's own row.
  mutating func readStateReceived(_ index: Int, user: [UInt8], _ reader: inout FieldReader) throws(WireError) {
    for _ in 0..<(try reader.count(elementBytesMin: 8)) {
      let row = try RowFields(&reader)
      guard row.isOwn, row.unreadMessages > 0 || row.isFlaggedUnread, row.user.equals(user.span.bytes) else {
        continue
      }
      details[index] = Detail(
        cid: channels[index].cid,
        unread: row.unreadMessages,
        mentions: row.unreadMentions,
        isFlagged: row.isFlaggedUnread,
        lastRead: row.lastRead,
        lastReadMessage: row.lastReadMessage.withUnsafeBytes { Array($0) },
        firstUnreadMessage: row.firstUnreadMessage.withUnsafeBytes { Array($0) }
      )
    }
    answered()
  }

  /// Handle a channel that is no longer the user's.
  mutating func channelNotFound() { answered() }

  private mutating func answered() {
    if case .lookingUp(let waiting) = state { state = .lookingUp(waiting - 1) }
  }
}
