internal import HTTP2Session
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// Carries acknowledgements out. Whoever has some begins a batch, adds them, and ends it; the last reply answers.
extension GatewayLoop {
  // MARK: Batches

  /// Begins a batch.
  ///
  /// - Parameters:
  ///   - source: what its entries are counted as; nil: as what each is made with.
  ///   - countMax: entries at most.
  /// - Returns: its place, good until ``endAcks(_:)`` has been called and all are done.
  func beginAcks(_ caller: AckBatch.Caller, source: AckSource?, countMax: Int) -> UInt32 {
    ackBatches.insert(AckBatch(caller, source: source, countMax: countMax))
  }

  /// Adds one to a batch.
  func acknowledge(_ ack: borrowing PushAck, in place: UInt32) {
    guard let batch = ackBatches.batches[Int(place)] else { return }
    let entry = batch.order.nextEntry
    if !batch.wantsNames { batch.codes.append(nil) }
    let code = send(ack, source: batch.source, wantsNames: batch.wantsNames, in: &batch.order) { isByName in
      pending.insert(
        PendingRequest(
          stream: HTTP2StreamHandle(slot: 0, generation: 0),
          connection: 0,
          gather: place,
          entry: entry,
          shape: .ack,
          route: .acknowledgePushes,
          isServer: isByName
        )
      )
    } forget: {
      _ = pending.remove($0)
    }
    if let code { finish(entry, code, batch) }
  }

  /// Adds one that is refused as it stands.
  func refuseAck(_ code: ProblemCode, _ source: AckSource, in place: UInt32) {
    guard let batch = ackBatches.batches[Int(place)] else { return }
    let entry = batch.order.nextEntry
    if !batch.wantsNames { batch.codes.append(nil) }
    var labels = AckLabels()
    labels.source = batch.source ?? source
    batch.order.begin(labels)
    finish(entry, code, batch)
  }

  /// Nothing more is added: from here on the last reply answers.
  func endAcks(_ place: UInt32) {
    guard let batch = ackBatches.batches[Int(place)] else { return }
    batch.isOpen = false
    answerIfDone(batch, place)
  }

  func ackReplied(_ request: PendingRequest, _ kind: FrameKind, _ payload: RawSpan) {
    guard let batch = ackBatches.batches[Int(request.gather)] else { return }
    if let code = finish(request.entry, payload, kind, separator: UInt8(ascii: ","), in: &batch.order) {
      finish(request.entry, code, batch)
    }
    answerIfDone(batch, request.gather)
  }

  func ackFailed(_ request: PendingRequest, _ failure: StoreFailure) {
    guard let batch = ackBatches.batches[Int(request.gather)] else { return }
    finish(request.entry, Self.code(failure, isByName: request.isServer), batch)
    answerIfDone(batch, request.gather)
  }

  private func finish(_ entry: UInt32, _ code: ProblemCode, _ batch: AckBatch) {
    if !batch.wantsNames { batch.codes[Int(entry)] = code }
    refuse(entry, code, separator: UInt8(ascii: ","), in: &batch.order)
  }

  private func answerIfDone(_ batch: AckBatch, _ place: UInt32) {
    guard !batch.isOpen, batch.order.waiting == 0 else { return }
    ackBatches.remove(place)
    switch batch.caller {
    case .closure(let finished): finished(batch.codes)
    case .body(let context, let route):
      guard let connection = connections.connection(context.connection), connection.isOpen(context.stream)
      else { return }
      connections.markDirty(context.connection)
      connection.respond(context.stream, status: 200) { PushJSON.writeResults(batch.order.inTurn, into: &$0) }
      counters.answered(route.rawValue, status: 200)
    }
  }

  // MARK: One

  /// Begins an entry and asks the store to carry it out.
  ///
  /// - Parameters:
  ///   - keep: keeps the request, for which it is told whether it is by name; gives its token.
  ///   - forget: the store client did not take it after all.
  /// - Returns: why not; the entry is begun all the same, without an answer.
  func send(
    _ ack: borrowing PushAck,
    source: AckSource?,
    wantsNames: Bool,
    in order: inout AckOrder,
    keep: (_ isByName: Bool) -> UInt64,
    forget: (_ token: UInt64) -> Void
  ) -> ProblemCode? {
    let ackedAt = ack.ackedAt
    guard ack.isByTicket else {
      order.begin(counters.pushes.labels(source ?? .worker, provider: ack.provider, device: ack.device))
      let token = keep(true)
      let (user, message) = (ack.user, ack.message)
      let isSent = store.send(.acknowledgePush, cid: ack.cid, token: token) { buffer in
        buffer.writeField(user)
        buffer.writeField(message)
        buffer.writeTime(ackedAt)
        buffer.writeVarint(wantsNames ? 1 : 0)
      }
      if !isSent { forget(token) }
      return isSent ? nil : .storeBusy
    }
    var labels = counters.pushes.labels(source ?? .ticket, provider: ack.provider, device: ack.device)
    guard let tickets else {
      order.begin(labels)
      return .notImplemented
    }
    do throws(TicketRefusal) {
      let ticket = try tickets.read(ack.ticket, now: now)
      if ack.device.isEmpty { labels.device = counters.pushes.devices.number(ticket.device) }
      order.begin(labels)
      guard store.shardCount > 0 else { return .storeUnavailable }
      guard Int(ticket.shard.rawValue) < store.shardCount else { return .ticketInvalid }
      let token = keep(false)
      let place = ticket.place
      let isSent = store.send(.redeemTicket, shard: ticket.shard, name: nil, token: token) { buffer in
        buffer.writeRaw(place)
        buffer.writeTime(ackedAt)
        buffer.writeVarint(wantsNames ? 1 : 0)
      }
      if !isSent { forget(token) }
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

  /// Takes a reply as an entry's answer, and counts it. Not nil: it is none, and the entry has no answer yet.
  func finish(
    _ entry: UInt32,
    _ payload: RawSpan,
    _ kind: FrameKind,
    separator: UInt8,
    in order: inout AckOrder
  ) -> ProblemCode? {
    do throws(WireError) {
      var reader = FieldReader(payload)
      let delivery = try DeliveryFields(&reader)
      try reader.end()
      let labels = order.labels(entry)
      counters.pushes.count(labels, delivery.moved ? .moved : .known)
      if delivery.moved {
        counters.pushes.delivered(labels, sent: delivery.sent, delivered: delivery.delivered)
      }
      order.finish(entry) { PushJSON.write(delivery, separator: separator, into: &$0) }
      return nil
    } catch {
      storeIsMistaken(error, kind)
      return .internalError
    }
  }

  /// Takes a refusal as an entry's answer, and counts it.
  func refuse(_ entry: UInt32, _ code: ProblemCode, separator: UInt8, in order: inout AckOrder) {
    counters.pushes.count(order.labels(entry), code.isOfTheService ? .failed : .refused)
    order.finish(entry) { PushJSON.write(code, separator: separator, into: &$0) }
  }

  /// What a failure at the store means for one acknowledgement. A ticket is no user's token: it proves that its
  /// user was a member, so its holder is told that they have left.
  static func code(_ failure: StoreFailure, isByName: Bool) -> ProblemCode {
    if case .refused(.notAMember, _, _) = failure, !isByName { return .notAMember }
    return Problem(failure, route: .acknowledgePushes, isServer: isByName).code
  }
}
