internal import HTTP2Session
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// A response that repeats names of its request, which the store's reply does not have.
enum EchoingResponse {
  /// `{"message": …}` of a registration, 201 where it is new.
  case registration(cid: [UInt8], id: [UInt8])
  /// `{"message": …}` of a deletion.
  case deletion(cid: [UInt8], id: [UInt8])
  /// `{"member": {"user", "role"?, "joined_at", "muted"}}`, 201 where they joined.
  case member([UInt8])
  /// `{"cid", "deleted"}`.
  case deletedChannel(cid: [UInt8])
  /// `{"jti","revoked","expires_at"?}`.
  case token([UInt8])
  /// One status.
  case status(cid: [UInt8], id: [UInt8])
  /// `{"statuses": […]}` of these ids.
  case statuses(cid: [UInt8], BatchEntryNames)
  /// `{"acknowledged": […], "errors": […]}` of these ids.
  case acknowledged(BatchEntryNames)
}

/// The requests whose responses repeat names of the request. The names are kept when the request is parsed.
final class EchoingResponsesPart: GatewayPart {
  private var waiting = SlotTable<EchoingResponse>()

  /// Requests that wait for the store.
  var count: Int { waiting.count }

  // MARK: Sending

  /// Send a request whose reply becomes the response.
  ///
  /// - Throws: `store_busy`.
  func send(
    _ kind: FrameKind,
    to destination: StoreDestination,
    _ context: RequestContext,
    response: EchoingResponse,
    _ fields: (inout ByteBuffer) -> Void
  ) throws(Problem) {
    let index = waiting.insert(response)
    let request = PendingRequest(
      .echoingResponse(index, context.stream, connection: context.connection),
      route: context.route,
      isServer: context.caller.isServer,
      isPageQuery: context.route.isPageQuery
    )
    guard loop.trySend(kind, to: destination, request, issued: context.caller.issued, fields) else {
      waiting.remove(index)
      throw Problem(.storeBusy)
    }
  }

  // MARK: Results

  func completed(
    _ index: SlotIndex,
    _ request: PendingRequest,
    with result: StoreResult,
    stream: HTTP2StreamHandle,
    connection: ConnectionIndex
  ) {
    let response = waiting.remove(index)
    switch result {
    case .reply(let kind, let payload):
      reply(response, request, kind: kind, payload: payload, stream: stream, connection: connection)
    case .failure(let failure):
      loop.answer(failure.problem, route: request.route, stream: stream, connection: connection)
    }
  }

  private func reply(
    _ response: EchoingResponse?,
    _ request: PendingRequest,
    kind: FrameKind,
    payload: RawSpan,
    stream: HTTP2StreamHandle,
    connection connectionIndex: ConnectionIndex
  ) {
    guard let connection = loop.connections.connection(connectionIndex) else { return }
    loop.connections.markDirty(connectionIndex)
    guard let response else {
      let bug: StaticString = "a reply without the names of its request"
      return loop.respondInternalError(bug, route: request.route, stream: stream, connection: connection)
    }
    do throws(WireError) {
      try respond(response, request: request, payload: payload, stream: stream, connection: connection)
    } catch {
      loop.logMalformedReply(error, kind)
      loop.answer(Problem(.internalError), route: request.route, stream: stream, connection: connection)
    }
  }

  private func respond(
    _ response: EchoingResponse,
    request: PendingRequest,
    payload: RawSpan,
    stream: HTTP2StreamHandle,
    connection: HTTP2ServerConnection<GatewayLoop>
  ) throws(WireError) {
    var status = 200
    switch response {
    case .registration(let cid, let id):
      let reply = try RegistrationReply(payload)
      status = reply.isNew ? 201 : 200
      connection.respond(stream, status: status) {
        StatusJSON.writeMessageResponse(
          id: id.span.bytes,
          cid: cid.span.bytes,
          sequence: reply.sequence.rawValue,
          status: reply.status,
          refusal: reply.acknowledgementRequestRefusal,
          into: &$0
        )
      }
    case .deletion(let cid, let id):
      let sequence = try DeleteMessageReply(payload).sequence.rawValue
      connection.respond(stream, status: status) {
        StatusJSON.writeMessageResponse(
          id: id.span.bytes,
          cid: cid.span.bytes,
          sequence: sequence,
          status: nil,
          refusal: .none,
          into: &$0
        )
      }
    case .member(let user):
      let member = try SetMemberReply(payload)
      status = member.hasJoined ? 201 : 200
      connection.respond(stream, status: status) {
        ChannelJSON.writeMember(user.span.bytes, member, into: &$0)
      }
    case .deletedChannel(let cid):
      let existed = try FlagReply(payload).isSet
      connection.respond(stream, status: status) {
        ChannelJSON.writeDeleted(cid.span.bytes, existed: existed, into: &$0)
      }
    case .token(let id):
      let state = try TokenReply(payload)
      loop.tokens.record(id, state)
      connection.respond(stream, status: status) {
        TokenJSON.write(id.span.bytes, until: state.until == .none ? nil : state.until, into: &$0)
      }
    case .status(let cid, let id):
      switch try StatusResultFields.all(payload).first {
      case nil: throw .badValue(.count)
      case .refused(let code):
        var problem = Problem(MessageRoutes.problemCode(ofStatus: code))
        problem.status = 404
        return loop.answer(problem, route: request.route, stream: stream, connection: connection)
      case .found(let found):
        connection.respond(stream, status: status) {
          StatusJSON.write(found, message: id.span.bytes, cid: cid.span.bytes, into: &$0)
        }
      }
    case .statuses(let cid, let messages):
      let found = try StatusResultFields.all(payload)
      connection.respond(stream, status: status) {
        MessageRoutes.writeStatuses(found, cid: cid.span.bytes, messages, into: &$0)
      }
    case .acknowledged(let messages):
      let codes = try AcknowledgeReply(payload).codes.map {
        $0.map { Problem.code(of: $0, isServer: request.isServer) }
      }
      connection.respond(stream, status: status) {
        MessageRoutes.writeAcknowledged(codes, messages, into: &$0)
      }
    }
    loop.counters.answered(request.route, status: status)
  }
}
