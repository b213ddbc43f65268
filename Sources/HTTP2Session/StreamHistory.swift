internal import NIOCore

/// Record of past streams, as far as the response to a late frame depends on it (RFC 9113 sections 5.1, 5.1.1). nghttp2
/// forgets closed streams and ignores later frames on them.
struct StreamHistory {
  /// Meaning of a frame on a stream that is not open.
  enum Verdict { case ignore, resetAgain, neverOpened, closed }

  private(set) var highest: Int32 = -1
  /// Streams that the peer skipped, and thereby closed without opening them. Only the latest few are kept.
  private var skipped: [ClosedRange<Int32>] = []
  private var resetByUs = RecentStreams()
  private var resetByPeer = RecentStreams()

  /// Record a HEADERS frame with a new odd stream number. Returns true if numbers were skipped.
  @inline(__always)
  mutating func opened(_ id: Int32) -> Bool {
    let skips = id != highest + 2
    if skips { skip(highest + 2...id - 2) }
    highest = id
    return skips
  }

  @inline(never)
  private mutating func skip(_ range: ClosedRange<Int32>) {
    if skipped.count == 16 { skipped.removeFirst() }
    skipped.append(range)
  }

  mutating func recordResetByUs(_ id: Int32) { resetByUs.insert(id) }
  mutating func recordResetByPeer(_ id: Int32) { resetByPeer.insert(id) }

  func verdict(_ id: Int32) -> Verdict {
    if resetByUs.contains(id) { return .ignore }
    if resetByPeer.contains(id) { return .resetAgain }
    return skipped.contains { $0.contains(id) } ? .neverOpened : .closed
  }
}

/// Bounded set of the most recent stream numbers.
struct RecentStreams {
  private static let limit = 128
  private var ids: [Int32] = []
  private var next = 0

  mutating func insert(_ id: Int32) {
    if ids.count < RecentStreams.limit {
      ids.append(id)
    } else {
      ids[next] = id
      next = (next + 1) % RecentStreams.limit
    }
  }

  func contains(_ id: Int32) -> Bool { ids.contains(id) }
}
