internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// The channels of a marking ``UserChannelScan``: queued, in flight with their unread threads, and failed.
struct ChannelMarks {
  /// The unread threads of a channel.
  private struct Threads {
    /// Parents of the listed threads that are not marked yet; the next one is last.
    var parents: [[UInt8]] = []
    /// The cursor of the next page; nil: no page is left, or none was read yet.
    var cursor: UInt32?
  }

  /// Whether unread threads are marked read too.
  private let includesThreads: Bool
  private let failedMax: Int
  private var queue: [[UInt8]] = []
  private var marking: [Int: [UInt8]] = [:]
  /// The threads of channels that are marked themselves.
  private var threads: [Int: Threads] = [:]
  private var nextNumber = 0
  /// Channels marked read without an error.
  private(set) var markedCount = 0
  /// Names of the failed channels, up to the limit, as consecutive string fields.
  private(set) var failed = ByteBuffer()
  private(set) var failedCount = 0

  init(includesThreads: Bool, failedMax: Int) {
    self.includesThreads = includesThreads
    self.failedMax = failedMax
  }

  var isEmpty: Bool { marking.isEmpty && queue.isEmpty }
  var queuedCount: Int { queue.count }
  /// Whether a mark was sent.
  var hasSent: Bool { nextNumber > 0 }

  func channel(of mark: Int) -> [UInt8] { marking[mark] ?? [] }
  func threadCursor(of mark: Int) -> UInt32? { threads[mark]?.cursor }
  /// Return the parent message of the thread that is marked next.
  func thread(of mark: Int) -> [UInt8] { threads[mark]?.parents.last ?? [] }

  mutating func append(_ cid: [UInt8]) { queue.append(cid) }

  /// Put the next channel in flight; returns its number, or nil where none is queued or too many are in flight.
  mutating func next(inFlightMax: Int) -> Int? {
    guard marking.count < inFlightMax, let cid = queue.popLast() else { return nil }
    defer { nextNumber += 1 }
    marking[nextNumber] = cid
    return nextNumber
  }

  /// Read a page of a channel's unread threads.
  mutating func threadsListed(_ mark: Int, _ reader: inout FieldReader) throws(WireError) {
    var listed = Threads()
    for _ in 0..<(try reader.count()) {
      listed.parents.append(try OwnThreadFields(&reader).message.bytes)
    }
    listed.parents.reverse()
    let next = try reader.optional32()
    try reader.end()
    if let next, next >= (threads[mark]?.cursor ?? .max) { throw .badValue(.count) }
    listed.cursor = next
    threads[mark] = listed
  }

  /// Handle the reply to a thread's mark_read. Nil: the channel is done.
  mutating func threadMarked(_ mark: Int) -> UserChannelScan.Action? {
    threads[mark]?.parents.removeLast()
    return nextThread(mark)
  }

  /// Return the request for the next thread of a channel. Nil: the channel is done.
  mutating func nextThread(_ mark: Int) -> UserChannelScan.Action? {
    guard let remaining = threads[mark] else { return nil }
    if !remaining.parents.isEmpty { return .markThread(mark) }
    return remaining.cursor == nil ? marked(mark, nil) : .threads(mark)
  }

  /// Handle the result of marking a channel, or one of its threads; code nil: it succeeded.
  ///
  /// - Returns: the next request about its threads. Nil: the channel is done.
  mutating func marked(_ mark: Int, _ code: ProblemCode?) -> UserChannelScan.Action? {
    if code == nil, includesThreads, marking[mark] != nil, threads[mark] == nil {
      threads[mark] = Threads()
      return .threads(mark)
    }
    // The thread was deleted with its parent.
    if code == .messageDeleted, threads[mark]?.parents.isEmpty == false { return threadMarked(mark) }
    threads[mark] = nil
    guard let cid = marking.removeValue(forKey: mark) else { return nil }
    switch code {
    case nil: markedCount += 1
    // No longer the user's channel; the index lags. A revoked token ends the whole scan.
    case .channelNotFound, .memberNotFound, .tokenRevoked: break
    default:
      if failedCount < failedMax { failed.writeField(cid.span.bytes) }
      failedCount += 1
    }
    return nil
  }
}
