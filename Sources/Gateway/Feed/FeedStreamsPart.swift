internal import HTTP2Session
internal import NIOCore
internal import Operations
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// The streams of the change feed (R21): each asks the shards of its partition for records, and writes them as lines.
final class FeedStreamsPart: GatewayPart {
  private var streams = LineStreamTable<FeedStream>()
  // Counters since the start.
  private var opened: UInt64 = 0
  private var stalled: UInt64 = 0
  private var records: UInt64 = 0
  private var lastEpoch: UInt64 = 0

  private static let streamsMax = 1_024
  /// Attempts at an epoch that no shard knows; the second one nearly always succeeds.
  private static let attemptsMax: UInt8 = 8
  /// Records that one answer of a shard may have. All shards may answer at once, and each line has a cursor with a
  /// number for each shard: together some MiB.
  private static func recordsPerRead(shardCount: Int) -> Int {
    max(4, min(2_000, 32_000 / (shardCount * (4 + shardCount / 32))))
  }
  private static let heartbeat = TimeAmount.seconds(10)
  /// The longest silence of a stream whose records are slow to come.
  private static let silenceMax = TimeAmount.seconds(14)

  // MARK: Opening

  /// Handle `GET /v1/feed`.
  func openFeed(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    try loop.openStreams.checkNotDraining()
    guard loop.store.shardCount > 0 else { throw Problem(.storeUnavailable) }
    let parameters = try FeedParameters(match.query, loop.scratch, shardCount: loop.store.shardCount)
    guard streams.count < Self.streamsMax else { throw Problem(.limitReached, "at most \(Self.streamsMax) streams") }
    let shards = FeedCursor.shards(of: parameters.partition, shardCount: loop.store.shardCount)
    if request.method == .head {
      guard let connection = loop.connections.answering(context.stream, on: context.connection) else { return }
      connection.startStreaming(context.stream, status: 200, contentType: .ndjson)
      return loop.counters.answered(match.route, status: 200)
    }
    let none = FeedCursor(parameters.partition, time: .none, positions: Array(repeating: 0, count: shards.count))
    let stream: FeedStream
    if let range = parameters.range {
      for cursor in [range.from, range.to]
      where cursor.partition != parameters.partition || cursor.positions.count != shards.count {
        throw Problem(.invalidQuery, "from and to have to be cursors of this partition")
      }
      stream = FeedStream(
        context,
        consumer: parameters.consumer,
        .range(to: range.to),
        cursor: range.from,
        shards: shards
      )
    } else {
      stream = FeedStream(context, consumer: parameters.consumer, .consumer, cursor: none, shards: shards)
    }
    let index = streams.insert(stream)
    if stream.end == nil {
      stream.epoch = nextEpoch()
      sendOpen(stream, index)
    } else {
      advance(stream, index)
    }
  }

  /// Return an epoch above all earlier ones, if clocks agree. Streams that open in one millisecond differ.
  private func nextEpoch() -> UInt64 {
    lastEpoch = max(UInt64(max(1, loop.now)) * 1_000 + UInt64.random(in: 0..<1_000), lastEpoch + 1)
    return lastEpoch
  }

  private func sendOpen(_ stream: FeedStream, _ index: SlotIndex) {
    stream.attempt += 1
    stream.unopened = stream.shards.count
    let request = OpenPartitionRequest(stream.cursor.partition, epoch: stream.epoch)
    for position in stream.shards.indices {
      let isSent = send(.openPartition, .open, position, stream, index) { request.write(into: &$0) }
      if !isSent {
        stream.problem = Problem(.storeBusy)
        opened(stream, index)
      }
    }
  }

  private func send(
    _ frame: FrameKind,
    _ kind: FeedStoreRequest.Kind,
    _ position: Int,
    _ stream: FeedStream,
    _ index: SlotIndex,
    _ fields: (inout ByteBuffer) -> Void
  ) -> Bool {
    let request = FeedStoreRequest(kind: kind, shard: UInt16(position), attempt: kind == .open ? stream.attempt : 0)
    let pending = PendingRequest(.feed(index, request), route: .readFeed, isServer: true, isPageQuery: false)
    let name = Array(stream.consumer.utf8)
    return loop.trySend(frame, to: .shard(stream.shards[position], name: name.span.bytes), pending, fields)
  }

  func completed(_ index: SlotIndex, _ request: FeedStoreRequest, with result: StoreResult) {
    guard let stream = streams[index] else { return }
    switch request.kind {
    case .open:
      guard request.attempt == stream.attempt, !stream.hasBegun else { return }
      openCompleted(Int(request.shard), stream, with: result)
      opened(stream, index)
    case .read:
      stream.isReading[Int(request.shard)] = false
      readCompleted(Int(request.shard), stream, index, with: result)
    }
    loop.endTurnSoon()
  }

  private func openCompleted(_ position: Int, _ stream: FeedStream, with result: StoreResult) {
    switch result {
    case .reply(let kind, let payload):
      do throws(WireError) {
        let reply = try OpenPartitionReply(payload)
        stream.cursor.positions[position] = reply.position
        if position == 0 { stream.state = reply.state }
        // Cursors must not go back in time: commits with a state are told apart by it.
        stream.cursor.time = max(stream.cursor.time, reply.positionTime)
        let since = stream.committedSince
        stream.committedSince = since == .none ? reply.positionTime : min(since, reply.positionTime)
      } catch {
        loop.logMalformedReply(error, kind)
        stream.problem = Problem(.internalError)
      }
    case .failure(let failure):
      if case .refused(.leaseLost, _, let detail) = failure.reason, let epoch = UInt64(detail) {
        stream.highestEpoch = max(stream.highestEpoch, epoch)
      } else {
        stream.problem = stream.problem ?? failure.problem
      }
    }
  }

  /// Begin the stream once all shards have opened the partition.
  private func opened(_ stream: FeedStream, _ index: SlotIndex) {
    stream.unopened -= 1
    guard stream.unopened == 0 else { return }
    if let problem = stream.problem { return refuse(stream, index, problem) }
    if stream.highestEpoch >= stream.epoch {
      guard stream.attempt < Self.attemptsMax else { return refuse(stream, index, Problem(.storeBusy)) }
      stream.epoch = max(stream.highestEpoch + 1, nextEpoch())
      return sendOpen(stream, index)
    }
    begin(stream)
    var line = ByteBuffer()
    FeedJSON.writeLease(stream.cursor, epoch: stream.epoch, state: stream.state, into: &line)
    stream.write(line, to: loop.connections)
    advance(stream, index)
  }

  private func begin(_ stream: FeedStream) {
    guard let connection = loop.connections.connection(stream.connection) else { return }
    let headers: [HTTP2Header] = [.noStore, HTTP2Header("x-accel-buffering", "no")]
    connection.startStreaming(stream.handle, status: 200, contentType: .ndjson, headers: headers)
    stream.hasBegun = true
    opened &+= 1
    loop.counters.answered(.readFeed, status: 200)
    loop.connections.markDirty(stream.connection)
  }

  private func refuse(_ stream: FeedStream, _ index: SlotIndex, _ problem: Problem) {
    streams.remove(index)
    loop.answer(problem, route: .readFeed, stream: stream.handle, connection: stream.connection)
    loop.connections.markDirty(stream.connection)
  }

  // MARK: Reading

  /// Ask the shards for more, as far as the client takes it.
  private func advance(_ stream: FeedStream, _ index: SlotIndex) {
    if stream.isComplete { return finishRange(stream, index) }
    // Lines that HTTP/2 does not take are held; it then says when it takes more.
    guard !stream.waitsForClient else { return }
    for position in stream.shards.indices where !stream.isReading[position] && stream.wantsMore(of: position) {
      var limit = Self.recordsPerRead(shardCount: stream.shards.count)
      if let end = stream.end {
        limit = Int(min(UInt64(limit), end.positions[position] - stream.cursor.positions[position]))
      }
      let request = ReadFeedRequest(
        stream.cursor.partition,
        epoch: stream.epoch,
        number: stream.cursor.positions[position],
        flags: stream.end == nil ? 0 : ReadFeedRequest.answersAtOnce,
        limit: limit
      )
      // If the store takes no more now, the next tick tries again.
      stream.isReading[position] = send(.readFeed, .read, position, stream, index) { request.write(into: &$0) }
    }
  }

  private func readCompleted(_ position: Int, _ stream: FeedStream, _ index: SlotIndex, with result: StoreResult) {
    switch result {
    case .failure(let failure):
      switch failure.problem.code {
      // The next tick tries again.
      case .storeBusy, .storeUnavailable, .outcomeUnknown: return
      default: end(stream, index, failure.problem)
      }
    case .reply(let kind, let payload):
      var lines = ByteBuffer()
      do throws(WireError) {
        try read(payload, position, stream, into: &lines)
      } catch {
        loop.logMalformedReply(error, kind)
        return end(stream, index, Problem(.internalError))
      }
      if !stream.hasBegun { begin(stream) }
      if lines.readableBytes > 0 { stream.write(lines, to: loop.connections) }
      advance(stream, index)
    }
  }

  private func read(
    _ payload: RawSpan,
    _ position: Int,
    _ stream: FeedStream,
    into lines: inout ByteBuffer
  ) throws(WireError) {
    var reader = FieldReader(payload)
    let reply = try ReadFeedReply(&reader)
    let end = stream.end?.positions[position] ?? .max
    var hasGap = reply.gapTo != .none
    // The cursor of a gap is behind it.
    func writeGap(before number: UInt64) {
      stream.cursor.positions[position] = max(stream.cursor.positions[position], min(number, end))
      let since = stream.through[position].or(stream.committedSince).or(stream.cursor.time)
      FeedJSON.writeGap(stream.cursor, from: since, to: reply.gapTo, into: &lines)
      hasGap = false
    }
    for _ in 0..<(try reader.count(elementBytesMin: NamedFeedRecord.byteCountMin)) {
      let record = try NamedFeedRecord(&reader)
      if hasGap { writeGap(before: record.number) }
      // A gap has the number of its last record, which may be behind the end of a range.
      guard record.number < end || record.kind == .gap else { continue }
      stream.cursor.positions[position] = max(stream.cursor.positions[position], min(record.number + 1, end))
      stream.cursor.time = max(stream.cursor.time, record.at)
      if record.kind == .gap {
        let from = Timestamp(milliseconds: Int64(clamping: record.first))
        FeedJSON.writeGap(stream.cursor, from: from, to: record.at, into: &lines)
        continue
      }
      FeedJSON.write(record, shard: stream.shards[position], stream.cursor, into: &lines)
      records &+= 1
    }
    try reader.end()
    if hasGap { writeGap(before: reply.number) }
    // Records that no filter lets through move the cursor as well.
    stream.cursor.positions[position] = max(stream.cursor.positions[position], min(reply.number, end))
    // A range whose records are not there any more ends.
    if reply.number >= reply.end, stream.end != nil { stream.cursor.positions[position] = end }
    stream.through[position] = max(stream.through[position], reply.through)
    stream.hasReachedEnd[position] = reply.number >= reply.end
  }

  private func finishRange(_ stream: FeedStream, _ index: SlotIndex) {
    if !stream.hasBegun { begin(stream) }
    var line = ByteBuffer()
    FeedJSON.writeHeartbeat(stream.end ?? stream.cursor, at: stream.cursor.time, into: &line)
    stream.write(line, to: loop.connections)
    finish(stream, index)
  }

  private func end(_ stream: FeedStream, _ index: SlotIndex, _ problem: Problem) {
    guard stream.hasBegun else { return refuse(stream, index, problem) }
    var line = ByteBuffer()
    FeedJSON.writeEnd(problem.code, into: &line)
    stream.write(line, to: loop.connections)
    finish(stream, index)
  }

  private func finish(_ stream: FeedStream, _ index: SlotIndex) {
    streams.remove(index)
    stream.finish(on: loop.connections)
  }

  // MARK: Connection

  /// Continue a stream that can write again.
  func drained(_ handle: HTTP2StreamHandle) {
    guard let (stream, index) = streams.find(handle) else { return }
    stream.writeHeld(to: loop.connections)
    advance(stream, index)
    loop.endTurnSoon()
  }

  /// Forget a stream whose client has disconnected.
  func aborted(_ handle: HTTP2StreamHandle) {
    if let (_, index) = streams.find(handle) { streams.remove(index) }
  }

  // MARK: Metrics

  override func collect(into samples: inout MetricSamples) {
    samples.gauge("tidemark_gateway_feed_streams", help: "Streams of the change feed open.", Double(streams.count))
    samples.counter(
      "tidemark_gateway_feed_streams_opened_total",
      help: "Streams of the change feed opened.",
      Int64(clamping: opened)
    )
    samples.counter(
      "tidemark_gateway_feed_streams_stalled_total",
      help: "Streams of the change feed reset because their client took no records.",
      Int64(clamping: stalled)
    )
    samples.counter(
      "tidemark_gateway_feed_records_total",
      help: "Records of the change feed sent.",
      Int64(clamping: records)
    )
  }
}

extension FeedStreamsPart: OpenStreamOwner {
  var openStreams: [OpenStream] { streams.all }
  func openStreams(part: Int, of parts: Int) -> [OpenStream] { part == 0 ? openStreams : [] }
  var checkInterval: TimeAmount { .seconds(1) }
  var stallTimeout: TimeAmount { loop.limits.eventStallTimeout }

  func end(_ stream: OpenStream, _ reason: StreamEnd) {
    guard let (stream, index) = streams.find(stream.handle) else { return }
    end(stream, index, reason.problem)
  }

  /// Remove a stream whose client takes no records. Its consumer continues from what it has committed.
  func removeStalled(_ stream: OpenStream) {
    stalled &+= 1
    aborted(stream.handle)
  }

  func completeEnds() {}

  /// Retry what has failed, and show streams without records that they are alive.
  func streamsChecked() {
    let now = loop.eventLoop.now
    for index in streams.indexes {
      guard let stream = streams[index], stream.hasBegun || stream.end != nil else { continue }
      advance(stream, index)
      let silence = stream.isAtEnd ? Self.heartbeat : Self.silenceMax
      guard streams[index] != nil, stream.hasBegun, !stream.waitsForClient, now - stream.writtenAt >= silence
      else { continue }
      var line = ByteBuffer()
      let through = stream.through.min() ?? .none
      FeedJSON.writeHeartbeat(stream.cursor, at: max(stream.cursor.time, through), into: &line)
      stream.write(line, to: loop.connections)
    }
  }
}

/// The query parameters of `GET /v1/feed`.
private struct FeedParameters {
  var consumer = ""
  var partition = FeedPartition(index: 0, count: 1)
  /// Nil: from what was last committed, without end.
  var range: (from: FeedCursor, to: FeedCursor)?

  /// - Throws: `invalid_query`.
  init(_ query: RawSpan, _ scratch: PathScratch, shardCount: Int) throws(Problem) {
    var from: FeedCursor?
    var to: FeedCursor?
    var reader = QueryReader(query, scratch)
    while let parameter = try reader.next() {
      if parameter.name.equals("consumer") {
        consumer = FeedConsumersPart.text(parameter.value)
      } else if parameter.name.equals("partition") {
        guard let given = FeedPartition(parameter.value, shardCount: shardCount) else {
          throw Problem(
            .invalidQuery,
            "partition has to be i/n, as in 0/8, where i is below n, and n at most \(shardCount)"
          )
        }
        partition = given
      } else if parameter.name.equals("from") {
        from = try Self.cursor(parameter.value, "from")
      } else if parameter.name.equals("to") {
        to = try Self.cursor(parameter.value, "to")
      }
    }
    guard !consumer.isEmpty else { throw Problem(.invalidQuery, "consumer has to name a consumer of the feed") }
    guard (from == nil) == (to == nil) else { throw Problem(.invalidQuery, "from and to go together") }
    if let from, let to { range = (from, to) }
  }

  private static func cursor(_ text: RawSpan, _ name: String) throws(Problem) -> FeedCursor {
    guard let cursor = FeedCursor(text) else { throw Problem(.invalidQuery, "\(name) is not a cursor of the feed") }
    return cursor
  }
}
