internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// Push acks among the frames: by ticket, which only a gateway can read, or by names; with their counters.
extension FrameStream {
  private static let ticketBytesMax = TicketCodec.characterCountMax

  /// Handle present_ticket: verify the ticket here, and redeem it at its shard.
  func presentTicket(_ header: FrameHeader, _ payload: RawSpan, _ loop: GatewayLoop) throws(WireError) {
    guard header.flags.isDisjoint(with: .ofRequests) else { throw .badFlags(header.flags.rawValue) }
    var reader = FieldReader(payload)
    _ = try reader.varint()
    let text = try reader.string()
    let acked = try reader.time()
    let flags = try reader.varint()
    try reader.end()
    let correlation = header.correlation
    guard (1...Self.ticketBytesMax).contains(text.byteCount) else {
      return refuseTicket(correlation, .invalidField, "ticket: 1 to \(Self.ticketBytesMax) bytes", on: loop)
    }
    guard acked.milliseconds <= FrameRule.timeMax else {
      return refuseTicket(correlation, .invalidField, InvalidFrameField.acked.detail(limits), on: loop)
    }
    guard flags <= 1 else {
      return refuseTicket(correlation, .invalidField, InvalidFrameField.namesFlag.detail(limits), on: loop)
    }
    guard let tickets = loop.push.tickets else {
      let detail = "this gateway was started without --ticket-secret-file"
      return refuseTicket(correlation, .notImplemented, detail, on: loop)
    }
    do throws(TicketRefusal) {
      redeem(
        try tickets.read(text, now: loop.now),
        acked: acked,
        wantsNames: flags == 1,
        correlation: correlation,
        on: loop
      )
    } catch {
      switch error {
      case .invalid: refuseTicket(correlation, .ticketInvalid, on: loop)
      case .expired: refuseTicket(correlation, .ticketExpired, on: loop)
      case .storeUnknown:
        refuseTicket(correlation, .unavailable, retryAfterMilliseconds: Self.retryAfterMilliseconds, on: loop)
      }
    }
  }

  private func redeem(
    _ ticket: borrowing Ticket,
    acked: Timestamp,
    wantsNames: Bool,
    correlation: UInt32,
    on loop: GatewayLoop
  ) {
    var labels = AckLabels(.ticket)
    labels.device = loop.push.counters.devices.number(ticket.device)
    let store = loop.store!
    guard store.shardCount > 0 else {
      return refuseTicket(
        correlation,
        .unavailable,
        retryAfterMilliseconds: Self.retryAfterMilliseconds,
        labels: labels,
        on: loop
      )
    }
    guard Int(ticket.shard.rawValue) < store.shardCount else {
      return refuseTicket(correlation, .ticketInvalid, labels: labels, on: loop)
    }
    let replyBytes = FrameRule.deliveryBytesMax + (wantsNames ? FrameRule.namesBytesMax : 0)
    let request = FrameStoreRequest(
      kind: .ticket,
      labels: labels,
      correlation: correlation,
      replyBytes: UInt32(truncatingIfNeeded: replyBytes)
    )
    let (place, label) = (ticket.place, ticket.device)
    let isSent = loop.trySend(.redeemTicket, to: .shard(ticket.shard, name: nil), pendingRequest(request)) {
      $0.writeRedeemTicket(place: place, acked: acked, wantsNames: wantsNames, device: LabelNames.labelOrNone(label))
    }
    sent(isSent, request, loop)
  }

  /// Refuse a ticket, and count it.
  private func refuseTicket(
    _ correlation: UInt32,
    _ code: ErrorCode,
    _ detail: String = "",
    retryAfterMilliseconds: UInt32 = 0,
    labels: AckLabels = AckLabels(.ticket),
    on loop: GatewayLoop
  ) {
    count(PushCounters.Outcome(refusedWith: code), labels, loop)
    refuse(correlation, code, detail, retryAfterMilliseconds: retryAfterMilliseconds)
  }

  /// Handle the reply to a push ack.
  func acknowledged(_ request: FrameStoreRequest, kind: FrameKind, payload: RawSpan, on loop: GatewayLoop) {
    do throws(WireError) {
      let delivery = try DeliveryReply(payload)
      count(delivery.moved ? .moved : .known, request.labels, loop)
      if delivery.moved {
        loop.push.counters.delivered(request.labels, sent: delivery.sent, delivered: delivery.delivered)
      }
      let replyKind = request.kind == .ticket ? FrameKind.presentTicket : kind
      reply(replyKind, request.correlation) { $0.writeRaw(payload) }
    } catch {
      loop.logMalformedReply(error, kind)
      refuse(request.correlation, .outcomeUnknown, retryAfterMilliseconds: Self.retryAfterMilliseconds)
    }
  }

  /// Count the outcome of a request if it is a push ack.
  func count(_ outcome: PushCounters.Outcome, _ request: FrameStoreRequest, _ loop: GatewayLoop) {
    if request.kind != .plain { count(outcome, request.labels, loop) }
  }

  func count(_ outcome: PushCounters.Outcome, _ labels: AckLabels, _ loop: GatewayLoop) {
    loop.push.counters.count(labels, outcome)
  }

  /// Return the labels of an acknowledge_push, whose fields are in range.
  func labels(ofPush fields: RawSpan, _ loop: GatewayLoop) -> AckLabels {
    var labels = AckLabels(.worker)
    var reader = FieldReader(fields)
    if let push = try? AcknowledgePushRequest(&reader), push.flags & PushFlags.source != 0 {
      labels.provider = loop.push.counters.providers.number(push.provider)
      labels.device = loop.push.counters.devices.number(push.device)
    }
    return labels
  }
}
