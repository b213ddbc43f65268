internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// Makes a page of what a user has in all their channels: receipts (R9) or threads (R15). Channels are listed frame by
/// frame and asked a few at a time; their
/// entries are taken in the order of the list. A pure state machine: what has to be asked comes out as steps, whose
/// answers go in again, each exactly once.
///
/// The page ends when one entry more than it shows is found, so that a cursor is given only where there is something
/// behind it.
struct UserListWalk {
  /// What is listed, with the values of the byte *state* or *threads* of Proto/frames.md, one pass over the channels
  /// after the other.
  enum Subject: Equatable {
    case receipts(ShardState.ReceiptState)
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

  /// What has to be asked.
  enum Step: Equatable {
    /// list_channels of the user; its answer is ``listed(_:)``.
    case list(cursor: UInt64?, limit: Int)
    /// user_receipts or user_threads of that channel of the frame; its answer is ``answered(_:_:)`` or
    /// ``refused(_:_:)``.
    case ask(Int)
    /// list_channels, to learn the place of the channel where the next page starts; its answer is ``located(_:)``.
    case locate(cursor: UInt64?, limit: Int)
  }

  /// Channels of one list_channels.
  static let listMax = 100
  /// Channels that are asked at once.
  static let askedMax = 16

  /// Where a page goes on.
  struct Cursor: Equatable {
    /// The pass over the channels: 0 or 1.
    var pass = 0
    /// The place of a channel in the list; nil: the first.
    var place: UInt64?
    /// Resume below this sequence number in that channel, if its hash still matches.
    var below: UInt32?
    var channelHash: UInt32 = 0
  }

  private enum State {
    case listing
    /// The channels of a list frame are asked.
    case asking
    case locating
    case done
  }

  let subject: Subject
  let user: [UInt8]
  private let limit: Int
  private let channelsMax: Int
  private var state = State.listing
  private var pass: Int
  /// Where the list frame begins, and where the next one does.
  private var frameCursor: UInt64?
  private var nextFrame: UInt64?
  private var channels: [[UInt8]] = []
  /// What came of each that was asked and is not consumed yet.
  private var replies: [Int: Reply] = [:]
  private var asked = 0
  private var consumed = 0
  /// In the channel that is consumed next: below this number.
  private var below: UInt32?
  private var resumed: Cursor?
  private var channelCount = 0
  private(set) var shownCount = 0
  /// Entries as JSON, with commas between them.
  private(set) var entries = ByteBuffer()
  private(set) var next: Cursor?
  private(set) var problem: Problem?

  private enum Reply {
    case entries(ByteBuffer)
    /// The channel is none of theirs any more.
    case gone
  }

  /// - Parameters:
  ///   - limit: 1 to 100.
  ///   - channelsMax: channels of one page; whoever has more is told so.
  init(_ subject: Subject, user: [UInt8], limit: Int, from cursor: Cursor?, channelsMax: Int) {
    self.subject = subject
    self.user = user
    self.limit = limit
    self.channelsMax = channelsMax
    pass = cursor?.pass ?? 0
    frameCursor = cursor?.place
    resumed = cursor
  }

  /// Whether a cursor can be of these lists.
  static func isOne(_ cursor: Cursor, of subject: Subject) -> Bool { cursor.pass < subject.passes.count }

  var isDone: Bool {
    if case .done = state { return true }
    return problem != nil
  }

  // MARK: What the steps need

  func channel(_ index: Int) -> [UInt8] { channels[index] }

  var kind: FrameKind {
    switch subject {
    case .receipts: .userReceipts
    case .threads: .userThreads
    }
  }

  /// The fields of the question behind the cid.
  func writeQuestion(_ index: Int, into buffer: inout ByteBuffer) {
    buffer.writeField(user.span.bytes)
    buffer.writeInteger(subject.passes[pass])
    buffer.writeVarint(min(100, limit + 1 - shownCount))
    buffer.writeOptional(index == consumed ? below.map { UInt64($0) } : nil)
  }

  // MARK: Events

  func begin() -> [Step] { [.list(cursor: frameCursor, limit: Self.listMax)] }

  /// A page of the user's channels, as list_channels answers.
  mutating func listed(_ reader: inout FieldReader) throws(WireError) -> [Step] {
    channels = []
    for _ in 0..<(try reader.count(elementBytesMin: ChannelEntryFields.byteCountMin)) {
      let entry = try ChannelEntryFields(&reader)
      channels.append(Array(entry.cid.utf8))
    }
    nextFrame = try reader.optional()
    try reader.end()
    if let nextFrame, nextFrame <= (frameCursor ?? 0) { throw .badValue(.count) }
    channelCount += channels.count
    guard channelCount <= channelsMax else {
      problem = Problem(.limitReached, "a request goes over at most \(channelsMax) channels")
      return []
    }
    (asked, consumed, below) = (0, 0, nil)
    if let from = resumed.take(), let first = channels.first, Self.hash(first) == from.channelHash {
      below = from.below
    }
    state = .asking
    return try advance()
  }

  /// What a channel has, as user_receipts or user_threads answers.
  mutating func answered(_ index: Int, _ payload: RawSpan) throws(WireError) -> [Step] {
    var bytes = ByteBuffer()
    bytes.writeRaw(payload)
    replies[index] = .entries(bytes)
    return try advance()
  }

  /// A channel, or the home shard, did not answer.
  mutating func refused(_ index: Int?, _ problem: Problem) throws(WireError) -> [Step] {
    switch problem.code {
    // Theirs no more, which the index did not know yet.
    case .channelNotFound, .notAMember, .memberNotFound:
      if let index { replies[index] = .gone }
      return try advance()
    default:
      self.problem = self.problem ?? problem
      return []
    }
  }

  /// A list that ends before the channel where the next page starts.
  mutating func located(_ reader: inout FieldReader) throws(WireError) -> [Step] {
    for _ in 0..<(try reader.count(elementBytesMin: ChannelEntryFields.byteCountMin)) {
      _ = try ChannelEntryFields(&reader)
    }
    // Where memberships have changed meanwhile, the next page starts with the list frame: what is shown twice is not
    // missed.
    next?.place = try reader.optional() ?? frameCursor
    try reader.end()
    state = .done
    return []
  }

  // MARK: -

  /// Consumes what is there, in order, and asks on.
  private mutating func advance() throws(WireError) -> [Step] {
    guard problem == nil, case .asking = state else { return [] }
    while consumed < channels.count, let reply = replies.removeValue(forKey: consumed) {
      switch reply {
      case .gone: below = nil
      case .entries(let bytes):
        if let steps = try consume(bytes) { return steps }
        // It has more than one answer holds.
        if below != nil { return [.ask(consumed)] }
      }
      consumed += 1
    }
    if consumed == channels.count { return frameIsConsumed() }
    var steps: [Step] = []
    while asked < channels.count, asked - consumed < Self.askedMax {
      steps.append(.ask(asked))
      asked += 1
    }
    return steps
  }

  private mutating func frameIsConsumed() -> [Step] {
    state = .listing
    replies = [:]
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

  /// Takes over the entries of the channel that is next, as many as are shown.
  ///
  /// - Returns: nil: the page is not full yet; ``below`` says whether the channel has more.
  private mutating func consume(_ bytes: ByteBuffer) throws(WireError) -> [Step]? {
    var reader = FieldReader(bytes.readableBytesSpan)
    var last = below
    for _ in 0..<(try reader.count()) {
      guard shownCount < limit else { return end(after: last) }
      if shownCount > 0 { entries.writeStaticString(",") }
      let cid = channels[consumed]
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

  /// The page is full, and there is another entry.
  ///
  /// - Parameter last: of the entries that are shown of the channel; nil: none is.
  private mutating func end(after last: UInt32?) -> [Step] {
    next = Cursor(pass: pass, place: frameCursor, below: last, channelHash: Self.hash(channels[consumed]))
    guard consumed > 0 else {
      state = .done
      return []
    }
    state = .locating
    return [.locate(cursor: frameCursor, limit: consumed)]
  }

  private static func hash(_ cid: [UInt8]) -> UInt32 {
    UInt32(truncatingIfNeeded: StableHash.hash(cid.span.bytes))
  }
}

extension UserListWalk.Cursor {
  /// `w`, then the pass, the place, the number and the channel's hash, with `-` between them. Callers are to take it as
  /// it is.
  var text: String { "w\(pass)-\(place ?? 0)-\(below ?? 0)-\(channelHash)" }

  /// Nil: it is not well-formed.
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
    guard numbers.count == 4, numbers[0] < 2, let place = UInt32(exactly: numbers[1]),
      let below = UInt32(exactly: numbers[2]), let hash = UInt32(exactly: numbers[3])
    else { return nil }
    self.init(
      pass: Int(numbers[0]),
      place: place == 0 ? nil : UInt64(place),
      below: below == 0 ? nil : below,
      channelHash: hash
    )
  }
}
