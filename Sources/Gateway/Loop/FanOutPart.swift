internal import HTTP2Session
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// The requests in progress that fan out to several store requests.
final class FanOutPart: GatewayPart {
  private var fanOuts = SlotTable<FanOut>()

  // MARK: Sending

  /// Start a fan-out of `count` results.
  func begin(_ context: RequestContext, count: Int, _ response: FanOut.Response) -> FanOutSender {
    let index = fanOuts.insert(FanOut(context, count: count, response))
    return FanOutSender(part: self, index: index, context: context)
  }

  /// Add the names of the next entry for the response.
  fileprivate func addNames(_ index: SlotIndex, cid: RawSpan?, id: RawSpan?) {
    fanOuts[index]?.names.append(cid: cid, id: id)
  }

  /// Record the result of an entry for which nothing was sent, or that another part has handled.
  ///
  /// - Parameter code: nil: it succeeded.
  func recordResult(of entry: Int, in index: SlotIndex, code: ProblemCode?) {
    fanOuts[index]?.results[entry].code = code
    resultArrived(index)
  }

  /// Count a result, or the end of the sending: the last one answers.
  fileprivate func resultArrived(_ index: SlotIndex) {
    guard let fanOut = fanOuts[index] else { return }
    fanOut.waiting -= 1
    respondIfComplete(fanOut, index)
  }

  // MARK: Results

  func completed(_ index: SlotIndex, _ entry: UInt32, with result: StoreResult) {
    guard let fanOut = fanOuts[index] else { return }
    switch result {
    case .reply(let kind, let payload):
      do throws(WireError) {
        try apply(payload, kind, Int(entry), in: fanOut)
      } catch {
        loop.logMalformedReply(error, kind)
        fanOut.results[Int(entry)].code = .internalError
        fanOut.problem = Problem(.internalError)
      }
    case .failure(let failure):
      let problem = failure.problem
      fanOut.results[Int(entry)].code = problem.code
      fanOut.problem = fanOut.problem ?? problem
    }
    resultArrived(index)
  }

  private func apply(_ payload: RawSpan, _ kind: FrameKind, _ entry: Int, in fanOut: FanOut) throws(WireError) {
    var reader = FieldReader(payload)
    switch kind {
    case .registerMessage:
      let reply = try RegistrationReply(payload)
      fanOut.results[entry].sequence = reply.sequence.rawValue
      fanOut.results[entry].status = reply.status
      fanOut.results[entry].acknowledgementRequestRefusal = reply.acknowledgementRequestRefusal
    case .ticketPlace:
      _ = try reader.ticketPlace()
      try reader.end()
      fanOut.results[entry].replyStart = fanOut.replyBytes.writerIndex
      fanOut.results[entry].replyByteCount = payload.byteCount
      fanOut.replyBytes.writeRaw(payload)
    case .readState:
      fanOut.results[entry].replyStart = fanOut.replyBytes.writerIndex
      try RowJSON.writeRows(&reader, into: &fanOut.replyBytes)
      fanOut.results[entry].replyByteCount = fanOut.replyBytes.writerIndex - fanOut.results[entry].replyStart
    case .putChannel:
      fanOut.results[entry].isCreated = try PutChannelReply(payload).isNew
    case .listChannelTypes:
      for record in try reader.channelTypeRecords() { fanOut.add(record) }
    case .markRead, .markDelivered:
      // A batch's answer does not show rows.
      fanOut.results[entry].uncounted = try MarkReply(payload).uncounted
    // No request that fans out sends them.
    case .hello, .challenge, .proof, .ready, .ping, .pong, .drain, .events, .shardMap, .error, .changeMembers,
      .deleteMessage, .markUnread, .patchChannelType, .assignChannelType, .acknowledge, .patchUser, .assignUser,
      .settle, .deleteChannel, .truncateChannel, .eraseMember, .getChannel, .statuses, .getChannelType, .getUser,
      .listUnsettled, .listMembers, .memberStatuses, .listChannels, .unreadCounts, .purge, .rebuildIndex, .webhookKnown,
      .subscribe, .unsubscribe, .subscribeUser, .announceRow, .getToken, .listRevokedTokens, .threadReadState,
      .userReceipts, .userThreads, .setMember, .markUnreadSince, .listConsumers, .readFeed, .acknowledgePush,
      .redeemTicket, .noteWebhook, .presentTicket, .listRoster, .listMessages, .revokeToken, .putConsumer,
      .removeConsumer, .openPartition, .commitConsumer, .leasePartitions, .backupBegin, .backupRead, .backupDigest,
      .backupEnd, .deliverChanges, .confirmChanges, .snapshotBegin, .snapshotRead, .recordKeys, .importChannel,
      .importMessages, .importMembers, .importAcknowledgements, .listStoredChannels, .exportChannel, .listUsers,
      .putPushJob, .claimPushJobs, .updatePushJobs:
      throw .unknownKind(kind.rawValue)
    }
  }

  // MARK: Responses

  /// Answer when the last result has arrived.
  private func respondIfComplete(_ fanOut: FanOut, _ index: SlotIndex) {
    guard fanOut.waiting == 0, fanOuts[index] === fanOut else { return }
    fanOuts.remove(index)
    guard let connection = loop.connections.answering(fanOut.stream, on: fanOut.connection) else { return }
    // All of its entries have the same token.
    if fanOut.results.contains(where: { $0.code == .tokenRevoked }) {
      return loop.answer(Problem(.tokenRevoked), route: fanOut.route, stream: fanOut.stream, connection: connection)
    }
    switch fanOut.response {
    case .results(let status, let write):
      guard fanOut.names.count == fanOut.results.count else {
        return loop.respondInternalError(
          "a batch without the names of its entries",
          route: fanOut.route,
          stream: fanOut.stream,
          connection: connection
        )
      }
      loop.respond(fanOut.route, stream: fanOut.stream, connection: connection, status: status) {
        write(fanOut, &$0)
      }
    case .channelTypes: respondChannelTypes(fanOut, connection)
    }
  }

  private func respondChannelTypes(_ fanOut: FanOut, _ connection: HTTP2ServerConnection<GatewayLoop>) {
    let route = fanOut.route
    if let code = fanOut.results.lazy.compactMap(\.code).first {
      return loop.answer(fanOut.problem ?? Problem(code), route: route, stream: fanOut.stream, connection: connection)
    }
    let records = fanOut.records.values.sorted { $0.name < $1.name }
    loop.respond(route, stream: fanOut.stream, connection: connection) { buffer in
      buffer.writeStaticString("{\"channel_types\":[")
      for (index, record) in records.enumerated() {
        if index > 0 { buffer.writeStaticString(",") }
        ChannelJSON.write(record, into: &buffer)
      }
      buffer.writeStaticString("]}")
    }
  }
}

/// Sender of a fan-out's store requests, entry by entry, in the order of the request. Call ``close()`` after the last.
struct FanOutSender {
  fileprivate let part: FanOutPart
  let index: SlotIndex
  fileprivate let context: RequestContext
  /// The index of the current entry.
  private(set) var entry = -1

  fileprivate init(part: FanOutPart, index: SlotIndex, context: RequestContext) {
    self.part = part
    self.index = index
    self.context = context
  }

  /// Go to the next entry, with its names for the response; nil: it has none, or no string.
  mutating func addEntry(cid: RawSpan? = nil, id: RawSpan? = nil) {
    entry += 1
    part.addNames(index, cid: cid, id: id)
  }

  /// Send the entry's request.
  func send(_ kind: FrameKind, to destination: StoreDestination, _ fields: (inout ByteBuffer) -> Void) {
    let target = ReplyTarget.fanOut(index, entry: UInt32(entry))
    let request = PendingRequest(
      target,
      route: context.route,
      isServer: context.caller.isServer,
      isPageQuery: false
    )
    let isSent = part.loop.trySend(kind, to: destination, request, issued: context.caller.issued, fields)
    if !isSent { refuse(.storeBusy) }
  }

  /// Record that the entry is refused: nothing is sent for it.
  func refuse(_ code: ProblemCode) { part.recordResult(of: entry, in: index, code: code) }

  /// Close the sending: from here on the last result answers.
  func close() { part.resultArrived(index) }
}

/// A request that fans out to several store requests. Its results arrive in any order and are answered together.
final class FanOut {
  /// Result of one entry.
  struct EntryResult {
    /// Nil: it succeeded.
    var code: ProblemCode?
    var sequence: UInt32 = 0
    var status = MessageStatus.sent
    var acknowledgementRequestRefusal = AcknowledgementRequestRefusal.none
    /// Whether the channel was created.
    var isCreated = false
    /// Why a position does not count; nil: it does.
    var uncounted: ShardState.Uncounted?
    /// Where its bytes are in ``replyBytes``.
    var replyStart = 0
    var replyByteCount = 0
  }

  /// How the results are answered.
  enum Response {
    /// Each on its own.
    case results(status: Int, _ write: (FanOut, inout ByteBuffer) -> Void)
    /// The channel types found; or the problem of any entry.
    case channelTypes
  }

  let connection: ConnectionIndex
  let stream: HTTP2StreamHandle
  let route: Route
  let response: Response
  /// The names that the response repeats from the request, in its order.
  var names = BatchEntryNames()
  /// In the order of the request.
  var results: [EntryResult]
  /// Entries without a result, plus one for the sending itself: early replies must not complete the fan-out while
  /// requests are still being sent.
  var waiting: Int
  /// The newest version of each channel type found.
  private(set) var records: [String: ChannelTypeRecord] = [:]
  /// Reply bytes of tickets' places, or channels' rows as JSON, in order of arrival.
  var replyBytes = ByteBuffer()
  /// The problem of the whole request; nil: none.
  var problem: Problem?

  init(_ context: RequestContext, count: Int, _ response: Response) {
    connection = context.connection
    stream = context.stream
    route = context.route
    self.response = response
    results = Array(repeating: EntryResult(), count: count)
    waiting = count + 1
  }

  /// Write `{"name": [entry…]}`, in the order of the request.
  func writeResults(
    _ name: StaticString,
    into buffer: inout ByteBuffer,
    _ writeEntry: (_ index: Int, EntryResult, inout ByteBuffer) -> Void
  ) {
    buffer.writeStaticString("{\"")
    buffer.writeStaticString(name)
    buffer.writeStaticString("\":[")
    for (index, result) in results.enumerated() {
      if index > 0 { buffer.writeStaticString(",") }
      writeEntry(index, result, &buffer)
    }
    buffer.writeStaticString("]}")
  }

  /// Store a record unless a newer version is known.
  func add(_ record: ChannelTypeRecord) {
    if let known = records[record.name], known.version >= record.version { return }
    records[record.name] = record
  }
}

/// The names of a batch's entries, kept from its body for the response: a cid and an id for each entry.
struct BatchEntryNames {
  /// A part of `bytes`; a negative start: the entry has no such name.
  private struct Name {
    var start: Int32
    var count: Int32
  }

  private var bytes: [UInt8] = []
  private var cids: [Name] = []
  private var ids: [Name] = []

  /// Number of entries.
  var count: Int { cids.count }

  /// Add the names of the next entry; nil: it has none, or no string.
  mutating func append(cid: RawSpan? = nil, id: RawSpan? = nil) {
    cids.append(store(cid))
    ids.append(store(id))
  }

  private mutating func store(_ text: RawSpan?) -> Name {
    guard let text else { return Name(start: -1, count: 0) }
    let start = bytes.count
    text.withUnsafeBytes { bytes.append(contentsOf: $0) }
    return Name(start: Int32(start), count: Int32(text.byteCount))
  }

  @_lifetime(borrow self)
  func cid(_ entry: Int) -> RawSpan? { text(cids[entry]) }

  @_lifetime(borrow self)
  func id(_ entry: Int) -> RawSpan? { text(ids[entry]) }

  @_lifetime(borrow self)
  private func text(_ name: Name) -> RawSpan? {
    guard name.start >= 0 else { return nil }
    let start = Int(name.start)
    return bytes.span.bytes.extracting(start..<(start + Int(name.count)))
  }
}
