internal import HTTP2Session
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// Routes with many positions in one request: each is a frame of its own, pipelined, and one bad entry does
/// not fail the rest. The bodies are looked through twice: first whole, so that a malformed one changes
/// nothing, then to send; and once more for the answer, as the request's bytes stay until then.
extension GatewayLoop {
  /// `POST /v1/channels/delivered` (R3).
  func markDelivered(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    let parameters = try PositionParameters(match.query, scratch)
    let body = try object(request, .markDelivered)
    let entries = try body.requiredArray("latest_delivered_messages", countMax: limits.entriesPerRequest)
    let user = try actingUser(body, parameters, context)
    guard mayBegin(batchOf: entries.count, context) else { return }
    let gather = beginGather(context, match.route, count: entries.count)
    var position = 0
    var sent = entries.elements
    while let entry = sent.next() {
      let parent = entry.optional("parent_id")
      if let cid = entry.member("cid")?.string, let message = entry.member("id")?.string,
        parent == nil || parent?.kind == .string
      {
        let thread = parent?.string
        if !Identifier.isCID(cid) {
          finishEntry(gather, position, .invalidCID)
        } else if !Identifier.isMessage(message) || !Self.isThread(thread) {
          finishEntry(gather, position, .invalidMessageID)
        } else {
          sendEntry(.markDelivered, cid: cid, context, match.route, gather, position, thread: thread) {
            buffer in
            buffer.writeField(user)
            buffer.writeField(message)
          }
        }
      } else {
        finishEntry(gather, position, .invalidField)
      }
      position += 1
    }
    finishSending(gather)
  }

  /// `POST /v1/channels/read`: one position in each of many channels (R2), or all channels (R13).
  func markReadMany(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    let parameters = try PositionParameters(match.query, scratch)
    let body = try object(request, .markReadMany)
    let all = try body.trueUnlessMissing("all")
    let threads = try body.optionalBool("threads") ?? false
    let map = try body.member("read_by_channel")?.object()
    guard let channels = map else {
      let user = try actingUser(body, parameters, context)
      guard all else {
        throw Problem(
          .invalidField,
          "the body has to have \"read_by_channel\", or \"all\": true for every channel"
        )
      }
      guard try body.optionalObject("unread_epochs") == nil else {
        throw Problem(.invalidField, "field \"unread_epochs\" goes with \"read_by_channel\"")
      }
      return try markAllRead(match, context, user: user, threads: threads)
    }
    guard !threads else { throw Problem(.invalidField, "field \"threads\" goes with \"all\"") }
    guard !all else {
      throw Problem(.invalidField, "the body has to have one of \"read_by_channel\" and \"all\"")
    }
    guard channels.count <= limits.channelsPerRequest else {
      throw channels.error("may have at most \(limits.channelsPerRequest) entries")
    }
    var checked = channels.members
    while let member = checked.next() { _ = try member.value.asString() }
    let epochs = try body.optionalObject("unread_epochs")
    if let epochs {
      var given = epochs.members
      while let epoch = given.next() {
        _ = try Self.epoch(epoch.value)
        guard Self.names(channels, epoch.name) else {
          throw epoch.value.error("is of a channel that \"read_by_channel\" does not have")
        }
      }
    }
    let user = try actingUser(body, parameters, context)
    guard mayBegin(batchOf: channels.count, context) else { return }
    let gather = beginGather(context, match.route, count: channels.count)
    var position = 0
    var sent = channels.members
    while let member = sent.next() {
      let message = try member.value.asString()
      if !Identifier.isCID(member.name) {
        finishEntry(gather, position, .invalidCID)
      } else if !message.isEmpty && !Identifier.isMessage(message) {
        finishEntry(gather, position, .invalidMessageID)
      } else {
        let epoch = try Self.epoch(of: member.name, in: epochs)
        sendEntry(.markRead, cid: member.name, context, match.route, gather, position) { buffer in
          buffer.writeField(user)
          buffer.writeField(message)
          buffer.writeOptional(epoch)
        }
      }
      position += 1
    }
    finishSending(gather)
  }

  private static func names(_ channels: JSONValue, _ cid: RawSpan) -> Bool {
    var members = channels.members
    while let member = members.next() { if member.name.equals(cid) { return true } }
    return false
  }

  /// The unread epoch that is given for a channel.
  private static func epoch(of cid: RawSpan, in epochs: JSONValue?) throws(Problem) -> UInt64? {
    guard let epochs else { return nil }
    var given = epochs.members
    while let epoch = given.next() {
      if epoch.name.equals(cid) { return try Self.epoch(epoch.value) }
    }
    return nil
  }

  /// An unread epoch in `unread_epochs`.
  private static func epoch(_ value: JSONValue) throws(Problem) -> UInt64 {
    guard let epoch = value.integer, (0...Int64(UInt32.max)).contains(epoch) else {
      throw value.error("must be a whole number from 0 to \(UInt32.max)")
    }
    return UInt64(epoch)
  }

  /// `POST /v1/messages`: registers many.
  func registerMessages(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    let body = try object(request, .registerMessages)
    let entries = try body.requiredArray("messages", countMax: limits.messagesPerRequest)
    var checked = entries.elements
    while let entry = checked.next() {
      let fields = try entry.object()
      _ = try fields.requiredString("cid")
      _ = try MessageFields.checkTypes(fields)
    }
    guard mayBegin(batchOf: entries.count, context) else { return }
    let gather = beginGather(context, match.route, count: entries.count)
    var position = 0
    var sent = entries.elements
    while let entry = sent.next() {
      let cid = try entry.requiredString("cid")
      do throws(Problem) {
        guard Identifier.isCID(cid) else { throw Problem(.invalidCID) }
        let message = try MessageFields(entry, now: now)
        sendEntry(
          .registerMessage,
          cid: cid,
          context,
          match.route,
          gather,
          position,
          thread: message.thread
        ) { message.write(into: &$0) }
      } catch {
        finishEntry(gather, position, error.code)
      }
      position += 1
    }
    finishSending(gather)
  }

  @_lifetime(borrow context)
  func actingUser(
    _ body: JSONValue,
    _ parameters: borrowing PositionParameters,
    _ context: borrowing RequestContext
  ) throws(Problem) -> RawSpan {
    if !parameters.user.isEmpty { try Self.check(parameters.user, context) }
    if let user = try body.stringUnlessMissing("user_id") {
      try Self.check(user, context)
      return try Self.actingUser(user, context)
    }
    return try Self.actingUser(parameters.user, context)
  }

  /// Whether this can be the parent of a thread; nil: none is meant.
  static func isThread(_ parent: RawSpan?) -> Bool {
    guard let parent else { return true }
    return Identifier.isMessage(parent)
  }

  // MARK: Gathering

  /// Begins to gather `count` results.
  func beginGather(_ context: RequestContext, _ route: Route, count: Int) -> UInt32 {
    let gather = Gather(
      connection: context.connection,
      stream: context.stream,
      route: route,
      isServer: context.caller.isServer
    )
    gather.results = Array(repeating: Gather.Result(), count: count)
    gather.waiting += count
    if let index = freeGathers.popLast() {
      gathers[Int(index)] = gather
      return index
    }
    gathers.append(gather)
    return UInt32(gathers.count - 1)
  }

  /// Sends one entry's request about a channel.
  func sendEntry(
    _ kind: FrameKind,
    cid: RawSpan,
    _ context: RequestContext,
    _ route: Route,
    _ gather: UInt32,
    _ entry: Int,
    thread: RawSpan? = nil,
    _ fields: (inout ByteBuffer) -> Void
  ) {
    let token = keep(context, route, .entry, gather: gather, entry: entry)
    let issued = context.caller.issued
    if !store.send(kind, cid: cid, token: token, issued: issued, thread: thread, fields) {
      _ = pending.remove(token)
      finishEntry(gather, entry, .storeBusy)
    }
  }

  /// Notes that an entry was refused.
  func finishEntry(_ index: UInt32, _ entry: Int, _ code: ProblemCode) {
    guard let gather = gathers[Int(index)] else { return }
    gather.results[entry].code = code
    gather.waiting -= 1
  }

  /// Everything has been sent: from here on the last result answers.
  func finishSending(_ index: UInt32) {
    guard let gather = gathers[Int(index)] else { return }
    gather.waiting -= 1
    answerIfComplete(gather, index)
  }
}
