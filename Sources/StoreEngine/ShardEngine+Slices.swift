import DequeModule
import NIOCore
import ReceiptModel
import ReceiptWire

/// A query, or the erasing of a user, whose work is too long for one turn of the loop: so much of it is done in each
/// turn, and requests to other channels are answered between. It is performed again and again, as it came, with how far
/// it has got; so whatever forbids it is seen in every slice.
struct SlicedQuery {
  /// How far a query has come.
  enum Progress {
    case list(MemberListScan)
    /// Statuses of the first so many messages.
    case statuses([Result<StatusAnswer, Refusal>], count: Int)
    /// A user is being erased; `isAtWork`: something of it is done.
    case erase(EraseScan, user: String, isAtWork: Bool)
  }

  var header: FrameHeader
  /// All of it, with what stands behind its fields.
  var payload: ByteBuffer
  var lane: ReplyLane
  /// Its channel stays in memory: rows are named by number.
  var slot: ChannelSlot
  var progress: Progress?
  /// What was read for it before, and how often.
  var segments: ReadSegments
  var stepRounds: Int
  /// The command's; nil for a query.
  var counter: UInt64?

  func isErasing(_ other: String, in channel: ChannelSlot) -> Bool {
    guard slot == channel, !lane.isClosed, case .erase(_, let user, true)? = progress else { return false }
    return user.isExactly(other)
  }
}

extension ShardEngine {
  /// Whether a query about this channel goes on.
  func isSliced(_ slot: ChannelSlot) -> Bool { slicedQueries.contains { $0.slot.rawValue == slot.rawValue } }

  /// Lets the query at hand look at rows, as many as this turn has left.
  ///
  /// - Parameter body: takes from the number what it looked at.
  func withRows(_ body: (inout Int) throws(Refusal) -> Void) throws(Refusal) {
    let granted = max(loop.rowsLeft, configuration.shortRows)
    var left = granted
    defer { loop.rowsLeft -= granted - left }
    try body(&left)
  }

  /// The query at hand is not done: it goes on in a later turn. Nothing may have been answered yet.
  func goesOn(
    _ header: FrameHeader,
    _ reader: borrowing FieldReader,
    _ slot: ChannelSlot,
    _ lane: ReplyLane,
    _ progress: SlicedQuery.Progress
  ) {
    goesOn(nil, header, reader, slot, lane, progress)
  }

  /// - Parameter command: it is open until it is done; nil: a query.
  func goesOn(
    _ command: CommandPlace?,
    _ header: FrameHeader,
    _ reader: borrowing FieldReader,
    _ slot: ChannelSlot,
    _ lane: ReplyLane,
    _ progress: SlicedQuery.Progress
  ) {
    if slicedQueries.count >= configuration.slicedQueriesMax {
      for query in slicedQueries where query.lane.isClosed { noteDropped(query) }
      slicedQueries.removeAll { $0.lane.isClosed }
      guard slicedQueries.count < configuration.slicedQueriesMax else {
        if let command { noteRefused(command) }
        return refuse(header, .busy, retryAfterMilliseconds: 100, "too many long requests", lane)
      }
    }
    if let command { sessions.waits(command.counter, at: command.session) }
    // While one is being carried out the loop knows of its shard already.
    if slicedQueries.isEmpty, !isGoingOn { loop.slices(self) }
    slicedQueries.append(
      SlicedQuery(
        header: header,
        payload: payload(reader),
        lane: lane,
        slot: slot,
        progress: progress,
        segments: readSegments,
        stepRounds: stepRounds,
        counter: command?.counter
      )
    )
  }

  /// Carries out one slice: of the query that has waited longest. Those whose connection is gone are forgotten.
  func goOn() {
    while let query = slicedQueries.popFirst() {
      guard !query.lane.isClosed else {
        noteDropped(query)
        continue
      }
      progress = query.progress
      readSegments = query.segments
      stepRounds = query.stepRounds
      isGoingOn = true
      defer {
        progress = nil
        readSegments = ReadSegments()
        stepRounds = 0
        isGoingOn = false
      }
      do {
        try receiveNow(query.header, query.payload.readableBytesSpan, query.lane)
      } catch {
        query.lane.fail(error)
      }
      return
    }
  }

  /// Its connection is gone. A command is sent again on another, and begun anew.
  private func noteDropped(_ query: SlicedQuery) {
    if let counter = query.counter { sessions.refused(counter, at: sessionPosition(query.lane)) }
  }

  // MARK: Statuses

  /// Counts the messages of a statuses query. They are counted together, but each with a receipt takes a pass of its
  /// own over who has acknowledged it, and each reply one over its thread.
  ///
  /// - Returns: false where the query goes on later.
  func fillStatuses(
    _ header: FrameHeader,
    _ reader: borrowing FieldReader,
    _ slot: ChannelSlot,
    _ lane: ReplyLane,
    _ viewer: ChannelViewer,
    _ answers: inout [Result<StatusAnswer, Refusal>]
  ) -> Bool {
    var done = 0
    if case .statuses(let known, let count)? = progress {
      // A message that was deleted meanwhile has no status any more.
      for place in 0..<count {
        if case .success = answers[place] { answers[place] = known[place] }
      }
      done = count
    }
    progress = nil
    let granted = max(loop.rowsLeft, configuration.shortRows)
    let rows = state[slot].rows.rowCount
    var left = granted - rows
    var end = done
    while end < answers.count {
      if case .success(let asked) = answers[end] {
        let own = state.rowsCounted(slot, for: asked)
        // Each slice gets on by one at least.
        if left < own, end > done { break }
        left -= own
      }
      end += 1
    }
    loop.rowsLeft -= granted - left
    var part = Array(answers[done..<end])
    state.statuses(slot, viewer: viewer, &part)
    answers.replaceSubrange(done..<end, with: part)
    guard end < answers.count else { return true }
    goesOn(header, reader, slot, lane, .statuses(answers, count: end))
    return false
  }
}
