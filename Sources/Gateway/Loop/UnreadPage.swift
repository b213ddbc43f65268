internal import ReceiptModel
internal import ReceiptWire

/// The channels with unread messages that one page shows (R14), in the order of the list of channels, whose places are
/// its cursors. Part of ``UserWalk``: while that counts, this keeps the first channels from the page's start on; then
/// it has each of them looked up.
///
/// The walk begins at the page's start, and what stands before it comes last: places are known of pages only, so this
/// is how a channel is known to stand before or behind the start.
struct UnreadPage {
  /// The place from which channels are shown; nil: all.
  let start: UInt64?
  private let limit: Int

  /// How the page comes to be.
  private enum State {
    /// Channels from the start on are listed. Becomes `wrapped` where any may stand before it.
    case first
    /// Channels before the start are listed.
    case wrapped
    /// They are looked up, so many answers are to come.
    case looking(Int)
  }

  private var state = State.first
  /// The channels of the first list frame, by which the end of what stands before it is known.
  private var firstChannels: Set<[UInt8]> = []
  /// Where each list frame begins: the number of channels before it in the walk, and its cursor.
  private var frames: [(place: Int, cursor: UInt64?)] = []
  /// In order; one more than is shown, where there is one.
  private var channels: [(place: Int, cid: [UInt8])] = []
  /// What is shown of each; nil: not a channel of theirs any more, or read meanwhile.
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

  /// What is shown.
  var shown: [Detail] { details.compactMap { $0 } }

  var isWaiting: Bool {
    if case .looking(let waiting) = state { return waiting > 0 }
    return false
  }

  // MARK: While channels are listed and counted

  /// A list frame came; true where its channels may be shown.
  mutating func beginFrame(from cursor: UInt64?, order: Int) -> Bool {
    guard case .first = state else { return false }
    frames.append((order, cursor))
    return true
  }

  /// Whether a listed channel was not listed before, of a page that has a start.
  mutating func isNew(_ cid: [UInt8], isWanted: Bool) -> Bool {
    if !isWanted { return !firstChannels.contains(cid) }
    if frames.count == 1 { firstChannels.insert(cid) }
    return true
  }

  /// Whether the list is to be read on.
  func goesOn(from next: UInt64) -> Bool {
    guard case .wrapped = state, let start else { return true }
    return next < start
  }

  /// The list has ended; true where it is to be read from its beginning now.
  mutating func wrap() -> Bool {
    guard case .first = state, start != nil else { return false }
    state = .wrapped
    return true
  }

  /// A channel has unread messages.
  mutating func note(_ cid: [UInt8], place: Int) {
    if channels.count > limit {
      guard place < channels[limit].place else { return }
      channels.removeLast()
    }
    let at = channels.firstIndex { $0.place > place } ?? channels.count
    channels.insert((place, cid), at: at)
  }

  // MARK: Looking up

  /// All is counted. Asks where the next page starts, and for each channel's row.
  mutating func look() -> [UserWalk.Step] {
    switch state {
    case .looking: return []
    case .first, .wrapped: break
    }
    var steps: [UserWalk.Step] = []
    if channels.count > limit {
      channels.removeLast()
      // The place behind a channel is where a list that ends with it goes on.
      if let last = channels.last, let frame = frames.last(where: { $0.place <= last.place }) {
        steps.append(.locate(cursor: frame.cursor, limit: last.place - frame.place + 1))
        next = frame.cursor ?? 0
      }
    }
    details = Array(repeating: nil, count: channels.count)
    for index in channels.indices { steps.append(.detail(index)) }
    state = .looking(steps.count)
    return steps
  }

  func channel(_ index: Int) -> [UInt8] { channels[index].cid }

  /// A list that ends with the last channel that is shown. Where it does not, as memberships have changed meanwhile,
  /// the next page starts at the list frame: what is shown twice is not missed.
  mutating func located(_ reader: inout FieldReader) throws(WireError) {
    var isLast = false
    for _ in 0..<(try reader.count(elementBytesMin: ChannelEntryFields.byteCountMin)) {
      let cid = try reader.string()
      isLast = cid.withUnsafeBytes { bytes in channels.last.map { $0.cid.elementsEqual(bytes) } ?? false }
      _ = try reader.optional32()
      _ = try reader.byte()
      _ = try reader.time()
    }
    let place = try reader.optional()
    try reader.end()
    if isLast { next = place }
    answered()
  }

  /// A read state, in which the user's own row is.
  mutating func looked(_ index: Int, user: [UInt8], _ reader: inout FieldReader) throws(WireError) {
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

  /// The channel is not theirs any more.
  mutating func gone() { answered() }

  private mutating func answered() {
    if case .looking(let waiting) = state { state = .looking(waiting - 1) }
  }
}
