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
  func begin(_ context: RequestContext, _ route: Route, count: Int, _ response: FanOut.Response) -> SlotIndex {
    fanOuts.insert(FanOut(context, route, count: count, response))
  }

  /// Add the names of the next entry for the response.
  func addNames(_ index: SlotIndex, cid: RawSpan? = nil, id: RawSpan? = nil) {
    fanOuts[index]?.names.append(cid: cid, id: id)
  }

  /// Send one entry's request.
  func send(
    _ kind: FrameKind,
    to destination: StoreDestination,
    _ context: RequestContext,
    route: Route,
    entry: Int,
    of index: SlotIndex,
    _ fields: (inout ByteBuffer) -> Void
  ) {
    let request = PendingRequest(
      .fanOut(index, entry: UInt32(entry)),
      route: route,
      isServer: context.caller.isServer
    )
    let isSent = loop.trySend(kind, to: destination, request, issued: context.caller.issued, fields)
    if !isSent { recordResult(of: entry, in: index, code: .storeBusy) }
  }

  /// Record the result of an entry for which nothing was sent, or that another part has handled.
  ///
  /// - Parameter code: nil: it succeeded.
  func recordResult(of entry: Int, in index: SlotIndex, code: ProblemCode?) {
    guard let fanOut = fanOuts[index] else { return }
    fanOut.results[entry].code = code
    fanOut.waiting -= 1
    respondIfComplete(fanOut, index)
  }

  /// Close the sending of entries: from here on the last result answers.
  func closeSending(_ index: SlotIndex) {
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
    fanOut.waiting -= 1
    respondIfComplete(fanOut, index)
  }

  private func apply(
    _ payload: RawSpan,
    _ kind: FrameKind,
    _ entry: Int,
    in fanOut: FanOut
  ) throws(WireError) {
    var reader = FieldReader(payload)
    switch kind {
    case .registerMessageReply:
      let reply = try RegistrationReply(payload)
      fanOut.results[entry].sequence = reply.sequence.rawValue
      fanOut.results[entry].status = reply.status
      fanOut.results[entry].receiptRefusal = reply.receiptRefusal
    case .ticketPlaceReply:
      _ = try reader.ticketPlace()
      try reader.end()
      fanOut.results[entry].partStart = fanOut.parts.writerIndex
      fanOut.results[entry].partCount = payload.byteCount
      fanOut.parts.writeRaw(payload)
    case .readStateReply:
      fanOut.results[entry].partStart = fanOut.parts.writerIndex
      try RowJSON.writeRows(&reader, into: &fanOut.parts)
      fanOut.results[entry].partCount = fanOut.parts.writerIndex - fanOut.results[entry].partStart
    case .putChannelReply:
      fanOut.results[entry].isCreated = try PutChannelReply(payload).isNew
    case .listChannelTypesReply:
      for record in try reader.channelTypeRecords() { fanOut.add(record) }
    case .markReadReply, .markDeliveredReply:
      // A batch's answer does not show rows.
      fanOut.results[entry].uncounted = try MarkReply(payload).uncounted
    default: throw .unknownKind(kind.rawValue)
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
      return loop.answer(
        Problem(.tokenRevoked),
        route: fanOut.route,
        stream: fanOut.stream,
        connection: connection
      )
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
      return loop.answer(
        fanOut.problem ?? Problem(code),
        route: route,
        stream: fanOut.stream,
        connection: connection
      )
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
