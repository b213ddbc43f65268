internal import HTTP2Session
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// Routes with many entries in one request. Each entry is sent as its own frame, pipelined, and a bad entry does not
/// fail the others. A body is checked as a whole before anything is sent, so that a malformed one changes nothing.
struct BatchRoutes {
  let loop: GatewayLoop

  /// Handle `POST /v1/channels/delivered` (R3).
  func markDelivered(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    let parameters = try PositionParameters(match.query, loop.scratch)
    let body = try loop.object(request, .markDelivered)
    let entries = try body.requiredArray("latest_delivered_messages", countMax: loop.limits.entriesPerRequest)
    let user = try context.actingUser(body, parameters)
    guard try loop.waitingRequests.beginOrEnqueue(batchOf: entries.count, context) else { return }
    let response = FanOut.Response.results(status: 201, Self.writePositions)
    var fanOut = loop.fanOuts.begin(context, count: entries.count, response)
    var iterator = entries.elements
    while let entry = iterator.next() {
      fanOut.addEntry(cid: entry.member("cid")?.string, id: entry.member("id")?.string)
      let parent = entry.optional("parent_id")
      guard let cid = entry.member("cid")?.string, let message = entry.member("id")?.string,
        parent == nil || parent?.kind == .string
      else {
        fanOut.refuse(.invalidField)
        continue
      }
      let thread = parent?.string
      if !Identifier.isCID(cid) {
        fanOut.refuse(.invalidCID)
      } else if !Identifier.isMessage(message) || !Self.isThread(thread) {
        fanOut.refuse(.invalidMessageID)
      } else {
        fanOut.send(.markDelivered, to: .channel(cid, thread: thread)) {
          $0.writeMarkDelivered(user: user, message: message)
        }
      }
    }
    fanOut.close()
  }

  /// Handle `POST /v1/channels/read`: one position in each of many channels (R2), or all channels (R13).
  func markReadMany(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    let parameters = try PositionParameters(match.query, loop.scratch)
    let body = try loop.object(request, .markReadMany)
    let all = try body.optionalTrue("all")
    let threads = try body.optionalBool("threads") ?? false
    let map = try body.member("read_by_channel")?.object()
    guard let channels = map else {
      let user = try context.actingUser(body, parameters)
      guard all else {
        throw Problem(.invalidField, "the body has to have \"read_by_channel\", or \"all\": true for every channel")
      }
      guard try body.optionalObject("unread_epochs") == nil else {
        throw Problem(.invalidField, "field \"unread_epochs\" goes with \"read_by_channel\"")
      }
      return try UserRoutes(loop: loop).markAllRead(match, context, user: user, threads: threads)
    }
    guard !threads else { throw Problem(.invalidField, "field \"threads\" goes with \"all\"") }
    guard !all else {
      throw Problem(.invalidField, "the body has to have one of \"read_by_channel\" and \"all\"")
    }
    try markRead(match, context, channels, body: body, parameters)
  }

  /// Mark one position in each of the channels of `read_by_channel`.
  private func markRead(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ channels: JSONValue,
    body: JSONValue,
    _ parameters: borrowing PositionParameters
  ) throws(Problem) {
    guard channels.count <= loop.limits.channelsPerRequest else {
      throw channels.error("may have at most \(loop.limits.channelsPerRequest) entries")
    }
    var iterator = channels.members
    while let member = iterator.next() { _ = try member.value.asString() }
    let epochs = try Self.epochs(try body.optionalObject("unread_epochs"), of: channels)
    let user = try context.actingUser(body, parameters)
    guard try loop.waitingRequests.beginOrEnqueue(batchOf: channels.count, context) else { return }
    let response = FanOut.Response.results(status: 200, Self.writePositions)
    var fanOut = loop.fanOuts.begin(context, count: channels.count, response)
    iterator = channels.members
    while let member = iterator.next() {
      let message = try member.value.asString()
      fanOut.addEntry(cid: member.name, id: message)
      if !Identifier.isCID(member.name) {
        fanOut.refuse(.invalidCID)
      } else if !message.isEmpty && !Identifier.isMessage(message) {
        fanOut.refuse(.invalidMessageID)
      } else {
        let epoch = epochs.isEmpty ? nil : epochs[member.name.bytes]
        fanOut.send(.markRead, to: .channel(member.name)) {
          $0.writeMark(user: user, message: message, epoch: epoch)
        }
      }
    }
    fanOut.close()
  }

  /// Write the results of marks.
  private static func writePositions(_ fanOut: FanOut, into buffer: inout ByteBuffer) {
    let names = fanOut.names
    fanOut.writeResults("results", into: &buffer) { index, result, buffer in
      StatusJSON.writeEntry(
        cid: names.cid(index),
        id: names.id(index),
        code: result.code,
        uncounted: result.uncounted,
        into: &buffer
      )
    }
  }

  private static func writeRegistrations(_ fanOut: FanOut, into buffer: inout ByteBuffer) {
    let names = fanOut.names
    fanOut.writeResults("results", into: &buffer) { index, result, buffer in
      guard result.code == nil, let cid = names.cid(index), let id = names.id(index) else {
        StatusJSON.writeEntry(cid: names.cid(index), id: names.id(index), code: result.code, into: &buffer)
        return
      }
      buffer.writeStaticString("{\"ok\":true,\"message\":")
      StatusJSON.writeMessage(
        id: id,
        cid: cid,
        sequence: result.sequence,
        status: result.status,
        refusal: result.acknowledgementRequestRefusal,
        into: &buffer
      )
      buffer.writeStaticString("}")
    }
  }

  /// Return the unread epochs given, by cid. Of entries with the same name the last counts, as everywhere in JSON. Each
  /// key is looked up by its hash, so that many keys cost no more than their bytes.
  private static func epochs(_ epochs: JSONValue?, of channels: JSONValue) throws(Problem) -> [[UInt8]: UInt64] {
    guard let epochs else { return [:] }
    var names: Set<[UInt8]> = []
    var members = channels.members
    while let member = members.next() { names.insert(member.name.bytes) }
    var values: [[UInt8]: UInt64] = [:]
    var given = epochs.members
    while let epoch = given.next() {
      let name = epoch.name.bytes
      let value = try Self.epoch(epoch.value)
      guard names.contains(name) else {
        throw epoch.value.error("names a channel that is not in \"read_by_channel\"")
      }
      values[name] = value
    }
    return values
  }

  /// Parse a value of `unread_epochs`.
  private static func epoch(_ value: JSONValue) throws(Problem) -> UInt64 {
    guard let epoch = value.integer, (0...Int64(UInt32.max)).contains(epoch) else {
      throw value.error("must be a whole number from 0 to \(UInt32.max)")
    }
    return UInt64(epoch)
  }

  /// Handle `POST /v1/messages`: register many messages.
  func registerMessages(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    let body = try loop.object(request, .registerMessages)
    let entries = try body.requiredArray("messages", countMax: loop.limits.messagesPerRequest)
    var iterator = entries.elements
    while let entry = iterator.next() {
      let fields = try entry.object()
      _ = try fields.requiredString("cid")
      _ = try MessageFields.checkTypes(fields)
    }
    guard try loop.waitingRequests.beginOrEnqueue(batchOf: entries.count, context) else { return }
    let response = FanOut.Response.results(status: 200, Self.writeRegistrations)
    var fanOut = loop.fanOuts.begin(context, count: entries.count, response)
    iterator = entries.elements
    while let entry = iterator.next() {
      let cid = try entry.requiredString("cid")
      fanOut.addEntry(cid: cid, id: entry.member("id")?.string)
      do throws(Problem) {
        guard Identifier.isCID(cid) else { throw Problem(.invalidCID) }
        let message = try MessageFields(entry, now: loop.now)
        fanOut.send(.registerMessage, to: .channel(cid, thread: message.thread)) { message.write(into: &$0) }
      } catch {
        fanOut.refuse(error.code)
      }
    }
    fanOut.close()
  }

  /// Return whether this is a valid parent of a thread; nil, for no thread, is valid.
  static func isThread(_ parent: RawSpan?) -> Bool {
    guard let parent else { return true }
    return Identifier.isMessage(parent)
  }
}

extension KnownFields {
  static let markDelivered: KnownFields = [
    .objects("latest_delivered_messages", ["cid", "id", "parent_id"]), "user_id",
  ]
  /// The names in the two maps are cids.
  static let markReadMany: KnownFields = ["read_by_channel", "unread_epochs", "all", "threads", "user_id"]
  static let registerMessages: KnownFields = [.objects("messages", ["cid"] + registerMessage)]
}
