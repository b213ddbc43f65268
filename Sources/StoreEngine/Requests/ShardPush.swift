internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// Acknowledgements of push notifications, by names or by a ticket, and the webhooks that carry some of them
/// (Proto/frames.md, 0x2D, 0x2E and 0x40 to 0x43).
final class ShardPush: ShardPart {
  /// Maximum length of a webhook's key, in bytes.
  private static let webhookKeyMax = 256
  /// Longest retry delay for a webhook that is refused because the table is full, in milliseconds.
  private static let webhookRetryMax: Int64 = 60_000

  // MARK: By names

  func acknowledgePush(_ request: inout Request, _ slot: ChannelSlot) throws(WireError) -> Outcome {
    let fields = try AcknowledgePushRequest(&request.fields)
    guard fields.flags <= PushFlags.all else { return Self.refusedFlags }
    if let refusal = shard.refusal(of: fields.user, request, slot) { return refusal }
    let target: ShardState.PushTarget
    do { target = try pushTarget(slot, user: fields.user, message: fields.message) } catch {
      return shard.refused(error, slot)
    }
    shard.feed.recordSource(provider: fields.provider, device: fields.device)
    // Not for the next command, if this one moves nothing.
    defer { shard.feed.endCommand() }
    return deliver(&request, target, acked: fields.acked, withNames: fields.flags & PushFlags.names != 0)
  }

  private static var refusedFlags: Outcome {
    .refused(.invalidField, "flags: 1 (with names) and 2 (with provider and device) are known")
  }

  private func pushTarget(_ slot: ChannelSlot, user: RawSpan, message: RawSpan) throws(Refusal) -> ShardState.PushTarget
  {
    try shard.state.pushTarget(shard.targetSlot(of: message, in: slot), user: user, message: message)
  }

  /// Mark a message delivered and answer with its *delivery*. A duplicate moves nothing: if it would, the reply is
  /// `outcome_unknown`.
  ///
  /// - Parameter target: users' settings are applied to its channel or thread.
  private func deliver(
    _ request: inout Request,
    _ target: ShardState.PushTarget,
    acked: Timestamp,
    withNames: Bool
  ) -> Outcome {
    let slot = target.slot.channel
    do throws(Refusal) {
      let time = shard.advanceTime()
      try shard.state.decidePush(target, acked: acked, at: time, into: &request.effects)
    } catch {
      return shard.refused(error, slot)
    }
    // The counter counts as applied, but the command may never have been: its refusal was long ago, or its connection
    // was lost while it was pending.
    guard !request.isDuplicate || request.effects.isEmpty else {
      return .unknownOutcome
    }
    let moves = !request.effects.isEmpty
    shard.applyCommand(slot, request)
    let uncounted = shard.state.uncounted(target)
    return shard.reply(request, shard.replyTiming(slot)) { buffer in
      DeliveryReply.write(
        moved: moves,
        uncounted,
        sent: shard.state.sentAt(target),
        delivered: shard.state.deliveredAt(target),
        hasNames: withNames,
        names: { fields in
          let cid = shard.state[slot].cid
          fields.string(cid.span.bytes)
          shard.state.withUser(slot, target.member) { fields.string($0) }
          shard.state.withMessage(target.slot, target.sequence) { fields.string($0) }
        },
        into: &buffer
      )
    }
  }

  // MARK: By a ticket

  /// Return the counter and the fields of redeem_ticket.
  @_lifetime(copy fields)
  static func ticket(_ fields: consuming FieldReader, counter: inout UInt64) throws(WireError) -> RedeemTicketRequest {
    counter = try Request.counter(&fields)
    return try RedeemTicketRequest(&fields)
  }

  /// Redeem a ticket, which identifies its channel by number. If the channel is not in memory, its name is looked up
  /// first, in the log's tail or on storage; then the channel is loaded by name like any other.
  ///
  /// - Parameter name: the name that the request has waited for.
  func redeemTicket(_ request: inout Request, _ name: LookedUpName? = nil) throws(WireError) -> Outcome {
    var counter: UInt64 = 0
    let ticket = try Self.ticket(request.fields, counter: &counter)
    shard.begin(&request, counter)
    let number = ticket.place.channel
    if let slot = shard.state.slot(numbered: number) { return redeem(&request, ticket, slot) }
    var name = name
    if name == nil, number > ChannelNumber(0), number < shard.state.nextChannel {
      guard let head = shard.tail.head(of: number) else {
        return shard.loads.wait(request, for: .head(number))
      }
      name = .named(Array(head.cid.utf8))
    }
    guard case .named(let cid)? = name, shard.loads.mayLoad(lookedUp: cid) else {
      return shard.refused(.channelNotFound, nil)
    }
    return shard.loads.wait(request, for: .cid(cid))
  }

  private func redeem(_ request: inout Request, _ ticket: borrowing RedeemTicketRequest, _ slot: ChannelSlot) -> Outcome
  {
    guard ticket.flags <= PushFlags.all else { return Self.refusedFlags }
    guard !shard.state[slot].isBeingDeleted else { return shard.refused(.channelNotFound, slot) }
    shard.recordUse(of: slot)
    let target: ShardState.PushTarget
    do { target = try shard.state.pushTarget(slot, ticket.place) } catch {
      return shard.refused(error, slot)
    }
    shard.refresh(target.slot)
    var refusal: Outcome?
    shard.state.withUser(slot, target.member) { refusal = shard.refusal(of: $0, request, slot) }
    if let refusal { return refusal }
    shard.feed.recordSource(provider: ticket.provider, device: ticket.device)
    defer { shard.feed.endCommand() }
    return deliver(&request, target, acked: ticket.acked, withNames: ticket.flags & PushFlags.names != 0)
  }

  // MARK: Making tickets

  func ticketPlace(_ request: inout Request, _ slot: ChannelSlot) throws(WireError) -> Outcome {
    let fields = try TicketPlaceRequest(&request.fields)
    let ticketPlace: TicketPlace
    do throws(Refusal) {
      let target = try pushTarget(slot, user: fields.user, message: fields.message)
      ticketPlace = try shard.state.ticketPlace(target)
    } catch {
      return shard.refused(error, slot)
    }
    return shard.reply(request, shard.replyTiming(slot)) { $0.writeTicketPlace(ticketPlace) }
  }

  // MARK: Webhooks

  func webhookKnown(_ request: inout Request) throws(WireError) -> Outcome {
    let key = try request.fields.string()
    try request.fields.end()
    if let (code, detail) = fault(key) { return .refused(code, detail) }
    let hash = StableHash.hash(key)
    let time = shard.advanceTime()
    let isKnown = shard.state.webhooks.isKnown(hash, at: time)
    // A time in the log must back the reply that a webhook has expired (R20).
    let until = isKnown ? .none : shard.state.webhooks.until(hash) ?? .none
    let last = isKnown ? shard.dirty.webhooksLast : .zero
    let replyTiming = shard.replyTiming(last, revealingExpiryAt: until, request.lane)
    return shard.reply(request, replyTiming) { $0.writeFlag(isKnown) }
  }

  /// Record a webhook. The request for an already known webhook counts as refused. So an applied command is the one
  /// that recorded the webhook, and its duplicate gets the same reply.
  func noteWebhook(_ request: inout Request) throws(WireError) -> Outcome {
    let key = try request.fields.string()
    try shard.begin(&request)
    let until = try request.fields.time()
    try request.fields.end()
    if let (code, detail) = fault(key) {
      return .refused(code, detail)
    }
    let hash = StableHash.hash(key)
    let time = shard.advanceTime()
    if !request.isDuplicate {
      guard !shard.state.webhooks.isKnown(hash, at: time) else {
        shard.sessions.recordRefusal(request)
        return shard.reply(request, shard.replyTiming(shard.dirty.webhooksLast)) { $0.writeFlag(false) }
      }
      let room = shard.state.webhooks.full(at: time)
      guard room == .none else { return Self.refusedFull(until: room, at: time) }
      shard.state.webhooks.decideRemember(hash, until: until, at: time, into: &request.effects)
      shard.applyCommand(nil, request)
    } else if !shard.state.webhooks.isKnown(hash, at: time) {
      return .unknownOutcome
    }
    return shard.reply(request, shard.replyTiming(shard.dirty.webhooksLast)) { $0.writeFlag(true) }
  }

  private static func refusedFull(until room: Timestamp, at time: Timestamp) -> Outcome {
    let wait = min(room.milliseconds - time.milliseconds, webhookRetryMax)
    return .refused(
      .busy,
      retryAfterMilliseconds: UInt32(max(1, wait)),
      "the limit of \(WebhookTable.countMax) remembered webhooks is reached"
    )
  }

  private func fault(_ key: RawSpan) -> (ErrorCode, String)? {
    guard (1...Self.webhookKeyMax).contains(key.byteCount) else {
      return (.invalidField, "key: 1 to \(Self.webhookKeyMax) bytes")
    }
    return ShardID.owning(key, count: shard.shardCount) == shard.state.id
      ? nil : (.wrongShard, "the key belongs to another shard")
  }

  /// Refuse a ticket that is presented to the store: only gateways have the secret that checks it.
  func presentTicket(_ request: inout Request) throws(WireError) -> Outcome {
    try shard.begin(&request)
    _ = try PresentTicketRequest(&request.fields)
    return .refused(.notImplemented, "tickets are checked by gateways: send redeem_ticket")
  }
}
