internal import DequeModule
internal import HTTP2Session
internal import NIOCore
internal import Operations
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// `GET /v1/export` (Proto/openapi.yaml): reads the store channel by channel, as far as the client takes the lines.
final class ExportsPart: GatewayPart {
  private var streams = LineStreamTable<ExportStream>()
  private var opened: UInt64 = 0
  private var stalled: UInt64 = 0

  private static let streamsMax = 16
  /// Seconds for which a request is repeated that the store does not carry out.
  private static let failuresMax = 30

  // MARK: Opening

  /// Handle `GET /v1/export`.
  func openExport(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    try loop.openStreams.checkNotDraining()
    guard loop.store.shardCount > 0 else { throw Problem(.storeUnavailable) }
    var user = ""
    var channelType = ""
    var reader = QueryReader(match.query, loop.scratch)
    while let parameter = try reader.next() {
      if parameter.name.equals("user_id") {
        guard Identifier.isUser(parameter.value) else { throw Problem(.invalidUserID) }
        user = FeedConsumersPart.text(parameter.value)
      } else if parameter.name.equals("channel_type") {
        guard Identifier.isType(parameter.value) else { throw Problem(.invalidChannelType) }
        channelType = FeedConsumersPart.text(parameter.value)
      }
    }
    guard streams.count < Self.streamsMax else { throw Problem(.limitReached, "at most \(Self.streamsMax) exports") }
    guard let connection = loop.connections.answering(context.stream, on: context.connection) else { return }
    connection.startStreaming(context.stream, status: 200, contentType: .ndjson, headers: [.noStore])
    loop.counters.answered(match.route, status: 200)
    guard request.method != .head else { return }
    opened &+= 1
    let stream = ExportStream(context, user: user, channelType: channelType)
    if !user.isEmpty { stream.stage = .users }
    advance(stream, streams.insert(stream))
  }

  // MARK: Requests

  /// Ask the store for more, as far as the client takes it.
  private func advance(_ stream: ExportStream, _ index: SlotIndex) {
    guard !stream.waitsForClient else { return }
    for place in stream.places.indices where stream.places[place] == nil {
      guard let cid = stream.cids.popFirst() else { break }
      stream.places[place] = ExportStream.Place(cid: cid)
      sendPart(place, stream, index)
    }
    if stream.cids.isEmpty, !stream.isListing, stream.next != nil { list(stream, index) }
    guard stream.cids.isEmpty, !stream.isListing, stream.next == nil, stream.places.allSatisfy({ $0 == nil })
    else { return }
    enterNextStage(stream)
    if case .ended = stream.stage { finish(stream, index) } else { advance(stream, index) }
  }

  private func enterNextStage(_ stream: ExportStream) {
    switch stream.stage {
    case .types: stream.stage = .users
    case .users: stream.stage = .channels(shard: 0)
    case .channels(let shard):
      let isLast = !stream.user.isEmpty || shard + 1 >= loop.store.shardCount
      stream.stage = isLast ? .ended : .channels(shard: shard + 1)
    case .ended: break
    }
    stream.next = 0
  }

  private func list(_ stream: ExportStream, _ index: SlotIndex) {
    guard let next = stream.next else { return }
    let user = Array(stream.user.utf8)
    let home = ShardID.owning(user.span.bytes, count: loop.store.shardCount)
    switch stream.stage {
    case .types:
      stream.isListing = send(.listChannelTypes, to: .shard(ShardID(0), name: nil), .types, index) { _ in }
    case .users where user.isEmpty:
      stream.isListing = send(.listUsers, to: .shard(ShardID(0), name: nil), .users, index) {
        $0.writeListStored(after: next, limit: ListStoredRequest.limitMax)
      }
    case .users:
      stream.isListing = send(.getUser, to: .shard(home, name: user.span.bytes), .users, index) { _ in }
    case .channels(let shard) where user.isEmpty:
      let destination = StoreDestination.shard(ShardID(UInt16(shard)), name: nil)
      stream.isListing = send(.listStoredChannels, to: destination, .channels, index) {
        $0.writeListStored(after: next, limit: ListStoredRequest.limitMax)
      }
    case .channels:
      stream.isListing = send(.listChannels, to: .shard(home, name: user.span.bytes), .channels, index) {
        $0.writeVarint(ListChannelsRequest.withAll)
        $0.writeVarint(UInt64(UserChannelScan.listMax))
        // 0: the first page; else the position after which the page begins, plus 1.
        $0.writeVarint(next)
      }
    case .ended: break
    }
  }

  private func sendPart(_ number: Int, _ stream: ExportStream, _ index: SlotIndex) {
    guard let place = stream.places[number] else { return }
    let cid = Array(place.cid.utf8)
    let isSent = send(.exportChannel, to: .channel(cid.span.bytes), .part(place: UInt8(number)), index) {
      $0.writeExportChannel(user: stream.user, snapshot: place.snapshot, part: place.part)
    }
    // The next tick tries again.
    stream.places[number]?.waits = !isSent
  }

  private func send(
    _ kind: FrameKind,
    to destination: StoreDestination,
    _ request: ExportStoreRequest,
    _ index: SlotIndex,
    _ fields: (inout ByteBuffer) -> Void
  ) -> Bool {
    let pending = PendingRequest(.export(index, request), route: .exportLines, isServer: true, isPageQuery: false)
    return loop.trySend(kind, to: destination, pending, fields)
  }

  // MARK: Replies

  func completed(_ index: SlotIndex, _ request: ExportStoreRequest, with result: StoreResult) {
    guard let stream = streams[index] else { return }
    loop.endTurnSoon()
    switch result {
    case .failure(let failure): failed(request, failure.problem, stream, index)
    case .reply(let kind, let payload):
      stream.failures = 0
      var lines = ByteBuffer()
      do throws(WireError) {
        switch request {
        case .types: try readTypes(payload, stream, into: &lines)
        case .users: try readUsers(kind, payload, stream, into: &lines)
        case .channels: try readChannels(kind, payload, stream)
        case .part(let place): try readPart(payload, Int(place), stream, index, into: &lines)
        }
      } catch {
        loop.logMalformedReply(error, kind)
        return end(stream, index, Problem(.internalError))
      }
      if lines.readableBytes > 0 { stream.write(lines, to: loop.connections) }
      if case .part(let place) = request, stream.places[Int(place)] != nil, !stream.waitsForClient {
        sendPart(Int(place), stream, index)
      }
      advance(stream, index)
    }
  }

  private func failed(_ request: ExportStoreRequest, _ problem: Problem, _ stream: ExportStream, _ index: SlotIndex) {
    switch request {
    case .types, .users, .channels:
      stream.failures += 1
      stream.isListing = false
      if problem.status != 503 || stream.failures > Self.failuresMax { end(stream, index, problem) }
    case .part(let number):
      let number = Int(number)
      // Deleted since it was listed.
      if problem.code == .channelNotFound, stream.places[number]?.part == 0 {
        stream.places[number] = nil
        return advance(stream, index)
      }
      guard let place = stream.places[number] else { return }
      // A channel is told as of one moment: what the store no longer keeps cannot be continued.
      guard problem.status == 503, place.failures < Self.failuresMax, place.part == 0 || problem.code == .storeBusy
      else { return end(stream, index, Problem(problem.code, "channel \(place.cid): \(problem.detail)")) }
      stream.places[number]?.failures += 1
      stream.places[number]?.waits = true
    }
  }

  private func readTypes(
    _ payload: RawSpan,
    _ stream: ExportStream,
    into lines: inout ByteBuffer
  ) throws(WireError) {
    var reader = FieldReader(payload)
    for record in try reader.channelTypeRecords()
    where stream.channelType.isEmpty || record.name == stream.channelType {
      TransferJSON.write(record, into: &lines)
    }
    try reader.end()
    stream.isListing = false
    stream.next = nil
  }

  private func readUsers(
    _ kind: FrameKind,
    _ payload: RawSpan,
    _ stream: ExportStream,
    into lines: inout ByteBuffer
  ) throws(WireError) {
    stream.isListing = false
    if kind == .getUser {
      var reader = FieldReader(payload)
      TransferJSON.write(try reader.userSettings(), into: &lines)
      stream.next = nil
      return
    }
    let reply = try ListUsersReply(payload)
    for settings in reply.users { TransferJSON.write(settings, into: &lines) }
    stream.next = reply.next
  }

  private func readChannels(_ kind: FrameKind, _ payload: RawSpan, _ stream: ExportStream) throws(WireError) {
    stream.isListing = false
    if kind == .listChannels {
      var reader = FieldReader(payload)
      var cids: [String] = []
      let cursor = try reader.channelList { channel throws(WireError) in
        cids.append(try ChannelEntryFields(channel).cid)
      }
      stream.cids.append(contentsOf: cids.filter { stream.wants($0) })
      stream.next = cursor.map { UInt64($0) + 1 }
      return
    }
    let reply = try ListStoredChannelsReply(payload)
    stream.cids.append(contentsOf: reply.channels.filter { stream.wants($0) })
    stream.next = reply.next
  }

  private func readPart(
    _ payload: RawSpan,
    _ number: Int,
    _ stream: ExportStream,
    _ index: SlotIndex,
    into lines: inout ByteBuffer
  ) throws(WireError) {
    let reply = try ExportChannelReply(payload)
    guard let place = stream.places[number] else { return }
    for channel in reply.channels { TransferJSON.write(channel, cid: place.cid, into: &lines) }
    for message in reply.messages { TransferJSON.write(message, cid: place.cid, into: &lines) }
    for member in reply.members { TransferJSON.write(member, cid: place.cid, into: &lines) }
    for record in reply.acknowledgements { TransferJSON.write(record, cid: place.cid, into: &lines) }
    stream.places[number]?.snapshot = reply.snapshot
    stream.places[number]?.part += 1
    if place.part + 1 < reply.parts {
      // Asked for once the client takes these lines.
      stream.places[number]?.waits = true
    } else {
      stream.places[number] = nil
    }
  }

  // MARK: Connection

  /// Continue a stream that can write again.
  func drained(_ handle: HTTP2StreamHandle) {
    guard let (stream, index) = streams.find(handle) else { return }
    stream.writeHeld(to: loop.connections)
    continueParts(stream, index)
    advance(stream, index)
    loop.endTurnSoon()
  }

  private func continueParts(_ stream: ExportStream, _ index: SlotIndex) {
    guard !stream.waitsForClient else { return }
    for number in stream.places.indices where stream.places[number]?.waits == true {
      sendPart(number, stream, index)
    }
  }

  private func end(_ stream: ExportStream, _ index: SlotIndex, _ problem: Problem) {
    var line = ByteBuffer()
    TransferJSON.writeError(problem, into: &line)
    stream.write(line, to: loop.connections)
    finish(stream, index)
  }

  private func finish(_ stream: ExportStream, _ index: SlotIndex) {
    streams.remove(index)
    stream.finish(on: loop.connections)
  }

  /// Forget a stream whose client has disconnected.
  func aborted(_ handle: HTTP2StreamHandle) {
    if let (_, index) = streams.find(handle) { streams.remove(index) }
  }

  // MARK: Metrics

  override func collect(into samples: inout MetricSamples) {
    samples.gauge("tidemark_gateway_exports", help: "Exports open.", Double(streams.count))
    samples.counter("tidemark_gateway_exports_opened_total", help: "Exports begun.", Int64(clamping: opened))
    samples.counter(
      "tidemark_gateway_exports_stalled_total",
      help: "Exports reset because their client took no lines.",
      Int64(clamping: stalled)
    )
  }
}

extension ExportsPart: OpenStreamOwner {
  var openStreams: [OpenStream] { streams.all }
  func openStreams(part: Int, of parts: Int) -> [OpenStream] { part == 0 ? openStreams : [] }
  var checkInterval: TimeAmount { .seconds(1) }
  var stallTimeout: TimeAmount { loop.limits.streamIdleTimeout }

  func end(_ stream: OpenStream, _ reason: StreamEnd) {
    if let (stream, index) = streams.find(stream.handle) { end(stream, index, reason.problem) }
  }

  func removeStalled(_ stream: OpenStream) {
    stalled &+= 1
    aborted(stream.handle)
  }

  func completeEnds() {}

  /// Repeat what the store did not carry out.
  func streamsChecked() {
    for index in streams.indexes {
      guard let stream = streams[index] else { continue }
      continueParts(stream, index)
      advance(stream, index)
    }
  }
}
