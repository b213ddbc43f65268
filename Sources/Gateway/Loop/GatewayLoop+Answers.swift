internal import HTTP2Session
internal import Logging
internal import NIOCore
internal import Operations
internal import ReceiptModel
package import ReceiptWire
package import StoreClient

// MARK: - From the store

extension GatewayLoop: StoreClientDelegate {
  /// Makes the answer out of a reply.
  package func storeReplied(_ token: UInt64, kind: FrameKind, payload: RawSpan) {
    guard let request = pending.remove(token) else { return }
    if request.sentAt > 0 { noteRoundTrip(request.sentAt) }
    if request.shape.isStreamed { return streamReplied(request, kind, payload) }
    if request.shape.isPart { return partReplied(request, kind, payload) }
    guard let connection = connections.connection(request.connection) else { return }
    connections.markDirty(request.connection)
    do throws(WireError) {
      try reply(request, payload, connection)
    } catch {
      storeIsMistaken(error, kind)
      answer(Problem(.internalError), request.route.rawValue, request.stream, connection)
    }
  }

  /// Answers with what the failure means to the caller.
  package func storeFailed(_ token: UInt64, _ failure: StoreFailure) {
    guard let request = pending.remove(token) else { return }
    if request.shape.isStreamed { return streamFailed(request, failure) }
    if request.shape == .ack { return ackFailed(request, failure) }
    let problem = Problem(failure, route: request.route, isServer: request.isServer)
    if request.shape.isPart { return partFailed(request, problem) }
    guard let connection = connections.connection(request.connection), connection.isOpen(request.stream)
    else { return }
    connections.markDirty(request.connection)
    answer(problem, request.route.rawValue, request.stream, connection)
  }

  private func partReplied(_ request: PendingRequest, _ kind: FrameKind, _ payload: RawSpan) {
    if request.shape == .entry {
      entryReplied(request, kind, payload)
    } else if request.shape == .ack {
      ackReplied(request, kind, payload)
    } else if request.shape == .hookKnown || request.shape == .hookNoted {
      hookReplied(request, kind, payload)
    } else if request.shape.isJob {
      jobReplied(request, kind, payload)
    } else if request.shape.isErasure {
      erasureReplied(request, kind, payload)
    } else if request.shape.isOwnList {
      userListReplied(request, kind, payload)
    } else if request.shape.isEvent {
      eventReplied(request, kind, payload)
    } else if request.shape == .tokenList {
      tokenListReplied(request, kind, payload)
    } else {
      settlingReplied(request, kind, payload)
    }
  }

  private func partFailed(_ request: PendingRequest, _ problem: Problem) {
    if request.shape == .entry {
      entryFailed(request, problem)
    } else if request.shape == .hookKnown || request.shape == .hookNoted {
      hookFailed(request, problem)
    } else if request.shape.isJob {
      jobFailed(request, problem)
    } else if request.shape.isErasure {
      erasureFailed(request, problem)
    } else if request.shape.isOwnList {
      userListFailed(request, problem)
    } else if request.shape.isEvent {
      eventFailed(request, problem)
    } else if request.shape == .tokenList {
      tokenListFailed(request)
    } else {
      settlingFailed(request)
    }
  }

  /// Sends the answers of one read of the store's connection.
  package func storeReadComplete() {
    // Replies have made room.
    if batches.count > 0 { beginWaitingBatches() }
    endTurn()
  }

  /// Tells the process.
  package func storeReadinessChanged(_ isReady: Bool) {
    storeReachChanged(isReady ? .connected : .cutOff(since: store.cutOffSince ?? .now()))
    if isReady {
      subscribeAnew()
      settleWhatIsLeft()
      readTokenListAnew()
    }
  }

  private func noteRoundTrip(_ sentAt: UInt64) {
    let nanoseconds = NIODeadline.now().uptimeNanoseconds &- sentAt
    counters.storeRoundTrips.record(Double(nanoseconds) / 1_000_000_000)
  }

  func storeIsMistaken(_ error: WireError, _ kind: FrameKind) {
    logger.error(
      "The store's reply does not parse",
      metadata: ["kind": "\(kind)", "error": "\(error)"]
    )
  }

  /// Writes one reply's fields as JSON where they stand, into the stream's buffer.
  private func reply(
    _ request: PendingRequest,
    _ payload: RawSpan,
    _ connection: HTTP2ServerConnection<GatewayLoop>
  ) throws(WireError) {
    var reader = FieldReader(payload)
    var status = 200
    switch request.shape {
    case .row:
      let row = try RowFields(&reader)
      let uncounted = try reader.uncounted()
      connection.respond(request.stream, status: 200) { RowJSON.writeAnswer(row, uncounted, into: &$0) }
    case .registration:
      status = try reader.byte() == 1 ? 201 : 200
      let sequence = try reader.sequence()
      guard let messageStatus = MessageStatus(rawValue: try reader.byte()),
        let refusal = ReceiptRefusal(rawValue: try reader.byte())
      else { throw .badValue(.status) }
      respondWithMessage(request, connection, httpStatus: status, sequence.rawValue, messageStatus, refusal)
    case .deletion:
      let sequence = try reader.sequence()
      respondWithMessage(request, connection, httpStatus: 200, sequence.rawValue, nil, .none)
    case .createdChannel, .channel:
      if request.shape == .createdChannel { status = try reader.byte() == 1 ? 201 : 200 }
      let channel = try ChannelFields(&reader)
      connection.respond(request.stream, status: status) { ChannelJSON.writeAnswer(channel, into: &$0) }
    case .member:
      status = try reader.byte() == 1 ? 201 : 200
      let member = try SetMemberFields(&reader)
      try reader.end()
      respondWithMember(request, connection, httpStatus: status, member)
    case .deletedChannel:
      let wasThere = try reader.byte() == 1
      try reader.end()
      respondWithDeletion(request, connection, wasThere: wasThere)
    case .channelsOfUser:
      var body = ByteBuffer()
      try UnreadJSON.writeChannels(&reader, into: &body)
      connection.respond(request.stream, status: 200, body: body)
    case .channelType:
      let record = try reader.channelTypeRecord()
      connection.respond(request.stream, status: 200) { ChannelJSON.write(record, into: &$0) }
    case .readState, .threadRows:
      let body = try Self.readState(&reader, isOfThread: request.shape == .threadRows)
      connection.respond(request.stream, status: 200, body: body)
    case .roster:
      var body = ByteBuffer()
      try RosterJSON.writeMembers(&reader, into: &body)
      connection.respond(request.stream, status: 200, body: body)
    case .messageList:
      var body = ByteBuffer()
      try RosterJSON.writeMessages(&reader, into: &body)
      connection.respond(request.stream, status: 200, body: body)
    case .user:
      let settings = try reader.userSettings()
      connection.respond(request.stream, status: 200) { UserJSON.write(settings, into: &$0) }
    case .token:
      let state = try TokenStateFields(&reader)
      try reader.end()
      respondWithToken(request, connection, state)
    case .acknowledged:
      try replyAcknowledged(request, &reader, connection)
    case .members:
      var body = ByteBuffer()
      try ListJSON.write(request.route.memberList, &reader, into: &body)
      connection.respond(request.stream, status: 200, body: body)
    case .memberStatuses:
      var body = ByteBuffer()
      try ListJSON.writeMemberStatuses(&reader, into: &body)
      connection.respond(request.stream, status: 200, body: body)
    case .status, .statuses:
      return try replyStatuses(request, &reader, connection)
    case .entry, .ack, .hookKnown, .hookNoted, .jobMark, .jobList, .jobCount, .jobMarkAll, .jobThreads,
      .jobMarkThread,
      .jobLocate,
      .jobDetail, .jobAnnounce,
      .ownList, .ownEntries, .ownPlace, .erasureBegun,
      .erasureAssigned, .erasureChecked, .erasureListed, .erasureErased, .erasureForgot, .erasurePurged,
      .unsettled, .assignment, .settlement, .tokenList, .eventUser, .eventList, .eventFrame, .eventUserEnd,
      .eventFrameEnd, .frame, .framePush, .frameTicket, .streamedAck:
      return
    }
    counters.answered(request.route.rawValue, status: status)
  }

  private static func readState(_ reader: inout FieldReader, isOfThread: Bool) throws(WireError) -> ByteBuffer
  {
    var buffer = ByteBuffer()
    buffer.writeStaticString("{\"read\":[")
    try writeRows(&reader, into: &buffer)
    if isOfThread {
      buffer.writeStaticString("]")
      ListJSON.writeNext(try reader.string(), into: &buffer)
    } else if let next = try reader.optional() {
      buffer.writeStaticString("],\"next\":\"r")
      buffer.writeString("\(next)\"}")
    } else {
      buffer.writeStaticString("]}")
    }
    return buffer
  }

  /// Writes the rows of a read state, with commas between them.
  static func writeRows(_ reader: inout FieldReader, into buffer: inout ByteBuffer) throws(WireError) {
    let count = try reader.count(elementBytesMin: 8)
    for index in 0..<count {
      let row = try RowFields(&reader)
      if index > 0 { buffer.writeStaticString(",") }
      buffer.writeWithOutputRawSpan(minimumWritableBytes: RowJSON.byteMax(row)) {
        RowJSON.write(row, into: &$0)
      }
    }
  }

  /// The request's bytes are there until it is answered, so ids are read from it once more instead of being
  /// kept.
  private func respondWithMessage(
    _ request: PendingRequest,
    _ connection: HTTP2ServerConnection<GatewayLoop>,
    httpStatus: Int,
    _ sequence: UInt32,
    _ status: MessageStatus?,
    _ refusal: ReceiptRefusal
  ) {
    connection.respond(request.stream, status: httpStatus) { buffer in
      connection.withRequest(request.stream) { received in
        guard let match = try? self.router.match(received.method, received.path, self.scratch) else { return }
        buffer.writeStaticString("{\"message\":")
        if match.message.isEmpty {
          let tape = self.tape
          let body = try? tape.parse(received.body)
          if let id = body?.member("id")?.string {
            StatusJSON.writeMessage(
              id: id,
              cid: match.subject,
              sequence: sequence,
              status: status,
              refusal: refusal,
              into: &buffer
            )
          }
        } else {
          StatusJSON.writeMessage(
            id: match.message,
            cid: match.subject,
            sequence: sequence,
            status: status,
            refusal: refusal,
            into: &buffer
          )
        }
        buffer.writeStaticString("}")
      }
    }
  }

  private func respondWithDeletion(
    _ request: PendingRequest,
    _ connection: HTTP2ServerConnection<GatewayLoop>,
    wasThere: Bool
  ) {
    connection.respond(request.stream, status: 200) { buffer in
      connection.withRequest(request.stream) { received in
        guard let match = try? self.router.match(received.method, received.path, self.scratch) else { return }
        ChannelJSON.writeDeleted(match.subject, wasThere: wasThere, into: &buffer)
      }
    }
  }

  private func respondWithMember(
    _ request: PendingRequest,
    _ connection: HTTP2ServerConnection<GatewayLoop>,
    httpStatus: Int,
    _ member: SetMemberFields
  ) {
    connection.respond(request.stream, status: httpStatus) { buffer in
      connection.withRequest(request.stream) { received in
        guard let match = try? self.router.match(received.method, received.path, self.scratch) else { return }
        ChannelJSON.writeMember(match.member, member, into: &buffer)
      }
    }
  }

  // MARK: Statuses

  private func replyStatuses(
    _ request: PendingRequest,
    _ reader: inout FieldReader,
    _ connection: HTTP2ServerConnection<GatewayLoop>
  ) throws(WireError) {
    var found: [(code: ProblemCode?, status: StatusAnswer?)] = []
    for _ in 0..<(try reader.count()) {
      let code = try reader.byte()
      if code == 0 {
        found.append((nil, try reader.status()))
      } else {
        found.append(
          (code == UInt8(ErrorCode.messageDeleted.rawValue) ? .messageDeleted : .messageNotFound, nil)
        )
      }
    }
    if request.shape == .status {
      guard let only = found.first else { throw .badValue(.count) }
      if let code = only.code { return answerMissing(code, request, connection) }
    }
    connection.respond(request.stream, status: 200) { buffer in
      connection.withRequest(request.stream) { self.write(found, request, $0, into: &buffer) }
    }
    counters.answered(request.route.rawValue, status: 200)
  }

  private func answerMissing(
    _ code: ProblemCode,
    _ request: PendingRequest,
    _ connection: HTTP2ServerConnection<GatewayLoop>
  ) {
    var problem = Problem(code)
    problem.status = 404
    answer(problem, request.route.rawValue, request.stream, connection)
  }

  private func write(
    _ found: [(code: ProblemCode?, status: StatusAnswer?)],
    _ request: PendingRequest,
    _ received: borrowing HTTP2Request,
    into buffer: inout ByteBuffer
  ) {
    guard let match = try? router.match(received.method, received.path, scratch) else { return }
    if request.shape == .status {
      if let status = found.first?.status {
        StatusJSON.write(status, message: match.message, cid: match.subject, into: &buffer)
      }
      return
    }
    let tape = self.tape
    guard let messages = (try? tape.parse(received.body))?.member("message_ids") else { return }
    Self.writeStatuses(found, cid: match.subject, messages, into: &buffer)
  }

  /// Writes `{"statuses": […]}` in the order of the request: what the store has found, in the places of the
  /// ids that it was sent.
  static func writeStatuses(
    _ found: [(code: ProblemCode?, status: StatusAnswer?)],
    cid: RawSpan,
    _ messages: JSONValue,
    into buffer: inout ByteBuffer
  ) {
    var found = found.makeIterator()
    buffer.writeStaticString("{\"statuses\":[")
    var elements = messages.elements
    var isFirst = true
    while let message = elements.next() {
      if !isFirst { buffer.writeStaticString(",") }
      isFirst = false
      if let code = refusal(of: message) {
        StatusJSON.write(code, message: message.string, into: &buffer)
      } else if let id = message.string {
        let entry = found.next()
        if let status = entry?.status {
          StatusJSON.write(status, message: id, cid: cid, into: &buffer)
        } else {
          StatusJSON.write(entry?.code ?? .messageNotFound, message: id, into: &buffer)
        }
      }
    }
    buffer.writeStaticString("]}")
  }
}
