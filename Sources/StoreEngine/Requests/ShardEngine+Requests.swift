internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// Request handling: read all fields, decide, apply, answer from the state (Proto/frames.md, "Requests").
extension ShardEngine {
  /// Receive a request. Throws where its payload does not parse; the connection then ends.
  func receive(_ header: FrameHeader, _ payload: RawSpan, _ lane: ReplyLane) throws(WireError) {
    var request = try Request(header, payload, lane)
    let outcome = try receive(&request)
    finish(outcome, &request)
  }

  @inline(__always)
  private func receive(_ request: inout Request) throws(WireError) -> Outcome {
    if let code = loop.commandRefusal, let refusal = try refusal(of: request, code) { return refusal }
    if let outcome = try postponed(&request) { return outcome }
    return try dispatch(&request)
  }

  /// Why a waiting request resumes.
  enum Resumption {
    /// Perform it again.
    case again
    /// Its channel was looked up: it is in memory or does not exist.
    case loaded(mayPostpone: Bool)
    /// The name of its channel was looked up by the number.
    case named(LookedUpName)
    /// No record has come for a reader of the feed.
    case feedIsIdle
    /// The ledger has recorded the erasure of this user, unless there is a fault.
    case recorded(String, fault: String?)
  }

  /// Resume a waiting request.
  func resume(_ waiting: WaitingRequest, _ resumption: Resumption = .again) {
    // An earlier request of the same connection may have ended it.
    guard !waiting.lane.isClosed else { return sessions.recordDrop(waiting) }
    do throws(WireError) {
      var request = try Request(waiting.header, waiting.payload.readableBytesSpan, waiting.lane)
      request.attempt = waiting.attempt
      if case .loaded(mayPostpone: true) = resumption, let postponed = try postponed(&request) {
        return finish(postponed, &request)
      }
      loop.driver.noteDecision(.resume(request.header, request.lane))
      let outcome: Outcome
      switch resumption {
      case .again: outcome = try dispatch(&request)
      case .loaded: outcome = try dispatch(&request, wasLookedUp: true)
      case .named(let name) where request.kind == .readFeed: outcome = try feed.readFeed(&request, name)
      case .named(let name) where request.kind == .listStoredChannels:
        outcome = try exports.listStoredChannels(&request, name)
      case .named(let name): outcome = try push.redeemTicket(&request, name)
      case .feedIsIdle: outcome = try feed.readFeed(&request, mayWait: false)
      case .recorded(let user, let fault): outcome = try settings.erase(&request, user, fault: fault)
      }
      finish(outcome, &request)
    } catch {
      waiting.lane.fail(error)
    }
  }

  /// End an attempt at a request. A refused command counts as not applied. The effects' buffer goes back to the shard
  /// for the next command.
  @inline(__always)
  func finish(_ outcome: Outcome, _ request: inout Request) {
    if request.isBegun { returnEffectsBuffer(of: &request) }
    if case .refused(let refused) = outcome {
      sessions.recordRefusal(request)
      refuse(request.header, refused, request.lane)
    }
  }

  /// Retry delay for a command that is refused for the whole store.
  private static let refusedRetryMilliseconds: UInt32 = 10_000

  /// Refuse a command without marking it as applied, so that a resend is decided. Returns nil for a query, and for a
  /// duplicate of an applied command, which is answered as such.
  private func refusal(of request: borrowing Request, _ code: ErrorCode) throws(WireError) -> Outcome? {
    guard let counter = try request.counterAhead() else { return nil }
    guard sessions.recordRefusalUnlessApplied(counter, request.lane) else { return nil }
    return .refused(code, retryAfterMilliseconds: Self.refusedRetryMilliseconds, "")
  }

  // MARK: Wide requests

  /// Size in bytes up to which a request is always performed at once.
  private static let shortBytes = 1_024

  /// Postpone a wide request if ``StoreLoopConfiguration/entriesPerTurn`` is used up, and any request whose channel
  /// already has a postponed one. A request that names a thousand members or channels takes a millisecond: when many
  /// arrive together, they are spread over slices, with other requests in between. Returns nil if the request may be
  /// performed now.
  @inline(__always)
  private func postponed(_ request: inout Request) throws(WireError) -> Outcome? {
    guard waiting.hasPostponed || loop.budget.entries <= 0 else { return nil }
    return try postponedNow(&request)
  }

  private func postponedNow(_ request: inout Request) throws(WireError) -> Outcome? {
    let traits = request.kind.traits
    let isWide = traits.contains(.wide) && request.payload.byteCount > Self.shortBytes && loop.budget.entries <= 0
    guard isWide || waiting.hasPostponed && traits.contains(.orderedByChannel) else { return nil }
    var cid: [UInt8] = []
    var counter: UInt64?
    if request.kind == .redeemTicket {
      var ticketCounter: UInt64 = 0
      let ticket = try ShardPush.ticket(request.fields, counter: &ticketCounter)
      guard let slot = state.slot(numbered: ticket.place.channel) else { return nil }
      cid = state[slot].cid
      guard waiting.hasPostponed(of: cid.span.bytes) else { return nil }
      counter = ticketCounter
    } else if traits.contains(.orderedByChannel) {
      var fields = request.fields
      let name = try fields.string()
      guard isWide || waiting.hasPostponed(of: name) else { return nil }
      cid = name.withUnsafeBytes { Array($0) }
      if request.kind.isCommand { counter = try Request.counter(&fields) }
    }
    request.recordCounter(counter)
    return waiting.add(request, for: .postponed(cid: cid))
  }

  // MARK: Dispatch

  /// Perform a request now: one that was never postponed, or whose wait is over.
  ///
  /// - Parameter wasLookedUp: the request has waited for its channel, which is in memory or does not exist.
  private func dispatch(_ request: inout Request, wasLookedUp: Bool = false) throws(WireError) -> Outcome {
    guard !request.header.flags.contains(.thread) || request.kind.traits.contains(.thread) else {
      throw .badFlags(request.header.flags.rawValue)
    }
    if !request.kind.isCommand, let refused = refusalForUnreadReplies(request.lane) {
      // What ends subscriptions is never refused: it makes room.
      if request.kind != .unsubscribe, request.kind != .subscribeUser { return .refused(refused) }
    }
    let onAbsent: AbsentChannelAction
    switch request.kind {
    case .patchChannelType: return try settings.patchChannelType(&request)
    case .assignChannelType: return try settings.assignChannelType(&request)
    case .getChannelType: return try settings.getChannelType(&request)
    case .listChannelTypes: return try settings.listChannelTypes(&request)
    case .patchUser: return try settings.patchUser(&request)
    case .assignUser: return try settings.assignUser(&request)
    case .getUser: return try settings.getUser(&request)
    case .settle: return try settings.settle(&request)
    case .listUnsettled: return try settings.listUnsettled(&request)
    case .purge: return try purges.perform(&request)
    case .listChannels: return try indexes.listChannels(&request, wasLookedUp: wasLookedUp)
    case .rebuildIndex: return try indexRebuild.rebuildIndex(&request)
    case .unreadCounts: return try unreadQueries.unreadCounts(&request)
    case .subscribe: return try events.subscribe(&request)
    case .unsubscribe: return try events.unsubscribe(&request)
    case .subscribeUser: return try events.subscribeUser(&request)
    case .announceRow: return try events.announceRow(&request)
    case .redeemTicket:
      return wasLookedUp ? try push.redeemTicket(&request, .notFound) : try push.redeemTicket(&request)
    case .webhookKnown: return try push.webhookKnown(&request)
    case .noteWebhook: return try push.noteWebhook(&request)
    case .presentTicket: return try push.presentTicket(&request)
    case .claimPushJobs: return try pushJobs.claim(&request)
    case .updatePushJobs: return try pushJobs.update(&request)
    case .getToken: return try tokens.getToken(&request)
    case .listRevokedTokens: return try tokens.listRevokedTokens(&request)
    case .revokeToken: return try tokens.revokeToken(&request)
    case .putConsumer: return try consumers.putConsumer(&request)
    case .removeConsumer: return try consumers.removeConsumer(&request)
    case .openPartition: return try consumers.openPartition(&request)
    case .commitConsumer: return try consumers.commitConsumer(&request)
    case .leasePartitions: return try consumers.leasePartitions(&request)
    case .listConsumers: return try consumers.listConsumers(&request)
    case .readFeed: return try feed.readFeed(&request, isLookedUp: wasLookedUp)
    case .listStoredChannels: return try exports.listStoredChannels(&request)
    case .listUsers: return try exports.listUsers(&request)
    // Requests about one channel.
    case .exportChannel:
      if let outcome = try exports.storedPart(request) { return outcome }
      onAbsent = .refuse
    case .putChannel, .importChannel: onAbsent = .create
    case .deleteChannel, .eraseMember: onAbsent = .succeed
    case .markRead, .markUnread, .markDelivered, .acknowledge, .markUnreadSince, .setMember, .userReceipts,
      .userThreads:
      onAbsent = .checkUser
    case .readState, .statuses, .listMembers, .memberStatuses, .listRoster, .threadReadState: onAbsent = .checkViewer
    // No user's token is checked for them.
    case .changeMembers, .registerMessage, .deleteMessage, .truncateChannel, .acknowledgePush, .getChannel,
      .listMessages, .ticketPlace, .putPushJob, .importMessages, .importMembers, .importAcknowledgements:
      onAbsent = .refuse
    // No requests to a shard.
    case .hello, .challenge, .proof, .ready, .ping, .pong, .drain, .events, .shardMap, .error, .backupBegin,
      .backupRead, .backupDigest, .backupEnd, .deliverChanges, .confirmChanges, .snapshotBegin, .snapshotRead,
      .recordKeys:
      throw .unknownKind(request.kind.rawValue)
    }
    return try dispatchOnChannel(&request, onAbsent, wasLookedUp: wasLookedUp)
  }

  /// Perform a request about a channel, which may have to be loaded first.
  @inline(__always)
  private func dispatchOnChannel(
    _ request: inout Request,
    _ onAbsent: AbsentChannelAction,
    wasLookedUp: Bool
  ) throws(WireError) -> Outcome {
    var fields = request.fields
    let cid = try fields.string()
    if let slot = state.slot(of: cid) {
      request.fields = fields
      return try performOnLoadedChannel(&request, onAbsent, slot)
    }
    if !wasLookedUp {
      guard Identifier.isCID(cid) else { return .refused(.invalidField, "\(Identifier.cidRange)") }
      guard ShardID.owning(cid, count: shardCount) == state.id else {
        return .refused(.wrongShard, "the cid belongs to another shard")
      }
      guard deletions.isDeleted(cid) else {
        request.recordCounter(try request.counterAhead())
        return loads.wait(request, for: .cid(cid.withUnsafeBytes { Array($0) }))
      }
    }
    request.fields = fields
    if request.kind.isCommand { try begin(&request) }
    if onAbsent == .create {
      return request.kind == .importChannel
        ? try importChannel(&request, cid: cid, nil) : try putChannel(&request, cid: cid, nil)
    }
    return try performAbsent(&request, onAbsent, deletions.replyTiming(absent: cid))
  }

  /// Perform a request about a channel that does not exist, except its creation. A revoked token is refused first, as
  /// for an existing channel.
  func performAbsent(
    _ request: inout Request,
    _ onAbsent: AbsentChannelAction,
    _ replyTiming: ReplyLane.Timing
  ) throws(WireError) -> Outcome {
    var isRevoked = false
    switch onAbsent {
    case .succeed: return try succeedAbsent(&request, replyTiming)
    case .checkUser: isRevoked = self.isRevoked(try request.fields.string(), request)
    case .checkViewer: isRevoked = self.isRevoked(try ViewerFields(&request.fields).user, request)
    case .create, .refuse: break
    }
    if isRevoked { return refused(.tokenRevoked, nil) }
    return .refused(.channelNotFound, "", replyTiming)
  }

  /// Perform a request about a channel that is in memory.
  private func performOnLoadedChannel(
    _ request: inout Request,
    _ onAbsent: AbsentChannelAction,
    _ slot: ChannelSlot
  ) throws(WireError) -> Outcome {
    if request.kind.isCommand { try begin(&request) }
    if state[slot].isBeingDeleted { return try deletions.performDuringDeletion(&request, onAbsent, slot) }
    recordUse(of: slot)
    refresh(slot)
    switch request.kind {
    case .markRead: return try markInChannel(&request, .read, slot)
    case .markUnread: return try markInChannel(&request, .unread, slot)
    case .markDelivered: return try markInChannel(&request, .delivered, slot)
    case .markUnreadSince: return try markUnreadSince(&request, slot)
    case .registerMessage: return try register(&request, slot)
    case .acknowledgePush: return try push.acknowledgePush(&request, slot)
    case .putPushJob: return try pushJobs.put(&request, slot)
    case .ticketPlace: return try push.ticketPlace(&request, slot)
    case .acknowledge: return try acknowledge(&request, slot)
    case .deleteMessage: return try deleteMessage(&request, slot)
    case .truncateChannel: return try truncateChannel(&request, slot)
    case .deleteChannel: return try deletions.deleteChannel(&request, slot)
    case .eraseMember: return try eraseMember(&request, slot)
    case .putChannel: return try putChannel(&request, cid: RawSpan(), slot)
    case .changeMembers: return try changeMembers(&request, slot)
    case .setMember: return try setMember(&request, slot)
    case .getChannel:
      try request.fields.end()
      return reply(request, replyTiming(slot)) { $0.writeChannel(slot, in: state) }
    case .readState: return try readState(&request, slot)
    case .threadReadState: return try threadReadState(&request, slot)
    case .userReceipts: return try userReceipts(&request, slot)
    case .userThreads: return try userThreads(&request, slot)
    case .statuses: return try statuses(&request, slot)
    case .listMembers: return try listMembers(&request, slot)
    case .memberStatuses: return try memberStatuses(&request, slot)
    case .listRoster: return try listRoster(&request, slot)
    case .listMessages: return try listMessages(&request, slot)
    case .exportChannel: return try exports.exportChannel(&request, slot)
    case .importChannel: return try importChannel(&request, cid: RawSpan(), slot)
    case .importMessages: return try importMessages(&request, slot)
    case .importMembers: return try importMembers(&request, slot)
    case .importAcknowledgements: return try importAcknowledgements(&request, slot)
    // Requests of ``dispatch(_:wasLookedUp:)``, and frames that are no requests to a shard.
    case .hello, .challenge, .proof, .ready, .ping, .pong, .drain, .events, .shardMap, .error, .patchChannelType,
      .assignChannelType, .patchUser, .assignUser, .settle, .getChannelType, .listChannelTypes, .getUser,
      .listUnsettled, .listChannels, .unreadCounts, .purge, .rebuildIndex, .webhookKnown, .subscribe, .unsubscribe,
      .subscribeUser, .announceRow, .getToken, .listRevokedTokens, .listConsumers, .readFeed, .redeemTicket,
      .noteWebhook, .presentTicket, .revokeToken, .putConsumer, .removeConsumer, .openPartition, .commitConsumer,
      .leasePartitions, .backupBegin, .backupRead, .backupDigest, .backupEnd, .deliverChanges, .confirmChanges,
      .snapshotBegin, .snapshotRead, .recordKeys, .listStoredChannels, .listUsers, .claimPushJobs, .updatePushJobs:
      preconditionFailure("a request that is not about one channel")
    }
  }
}

/// The action of a request about a channel if the channel does not exist.
enum AbsentChannelAction {
  /// Create the channel.
  case create
  /// Succeed without a change: a repeat of the command that has removed the channel must succeed.
  case succeed
  /// Refuse the request.
  case refuse
  /// Check the token of the user that the fields after the cid and the counter begin with, then refuse the request.
  case checkUser
  /// Check the token of the viewer that the fields after the cid begin with, then refuse the request.
  case checkViewer
}
