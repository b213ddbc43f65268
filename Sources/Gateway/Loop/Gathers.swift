internal import HTTP2Session
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// The requests in progress that fan out to several store requests.
final class Gathers: GatewayPart {
  private var gathers = SlotTable<Gather>()

  // MARK: Sending

  /// Starts a gather of `count` results.
  ///
  /// - Parameter changesPrivacy: as in ``Gather``.
  func begin(
    _ context: RequestContext,
    _ route: Route,
    count: Int,
    _ answer: Gather.Answer,
    changesPrivacy: Bool = false
  ) -> SlotIndex {
    let gather = Gather(context, route, count: count, answer)
    gather.changesPrivacy = changesPrivacy
    return gathers.insert(gather)
  }

  /// Keeps the names of the next entry for the answer.
  func keepNames(_ index: SlotIndex, cid: RawSpan? = nil, id: RawSpan? = nil) {
    gathers[index]?.names.append(cid: cid, id: id)
  }

  /// Sends one entry's request about a channel.
  func send(
    _ kind: FrameKind,
    cid: RawSpan,
    _ context: RequestContext,
    _ route: Route,
    _ index: SlotIndex,
    _ entry: Int,
    thread: RawSpan? = nil,
    _ fields: (inout ByteBuffer) -> Void
  ) {
    let request = Self.request(index, entry, route, isServer: context.caller.isServer)
    let isSent = loop.ask(kind, cid: cid, request, issued: context.caller.issued, thread: thread, fields)
    if !isSent { finish(index, entry, .storeBusy) }
  }

  /// Sends one entry's request to a shard.
  func send(
    _ kind: FrameKind,
    _ shard: ShardID,
    _ name: RawSpan?,
    _ context: RequestContext,
    _ route: Route,
    _ index: SlotIndex,
    _ entry: Int,
    _ fields: (inout ByteBuffer) -> Void
  ) {
    let request = Self.request(index, entry, route, isServer: context.caller.isServer)
    let isSent = loop.ask(kind, shard: shard, name: name, request, issued: context.caller.issued, fields)
    if !isSent { finish(index, entry, .storeBusy) }
  }

  private static func request(_ index: SlotIndex, _ entry: Int, _ route: Route, isServer: Bool)
    -> PendingRequest
  {
    PendingRequest(.gather(index, entry: UInt32(entry)), route: route, isServer: isServer)
  }

  /// Records that an entry was refused.
  func finish(_ index: SlotIndex, _ entry: Int, _ code: ProblemCode) {
    guard let gather = gathers[index] else { return }
    gather.results[entry].code = code
    gather.waiting -= 1
  }

  /// Ends the sending of entries: from here on the last result answers.
  func finishSending(_ index: SlotIndex) {
    guard let gather = gathers[index] else { return }
    gather.waiting -= 1
    answerIfComplete(gather, index)
  }

  // MARK: Replies

  func replied(_ index: SlotIndex, _ entry: UInt32, _ kind: FrameKind, _ payload: RawSpan) {
    guard let gather = gathers[index] else { return }
    do throws(WireError) {
      try note(payload, kind, Int(entry), in: gather, index)
    } catch {
      gather.results[Int(entry)].code = .internalError
      gather.problem = Problem(.internalError)
    }
    gather.waiting -= 1
    answerIfComplete(gather, index)
  }

  func failed(_ index: SlotIndex, _ entry: UInt32, _ problem: Problem) {
    guard let gather = gathers[index] else { return }
    gather.results[Int(entry)].code = problem.code
    gather.problem = gather.problem ?? problem
    gather.waiting -= 1
    answerIfComplete(gather, index)
  }

  private func note(
    _ payload: RawSpan,
    _ kind: FrameKind,
    _ entry: Int,
    in gather: Gather,
    _ index: SlotIndex
  ) throws(WireError) {
    var reader = FieldReader(payload)
    switch kind {
    case .registerMessageReply:
      _ = try reader.byte()
      gather.results[entry].sequence = try reader.sequence().rawValue
      guard let status = MessageStatus(rawValue: try reader.byte()) else { throw .badValue(.status) }
      guard let refusal = ReceiptRefusal(rawValue: try reader.byte()) else { throw .badValue(.status) }
      gather.results[entry].status = status
      gather.results[entry].receiptRefusal = refusal
    case .ticketPlaceReply:
      try TicketCodec.skipPlace(&reader)
      try reader.end()
      gather.results[entry].placeStart = gather.places.writerIndex
      gather.results[entry].placeCount = payload.byteCount
      gather.places.writeRaw(payload)
    case .readStateReply:
      gather.results[entry].placeStart = gather.places.writerIndex
      try RowJSON.writeRows(&reader, into: &gather.places)
      gather.results[entry].placeCount = gather.places.writerIndex - gather.results[entry].placeStart
    case .putChannelReply:
      gather.results[entry].isCreated = try reader.byte() == 1
    case .patchChannelTypeReply:
      assignEverywhere(.channelType(try reader.channelTypeRecord()), gather, index)
    case .patchUserReply:
      assignEverywhere(.user(try reader.userSettings()), gather, index)
    case .listChannelTypesReply:
      for _ in 0..<(try reader.count(elementBytesMin: 3)) { gather.note(try reader.channelTypeRecord()) }
    case .markReadReply, .markDeliveredReply:
      // A batch's answer does not show rows.
      _ = try RowFields(&reader)
      gather.results[entry].uncounted = try reader.uncounted()
    default:
      // Nor the values that a shard has taken over.
      break
    }
  }

  // MARK: Answers

  /// Answers when the last result has arrived.
  private func answerIfComplete(_ gather: Gather, _ index: SlotIndex) {
    guard gather.waiting == 0, gathers[index] === gather else { return }
    if case .assigning(let value) = gather.stage, gather.results.allSatisfy({ $0.code == nil }) {
      gather.stage = .announcing(value)
      // The announcement calls this function again when it ends.
      if announce(value, gather, index) { return }
    }
    if case .announcing(let value) = gather.stage, gather.results.allSatisfy({ $0.code == nil }) {
      gather.stage = .confirming(value)
      if settle(value, gather, index) { return }
    }
    gathers.remove(index)
    if case .entry(let batch, let entry) = gather.answer { return finishUser(gather, batch, entry) }
    guard let connection = loop.connections.connection(gather.connection), connection.isOpen(gather.stream)
    else { return }
    loop.connections.markDirty(gather.connection)
    // All of its entries have the same token.
    if gather.results.contains(where: { $0.code == .tokenRevoked }) {
      return loop.answer(Problem(.tokenRevoked), gather.route.rawValue, gather.stream, connection)
    }
    switch gather.answer {
    case .results(let status, let write):
      guard gather.names.count == gather.results.count else {
        return loop.answerBug(
          "a batch without the names of its entries",
          gather.route,
          gather.stream,
          connection
        )
      }
      connection.respond(gather.stream, status: status) { write(gather, &$0) }
      loop.counters.answered(gather.route.rawValue, status: status)
    case .value, .entry: answerValue(gather, connection)
    case .channelTypes: answerChannelTypes(gather, connection)
    }
  }

  /// Completes one user of a batch.
  private func finishUser(_ gather: Gather, _ index: SlotIndex, _ entry: Int) {
    guard let batch = gathers[index] else { return }
    switch gather.stage {
    case .gathering:
      batch.results[entry].code = gather.results.lazy.compactMap(\.code).first ?? .internalError
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

  /// Answers the PUT of a channel type or a user.
  private func answerValue(_ gather: Gather, _ connection: HTTP2ServerConnection<GatewayLoop>) {
    let route = gather.route.rawValue
    switch gather.stage {
    case .gathering:
      let code = gather.results.lazy.compactMap(\.code).first ?? .internalError
      loop.answer(gather.problem ?? Problem(code), route, gather.stream, connection)
    case .assigning, .announcing:
      loop.answer(Self.partlyChanged, route, gather.stream, connection)
    case .confirming(let value):
      // All shards have the value. If the home shard was not told, a later replication round tells it.
      connection.respond(gather.stream, status: 200) { buffer in
        switch value {
        case .channelType(let record): ChannelJSON.write(record, into: &buffer)
        case .user(let settings): UserJSON.write(settings, into: &buffer)
        }
      }
      loop.counters.answered(route, status: 200)
    }
  }

  private func answerChannelTypes(_ gather: Gather, _ connection: HTTP2ServerConnection<GatewayLoop>) {
    let route = gather.route.rawValue
    if let code = gather.results.lazy.compactMap(\.code).first {
      return loop.answer(gather.problem ?? Problem(code), route, gather.stream, connection)
    }
    let records = gather.records.values.sorted { $0.name < $1.name }
    connection.respond(gather.stream, status: 200) { buffer in
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

  /// Assigns a value that the home shard has changed to every other shard.
  private func assignEverywhere(_ value: SharedValue, _ gather: Gather, _ index: SlotIndex) {
    gather.stage = .assigning(value)
    // Version 0 was never set, which is every shard's default state.
    guard value.version > 0 else { return }
    let home = value.home(shardCount: loop.store.shardCount)
    for shard in 0..<loop.store.shardCount where shard != Int(home.rawValue) {
      gather.waiting += 1
      gather.results.append(Gather.Result())
      let entry = gather.results.count - 1
      sendShared(value, value.assignKind, ShardID(UInt16(shard)), gather, index, entry) {
        value.writeAssignment(into: &$0)
      }
    }
  }

  /// Announces the change of the user's rows in all their channels, once every shard has the setting (R7). False: there
  /// is nothing to announce.
  private func announce(_ value: SharedValue, _ gather: Gather, _ index: SlotIndex) -> Bool {
    guard gather.changesPrivacy, value.isUser, value.version > 0 else { return false }
    gather.waiting += 1
    let walk = UserWalk(.announce, users: [Array(value.name.utf8)], shardCount: loop.store.shardCount)
    loop.userJobs.begin(UserJob(.announcement(gather: index), walk))
    return true
  }

  /// Handles the end of an announcement. After a failure the value stays unsettled, and ``Replication`` completes it.
  func announced(_ index: SlotIndex, _ problem: Problem?) {
    guard let gather = gathers[index] else { return }
    if let problem { gather.results.append(Gather.Result(code: problem.code)) }
    gather.waiting -= 1
    answerIfComplete(gather, index)
  }

  /// Tells the home shard that every shard has the value. False: there is nothing to wait for.
  private func settle(_ value: SharedValue, _ gather: Gather, _ index: SlotIndex) -> Bool {
    guard value.version > 0 else { return false }
    let home = value.home(shardCount: loop.store.shardCount)
    gather.waiting += 1
    sendShared(value, .settle, home, gather, index, 0) { value.writeSettlement(into: &$0) }
    return gather.waiting > 0
  }

  /// Sends the gateway's own request about a value. It has no caller, so no time of issue.
  private func sendShared(
    _ value: SharedValue,
    _ kind: FrameKind,
    _ shard: ShardID,
    _ gather: Gather,
    _ index: SlotIndex,
    _ entry: Int,
    _ fields: (inout ByteBuffer) -> Void
  ) {
    let request = Self.request(index, entry, gather.route, isServer: gather.isServer)
    if loop.ask(kind, shard: shard, name: Array(value.name.utf8), request, fields) { return }
    finish(index, entry, .storeBusy)
  }
}
