internal import HTTP2Session
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// The requests in progress that fan out to several store requests.
final class FanOuts: GatewayPart {
  private var fanOuts = SlotTable<FanOut>()

  // MARK: Sending

  /// Start a fan-out of `count` results.
  ///
  /// - Parameter changesPrivacy: as in ``FanOut``.
  func begin(
    _ context: RequestContext,
    _ route: Route,
    count: Int,
    _ answer: FanOut.Answer,
    changesPrivacy: Bool = false
  ) -> SlotIndex {
    let fanOut = FanOut(context, route, count: count, answer)
    fanOut.changesPrivacy = changesPrivacy
    return fanOuts.insert(fanOut)
  }

  /// Keep the names of the next entry for the answer.
  func keepNames(_ index: SlotIndex, cid: RawSpan? = nil, id: RawSpan? = nil) {
    fanOuts[index]?.names.append(cid: cid, id: id)
  }

  /// Send one entry's request about a channel.
  func send(
    _ kind: FrameKind,
    cid: RawSpan,
    _ context: RequestContext,
    _ route: Route,
    entry: Int,
    of index: SlotIndex,
    thread: RawSpan? = nil,
    _ fields: (inout ByteBuffer) -> Void
  ) {
    let request = Self.request(index, entry, route, isServer: context.caller.isServer)
    let isSent = loop.trySend(kind, cid: cid, request, issued: context.caller.issued, thread: thread, fields)
    if !isSent { finish(index, entry, .storeBusy) }
  }

  /// Send one entry's request to a shard.
  func send(
    _ kind: FrameKind,
    shard: ShardID,
    name: RawSpan?,
    _ context: RequestContext,
    _ route: Route,
    entry: Int,
    of index: SlotIndex,
    _ fields: (inout ByteBuffer) -> Void
  ) {
    let request = Self.request(index, entry, route, isServer: context.caller.isServer)
    let isSent = loop.trySend(kind, shard: shard, name: name, request, issued: context.caller.issued, fields)
    if !isSent { finish(index, entry, .storeBusy) }
  }

  private static func request(_ index: SlotIndex, _ entry: Int, _ route: Route, isServer: Bool)
    -> PendingRequest
  {
    PendingRequest(.fanOut(index, entry: UInt32(entry)), route: route, isServer: isServer)
  }

  /// Record that an entry was refused.
  func finish(_ index: SlotIndex, _ entry: Int, _ code: ProblemCode) {
    guard let fanOut = fanOuts[index] else { return }
    fanOut.results[entry].code = code
    fanOut.waiting -= 1
  }

  /// End the sending of entries: from here on the last result answers.
  func finishSending(_ index: SlotIndex) {
    guard let fanOut = fanOuts[index] else { return }
    fanOut.waiting -= 1
    answerIfComplete(fanOut, index)
  }

  // MARK: Replies

  func replied(_ index: SlotIndex, _ entry: UInt32, _ kind: FrameKind, _ payload: RawSpan) {
    guard let fanOut = fanOuts[index] else { return }
    do throws(WireError) {
      try apply(payload, kind, Int(entry), in: fanOut, index)
    } catch {
      fanOut.results[Int(entry)].code = .internalError
      fanOut.problem = Problem(.internalError)
    }
    fanOut.waiting -= 1
    answerIfComplete(fanOut, index)
  }

  func failed(_ index: SlotIndex, _ entry: UInt32, _ problem: Problem) {
    guard let fanOut = fanOuts[index] else { return }
    fanOut.results[Int(entry)].code = problem.code
    fanOut.problem = fanOut.problem ?? problem
    fanOut.waiting -= 1
    answerIfComplete(fanOut, index)
  }

  private func apply(
    _ payload: RawSpan,
    _ kind: FrameKind,
    _ entry: Int,
    in fanOut: FanOut,
    _ index: SlotIndex
  ) throws(WireError) {
    var reader = FieldReader(payload)
    switch kind {
    case .registerMessageReply:
      _ = try reader.byte()
      fanOut.results[entry].sequence = try reader.sequence().rawValue
      guard let status = MessageStatus(rawValue: try reader.byte()) else { throw .badValue(.status) }
      guard let refusal = ReceiptRefusal(rawValue: try reader.byte()) else { throw .badValue(.status) }
      fanOut.results[entry].status = status
      fanOut.results[entry].receiptRefusal = refusal
    case .ticketPlaceReply:
      try TicketCodec.skipPlace(&reader)
      try reader.end()
      fanOut.results[entry].partStart = fanOut.parts.writerIndex
      fanOut.results[entry].partCount = payload.byteCount
      fanOut.parts.writeRaw(payload)
    case .readStateReply:
      fanOut.results[entry].partStart = fanOut.parts.writerIndex
      try RowJSON.writeRows(&reader, into: &fanOut.parts)
      fanOut.results[entry].partCount = fanOut.parts.writerIndex - fanOut.results[entry].partStart
    case .putChannelReply:
      fanOut.results[entry].isCreated = try reader.byte() == 1
    case .patchChannelTypeReply:
      assignEverywhere(.channelType(try reader.channelTypeRecord()), fanOut, index)
    case .patchUserReply:
      assignEverywhere(.user(try reader.userSettings()), fanOut, index)
    case .listChannelTypesReply:
      for _ in 0..<(try reader.count(elementBytesMin: 3)) { fanOut.keep(try reader.channelTypeRecord()) }
    case .markReadReply, .markDeliveredReply:
      // A batch's answer does not show rows.
      _ = try RowFields(&reader)
      fanOut.results[entry].uncounted = try reader.uncounted()
    default:
      // Replies to assignments have no fields that the answer shows.
      break
    }
  }

  // MARK: Answers

  /// Answer when the last result has arrived.
  private func answerIfComplete(_ fanOut: FanOut, _ index: SlotIndex) {
    guard fanOut.waiting == 0, fanOuts[index] === fanOut else { return }
    if case .assigning(let value) = fanOut.stage, fanOut.results.allSatisfy({ $0.code == nil }) {
      fanOut.stage = .announcing(value)
      // The announcement calls this function again when it ends.
      if announce(value, fanOut, index) { return }
    }
    if case .announcing(let value) = fanOut.stage, fanOut.results.allSatisfy({ $0.code == nil }) {
      fanOut.stage = .confirming(value)
      if settle(value, fanOut, index) { return }
    }
    fanOuts.remove(index)
    if case .entry(let batch, let entry) = fanOut.answer { return finishUser(fanOut, batch, entry) }
    guard let connection = loop.connections.answering(fanOut.stream, on: fanOut.connection) else { return }
    // All of its entries have the same token.
    if fanOut.results.contains(where: { $0.code == .tokenRevoked }) {
      return loop.answer(Problem(.tokenRevoked), fanOut.route, fanOut.stream, connection)
    }
    switch fanOut.answer {
    case .results(let status, let write):
      guard fanOut.names.count == fanOut.results.count else {
        return loop.respondInternalError(
          "a batch without the names of its entries",
          fanOut.route,
          fanOut.stream,
          connection
        )
      }
      connection.respond(fanOut.stream, status: status) { write(fanOut, &$0) }
      loop.counters.answered(fanOut.route, status: status)
    case .value, .entry: answerValue(fanOut, connection)
    case .channelTypes: answerChannelTypes(fanOut, connection)
    }
  }

  /// Complete one user of a batch.
  private func finishUser(_ fanOut: FanOut, _ index: SlotIndex, _ entry: Int) {
    guard let batch = fanOuts[index] else { return }
    switch fanOut.stage {
    case .collecting:
      batch.results[entry].code = fanOut.results.lazy.compactMap(\.code).first ?? .internalError
    case .assigning, .announcing: batch.results[entry].code = .outcomeUnknown
    // All shards have the value. If the home shard was not told, a later replication round tells it.
    case .confirming: break
    }
    batch.waiting -= 1
    answerIfComplete(batch, index)
  }

  /// The code must not be one whose title says that nothing was changed.
  private static var partlyChanged: Problem {
    Problem(
      .outcomeUnknown,
      """
      the change was made but has not reached every shard yet; it will be replicated in the background, or repeat the \
      request
      """
    )
  }

  /// Answer the PUT of a channel type or a user.
  private func answerValue(_ fanOut: FanOut, _ connection: HTTP2ServerConnection<GatewayLoop>) {
    let route = fanOut.route
    switch fanOut.stage {
    case .collecting:
      let code = fanOut.results.lazy.compactMap(\.code).first ?? .internalError
      loop.answer(fanOut.problem ?? Problem(code), route, fanOut.stream, connection)
    case .assigning, .announcing:
      loop.answer(Self.partlyChanged, route, fanOut.stream, connection)
    case .confirming(let value):
      // All shards have the value. If the home shard was not told, a later replication round tells it.
      connection.respond(fanOut.stream, status: 200) { buffer in
        switch value {
        case .channelType(let record): ChannelJSON.write(record, into: &buffer)
        case .user(let settings): UserJSON.write(settings, into: &buffer)
        }
      }
      loop.counters.answered(route, status: 200)
    }
  }

  private func answerChannelTypes(_ fanOut: FanOut, _ connection: HTTP2ServerConnection<GatewayLoop>) {
    let route = fanOut.route
    if let code = fanOut.results.lazy.compactMap(\.code).first {
      return loop.answer(fanOut.problem ?? Problem(code), route, fanOut.stream, connection)
    }
    let records = fanOut.records.values.sorted { $0.name < $1.name }
    connection.respond(fanOut.stream, status: 200) { buffer in
      buffer.writeStaticString("{\"channel_types\":[")
      for (index, record) in records.enumerated() {
        if index > 0 { buffer.writeStaticString(",") }
        ChannelJSON.write(record, into: &buffer)
      }
      buffer.writeStaticString("]}")
    }
    loop.counters.answered(route, status: 200)
  }

  // MARK: Values replicated to every shard

  /// Assign a value that the home shard has changed to every other shard.
  private func assignEverywhere(_ value: SharedValue, _ fanOut: FanOut, _ index: SlotIndex) {
    fanOut.stage = .assigning(value)
    // Version 0 was never set, which is every shard's default state.
    guard value.version > 0 else { return }
    let home = value.home(shardCount: loop.store.shardCount)
    for shard in 0..<loop.store.shardCount where shard != Int(home.rawValue) {
      fanOut.waiting += 1
      fanOut.results.append(FanOut.Result())
      let entry = fanOut.results.count - 1
      sendShared(value, value.assignKind, ShardID(UInt16(shard)), fanOut, index, entry) {
        value.writeAssignment(into: &$0)
      }
    }
  }

  /// Announce the change of the user's rows in all their channels, once every shard has the setting (R7). False: there
  /// is nothing to announce.
  private func announce(_ value: SharedValue, _ fanOut: FanOut, _ index: SlotIndex) -> Bool {
    guard fanOut.changesPrivacy, value.isUser, value.version > 0 else { return false }
    fanOut.waiting += 1
    let scan = UserChannelScan(.announce, users: [Array(value.name.utf8)], shardCount: loop.store.shardCount)
    loop.userJobs.begin(UserJob(.announcement(fanOut: index), scan))
    return true
  }

  /// Handle the end of an announcement. After a failure the value stays unsettled, and ``Replication`` completes it.
  func announced(_ index: SlotIndex, _ problem: Problem?) {
    guard let fanOut = fanOuts[index] else { return }
    if let problem { fanOut.results.append(FanOut.Result(code: problem.code)) }
    fanOut.waiting -= 1
    answerIfComplete(fanOut, index)
  }

  /// Tell the home shard that every shard has the value. False: there is nothing to wait for.
  private func settle(_ value: SharedValue, _ fanOut: FanOut, _ index: SlotIndex) -> Bool {
    guard value.version > 0 else { return false }
    let home = value.home(shardCount: loop.store.shardCount)
    fanOut.waiting += 1
    sendShared(value, .settle, home, fanOut, index, 0) { value.writeSettlement(into: &$0) }
    return fanOut.waiting > 0
  }

  /// Send the gateway's own request about a value. It has no caller, so no time of issue.
  private func sendShared(
    _ value: SharedValue,
    _ kind: FrameKind,
    _ shard: ShardID,
    _ fanOut: FanOut,
    _ index: SlotIndex,
    _ entry: Int,
    _ fields: (inout ByteBuffer) -> Void
  ) {
    let request = Self.request(index, entry, fanOut.route, isServer: fanOut.isServer)
    if loop.trySend(kind, shard: shard, name: Array(value.name.utf8), request, fields) { return }
    finish(index, entry, .storeBusy)
  }
}
