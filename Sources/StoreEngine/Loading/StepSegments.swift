internal import NIOCore
package import ReceiptModel
internal import ReceiptWire

/// Segments of steps to read from storage, requested from the loop's driver (R17).
package struct StepRequest: Hashable, Sendable {
  package var shard: ShardID
  package var channel: ChannelNumber
  package var ranges: [StepTime.SegmentRange]
  /// Tells reads apart; returned with the result.
  package var readID: UInt32
}

/// A row page whose segments are being rewritten.
struct TrimKey: Hashable {
  var channel: ChannelNumber
  var rowPage: UInt32
}

/// A read of steps in flight.
struct StepRead {
  enum Purpose {
    /// For a query that waits, with the row pages of the segments that were read for it before.
    case query(rowPages: [UInt32])
    /// A trim, with the segments that were in memory, by segment number.
    case trim([UInt32: [UInt8]])
  }

  var slot: ChannelSlot
  var channel: ChannelNumber
  /// The oldest valid segment of each row page in question. If it has changed, the page was trimmed since and the
  /// result is stale.
  var firsts: [(rowPage: UInt32, first: UInt32)]
  var purpose: Purpose

  var isForTrim: Bool {
    if case .trim = purpose { return true }
    return false
  }
}

/// Segments of steps on storage: those that are read for a query, which is then performed again with them, those that
/// are rewritten as fewer, and those that a commit writes or deletes.
final class StepSegments: ShardPart {
  private var stepReads: [UInt32: StepRead] = [:]
  /// Id of the last read of steps.
  private var lastReadID: UInt32 = 0
  /// Row pages with a trim in progress (their segments are being read, to be rewritten as fewer), and those that cannot
  /// be trimmed.
  private var trimsInFlight: Set<TrimKey> = []
  /// Segments to delete once the batch with this index is durable.
  private var stepTrims: [(index: LogIndex, trim: LoopCommit.StepTrim)] = []
  /// The end of each row page's last deletion since the start, or since this had ``deletedBeforeMax`` entries. So
  /// deletions do not overlap, and the first one also deletes what an earlier run has left.
  private var deletedBefore: [TrimKey: UInt32] = [:]
  private static let deletedBeforeMax = 4_096
  /// Step segments in the commit in flight.
  private var segmentsInFlight: [(slot: ChannelSlot, channel: ChannelNumber, page: PageID)] = []

  /// Maximum number of reads for one query, each of which asks for more than the last. After them the query is answered
  /// with the segments it has.
  private static let stepRoundsMax = 24
  /// Maximum number of segments in one read for a query.
  private static let stepSegmentsMax: UInt32 = 512

  // MARK: Queries

  /// Let a query wait until these segments are read. The query is then performed again from its beginning, with the
  /// segments.
  func wait(_ request: inout Request, _ slot: ChannelSlot, for ranges: [StepTime.SegmentRange]) -> Outcome {
    guard stepReads.count < shard.configuration.stepReadsMax, hasRoom(for: request) else {
      return .refused(.busy, retryAfterMilliseconds: 100, "too many steps are being read")
    }
    var attempt = request.attempt ?? RequestAttempt()
    attempt.stepRounds += 1
    request.attempt = attempt
    let rowPages = attempt.segments.rowPages.sorted()
    let readID = readSteps(slot, Self.joined(ranges), purpose: .query(rowPages: rowPages))
    return shard.waiting.add(request, for: .steps(readID))
  }

  /// Return whether a query may keep its steps, beside all other queries that keep some. One query always may.
  private func hasRoom(for request: borrowing Request) -> Bool {
    let kept = shard.waiting.keptSteps
    return kept == 0 || kept + request.segments.stepCount <= shard.configuration.keptStepsMax
  }

  /// Merge ranges into disjoint ones per row page, in rising order, limited to the segments of one read.
  private static func joined(_ ranges: [StepTime.SegmentRange]) -> [StepTime.SegmentRange] {
    var result: [StepTime.SegmentRange] = []
    let sorted = ranges.sorted {
      ($0.rowPage, $0.segments.lowerBound) < ($1.rowPage, $1.segments.lowerBound)
    }
    var remaining = stepSegmentsMax
    for range in sorted where remaining > 0 {
      var segments = range.segments
      if let last = result.last, last.rowPage == range.rowPage {
        let start = max(segments.lowerBound, last.segments.upperBound)
        guard start < segments.upperBound else { continue }
        segments = start..<segments.upperBound
      }
      if UInt32(segments.count) > remaining {
        segments = segments.lowerBound..<segments.lowerBound + remaining
      }
      remaining -= UInt32(segments.count)
      if let last = result.last, last.rowPage == range.rowPage, last.segments.upperBound == segments.lowerBound {
        result[result.count - 1].segments = last.segments.lowerBound..<segments.upperBound
      } else {
        result.append(StepTime.SegmentRange(rowPage: range.rowPage, segments: segments))
      }
    }
    return result
  }

  private func readSteps(_ slot: ChannelSlot, _ ranges: [StepTime.SegmentRange], purpose: StepRead.Purpose) -> UInt32 {
    lastReadID &+= 1
    var firsts: [(rowPage: UInt32, first: UInt32)] = []
    // Segments that were read for the query earlier must be of the same state.
    if case .query(let rowPages) = purpose {
      for rowPage in rowPages {
        firsts.append((rowPage, shard.state[slot].steps.segments(rowPage).lowerBound))
      }
    }
    for range in ranges where !firsts.contains(where: { $0.rowPage == range.rowPage }) {
      firsts.append((range.rowPage, shard.state[slot].steps.segments(range.rowPage).lowerBound))
    }
    let channel = shard.state[slot].number
    stepReads[lastReadID] = StepRead(slot: slot, channel: channel, firsts: firsts, purpose: purpose)
    shard.loop.driver.readSteps(
      StepRequest(shard: shard.state.id, channel: channel, ranges: ranges, readID: lastReadID)
    )
    return lastReadID
  }

  /// Return whether the channel is in memory with the same segments as when the steps were requested.
  private func isCurrent(_ read: StepRead) -> Bool {
    guard shard.state.isLoaded(read.slot), shard.state[read.slot].number == read.channel else { return false }
    return read.firsts.allSatisfy { shard.state[read.slot].steps.segments($0.rowPage).lowerBound == $0.first }
  }

  /// Handle a finished or failed read of steps.
  func stepsRead(_ request: StepRequest, _ result: Result<[StoredSegment], StorageError>) {
    guard let read = stepReads.removeValue(forKey: request.readID) else { return }
    switch read.purpose {
    case .query: for query in shard.waiting.take(.steps(request.readID)) { resume(query, read, request, result) }
    case .trim(let known): finishTrim(of: read, known: known, request, result)
    }
  }

  private func resume(
    _ waiting: WaitingRequest,
    _ read: StepRead,
    _ request: StepRequest,
    _ result: Result<[StoredSegment], StorageError>
  ) {
    // Trimmed or evicted since: the result may be stale, and the query starts again.
    var segments = ReadSegments()
    if isCurrent(read) {
      do throws(StorageError) {
        segments = waiting.attempt.segments
        let contents = try contents(request, result)
        for (key, bytes) in contents { segments.add(key.rowPage, key.segment, bytes) }
      } catch {
        shard.loop.driver.reportError(error)
        return shard.refuse(
          waiting,
          RefusedRequest(.unavailable, retryAfterMilliseconds: 1000, "the steps cannot be read")
        )
      }
    }
    if waiting.attempt.stepRounds >= Self.stepRoundsMax { segments.close() }
    var waiting = waiting
    waiting.attempt.segments = segments
    shard.resume(waiting)
  }

  private struct SegmentKey: Hashable {
    var rowPage: UInt32
    var segment: UInt32
  }

  /// Return the validated contents of every requested segment, in rising order. Segments in `known` are taken from
  /// there.
  private func contents(
    _ request: StepRequest,
    _ result: Result<[StoredSegment], StorageError>,
    known: [UInt32: [UInt8]] = [:]
  ) throws(StorageError) -> [(key: SegmentKey, bytes: [UInt8])] {
    var found: [SegmentKey: [UInt8]] = [:]
    let channel = "shard \(shard.state.id.rawValue), channel \(request.channel.rawValue)"
    for segment in try result.get() where known[segment.segment] == nil {
      let page = PageID.steps(segment.rowPage, segment.segment)
      let location = "\(channel), page \(page)"
      let stored = try ShardEngine.page(segment.bytes, location)
      guard stored.index <= shard.log.closed, stored.effects.count == 1,
        case .channel(request.channel, .stepsSealed(segment.rowPage, segment.segment, let bytes)) = stored.effects[0],
        StepBytes.areWhole(bytes)
      else { throw .corrupt("\(location): is not a valid segment of steps") }
      found[SegmentKey(rowPage: segment.rowPage, segment: segment.segment)] = bytes
    }
    var contents: [(key: SegmentKey, bytes: [UInt8])] = []
    for range in request.ranges {
      for segment in range.segments {
        let key = SegmentKey(rowPage: range.rowPage, segment: segment)
        guard let bytes = known[segment] ?? found[key] else {
          throw .corrupt("\(channel): segment \(segment) of the steps of rows page \(range.rowPage) is missing")
        }
        contents.append((key, bytes))
      }
    }
    return contents
  }

  // MARK: Trimming

  /// Start a trim if a row page has twice the segments it needs: read them, to rewrite them as fewer.
  func trimIfDue(_ slot: ChannelSlot, _ rowPage: UInt32) {
    let key = TrimKey(channel: shard.state[slot].number, rowPage: rowPage)
    guard shard.state.needsTrim(slot, rowPage), !trimsInFlight.contains(key) else { return }
    guard stepReads.values.count(where: { $0.isForTrim }) < shard.configuration.stepTrimsMax else {
      return
    }
    let segments = shard.state[slot].steps.segments(rowPage)
    // The segments may be written and dropped from memory before or after the read.
    var known: [UInt32: [UInt8]] = [:]
    for segment in segments {
      if let bytes = shard.state[slot].steps.segment(rowPage, segment) { known[segment] = bytes }
    }
    trimsInFlight.insert(key)
    let range = StepTime.SegmentRange(rowPage: rowPage, segments: segments)
    _ = readSteps(slot, [range], purpose: .trim(known))
  }

  private func finishTrim(
    of read: StepRead,
    known: [UInt32: [UInt8]],
    _ request: StepRequest,
    _ result: Result<[StoredSegment], StorageError>
  ) {
    let range = request.ranges[0]
    let key = TrimKey(channel: read.channel, rowPage: range.rowPage)
    guard isCurrent(read) else {
      trimsInFlight.remove(key)
      return
    }
    let contents: [(key: SegmentKey, bytes: [UInt8])]
    do throws(StorageError) {
      contents = try self.contents(request, result, known: known)
    } catch {
      // The segments stay as they are: they may be damaged. The trim is not retried before the next start.
      shard.loop.driver.reportError(error)
      return
    }
    trimsInFlight.remove(key)
    var effects: [Effect] = []
    shard.refresh(read.slot)
    guard shard.state.decideTrim(read.slot, range.rowPage, range.segments, contents.map(\.bytes), into: &effects),
      !effects.isEmpty
    else { return }
    shard.applyEffects(effects, to: read.slot)
  }

  /// Record that the open batch trims the segments before `first`: they are deleted once the batch is durable.
  /// Does nothing if there are no segments.
  func recordTrim(
    _ slot: ChannelSlot,
    _ channel: ChannelNumber,
    _ rowPage: UInt32,
    before first: UInt32,
    at index: LogIndex
  ) {
    guard !shard.state[slot].steps.segments(rowPage).isEmpty else { return }
    deleteSegments(of: channel, rowPage, before: first, at: index)
  }

  /// Delete the segments before `first` from storage once the batch with this index is durable.
  func deleteSegments(of channel: ChannelNumber, _ rowPage: UInt32, before first: UInt32, at index: LogIndex) {
    if deletedBefore.count >= Self.deletedBeforeMax { deletedBefore = [:] }
    let key = TrimKey(channel: channel, rowPage: rowPage)
    let from = deletedBefore[key] ?? 0
    guard from < first else { return }
    deletedBefore[key] = first
    if stepTrims.isEmpty { shard.loop.commits.registerTrims(of: shard) }
    let trim = LoopCommit.StepTrim(shard: shard.state.id, channel: channel, rowPage: rowPage, segments: from..<first)
    stepTrims.append((index, trim))
  }

  var hasTrims: Bool { !stepTrims.isEmpty }

  /// Record that the commit which is being made writes a segment.
  func recordWrite(_ slot: ChannelSlot, _ channel: ChannelNumber, _ page: PageID) {
    if segmentsInFlight.isEmpty { shard.loop.commits.registerSegmentWrites(of: shard) }
    segmentsInFlight.append((slot, channel, page))
  }

  /// Whether segments of any row page are being rewritten.
  var isTrimming: Bool { !trimsInFlight.isEmpty }

  /// Add the trims whose batch is durable.
  func takeTrims(into commit: inout LoopCommit) {
    let count = stepTrims.prefix { $0.index <= shard.log.durable }.count
    commit.stepTrims += stepTrims.prefix(count).map(\.trim)
    stepTrims.removeFirst(count)
  }

  /// Drop from memory the segments that the last commit wrote to storage. A segment that was recreated meanwhile
  /// stays.
  func segmentsWritten() {
    for (slot, channel, page) in segmentsInFlight {
      guard case .steps(let rowPage, let segment) = page, shard.state.isLoaded(slot),
        shard.state[slot].number == channel, !shard.dirty.isDirty(slot, other: page)
      else { continue }
      shard.dropSegment(slot, rowPage, segment)
    }
    segmentsInFlight.removeAll(keepingCapacity: true)
  }
}
