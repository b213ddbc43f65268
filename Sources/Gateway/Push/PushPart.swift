internal import HTTP2Session
internal import NIOCore
internal import Operations
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// Tickets and push acks (Proto/openapi.yaml): the ticket keys, and the batches of push acks in progress.
final class PushPart: GatewayPart {
  /// Nil: tickets are neither issued nor accepted.
  private(set) var tickets: TicketCodec?
  private var batches = SlotTable<AckBatch>()
  /// Entries of the devices' batches.
  private(set) var deviceEntries = 0

  /// Of push acks, also those in frames.
  var counters: PushCounters

  init(_ keys: TicketKeys?, hooks: [PushHook]) {
    tickets = keys.map { TicketCodec(keys: $0) }
    counters = PushCounters(hooks: hooks.map { String(decoding: $0.provider, as: UTF8.self) })
  }

  /// Replace the ticket keys for later requests.
  func apply(_ keys: TicketKeys?) {
    tickets = keys.map { TicketCodec(keys: $0) }
    if let store = loop.store.storeID { bind(to: store) }
  }

  /// Set the store that new tickets name.
  func bind(to store: SessionID) { tickets?.bind(to: store) }

  /// Batches in progress.
  var batchCount: Int { batches.count }

  override func collect(into samples: inout MetricSamples) { counters.add(to: &samples) }
}

extension PushPart {
  // MARK: Tickets

  /// Handle `POST /v1/push/tickets`: send a frame per ticket, pipelined, to look up the message's and the user's place.
  func issueTickets(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    guard let tickets else { throw Self.noTicketSecret }
    let body = try loop.object(request, .issueTickets)
    let entries = try body.requiredArray("tickets", countMax: loop.limits.pushesPerRequest)
    let seconds = try Self.lifetime(body)
    guard try loop.waitingRequests.beginOrEnqueue(batchOf: entries.count, context) else { return }
    let response = FanOut.Response.results(status: 200) {
      // The keys may have changed meanwhile.
      self.write($0, seconds: seconds, self.tickets ?? tickets, into: &$1)
    }
    var fanOut = loop.fanOuts.begin(context, count: entries.count, response)
    var iterator = entries.elements
    while let entry = iterator.next() {
      let device = Self.device(entry)
      fanOut.addEntry(cid: entry.member("cid")?.string, id: device.span.bytes)
      do throws(ProblemCode) {
        let pushed = try PushedMessage(entry)
        let (cid, user, message) = (pushed.cid, pushed.user, pushed.message)
        fanOut.send(.ticketPlace, to: .channel(cid.span.bytes)) {
          $0.writeTicketPlaceRequest(user: user.span.bytes, message: message.span.bytes)
        }
      } catch {
        fanOut.refuse(error)
      }
    }
    fanOut.close()
  }

  private static var noTicketSecret: Problem {
    Problem(.notImplemented, "tickets are disabled: this gateway was started without --ticket-secret-file")
  }

  /// Return the lifetime of the body's tickets in seconds.
  private static func lifetime(_ body: JSONValue) throws(Problem) -> UInt64 {
    UInt64(
      try body.optionalInteger("ttl", in: 1...Int64(GatewayLimits.ticketSecondsMax)) ?? GatewayLimits.ticketSeconds
    )
  }

  /// Write `{"tickets":[…]}`. A ticket's lifetime counts from now; its shard is its channel's.
  private func write(_ fanOut: FanOut, seconds: UInt64, _ tickets: TicketCodec, into buffer: inout ByteBuffer) {
    let expiry = UInt64(max(0, loop.now)) / 1_000 + seconds
    let (names, replyBytes) = (fanOut.names, fanOut.replyBytes)
    fanOut.writeResults("tickets", into: &buffer) { index, result, buffer in
      guard result.code == nil, let cid = names.cid(index), let device = names.id(index) else {
        buffer.writeStaticString("{\"code\":\"")
        buffer.writeString((result.code ?? .internalError).rawValue)
        buffer.writeStaticString("\"}")
        return
      }
      let end = result.replyStart + result.replyByteCount
      let place = replyBytes.readableBytesSpan.extracting(result.replyStart..<end)
      buffer.writeStaticString("\"")
      tickets.write(
        expiry: expiry,
        shard: .owning(cid, count: loop.store.shardCount),
        place: place,
        device: device,
        into: &buffer
      )
      buffer.writeStaticString("\"")
    }
  }

  /// Return the device label of a ticket, limited to values allowed in metrics.
  private static func device(_ entry: JSONValue) -> [UInt8] {
    guard let device = entry.optional("device")?.string, !device.isEmpty else { return [] }
    return LabelNames.isLabel(device) ? device.bytes : Array("other".utf8)
  }

  // MARK: Push acks

  /// Handle `POST /v1/push/acks`: push acks in one JSON body, or as streamed lines.
  func acknowledgePushes(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    if match.route.streams(request.contentType) {
      try requireServer(context)
      // A body that ended with the headers has no lines.
      if request.bodyStreams {
        return try loop.streams.open(AckStream(context, loop.limits), contentType: .ndjson)
      }
      return loop.streams.respondEmpty(context, contentType: .ndjson)
    }
    let body = try loop.object(request, .acknowledgePushes)
    let hasTickets = body.optional("tickets") != nil
    guard hasTickets != (body.optional("acks") != nil) else {
      throw Problem(.invalidField, "the body has to have one of \"tickets\" and \"acks\"")
    }
    if hasTickets {
      guard tickets != nil else { throw Self.noTicketSecret }
    } else {
      try requireServer(context)
    }
    let entries = try body.requiredArray(hasTickets ? "tickets" : "acks", countMax: loop.limits.pushesPerRequest)
    guard context.caller.isServer || deviceEntries + entries.count <= loop.limits.deviceAcks else {
      throw Problem(.storeBusy, "too many tickets are in flight; retry")
    }
    // Devices' batches have their own limit.
    if context.caller.isServer, try !loop.waitingRequests.beginOrEnqueue(batchOf: entries.count, context) { return }
    // One more for every four entries.
    let address = loop.rates.client(request, context.connection)
    loop.rates.chargeMore(entries.count / 4, context.caller, from: address)
    let batch = begin(.body(context), source: nil, countMax: max(1, entries.count))
    var elements = entries.elements
    while let entry = elements.next() {
      do throws(ProblemCode) {
        if !hasTickets {
          add(try PushAck(entry), in: batch)
        } else if let ticket = entry.string {
          add(try PushAck(ticket: ticket, provider: RawSpan(), device: RawSpan()), in: batch)
        } else {
          throw .invalidField
        }
      } catch {
        refuse(error, hasTickets || entry.optional("ticket") != nil ? .ticket : .worker, in: batch)
      }
    }
    end(batch)
  }

  /// Require a server token on a route that is otherwise open to anyone. A caller without a token gets
  /// `token_missing`.
  private func requireServer(_ context: RequestContext) throws(Problem) {
    guard !context.caller.isServer else { return }
    throw Problem(context.caller.userID.isEmpty ? .tokenMissing : .serverTokenRequired)
  }
}

/// Processing of push acks: begin a batch, add entries, end the batch; the last reply answers.
extension PushPart {
  // MARK: Batches

  /// Begin a batch.
  ///
  /// - Parameters:
  ///   - source: the source to count the entries under; nil: each entry's own kind.
  ///   - countMax: maximum number of entries.
  /// - Returns: its index, valid until ``end(_:)`` was called and all entries are done.
  func begin(_ recipient: AckBatch.Recipient, source: AckSource?, countMax: Int) -> SlotIndex {
    let batch = AckBatch(recipient, source: source, countMax: countMax)
    deviceEntries += batch.deviceEntries
    return batches.insert(batch)
  }

  /// Add a push ack to a batch.
  func add(_ ack: borrowing PushAck, in index: SlotIndex) {
    guard let batch = batches[index] else { return }
    let entry = batch.order.nextEntry
    if !batch.wantsNames { batch.codes.append(nil) }
    let code = send(ack, source: batch.source, wantsNames: batch.wantsNames, in: &batch.order) { isByName in
      PendingRequest(
        .ackBatch(index, entry: entry, isByName: isByName),
        route: .acknowledgePushes,
        isServer: true,
        isPageQuery: false
      )
    }
    if let code { finish(entry, code, batch) }
  }

  /// Add a refused entry to a batch.
  func refuse(_ code: ProblemCode, _ source: AckSource, in index: SlotIndex) {
    guard let batch = batches[index] else { return }
    let entry = batch.order.nextEntry
    if !batch.wantsNames { batch.codes.append(nil) }
    var labels = AckLabels()
    labels.source = batch.source ?? source
    batch.order.begin(labels)
    finish(entry, code, batch)
  }

  /// Close a batch to further entries: from here on the last reply answers.
  func end(_ index: SlotIndex) {
    guard let batch = batches[index] else { return }
    batch.isOpen = false
    respondIfDone(batch, index)
  }

  func completed(_ index: SlotIndex, _ entry: UInt32, isByName: Bool, with result: StoreResult) {
    guard let batch = batches[index] else { return }
    switch result {
    case .reply(let kind, let payload):
      if let code = finish(entry, payload, kind, separator: UInt8(ascii: ","), in: &batch.order) {
        finish(entry, code, batch)
      }
    case .failure(let failure): finish(entry, Self.code(failure.reason, isByName: isByName), batch)
    }
    respondIfDone(batch, index)
  }

  private func finish(_ entry: UInt32, _ code: ProblemCode, _ batch: AckBatch) {
    if !batch.wantsNames { batch.codes[Int(entry)] = code }
    refuse(entry, code, separator: UInt8(ascii: ","), in: &batch.order)
  }

  private func respondIfDone(_ batch: AckBatch, _ index: SlotIndex) {
    guard !batch.isOpen, batch.order.waiting == 0 else { return }
    batches.remove(index)
    deviceEntries -= batch.deviceEntries
    switch batch.recipient {
    case .closure(let finished): finished(batch.codes)
    case .body(let context): loop.respond(to: context) { PushJSON.writeResults(batch.order.orderedResults, into: &$0) }
    }
  }

  // MARK: Single push acks

  /// Begin an entry and send it to the store.
  ///
  /// - Parameter request: the request to the store, given whether it is by name.
  /// - Returns: why it was not sent; the entry has begun but needs its result from the caller.
  func send(
    _ ack: borrowing PushAck,
    source: AckSource?,
    wantsNames: Bool,
    in order: inout AckOrder,
    as request: (_ isByName: Bool) -> PendingRequest
  ) -> ProblemCode? {
    let ackedAt = ack.ackedAt
    guard ack.isByTicket else {
      order.begin(counters.labels(source ?? .worker, provider: ack.provider, device: ack.device))
      let (user, message) = (ack.user, ack.message)
      let (provider, device) = (LabelNames.labelOrNone(ack.provider), LabelNames.labelOrNone(ack.device))
      let isSent = loop.trySend(.acknowledgePush, to: .channel(ack.cid), request(true)) { buffer in
        buffer.writeAcknowledgePush(
          user: user,
          message: message,
          acked: ackedAt,
          wantsNames: wantsNames,
          provider: provider,
          device: device
        )
      }
      return isSent ? nil : .storeBusy
    }
    var labels = counters.labels(source ?? .ticket, provider: ack.provider, device: ack.device)
    guard let tickets else {
      order.begin(labels)
      return .notImplemented
    }
    do throws(TicketRefusal) {
      let ticket = try tickets.read(ack.ticket, now: loop.now)
      if ack.device.isEmpty { labels.device = counters.devices.number(ticket.device) }
      order.begin(labels)
      guard loop.store.shardCount > 0 else { return .storeUnavailable }
      guard Int(ticket.shard.rawValue) < loop.store.shardCount else { return .ticketInvalid }
      let place = ticket.place
      let provider = LabelNames.labelOrNone(ack.provider)
      let device = LabelNames.labelOrNone(ack.device.isEmpty ? ticket.device : ack.device)
      let isSent = loop.trySend(.redeemTicket, to: .shard(ticket.shard, name: nil), request(false)) {
        $0.writeRedeemTicket(
          place: place,
          acked: ackedAt,
          wantsNames: wantsNames,
          provider: provider,
          device: device
        )
      }
      return isSent ? nil : .storeBusy
    } catch {
      order.begin(labels)
      return switch error {
      case .invalid: .ticketInvalid
      case .expired: .ticketExpired
      case .storeUnknown: .storeUnavailable
      }
    }
  }

  /// Use a reply as an entry's answer, and count it. Not nil: the reply is invalid, and the entry is unanswered.
  func finish(
    _ entry: UInt32,
    _ payload: RawSpan,
    _ kind: FrameKind,
    separator: UInt8,
    in order: inout AckOrder
  ) -> ProblemCode? {
    do throws(WireError) {
      let delivery = try DeliveryReply(payload)
      let labels = order.labels(entry)
      counters.count(labels, delivery.moved ? .moved : .known)
      if delivery.moved {
        counters.delivered(labels, sent: delivery.sent, delivered: delivery.delivered)
      }
      order.finish(entry) { PushJSON.write(delivery, separator: separator, into: &$0) }
      return nil
    } catch {
      loop.logMalformedReply(error, kind)
      return .internalError
    }
  }

  /// Use a refusal as an entry's answer, and count it.
  func refuse(_ entry: UInt32, _ code: ProblemCode, separator: UInt8, in order: inout AckOrder) {
    counters.count(order.labels(entry), code.isServiceFailure ? .failed : .refused)
    order.finish(entry) { PushJSON.write(code, separator: separator, into: &$0) }
  }

  /// Return the code of a failed push ack. A ticket proves that its user was a member, so its holder may learn that the
  /// user has left.
  static func code(_ failure: StoreFailure, isByName: Bool) -> ProblemCode {
    if case .refused(.notAMember, _, _) = failure, !isByName { return .notAMember }
    return Problem(failure, route: .acknowledgePushes, isServer: isByName).code
  }
}

/// The message and user that a ticket is issued for.
private struct PushedMessage {
  let cid: [UInt8]
  let user: [UInt8]
  let message: [UInt8]

  /// Decode an entry of `tickets`.
  init(_ entry: JSONValue) throws(ProblemCode) {
    guard let cid = entry.member("cid")?.string, let user = entry.member("user_id")?.string,
      let message = entry.member("message_id")?.string
    else { throw .invalidField }
    if let device = entry.optional("device"), device.string == nil { throw .invalidField }
    guard Identifier.isCID(cid) else { throw .invalidCID }
    guard Identifier.isMessage(message) else { throw .invalidMessageID }
    guard Identifier.isUser(user) else { throw .invalidUserID }
    self.cid = cid.bytes
    self.user = user.bytes
    self.message = message.bytes
  }
}

extension KnownFields {
  static let issueTickets: KnownFields = [.objects("tickets", ["cid", "message_id", "user_id", "device"]), "ttl"]
  static let acknowledgePushes: KnownFields = ["tickets", .objects("acks", pushAck)]
}

/// Push acks that are answered together: of one request body, or on behalf of a webhook.
final class AckBatch {
  /// The recipient of the results.
  enum Recipient {
    /// A request, answered with `{"results": […]}`.
    case body(RequestContext)
    /// A callback with the result of each; nil: it succeeded.
    case closure((_ codes: [ProblemCode?]) -> Void)
  }

  let source: AckSource?
  let recipient: Recipient
  /// Maximum number of entries, for a device without a token; else 0.
  let deviceEntries: Int
  var order: AckOrder
  /// Results in the order of the entries; only for a closure.
  var codes: [ProblemCode?] = []
  /// Whether entries may still be added; until then replies do not complete the batch.
  var isOpen = true

  /// - Parameters:
  ///   - source: the source to count the entries under; nil: each entry's own kind.
  ///   - countMax: maximum number of entries.
  init(_ recipient: Recipient, source: AckSource?, countMax: Int) {
    self.recipient = recipient
    self.source = source
    switch recipient {
    case .body(let context): deviceEntries = context.caller.isServer ? 0 : countMax
    case .closure: deviceEntries = 0
    }
    order = AckOrder(limits: AckOrder.Limits(entries: countMax, bytes: .max))
  }

  /// Whether the response names what each entry marked.
  var wantsNames: Bool {
    switch recipient {
    case .body: true
    case .closure: false
    }
  }
}
