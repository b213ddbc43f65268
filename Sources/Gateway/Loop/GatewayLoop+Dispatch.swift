internal import HTTP2Session
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

// The handler of each route, and the response for each kind of reply that is a whole response.

extension GatewayLoop {
  /// Call the handler of a route. Each handler validates its whole input before it sends anything to the store.
  func dispatch(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    if !match.route.checksOwnQuery { try match.checkQuery(context.caller, scratch) }
    // GET and DELETE take no fields; an empty object is accepted.
    if !request.body.isEmpty, request.method == .get || request.method == .delete {
      _ = try object(request, [])
    }
    switch match.route {
    case .markRead: try MarkRoutes(loop: self).markRead(match, context, request)
    case .markUnread: try MarkRoutes(loop: self).markUnread(match, context, request)
    case .markDelivered: try BatchRoutes(loop: self).markDelivered(match, context, request)
    case .markReadMany: try BatchRoutes(loop: self).markReadMany(match, context, request)
    case .registerMessage: try MessageRoutes(loop: self).registerMessage(match, context, request)
    case .registerMessages: try BatchRoutes(loop: self).registerMessages(match, context, request)
    case .deleteMessage: try MessageRoutes(loop: self).deleteMessage(match, context)
    case .putChannel: try ChannelRoutes(loop: self).putChannel(match, context, request)
    case .getChannel: try ChannelRoutes(loop: self).getChannel(match, context)
    case .changeMembers: try ChannelRoutes(loop: self).changeMembers(match, context, request)
    case .putMember: try ChannelRoutes(loop: self).putMember(match, context, request)
    case .putChannelType: try ChannelRoutes(loop: self).putChannelType(match, context, request)
    case .getChannelType: try ChannelRoutes(loop: self).getChannelType(match, context)
    case .listChannelTypes: try ChannelRoutes(loop: self).listChannelTypes(match, context)
    case .apiDocument: FileRoutes(loop: self).apiDocument(match, context, request)
    case .sdkFile: try FileRoutes(loop: self).sdkFile(match, context, request)
    case .demoPage: try FileRoutes(loop: self).demoPage(match, context, request)
    case .demoSession: try FileRoutes(loop: self).demoSession(match, context, request)
    case .demoFile: try FileRoutes(loop: self).demoFile(match, context, request)
    case .readState: try MessageRoutes(loop: self).readState(match, context)
    case .consolePage: try FileRoutes(loop: self).consolePage(match, context, request)
    case .consoleLogin: try ConsoleRoutes(loop: self).logIn(match, context, request)
    case .consoleLogout: try ConsoleRoutes(loop: self).logOut(match, context, request)
    case .openConsoleSession: try ConsoleRoutes(loop: self).openSession(match, context, request)
    case .getConsoleSession: try ConsoleRoutes(loop: self).getSession(match, context)
    case .issueConsoleCode: try ConsoleRoutes(loop: self).issueCode(match, context)
    case .consoleMetrics: try ConsoleRoutes(loop: self).metrics(match, context)
    case .consoleFile: try FileRoutes(loop: self).consoleFile(match, context, request)
    case .readStates: try ChannelRoutes(loop: self).readStates(match, context, request)
    case .listRoster: try ChannelRoutes(loop: self).listRoster(match, context)
    case .listMessages: try ChannelRoutes(loop: self).listMessages(match, context)
    case .putChannels: try ChannelRoutes(loop: self).putChannels(match, context, request)
    case .putUsers: try UserRoutes(loop: self).putUsers(match, context, request)
    case .statuses: try MessageRoutes(loop: self).statuses(match, context, request)
    case .messageStatus: try MessageRoutes(loop: self).messageStatus(match, context)
    case .acknowledgeReceipts: try MessageRoutes(loop: self).acknowledgeReceipts(match, context, request)
    case .receiptsOfUser: try userLists.receiptsOfUser(match, context)
    case .threadsOfUser: try userLists.threadsOfUser(match, context)
    case .listReaders, .listDelivered, .listUnread, .listAcknowledged, .listUnacknowledged:
      try MessageRoutes(loop: self).listMembers(match, context)
    case .chosenMembers: try MessageRoutes(loop: self).chosenMembers(match, context)
    case .putUser: try UserRoutes(loop: self).putUser(match, context, request)
    case .getUser: try UserRoutes(loop: self).getUser(match, context)
    case .putToken: try tokens.putToken(match, context, request)
    case .getToken: try tokens.getToken(match, context)
    case .deleteChannel: try ChannelRoutes(loop: self).deleteChannel(match, context)
    case .truncateChannel: try ChannelRoutes(loop: self).truncateChannel(match, context, request)
    case .deleteUser: try erasures.deleteUser(match, context)
    case .unreadOfUser: try UserRoutes(loop: self).unreadOfUser(match, context)
    case .channelsOfUser: try UserRoutes(loop: self).channelsOfUser(match, context)
    case .unreadOfUsers: try UserRoutes(loop: self).unreadOfUsers(match, context, request)
    case .events: try events.openEvents(match, context, request)
    case .frames: try streams.openFrames(match, context, request)
    case .issueTickets: try push.issueTickets(match, context, request)
    case .acknowledgePushes: try push.acknowledgePushes(match, context, request)
    case .receiveHook: try hooks.receiveHook(match, context, request)
    case .putPushJob: try pushJobs.putJob(match, context, request)
    case .claimPushJobs: try pushJobs.claimJobs(match, context, request)
    case .renewPushJobs: try pushJobs.renewJobs(match, context, request)
    case .finishPushJobs: try pushJobs.finishJobs(match, context, request)
    case .readFeed: try feedStreams.openFeed(match, context, request)
    case .listConsumers: try consumers.listConsumers(match, context)
    case .putConsumer: try consumers.putConsumer(match, context, request)
    case .getConsumer: try consumers.getConsumer(match, context)
    case .deleteConsumer: try consumers.deleteConsumer(match, context)
    case .commitConsumer: try consumers.commitConsumer(match, context, request)
    case .leaseConsumer: try consumers.leaseConsumer(match, context, request)
    case .importLines: try streams.openImport(match, context, request)
    case .exportLines: try exports.openExport(match, context, request)
    }
  }

  /// Write a store's reply as the response of its request.
  func writeResponse(
    to request: PendingRequest,
    kind: FrameKind,
    payload: RawSpan,
    stream: HTTP2StreamHandle,
    connection: HTTP2ServerConnection<GatewayLoop>
  ) throws(WireError) {
    // A list's reply is checked entry by entry while it is written.
    func respondList(_ write: (inout ByteBuffer) throws(WireError) -> Void) throws(WireError) {
      var body = ByteBuffer()
      try write(&body)
      connection.respond(stream, status: 200, body: body)
    }
    var reader = FieldReader(payload)
    var status = 200
    switch kind {
    case .markRead, .markUnread, .markUnreadSince:
      let reply = try MarkReply(payload)
      connection.respond(stream, status: status) { RowJSON.writeResponse(reply, into: &$0) }
    case .putChannel:
      let reply = try PutChannelReply(payload)
      status = reply.isNew ? 201 : 200
      connection.respond(stream, status: status) { ChannelJSON.writeResponse(reply.channel, into: &$0) }
    case .getChannel, .changeMembers, .truncateChannel:
      let channel = try ChannelFields(payload)
      connection.respond(stream, status: status) { ChannelJSON.writeResponse(channel, into: &$0) }
    case .getChannelType:
      let record = try reader.channelTypeRecord()
      connection.respond(stream, status: status) { ChannelJSON.write(record, into: &$0) }
    case .getUser:
      let settings = try reader.userSettings()
      connection.respond(stream, status: status) { UserJSON.write(settings, into: &$0) }
    case .readState: try respondList { body throws(WireError) in try RowJSON.writeReadState(&reader, into: &body) }
    case .threadReadState:
      try respondList { body throws(WireError) in try RowJSON.writeThreadReadState(&reader, into: &body) }
    case .listChannels: try respondList { body throws(WireError) in try UnreadJSON.writeChannels(&reader, into: &body) }
    case .listRoster: try respondList { body throws(WireError) in try RosterJSON.writeMembers(&reader, into: &body) }
    case .listMessages: try respondList { body throws(WireError) in try RosterJSON.writeMessages(&reader, into: &body) }
    case .listMembers:
      let route = request.route
      guard let list = route.memberList else { preconditionFailure("\(route.name) returns no list of members") }
      try respondList { body throws(WireError) in try ListJSON.write(list, &reader, into: &body) }
    case .memberStatuses:
      try respondList { body throws(WireError) in try ListJSON.writeMemberStatuses(&reader, into: &body) }
    // No response is written from their replies alone.
    case .hello, .challenge, .proof, .ready, .ping, .pong, .drain, .events, .shardMap, .error, .registerMessage,
      .deleteMessage, .markDelivered, .patchChannelType, .assignChannelType, .acknowledge, .patchUser, .assignUser,
      .settle, .deleteChannel, .eraseMember, .statuses, .listChannelTypes, .listUnsettled, .unreadCounts, .purge,
      .rebuildIndex, .ticketPlace, .webhookKnown, .subscribe, .unsubscribe, .subscribeUser, .announceRow, .getToken,
      .listRevokedTokens, .userReceipts, .userThreads, .setMember, .listConsumers, .readFeed, .acknowledgePush,
      .redeemTicket, .noteWebhook, .presentTicket, .revokeToken, .putConsumer, .removeConsumer, .openPartition,
      .commitConsumer, .leasePartitions, .backupBegin, .backupRead, .backupDigest, .backupEnd, .deliverChanges,
      .confirmChanges, .snapshotBegin, .snapshotRead, .recordKeys, .importChannel, .importMessages, .importMembers,
      .importAcknowledgements, .listStoredChannels, .exportChannel, .listUsers, .putPushJob, .claimPushJobs,
      .updatePushJobs:
      throw .unknownKind(kind.rawValue)
    }
    counters.answered(request.route, status: status)
  }

  /// Parse the body as a JSON object with known fields only; an empty body counts as `{}`. The object is valid until
  /// the loop parses the next body: a route uses it before it returns.
  ///
  /// - Throws: `content_type_not_supported` for a body of another type, `invalid_json`, `invalid_field`,
  ///   `unknown_field`, `not_implemented`.
  @_lifetime(borrow request)
  func object(_ request: borrowing HTTP2Request, _ known: borrowing KnownFields) throws(Problem) -> JSONValue {
    if request.body.isEmpty {
      return _overrideLifetime(try parsed(Self.emptyObject.span.bytes), borrowing: request)
    }
    guard Self.isJSON(request.contentType) else { throw Problem(.contentTypeNotSupported) }
    let body = try parsed(request.body)
    try body.check(known)
    return _overrideLifetime(body, borrowing: request)
  }

  private static let emptyObject = Array("{}".utf8)

  @_lifetime(borrow self)
  private func parsed(_ bytes: RawSpan) throws(Problem) -> JSONValue {
    let tape = self.tape
    let value: JSONValue
    do throws(JSONSyntaxError) { value = try tape.parse(bytes) } catch { throw Problem(error) }
    guard value.kind == .object else { throw Problem(.invalidField, "the body must be an object") }
    return _overrideLifetime(value, borrowing: self)
  }

  /// Return whether a body of this type is parsed as JSON: `application/json` with any parameters, or no type.
  static func isJSON(_ contentType: RawSpan) -> Bool {
    contentType.isEmpty || HTTP2ContentType.json.isNamed(by: contentType)
  }
}
