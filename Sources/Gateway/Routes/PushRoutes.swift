internal import HTTP2Session
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// Tickets and acknowledgements (API.md, "Push").
extension GatewayLoop {
  // MARK: Tickets

  /// `POST /v1/push/tickets`: a frame for each, pipelined, for where its message and its user are.
  func issueTickets(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    guard tickets != nil else { throw Self.noTicketSecret }
    let body = try object(request, .issueTickets)
    let entries = try body.requiredArray("tickets", countMax: limits.pushesPerRequest)
    _ = try Self.lifetime(body)
    guard mayBegin(batchOf: entries.count, context) else { return }
    let gather = beginGather(context, match.route, count: entries.count)
    var position = 0
    var sent = entries.elements
    while let entry = sent.next() {
      do throws(ProblemCode) {
        let pushed = try Self.pushed(entry)
        let (user, message) = (pushed.user, pushed.message)
        sendEntry(.ticketPlace, cid: pushed.cid, context, match.route, gather, position) { buffer in
          buffer.writeField(user)
          buffer.writeField(message)
        }
      } catch {
        finishEntry(gather, position, error)
      }
      position += 1
    }
    finishSending(gather)
  }

  private static var noTicketSecret: Problem {
    Problem(.notImplemented, "this gateway has no tickets: it was started without --ticket-secret-file")
  }

  /// Seconds that tickets of this body are good for.
  private static func lifetime(_ body: JSONValue) throws(Problem) -> UInt64 {
    UInt64(
      try body.optionalInteger("ttl", in: 1...Int64(GatewayLimits.ticketSecondsMax))
        ?? GatewayLimits.ticketSeconds
    )
  }

  @_lifetime(copy entry)
  private static func pushed(_ entry: JSONValue) throws(ProblemCode) -> PushedMessage {
    guard let cid = entry.member("cid")?.string, let user = entry.member("user_id")?.string,
      let message = entry.member("message_id")?.string
    else { throw .invalidField }
    if let device = entry.optional("device"), device.string == nil { throw .invalidField }
    guard Identifier.isCID(cid) else { throw .invalidCID }
    guard Identifier.isMessage(message) else { throw .invalidMessageID }
    guard Identifier.isUser(user) else { throw .invalidUserID }
    return PushedMessage(cid: cid, user: user, message: message)
  }

  /// Writes `{"tickets":[…]}`. A ticket's expiry counts from now, its shard is that of its channel.
  func writeTickets(_ gather: Gather, _ body: JSONValue, into buffer: inout ByteBuffer) {
    guard let tickets, let lifetime = try? Self.lifetime(body), let entries = body.member("tickets") else {
      return
    }
    let expiry = UInt64(max(0, now)) / 1_000 + lifetime
    let places = gather.places
    buffer.writeStaticString("{\"tickets\":[")
    var elements = entries.elements
    for index in gather.results.indices {
      guard let entry = elements.next() else { break }
      if index > 0 { buffer.writeStaticString(",") }
      let result = gather.results[index]
      guard result.code == nil, let cid = entry.member("cid")?.string else {
        buffer.writeStaticString("{\"code\":\"")
        buffer.writeString((result.code ?? .internalError).rawValue)
        buffer.writeStaticString("\"}")
        continue
      }
      let place = places.readableBytesSpan.extracting(
        result.placeStart..<(result.placeStart + result.placeCount)
      )
      let device = Self.device(entry)
      buffer.writeStaticString("\"")
      tickets.write(
        expiry: expiry,
        shard: .owning(cid, count: store.shardCount),
        place: place,
        device: device,
        into: &buffer
      )
      buffer.writeStaticString("\"")
    }
    buffer.writeStaticString("]}")
  }

  /// What a ticket says that it is for, as metrics can name it.
  @_lifetime(copy entry)
  private static func device(_ entry: JSONValue) -> RawSpan {
    guard let device = entry.optional("device")?.string, !device.isEmpty else {
      return _overrideLifetime(RawSpan(), copying: entry)
    }
    if LabelNames.isLabel(device) { return device }
    return _overrideLifetime(otherDevice.span.bytes, copying: entry)
  }

  private static let otherDevice = Array("other".utf8)

  // MARK: Acknowledgements

  /// `POST /v1/push/acks`: of one body, or of lines as they come.
  func acknowledgePushes(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    if match.route.streams(request.contentType) {
      try requireServer(context)
      // A body that ended with the headers has no lines.
      if request.bodyStreams { return try open(AckStream(context, limits), contentType: .ndjson) }
      guard let connection = connections.connection(context.connection) else { return }
      connections.markDirty(context.connection)
      connection.respond(context.stream, status: 200, contentType: .ndjson) { _ in }
      return counters.answered(match.route.rawValue, status: 200)
    }
    let body = try object(request, .acknowledgePushes)
    let hasTickets = body.optional("tickets") != nil
    guard hasTickets != (body.optional("acks") != nil) else {
      throw Problem(.invalidField, "the body has to have one of \"tickets\" and \"acks\"")
    }
    if hasTickets {
      guard tickets != nil else { throw Self.noTicketSecret }
    } else {
      try requireServer(context)
    }
    let entries = try body.requiredArray(hasTickets ? "tickets" : "acks", countMax: limits.pushesPerRequest)
    guard context.caller.isServer || ackBatches.deviceEntries + entries.count <= limits.deviceAcks else {
      throw Problem(.storeBusy, "too many tickets are under way")
    }
    // A device's are bounded by themselves.
    if context.caller.isServer && !mayBegin(batchOf: entries.count, context) { return }
    let batch = beginAcks(.body(context, match.route), source: nil, countMax: max(1, entries.count))
    var elements = entries.elements
    while let entry = elements.next() {
      do throws(ProblemCode) {
        if !hasTickets {
          acknowledge(try PushAck(entry), in: batch)
        } else if let ticket = entry.string {
          let none = ticket.extracting(0..<0)
          acknowledge(try PushAck(ticket: ticket, provider: none, device: none), in: batch)
        } else {
          throw .invalidField
        }
      } catch {
        refuseAck(error, hasTickets || entry.optional("ticket") != nil ? .ticket : .worker, in: batch)
      }
    }
    endAcks(batch)
  }

  /// For what only servers may ask for on a route that is open to anyone: who has shown no token at all is told that
  /// one is missing.
  private func requireServer(_ context: RequestContext) throws(Problem) {
    guard !context.caller.isServer else { return }
    throw Problem(context.caller.userID.isEmpty ? .tokenMissing : .serverTokenRequired)
  }
}

/// Whose message a ticket is to be made for.
private struct PushedMessage: ~Escapable {
  let cid: RawSpan
  let user: RawSpan
  let message: RawSpan

  @_lifetime(copy cid)
  init(cid: RawSpan, user: RawSpan, message: RawSpan) {
    self.cid = cid
    self.user = _overrideLifetime(user, copying: cid)
    self.message = _overrideLifetime(message, copying: cid)
  }
}
