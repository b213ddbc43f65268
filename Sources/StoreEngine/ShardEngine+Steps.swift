import NIOCore
package import ReceiptModel
import ReceiptWire

/// Segments of steps to read from storage, asked of whoever drives the loop (R17).
package struct StepRequest: Hashable, Sendable {
  package var shard: ShardID
  package var channel: ChannelNumber
  package var ranges: [StepTime.SegmentRange]
  /// Tells reads apart; handed back with what was read.
  package var ticket: UInt32
}

/// A row page whose segments are written anew.
struct TrimPlace: Hashable {
  var channel: ChannelNumber
  var rowPage: UInt32
}

/// A read of steps under way.
struct StepRead {
  /// A query that waits, with its bytes and what was read for it before.
  struct Waiting {
    var header: FrameHeader
    var payload: ByteBuffer
    var lane: ReplyLane
    var segments: ReadSegments
    /// How often steps were read for it.
    var rounds: Int
  }

  enum Purpose {
    case request(Waiting)
    /// To be trimmed; those that were in memory, by segment.
    case trim([UInt32: [UInt8]])
  }

  var slot: ChannelSlot
  var channel: ChannelNumber
  /// The oldest segment in force of each row page that is looked at: another one means that the page was trimmed since,
  /// and what was read is old.
  var firsts: [(rowPage: UInt32, first: UInt32)]
  var purpose: Purpose

  var isForRequest: Bool {
    if case .request = purpose { return true }
    return false
  }
}

/// Steps that are read from storage: for a query, which is performed again with them at hand, and to write a row page's
/// segments anew.
extension ShardEngine {
  /// Reads for one query: each asks for more than the last. After so many it is answered from what it has.
  private static let stepRoundsMax = 24
  /// Segments in one read for a query.
  private static let stepSegmentsMax: UInt32 = 512

  // MARK: Queries

  /// Suspends the query at hand until these segments are read; then it is performed again, from its beginning, with
  /// them in ``readSegments``. Nothing may have been answered yet.
  ///
  func needSteps(
    _ header: FrameHeader,
    _ reader: borrowing FieldReader,
    _ lane: ReplyLane,
    _ slot: ChannelSlot,
    _ ranges: [StepTime.SegmentRange]
  ) {
    guard stepReads.count < configuration.stepReadsMax, hasRoomForSteps else {
      return refuse(header, .busy, retryAfterMilliseconds: 100, "too many steps are being read", lane)
    }
    let waiting = StepRead.Waiting(
      header: header,
      payload: payload(reader),
      lane: lane,
      segments: readSegments,
      rounds: stepRounds + 1
    )
    readSteps(slot, Self.joined(ranges), purpose: .request(waiting))
  }

  /// Whether the query at hand may go on holding steps, beside all others that do: one always may.
  private var hasRoomForSteps: Bool {
    var held = slicedQueries.reduce(0) { $0 + $1.segments.stepCount }
    for read in stepReads.values {
      if case .request(let waiting) = read.purpose { held += waiting.segments.stepCount }
    }
    return held == 0 || held + readSegments.stepCount <= configuration.heldStepsMax
  }

  /// All of the payload of the request at hand, with what stands behind its fields.
  func payload(_ reader: borrowing FieldReader) -> ByteBuffer {
    var bytes = ByteBuffer()
    bytes.writeRaw(reader.whole)
    if let issued { bytes.writeInteger(issued) }
    return bytes
  }

  /// Ranges of each row page that do not overlap, in rising order, cut off at what one read may hold.
  private static func joined(_ ranges: [StepTime.SegmentRange]) -> [StepTime.SegmentRange] {
    var result: [StepTime.SegmentRange] = []
    let sorted = ranges.sorted {
      ($0.rowPage, $0.segments.lowerBound) < ($1.rowPage, $1.segments.lowerBound)
    }
    var left = stepSegmentsMax
    for range in sorted where left > 0 {
      var segments = range.segments
      if let last = result.last, last.rowPage == range.rowPage {
        let start = max(segments.lowerBound, last.segments.upperBound)
        guard start < segments.upperBound else { continue }
        segments = start..<segments.upperBound
      }
      if UInt32(segments.count) > left { segments = segments.lowerBound..<segments.lowerBound + left }
      left -= UInt32(segments.count)
      if let last = result.last, last.rowPage == range.rowPage,
        last.segments.upperBound == segments.lowerBound
      {
        result[result.count - 1].segments = last.segments.lowerBound..<segments.upperBound
      } else {
        result.append(StepTime.SegmentRange(rowPage: range.rowPage, segments: segments))
      }
    }
    return result
  }

  private func readSteps(_ slot: ChannelSlot, _ ranges: [StepTime.SegmentRange], purpose: StepRead.Purpose) {
    stepTicket &+= 1
    var firsts: [(rowPage: UInt32, first: UInt32)] = []
    // What was read for the query before has to be of the same state too.
    if case .request(let waiting) = purpose {
      for rowPage in waiting.segments.rowPages.sorted() {
        firsts.append((rowPage, state[slot].steps.segments(rowPage).lowerBound))
      }
    }
    for range in ranges where !firsts.contains(where: { $0.rowPage == range.rowPage }) {
      firsts.append((range.rowPage, state[slot].steps.segments(range.rowPage).lowerBound))
    }
    let channel = state[slot].number
    stepReads[stepTicket] = StepRead(slot: slot, channel: channel, firsts: firsts, purpose: purpose)
    loop.readSteps(StepRequest(shard: state.id, channel: channel, ranges: ranges, ticket: stepTicket))
  }

  /// Whether the channel is in memory as it was when the steps were asked for, as far as segments go.
  private func isCurrent(_ read: StepRead) -> Bool {
    guard state.isLoaded(read.slot), state[read.slot].number == read.channel else { return false }
    return read.firsts.allSatisfy { state[read.slot].steps.segments($0.rowPage).lowerBound == $0.first }
  }

  /// Steps were read, or could not be.
  func stepsRead(_ request: StepRequest, _ result: Result<[StoredSegment], StorageError>) {
    guard let read = stepReads.removeValue(forKey: request.ticket) else { return }
    switch read.purpose {
    case .request(let waiting): performAgain(waiting, read, request, result)
    case .trim(let known): finishTrim(known, read, request, result)
    }
  }

  private func performAgain(
    _ waiting: StepRead.Waiting,
    _ read: StepRead,
    _ request: StepRequest,
    _ result: Result<[StoredSegment], StorageError>
  ) {
    // Its connection is gone; a query is simply asked again.
    guard !waiting.lane.isClosed else { return }
    // Trimmed or let go from memory since: what was read may be old, and the query starts anew.
    var segments = ReadSegments()
    if isCurrent(read) {
      do throws(StorageError) {
        segments = waiting.segments
        let contents = try contents(request, result)
        for (place, bytes) in contents { segments.add(place.rowPage, place.segment, bytes) }
      } catch {
        loop.reports(error)
        return refuse(
          waiting.header,
          .unavailable,
          retryAfterMilliseconds: 1000,
          "the steps cannot be read",
          waiting.lane
        )
      }
    }
    if waiting.rounds >= Self.stepRoundsMax { segments.close() }
    readSegments = segments
    stepRounds = waiting.rounds
    defer {
      readSegments = ReadSegments()
      stepRounds = 0
    }
    do {
      try receiveNow(waiting.header, waiting.payload.readableBytesSpan, waiting.lane)
    } catch {
      waiting.lane.fail(error)
    }
  }

  private struct SegmentPlace: Hashable {
    var rowPage: UInt32
    var segment: UInt32
  }

  /// What was read, checked, in rising order: every segment that was asked for, but for those that are in `known`.
  private func contents(
    _ request: StepRequest,
    _ result: Result<[StoredSegment], StorageError>,
    known: [UInt32: [UInt8]] = [:]
  ) throws(StorageError) -> [(place: SegmentPlace, bytes: [UInt8])] {
    var found: [SegmentPlace: [UInt8]] = [:]
    let stored: [StoredSegment]
    switch result {
    case .success(let segments): stored = segments
    case .failure(let error): throw error
    }
    for segment in stored where known[segment.segment] == nil {
      let place =
        "shard \(state.id.rawValue), channel \(request.channel.rawValue), page \(PageID.steps(segment.rowPage, segment.segment))"
      let page = try Self.page(segment.bytes, place)
      guard page.index <= closed, page.effects.count == 1,
        case .stepsSealed(request.channel, segment.rowPage, segment.segment, let bytes) = page.effects[0],
        StepBytes.areWhole(bytes)
      else { throw .corrupt("\(place): holds no such steps") }
      found[SegmentPlace(rowPage: segment.rowPage, segment: segment.segment)] = bytes
    }
    var contents: [(place: SegmentPlace, bytes: [UInt8])] = []
    for range in request.ranges {
      for segment in range.segments {
        let place = SegmentPlace(rowPage: range.rowPage, segment: segment)
        guard let bytes = known[segment] ?? found[place] else {
          throw .corrupt(
            "shard \(state.id.rawValue), channel \(request.channel.rawValue): segment \(segment) of the steps of rows page \(range.rowPage) is missing"
          )
        }
        contents.append((place, bytes))
      }
    }
    return contents
  }

  // MARK: Trimming

  /// Has a row page's segments read where they are twice what is needed, so that they can be written as fewer.
  func trimSteps(_ slot: ChannelSlot, _ rowPage: UInt32) {
    let place = TrimPlace(channel: state[slot].number, rowPage: rowPage)
    guard state.wantsTrim(slot, rowPage), !trimsUnderWay.contains(place) else { return }
    guard stepReads.values.count(where: { !$0.isForRequest }) < configuration.stepTrimsMax else { return }
    let segments = state[slot].steps.segments(rowPage)
    // They may be written and leave memory before the storage is read, or after.
    var known: [UInt32: [UInt8]] = [:]
    for segment in segments {
      if let bytes = state[slot].steps.segment(rowPage, segment) { known[segment] = bytes }
    }
    trimsUnderWay.insert(place)
    let range = StepTime.SegmentRange(rowPage: rowPage, segments: segments)
    readSteps(slot, [range], purpose: .trim(known))
  }

  private func finishTrim(
    _ known: [UInt32: [UInt8]],
    _ read: StepRead,
    _ request: StepRequest,
    _ result: Result<[StoredSegment], StorageError>
  ) {
    let range = request.ranges[0]
    let place = TrimPlace(channel: read.channel, rowPage: range.rowPage)
    guard isCurrent(read) else {
      trimsUnderWay.remove(place)
      return
    }
    let contents: [(place: SegmentPlace, bytes: [UInt8])]
    do throws(StorageError) {
      contents = try self.contents(request, result, known: known)
    } catch {
      // Its segments stay as they are, and it is not tried again before the next start: they may be damaged.
      loop.reports(error)
      return
    }
    trimsUnderWay.remove(place)
    effects.removeAll(keepingCapacity: true)
    state.refresh(read.slot)
    guard
      state.decideTrim(read.slot, range.rowPage, range.segments, contents.map(\.bytes), into: &effects),
      !effects.isEmpty
    else { return }
    carryOut(read.slot, session: nil)
  }
}
