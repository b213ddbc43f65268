import NIOCore
import ReceiptModel
import ReceiptWire

/// Acknowledgements of push notifications, by names or by a ticket's numbers, and the webhooks that some of them come
/// by (Proto/frames.md, 0x2D, 0x2E and 0x40 to 0x43).
extension ShardEngine {
  /// The longest key of a webhook, in bytes.
  private static let webhookKeyMax = 256
  /// Whoever finds no room for a webhook is asked to wait no longer than this, in milliseconds.
  private static let webhookRetryMax: Int64 = 60_000

  // MARK: By names

  func acknowledgePush(
    _ header: FrameHeader,
    _ reader: inout FieldReader,
    _ slot: ChannelSlot,
    _ lane: ReplyLane
  ) throws(WireError) {
    let counter = try Self.counter(&reader)
    let user = try reader.string()
    let message = try reader.string()
    let acked = try reader.time()
    let flags = try reader.varint()
    try reader.end()
    let command = takeUp(counter, lane)
    guard flags <= 1 else { return refuseFlags(header, lane, command) }
    guard admits(user, header, slot, lane, command) else { return }
    let target: ShardState.PushTarget
    do { target = try state.pushTarget(slot, user: user, message: message) } catch {
      return refuse(header, error, slot, lane, command)
    }
    deliver(header, target, acked: acked, withNames: flags == 1, lane, command)
  }

  private func refuseFlags(_ header: FrameHeader, _ lane: ReplyLane, _ command: CommandPlace) {
    noteRefused(command)
    refuse(header, .invalidField, "flags: 0, or 1 (with names)", lane)
  }

  /// Marks a message delivered, and answers with its *delivery*. A command that is sent again moves nothing: where it
  /// would, it is `outcome_unknown`.
  private func deliver(
    _ header: FrameHeader,
    _ target: ShardState.PushTarget,
    acked: Timestamp,
    withNames: Bool,
    _ lane: ReplyLane,
    _ command: CommandPlace
  ) {
    let slot = target.place.channel
    do throws(Refusal) {
      let time = state.advance(clock: loop.clock)
      try state.decidePush(target, acked: acked, at: time, into: &effects)
    } catch {
      return refuse(header, error, slot, lane, command)
    }
    // It counts as applied, and may be one that was not: its refusal was long ago, or its connection was lost while it
    // waited.
    guard !command.isCovered || effects.isEmpty else { return refuseApplied(header, lane) }
    let moves = !effects.isEmpty
    finish(slot, command)
    let uncounted = state.uncounted(target)
    reply(header, departure(slot), lane) { buffer in
      buffer.writeFields(byteCountMax: DeliveryFields.byteCountMax) { fields in
        fields.byte(DeliveryFields.flags(moved: moves, uncounted))
        fields.time(state.sentAt(target))
        fields.time(state.deliveredAt(target))
        guard withNames else {
          // No cid, user and message.
          for _ in 0..<3 { fields.byte(0) }
          return
        }
        fields.string(state[slot].cid.span.bytes)
        state.withUser(slot, target.member) { fields.string($0) }
        state.withMessage(target.place, target.sequence) { fields.string($0) }
      }
    }
  }

  // MARK: By a ticket

  /// The fields of redeem_ticket.
  struct Ticket {
    var counter: UInt64
    var place: TicketPlace
    var acked: Timestamp
    /// 1: the answer names the channel, the user and the message.
    var flags: UInt64
  }

  /// What is known of the name of a ticket's channel, which is not in memory.
  enum TicketName {
    /// Nothing yet.
    case unknown
    /// It is to be looked for by this.
    case named([UInt8])
    /// It was looked for: there is none of its number.
    case lookedFor
  }

  func ticket(_ fields: consuming FieldReader) throws(WireError) -> Ticket {
    var reader = fields
    let counter = try Self.counter(&reader)
    let place = try reader.ticketPlace()
    let acked = try reader.time()
    let flags = try reader.varint()
    try reader.end()
    return Ticket(counter: counter, place: place, acked: acked, flags: flags)
  }

  /// A ticket names its channel by number. Where that is not in memory its name is found first, in the log's tail or on
  /// storage, and then it is waited for by name as others are: a number has one name for ever, so nothing that is read
  /// for it can be old.
  func redeemTicket(
    _ header: FrameHeader,
    _ payload: RawSpan,
    _ lane: ReplyLane,
    _ name: TicketName = .unknown
  ) throws(WireError) {
    let ticket = try ticket(FieldReader(payload.extracting(first: try takeIssued(header, payload))))
    let number = ticket.place.channel
    if let slot = state.slot(numbered: number) { return redeem(header, ticket, slot, lane) }
    switch name {
    case .unknown where number > ChannelNumber(0) && number < state.nextChannel:
      guard let head = tail.head(of: number) else {
        return try wait(header, payload, for: .head(number), lane)
      }
      try redeemTicket(header, payload, lane, .named(Array(head.cid.utf8)))
    case .named(let cid) where !IndexName.isIndex(cid) && deletions.index(absent: cid) == nil:
      // Its name may lead to another channel by now.
      guard state.slot(named: cid) == nil else { return refuseTicket(header, ticket, lane) }
      try wait(header, payload, cid: cid.span.bytes, lane: lane)
    case .unknown, .named, .lookedFor:
      refuseTicket(header, ticket, lane)
    }
  }

  private func refuseTicket(_ header: FrameHeader, _ ticket: Ticket, _ lane: ReplyLane) {
    refuse(header, .channelNotFound, nil, lane, takeUp(ticket.counter, lane))
  }

  private func redeem(_ header: FrameHeader, _ ticket: Ticket, _ slot: ChannelSlot, _ lane: ReplyLane) {
    let command = takeUp(ticket.counter, lane)
    guard ticket.flags <= 1 else { return refuseFlags(header, lane, command) }
    guard !state[slot].isEnding else { return refuse(header, .channelNotFound, slot, lane, command) }
    clock.touch(slot)
    state.refresh(slot)
    let target: ShardState.PushTarget
    do { target = try state.pushTarget(slot, ticket.place) } catch {
      return refuse(header, error, slot, lane, command)
    }
    let isAdmitted = state.withUser(slot, target.member) { admits($0, header, slot, lane, command) }
    guard isAdmitted else { return }
    deliver(header, target, acked: ticket.acked, withNames: ticket.flags == 1, lane, command)
  }

  /// The head page of a ticket's channel was read, or could not be. What waits for it goes on by its name.
  func headRead(
    _ number: ChannelNumber,
    _ result: Result<StoredChannel?, StorageError>,
    _ waiting: [ChannelLoad.Waiting]
  ) {
    let name: TicketName
    do throws(StorageError) {
      let stored: StoredChannel?
      switch result {
      case .success(let found): stored = found
      case .failure(let error): throw error
      }
      name = try self.name(of: number, stored).map { .named($0) } ?? .lookedFor
    } catch {
      loop.reports(error)
      for item in waiting { refuseUnread(item) }
      return
    }
    for item in waiting {
      guard !item.lane.isClosed else {
        noteDropped(item)
        continue
      }
      do {
        try redeemTicket(item.header, item.payload.readableBytesSpan, item.lane, name)
      } catch {
        item.lane.fail(error)
      }
    }
  }

  // MARK: Making tickets

  func ticketPlace(
    _ header: FrameHeader,
    _ reader: inout FieldReader,
    _ slot: ChannelSlot,
    _ lane: ReplyLane
  ) throws(WireError) {
    let user = try reader.string()
    let message = try reader.string()
    try reader.end()
    let place: TicketPlace
    do throws(Refusal) {
      let target = try state.pushTarget(slot, user: user, message: message)
      place = try state.ticketPlace(target)
    } catch {
      return refuse(header, error, slot, lane)
    }
    reply(header, departure(slot), lane) { $0.writeTicketPlace(place) }
  }

  // MARK: Webhooks

  /// A request that is about no channel.
  func performPush(_ header: FrameHeader, _ payload: RawSpan, _ lane: ReplyLane) throws(WireError) {
    var reader = FieldReader(payload)
    switch header.kind {
    case .webhookKnown: try webhookKnown(header, &reader, lane)
    case .noteWebhook: try noteWebhook(header, &reader, lane)
    default: try presentTicket(header, &reader, lane)
    }
  }

  private func webhookKnown(
    _ header: FrameHeader,
    _ reader: inout FieldReader,
    _ lane: ReplyLane
  ) throws(WireError) {
    let key = try reader.string()
    try reader.end()
    if let (code, detail) = fault(key) { return refuse(header, code, detail, lane) }
    let hash = StableHash.hash(key)
    let time = state.advance(clock: loop.clock)
    let isKnown = state.knowsWebhook(hash, at: time)
    // That it is remembered no more is said by a time that is logged (R20).
    let until = isKnown ? .none : state.webhooks.until(hash) ?? .none
    let last = isKnown ? dirty.webhooksLast : .zero
    let departure = departure(last, sayingExpiredAt: until, lane)
    reply(header, departure, lane) { $0.writeInteger(UInt8(isKnown ? 1 : 0)) }
  }

  /// One that is known counts as refused: so a command that is covered is the one that noted it, and sent again it is
  /// told so.
  private func noteWebhook(
    _ header: FrameHeader,
    _ reader: inout FieldReader,
    _ lane: ReplyLane
  ) throws(WireError) {
    let key = try reader.string()
    let counter = try Self.counter(&reader)
    let until = try reader.time()
    try reader.end()
    let command = takeUp(counter, lane)
    if let (code, detail) = fault(key) {
      noteRefused(command)
      return refuse(header, code, detail, lane)
    }
    let hash = StableHash.hash(key)
    let time = state.advance(clock: loop.clock)
    if !command.isCovered {
      guard !state.knowsWebhook(hash, at: time) else {
        noteRefused(command)
        return reply(header, departure(dirty.webhooksLast), lane) { $0.writeInteger(UInt8(0)) }
      }
      let room = state.webhooks.full(at: time)
      guard room == .none else { return refuseFull(header, room, at: time, lane, command) }
      state.decideNote(webhook: hash, until: until, at: time, into: &effects)
      finish(nil, command)
    } else if !state.knowsWebhook(hash, at: time) {
      return refuseApplied(header, lane)
    }
    reply(header, departure(dirty.webhooksLast), lane) { $0.writeInteger(UInt8(1)) }
  }

  private func refuseFull(
    _ header: FrameHeader,
    _ room: Timestamp,
    at time: Timestamp,
    _ lane: ReplyLane,
    _ command: CommandPlace
  ) {
    noteRefused(command)
    let wait = min(room.milliseconds - time.milliseconds, Self.webhookRetryMax)
    refuse(
      header,
      .busy,
      retryAfterMilliseconds: UInt32(max(1, wait)),
      "\(WebhookTable.countMax) webhooks are remembered",
      lane
    )
  }

  private func fault(_ key: RawSpan) -> (ErrorCode, String)? {
    guard (1...Self.webhookKeyMax).contains(key.byteCount) else {
      return (.invalidField, "key: 1 to \(Self.webhookKeyMax) bytes")
    }
    return ShardID.owning(key, count: shardCount) == state.id
      ? nil : (.wrongShard, "the key is of another shard")
  }

  /// Only a gateway has the secret that a ticket is checked with.
  private func presentTicket(
    _ header: FrameHeader,
    _ reader: inout FieldReader,
    _ lane: ReplyLane
  ) throws(WireError) {
    let counter = try Self.counter(&reader)
    _ = try reader.string()
    _ = try reader.time()
    _ = try reader.varint()
    try reader.end()
    noteRefused(takeUp(counter, lane))
    refuse(header, .notImplemented, "tickets are checked by gateways: send redeem_ticket", lane)
  }
}
