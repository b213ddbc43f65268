internal import HTTP2Session
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// Results of requests that take several to the store.
extension GatewayLoop {
  func entryReplied(_ request: PendingRequest, _ kind: FrameKind, _ payload: RawSpan) {
    guard let gather = gathers[Int(request.gather)] else { return }
    do throws(WireError) {
      try note(payload, kind, request, in: gather)
    } catch {
      gather.results[Int(request.entry)].code = .internalError
      gather.problem = Problem(.internalError)
    }
    gather.waiting -= 1
    answerIfComplete(gather, request.gather)
  }

  func entryFailed(_ request: PendingRequest, _ problem: Problem) {
    guard let gather = gathers[Int(request.gather)] else { return }
    gather.results[Int(request.entry)].code = problem.code
    gather.problem = gather.problem ?? problem
    gather.waiting -= 1
    answerIfComplete(gather, request.gather)
  }

  private func note(
    _ payload: RawSpan,
    _ kind: FrameKind,
    _ request: PendingRequest,
    in gather: Gather
  ) throws(WireError) {
    var reader = FieldReader(payload)
    switch kind {
    case .registerMessageReply:
      _ = try reader.byte()
      gather.results[Int(request.entry)].sequence = try reader.sequence().rawValue
      guard let status = MessageStatus(rawValue: try reader.byte()) else { throw .badValue(.status) }
      guard let refusal = ReceiptRefusal(rawValue: try reader.byte()) else { throw .badValue(.status) }
      gather.results[Int(request.entry)].status = status
      gather.results[Int(request.entry)].receiptRefusal = refusal
    case .ticketPlaceReply:
      try TicketCodec.skipPlace(&reader)
      try reader.end()
      gather.results[Int(request.entry)].placeStart = gather.places.writerIndex
      gather.results[Int(request.entry)].placeCount = payload.byteCount
      gather.places.writeRaw(payload)
    case .readStateReply:
      gather.results[Int(request.entry)].placeStart = gather.places.writerIndex
      try Self.writeRows(&reader, into: &gather.places)
      gather.results[Int(request.entry)].placeCount =
        gather.places.writerIndex - gather.results[Int(request.entry)].placeStart
    case .putChannelReply:
      gather.results[Int(request.entry)].isCreated = try reader.byte() == 1
    case .patchChannelTypeReply:
      assignEverywhere(.channelType(try reader.channelTypeRecord()), gather, request.gather)
    case .patchUserReply:
      assignEverywhere(.user(try reader.userSettings()), gather, request.gather)
    case .listChannelTypesReply:
      for _ in 0..<(try reader.count(elementBytesMin: 3)) { gather.note(try reader.channelTypeRecord()) }
    case .markReadReply, .markDeliveredReply:
      // A mark's row is not shown in a batch.
      _ = try RowFields(&reader)
      gather.results[Int(request.entry)].uncounted = try reader.uncounted()
    default:
      // Nor is what a shard has taken over.
      break
    }
  }

  /// Answers when the last result is there.
  func answerIfComplete(_ gather: Gather, _ index: UInt32) {
    guard gather.waiting == 0, gathers[Int(index)] === gather else { return }
    if case .assigning(let value) = gather.stage, gather.results.allSatisfy({ $0.code == nil }) {
      gather.stage = .announcing(value)
      // Its end comes back here.
      if announce(value, gather, index) { return }
    }
    if case .announcing(let value) = gather.stage, gather.results.allSatisfy({ $0.code == nil }) {
      gather.stage = .settling(value)
      if settle(value, gather, index) { return }
    }
    gathers[Int(index)] = nil
    freeGathers.append(index)
    if let parent = gather.parent { return finishUser(gather, parent) }
    guard let connection = connections.connection(gather.connection), connection.isOpen(gather.stream) else {
      return
    }
    connections.markDirty(gather.connection)
    // All of its entries came with the same token.
    if gather.results.contains(where: { $0.code == .tokenRevoked }) {
      return answer(Problem(.tokenRevoked), gather.route.rawValue, gather.stream, connection)
    }
    let status: Int
    switch gather.route {
    case .markDelivered:
      status = 201
      respond(gather, connection, status) { self.writeDelivered(gather, $0, into: &$1) }
    case .markReadMany:
      status = 200
      respond(gather, connection, status) { self.writeReadMany(gather, $0, into: &$1) }
    case .registerMessages:
      status = 200
      respond(gather, connection, status) { self.writeRegistrations(gather, $0, into: &$1) }
    case .issueTickets:
      status = 200
      respond(gather, connection, status) { self.writeTickets(gather, $0, into: &$1) }
    case .readStates:
      status = 200
      respond(gather, connection, status) { self.writeReadStates(gather, $0, into: &$1) }
    case .putChannels:
      status = 200
      respond(gather, connection, status) { self.writeChannels(gather, $0, into: &$1) }
    case .putUsers:
      status = 200
      respond(gather, connection, status) { self.writeUsers(gather, $0, into: &$1) }
    case .putChannelType, .putUser:
      return answerValue(gather, connection)
    default:
      return answerChannelTypes(gather, connection)
    }
    counters.answered(gather.route.rawValue, status: status)
  }

  private func respond(
    _ gather: Gather,
    _ connection: HTTP2ServerConnection<GatewayLoop>,
    _ status: Int,
    _ write: (JSONValue, inout ByteBuffer) -> Void
  ) {
    connection.respond(gather.stream, status: status) { buffer in
      connection.withRequest(gather.stream) { received in
        let tape = self.tape
        guard let body = try? tape.parse(received.body) else { return }
        write(body, &buffer)
      }
    }
  }

  private func writeDelivered(_ gather: Gather, _ body: JSONValue, into buffer: inout ByteBuffer) {
    buffer.writeStaticString("{\"results\":[")
    if let entries = body.member("latest_delivered_messages") {
      var elements = entries.elements
      for index in gather.results.indices {
        guard let entry = elements.next() else { break }
        if index > 0 { buffer.writeStaticString(",") }
        StatusJSON.writeEntry(
          cid: entry.member("cid")?.string,
          id: entry.member("id")?.string,
          code: gather.results[index].code,
          uncounted: gather.results[index].uncounted,
          into: &buffer
        )
      }
    }
    buffer.writeStaticString("]}")
  }

  private func writeReadMany(_ gather: Gather, _ body: JSONValue, into buffer: inout ByteBuffer) {
    buffer.writeStaticString("{\"results\":[")
    if let channels = body.member("read_by_channel") {
      var members = channels.members
      for index in gather.results.indices {
        guard let member = members.next(), let id = member.value.string else { break }
        if index > 0 { buffer.writeStaticString(",") }
        let result = gather.results[index]
        StatusJSON.writeEntry(
          cid: member.name,
          id: id,
          code: result.code,
          uncounted: result.uncounted,
          into: &buffer
        )
      }
    }
    buffer.writeStaticString("]}")
  }

  private func writeRegistrations(_ gather: Gather, _ body: JSONValue, into buffer: inout ByteBuffer) {
    buffer.writeStaticString("{\"results\":[")
    if let entries = body.member("messages") {
      var elements = entries.elements
      for index in gather.results.indices {
        guard let entry = elements.next(), let cid = entry.member("cid")?.string,
          let id = entry.member("id")?.string
        else { break }
        if index > 0 { buffer.writeStaticString(",") }
        let result = gather.results[index]
        if result.code == nil {
          buffer.writeStaticString("{\"ok\":true,\"message\":")
          StatusJSON.writeMessage(
            id: id,
            cid: cid,
            sequence: result.sequence,
            status: result.status,
            refusal: result.receiptRefusal,
            into: &buffer
          )
          buffer.writeStaticString("}")
        } else {
          StatusJSON.writeEntry(cid: cid, id: id, code: result.code, into: &buffer)
        }
      }
    }
    buffer.writeStaticString("]}")
  }

  private func writeReadStates(_ gather: Gather, _ body: JSONValue, into buffer: inout ByteBuffer) {
    buffer.writeStaticString("{\"states\":[")
    if let cids = body.member("cids") {
      var elements = cids.elements
      for (index, result) in gather.results.enumerated() {
        guard let cid = elements.next()?.string else { break }
        if index > 0 { buffer.writeStaticString(",") }
        buffer.writeStaticString("{\"cid\":")
        buffer.writeWithOutputRawSpan(minimumWritableBytes: OutputRawSpan.jsonStringByteMax(cid.byteCount)) {
          $0.jsonString(cid)
        }
        if let code = result.code {
          buffer.writeString(",\"code\":\"\(code.rawValue)\"}")
        } else {
          buffer.writeStaticString(",\"read\":[")
          if let rows = gather.places.viewBytes(at: result.placeStart, length: result.placeCount) {
            buffer.writeBytes(rows)
          }
          buffer.writeStaticString("]}")
        }
      }
    }
    buffer.writeStaticString("]}")
  }

  private func writeChannels(_ gather: Gather, _ body: JSONValue, into buffer: inout ByteBuffer) {
    buffer.writeStaticString("{\"results\":[")
    if let entries = body.member("channels") {
      var elements = entries.elements
      for (index, result) in gather.results.enumerated() {
        guard let cid = elements.next()?.member("cid")?.string else { break }
        if index > 0 { buffer.writeStaticString(",") }
        guard result.code == nil else {
          StatusJSON.writeEntry(cid: cid, id: nil, code: result.code, into: &buffer)
          continue
        }
        buffer.writeStaticString("{\"cid\":")
        buffer.writeWithOutputRawSpan(minimumWritableBytes: OutputRawSpan.jsonStringByteMax(cid.byteCount)) {
          $0.jsonString(cid)
        }
        buffer.writeString(",\"ok\":true,\"created\":\(result.isCreated)}")
      }
    }
    buffer.writeStaticString("]}")
  }

  private func writeUsers(_ gather: Gather, _ body: JSONValue, into buffer: inout ByteBuffer) {
    buffer.writeStaticString("{\"results\":[")
    if let entries = body.member("users") {
      var elements = entries.elements
      for (index, result) in gather.results.enumerated() {
        guard let id = elements.next()?.member("id")?.string else { break }
        if index > 0 { buffer.writeStaticString(",") }
        StatusJSON.writeEntry(cid: nil, id: id, code: result.code, into: &buffer)
      }
    }
    buffer.writeStaticString("]}")
  }

  /// One user of many has come to an end.
  private func finishUser(_ gather: Gather, _ parent: (gather: UInt32, entry: Int)) {
    guard let all = gathers[Int(parent.gather)] else { return }
    switch gather.stage {
    case .gathering:
      all.results[parent.entry].code = gather.results.lazy.compactMap(\.code).first ?? .internalError
    case .assigning, .announcing: all.results[parent.entry].code = .outcomeUnknown
    // All shards have it. Where the home shard could not be told so, it will hear it again from others.
    case .settling: break
    }
    all.waiting -= 1
    answerIfComplete(all, parent.gather)
  }

  // MARK: Values that every shard has

  /// Not a code whose title says that nothing was changed.
  private static var partlyChanged: Problem {
    Problem(
      .outcomeUnknown,
      "the change was made and not every shard has it yet; they will get it, or repeat the request"
    )
  }

  /// Answers the PUT of a channel type or a user.
  private func answerValue(_ gather: Gather, _ connection: HTTP2ServerConnection<GatewayLoop>) {
    let route = gather.route.rawValue
    switch gather.stage {
    case .gathering:
      let code = gather.results.lazy.compactMap(\.code).first ?? .internalError
      answer(gather.problem ?? Problem(code), route, gather.stream, connection)
    case .assigning, .announcing:
      answer(Self.partlyChanged, route, gather.stream, connection)
    case .settling(let value):
      // All shards have it. Where the home shard could not be told so, it will hear it again from others.
      connection.respond(gather.stream, status: 200) { buffer in
        switch value {
        case .channelType(let record): ChannelJSON.write(record, into: &buffer)
        case .user(let settings): UserJSON.write(settings, into: &buffer)
        }
      }
      counters.answered(route, status: 200)
    }
  }

  private func answerChannelTypes(_ gather: Gather, _ connection: HTTP2ServerConnection<GatewayLoop>) {
    let route = gather.route.rawValue
    if let code = gather.results.lazy.compactMap(\.code).first {
      return answer(gather.problem ?? Problem(code), route, gather.stream, connection)
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
    counters.answered(route, status: 200)
  }
}
