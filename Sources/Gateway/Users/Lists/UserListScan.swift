internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// Builder of a page of a user's acknowledgement requests (R9) or threads (R15) over all their channels. Channels are
/// listed frame by frame and queried a few at a time; their entries are taken in list order. A pure state machine:
/// requests come out as actions, and each reply goes in exactly once.
///
/// The page ends when one entry more than it shows is found, so a cursor is given only if there is a next page.
struct UserListScan {
  /// The kind of list, with the values of the byte *state* or *threads* of Proto/frames.md. Each value is one pass over
  /// the channels.
  enum Subject: Equatable {
    case receipts(ShardState.AcknowledgementState)
    /// Unread ones first.
    case threads(unreadOnly: Bool)

    fileprivate var passes: [UInt8] {
      switch self {
      case .receipts(let state): [state.rawValue]
      case .threads(let unreadOnly):
        unreadOnly
          ? [ShardState.ThreadSelection.unread.rawValue]
          : [ShardState.ThreadSelection.unread.rawValue, ShardState.ThreadSelection.read.rawValue]
      }
    }
  }

  /// A request to send.
  enum Action: Equatable {
    /// Send list_channels of the user; its reply is ``listed(_:)``.
    case list(cursor: UInt64?, limit: Int)
    /// Send user_receipts or user_threads for that channel of the frame; its reply is ``answered(_:_:)`` or
    /// ``refused(_:_:)``.
    case query(Int)
    /// Send list_channels to learn the list position of the channel where the next page starts; its reply is
    /// ``located(_:)``.
    case locate(cursor: UInt64?, limit: Int)
  }

  /// Channels of one list_channels.
  static let listMax = 100
  /// Channels queried at once.
  static let queriedMax = 16

  /// The start of a page.
  struct Cursor: Equatable {
    /// The pass over the channels: 0 or 1.
    var pass = 0
    /// The list position of a channel; nil: the first.
    var position: UInt64?
    /// Resume below this sequence number in that channel, if its hash still matches.
    var below: UInt32?
    var channelHash: UInt32 = 0
  }

  private enum State {
    case listing
    /// Queries the channels of a list frame.
    case querying
    case locating
    case done
  }

  let subject: Subject
  let user: [UInt8]
  private let limit: Int
  private let channelsMax: Int
  private var state = State.listing
  private var pass: Int
  /// The cursors of this list frame and of the next.
  private var frameCursor: UInt64?
  private var nextFrame: UInt64?
  private var frame = ChannelReplies([])
  /// The sequence number to continue below, in the channel that is consumed next.
  private var below: UInt32?
  private var resumed: Cursor?
  private var channelCount = 0
  private(set) var shownCount = 0
  /// Entries as JSON, with commas between them.
  private(set) var entries = ByteBuffer()
  private(set) var next: Cursor?
  private(set) var problem: Problem?

  /// - Parameters:
  ///   - limit: 1 to 100.
  ///   - channelsMax: channels of one page; the request fails for a user with more.
  init(_ subject: Subject, user: [UInt8], limit: Int, from cursor: Cursor?, channelsMax: Int) {
    self.subject = subject
    self.user = user
    self.limit = limit
    self.channelsMax = channelsMax
    pass = cursor?.pass ?? 0
    frameCursor = cursor?.position
    resumed = cursor
  }

  /// Return whether a cursor fits this kind of list.
  static func isValid(_ cursor: Cursor, of subject: Subject) -> Bool { cursor.pass < subject.passes.count }

  var isDone: Bool {
    if case .done = state { return true }
    return problem != nil
  }

  // MARK: Requests

  func channel(_ index: Int) -> [UInt8] { frame.channels[index] }

  var kind: FrameKind {
    switch subject {
    case .receipts: .userReceipts
    case .threads: .userThreads
    }
  }

  /// Write the fields of the query after the cid.
  func writeRequest(_ index: Int, into buffer: inout ByteBuffer) {
    buffer.writeOwnList(
      user: user.span.bytes,
      selection: subject.passes[pass],
      limit: min(WireLimits.pageMax, limit + 1 - shownCount),
      below: index == frame.consumed ? below.map { SequenceNumber($0) } : nil
    )
  }

  // MARK: Events

  func begin() -> [Action] { [.list(cursor: frameCursor, limit: Self.listMax)] }

  /// Handle a page of the user's channels from list_channels.
  mutating func listed(_ reader: inout FieldReader) throws(WireError) -> [Action] {
    var channels: [[UInt8]] = []
    nextFrame = try reader.channelList { channels.append($0.cid.bytes) }
    if let nextFrame, nextFrame <= (frameCursor ?? 0) { throw .badValue(.count) }
    channelCount += channels.count
    guard channelCount <= channelsMax else {
      problem = Problem(.limitReached, "a request covers at most \(channelsMax) channels")
      return []
    }
    frame = ChannelReplies(channels)
    below = nil
    if let from = resumed.take(), let first = channels.first, Self.hash(first) == from.channelHash {
      below = from.below
    }
    state = .querying
    return try advance()
  }

  /// Handle a channel's entries from user_receipts or user_threads.
  mutating func answered(_ index: Int, _ payload: RawSpan) throws(WireError) -> [Action] {
    var bytes = ByteBuffer()
    bytes.writeRaw(payload)
    frame.answered(index, .entries(bytes))
    return try advance()
  }

  /// Handle a failed request to a channel or the home shard.
  mutating func refused(_ index: Int?, _ problem: Problem) throws(WireError) -> [Action] {
    switch problem.code {
    // No longer the user's channel; the index lags.
    case .channelNotFound, .notAMember, .memberNotFound:
      if let index { frame.answered(index, .notFound) }
      return try advance()
    default:
      self.problem = self.problem ?? problem
      return []
    }
  }

  /// Handle a list that ends before the channel where the next page starts.
  mutating func located(_ reader: inout FieldReader) throws(WireError) -> [Action] {
    // If memberships have changed meanwhile, the next page starts at the list frame: showing an entry twice is better
    // than missing one.
    next?.position = try reader.channelList { _ in } ?? frameCursor
    state = .done
    return []
  }

  // MARK: -

  /// Consume replies in order, and send further queries.
  private mutating func advance() throws(WireError) -> [Action] {
    guard problem == nil, case .querying = state else { return [] }
    while let reply = frame.takeNext() {
      switch reply {
      case .notFound: below = nil
      case .entries(let bytes):
        if let actions = try consume(bytes) { return actions }
        // The channel has more entries than one reply holds.
        if below != nil { return [.query(frame.consumed)] }
      }
      frame.advance()
    }
    if frame.isConsumed { return frameIsConsumed() }
    var actions: [Action] = []
    while let channel = frame.nextToQuery(ahead: Self.queriedMax) { actions.append(.query(channel)) }
    return actions
  }

  private mutating func frameIsConsumed() -> [Action] {
    state = .listing
    if let nextFrame {
      frameCursor = nextFrame
    } else if pass + 1 < subject.passes.count {
      pass += 1
      frameCursor = nil
    } else {
      state = .done
      return []
    }
    return begin()
  }

  /// Take the entries of the next channel, as many as the page shows.
  ///
  /// - Returns: nil: the page is not full yet; ``below`` says whether the channel has more.
  private mutating func consume(_ bytes: ByteBuffer) throws(WireError) -> [Action]? {
    var reader = FieldReader(bytes.readableBytesSpan)
    var last = below
    for _ in 0..<(try reader.count()) {
      guard shownCount < limit else { return end(after: last) }
      if shownCount > 0 { entries.writeStaticString(",") }
      let cid = frame.channels[frame.consumed]
      switch subject {
      case .receipts: last = try OwnListJSON.writeReceipt(&reader, cid: cid.span.bytes, into: &entries)
      case .threads: last = try OwnListJSON.writeThread(&reader, cid: cid.span.bytes, into: &entries)
      }
      shownCount += 1
    }
    let next = try reader.optional32()
    try reader.end()
    if let next, next >= (below ?? .max) { throw .badValue(.count) }
    below = next
    return nil
  }

  /// End a full page when there is another entry.
  ///
  /// - Parameter last: sequence number of the channel's last shown entry; nil: none is shown.
  private mutating func end(after last: UInt32?) -> [Action] {
    let hash = Self.hash(frame.channels[frame.consumed])
    next = Cursor(pass: pass, position: frameCursor, below: last, channelHash: hash)
    guard frame.consumed > 0 else {
      state = .done
      return []
    }
    state = .locating
    return [.locate(cursor: frameCursor, limit: frame.consumed)]
  }

  private static func hash(_ cid: [UInt8]) -> UInt32 {
    UInt32(truncatingIfNeeded: StableHash.hash(cid.span.bytes))
  }
}

/// The channels of a list frame, which are queried a few at a time, and whose replies are consumed in list order.
private struct ChannelReplies {
  enum Reply {
    case entries(ByteBuffer)
    /// The channel is no longer the user's.
    case notFound
  }

  let channels: [[UInt8]]
  /// Replies that are not consumed yet, by channel index.
  private var replies: [Int: Reply] = [:]
  /// Channels queried so far.
  private var queried = 0
  /// Channels consumed so far; the index of the next one.
  private(set) var consumed = 0

  init(_ channels: [[UInt8]]) { self.channels = channels }

  var isConsumed: Bool { consumed == channels.count }

  mutating func answered(_ index: Int, _ reply: Reply) { replies[index] = reply }

  /// Take the reply of the channel that is consumed next; nil: it has not arrived, or there is none.
  mutating func takeNext() -> Reply? { replies.removeValue(forKey: consumed) }

  /// Go to the next channel.
  mutating func advance() { consumed += 1 }

  /// Return the next channel to ask, at most this many ahead of the consumed ones.
  mutating func nextToQuery(ahead: Int) -> Int? {
    guard queried < channels.count, queried - consumed < ahead else { return nil }
    defer { queried += 1 }
    return queried
  }
}

extension UserListScan.Cursor {
  /// `w`, then the pass, the position, the sequence number and the channel's hash, separated by `-`. Opaque to callers.
  var text: String { "w\(pass)-\(position ?? 0)-\(below ?? 0)-\(channelHash)" }

  /// Nil: the text is malformed.
  init?(_ text: RawSpan) {
    guard text.byteCount > 1, text.unsafeLoad(fromByteOffset: 0, as: UInt8.self) == UInt8(ascii: "w") else {
      return nil
    }
    var numbers: [UInt64] = []
    var start = 1
    while start <= text.byteCount {
      let end = text.firstOffset(of: UInt8(ascii: "-"), from: start) ?? text.byteCount
      guard numbers.count < 4, let number = text.extracting(start..<end).decimal else { return nil }
      numbers.append(number)
      start = end + 1
    }
    guard numbers.count == 4, numbers[0] < 2, let position = UInt32(exactly: numbers[1]),
      let below = UInt32(exactly: numbers[2]), let hash = UInt32(exactly: numbers[3])
    else { return nil }
    self.init(
      pass: Int(numbers[0]),
      position: position == 0 ? nil : UInt64(position),
      below: below == 0 ? nil : below,
      channelHash: hash
    )
  }
}
