import TestSupport

@testable import NaiveReceiptModel
@testable import ReceiptModel

/// The further operations that random histories need: threads, removal, and users' indexes of channels.
extension TestShard {
  /// Perform commands on threads, removal and users; return nil for other commands.
  func performExtended(_ command: Command, clock: Int) -> Outcome? {
    switch command {
    case .inThread(
      let parent,
      .post(
        let cid,
        let id,
        let sender,
        _,
        let isSilent,
        let requestsAcknowledgement,
        let movesPosition,
        let mentions
      )
    ):
      return reply(
        cid,
        to: parent,
        id,
        by: sender,
        isSilent: isSilent,
        requestsAcknowledgement: requestsAcknowledgement,
        movesPosition: movesPosition,
        mentions: mentions,
        clock: clock
      )
    case .inThread(let parent, .read(let cid, let user, let message, let epoch)):
      return mark("read", cid, user, under: parent, message, epoch: epoch, clock: clock)
    case .inThread(let parent, .delivered(let cid, let user, let message)):
      return mark("delivered", cid, user, under: parent, message, clock: clock)
    case .inThread(let parent, .unread(let cid, let user, let message, let epoch)):
      return mark("unread", cid, user, under: parent, message, epoch: epoch, clock: clock)
    case .read(let cid, let user, let message, let epoch):
      guard isReply(cid, message) else { return nil }
      return mark("read", cid, user, under: nil, message, epoch: epoch, clock: clock)
    case .delivered(let cid, let user, let message):
      guard isReply(cid, message) else { return nil }
      return mark("delivered", cid, user, under: nil, message, clock: clock)
    case .unread(let cid, let user, let message, let epoch):
      guard isReply(cid, message) else { return nil }
      return mark("unread", cid, user, under: nil, message, epoch: epoch, clock: clock)
    case .push(let cid, let user, let message, let acked):
      return push(cid, user, message, acked: acked, clock: clock)
    case .ticket(let cid, let user, let message):
      return makeTicket(cid, user, message, clock: clock)
    case .redeem(let cid, let ticket, let acked):
      return redeem(cid, ticket, acked: acked, clock: clock)
    case .member(let cid, let user, let role, let isMuted, let joins):
      return deciding(cid, clock) { slot, time, effects throws(Refusal) in
        let (row, isNew) = try state.decideMember(
          slot,
          user: user,
          role: role,
          isMuted: isMuted,
          joins: joins,
          at: joins ? state.advance(clock: time, forMembersOf: slot) : time,
          into: &effects
        )
        apply(effects)
        return .member(
          role: state[slot].rows.role(row) ?? "",
          joinedAt: Int(state[slot].rows.joinedAt(row).milliseconds),
          isMuted: state[slot].rows.isMuted(row),
          isNew: isNew
        )
      }
    case .truncate(let cid, let before):
      return deciding(cid, clock) { slot, time, effects throws(Refusal) in
        let before = Array(before.utf8)
        try state[slot].decideTruncate(before: before.span.bytes, at: time, into: &effects)
        apply(effects)
        let newest = Int(state[slot].messages.newest.rawValue)
        return .channel(isNew: false, members: state[slot].rows.activeCount, newest: newest)
      }
    case .deleteChannel(let cid):
      guard slot(cid) != nil else { return nothing(clock) }
      return deciding(cid, clock) { slot, _, effects in
        var scan = ShardState.MembershipScan()
        while true {
          var limit = sliceLimit
          let isDone = state.decideDelete(channel: slot, &scan, limit: &limit, into: &effects)
          apply(effects)
          if isDone { return .done(true) }
          effects = []
        }
      }
    case .eraseMember(let cid, let user):
      guard slot(cid) != nil else { return nothing(clock) }
      return deciding(cid, clock) { slot, time, effects in
        var scan = EraseScan()
        while true {
          var limit = sliceLimit
          let isDone = state.decideErase(slot, member: user, &scan, limit: &limit, at: time, into: &effects)
          apply(effects)
          if isDone { return .done(scan.isKnown) }
          effects = []
        }
      }
    case .eraseUser(let user):
      pass(to: clock)
      var effects: [Effect] = []
      state.settings.decideBeginErasure(user, at: state.time, into: &effects)
      apply(effects)
      return .user(settings(of: user))
    case .assignErased(let user, let version):
      pass(to: clock)
      var effects: [Effect] = []
      state.settings.decideFinishErasure(user, version: UInt64(version), at: state.time, into: &effects)
      apply(effects)
      return .user(settings(of: user))
    case .patchUser(let user, _, _, _):
      // As a store does before each decision.
      guard state.settings.isErasing(user) else { return nil }
      _ = nothing(clock)
      return .refused("user_erased")
    case .inThread, .readAll: preconditionFailure("not one shard's: \(command)")
    default: return nil
    }
  }

  /// The slice size of a removal, in effects. It changes between commands, so that some take one slice and others many.
  private var sliceLimit: Int { log.count % 4 == 0 ? 1_000 : log.count % 4 }

  private func nothing(_ clock: Int) -> Outcome {
    pass(to: clock)
    apply([])
    return .done(false)
  }

  private func isReply(_ cid: String, _ message: String) -> Bool {
    let message = Array(message.utf8)
    return slot(cid).map { state.thread(withReply: message.span.bytes, in: $0) != nil } ?? false
  }

  /// In a thread, storage drops a whole segment of steps at once, so only the shard knows which moves lose their times.
  func recordDroppedTimes(_ effect: Effect) {
    guard case .channel(let number, .inThread(let parent, .stepsTrimmed(let rowPage, _))) = effect else {
      return
    }
    let first = Int(rowPage * PageID.rowsPerPage)
    forgotten.append(
      DroppedTimes(
        cid: String(decoding: state[slots[number]!].cid, as: UTF8.self),
        parent: Int(parent.rawValue),
        rows: first..<first + Int(PageID.rowsPerPage)
      )
    )
  }

  func takeDroppedTimes() -> [DroppedTimes] {
    defer { forgotten = [] }
    return forgotten
  }

  // MARK: Queries

  /// In index order, without deleted channels.
  func index(of user: String) -> [MembershipView] {
    let user = Array(user.utf8)
    guard let slot = state.index(of: user.span.bytes) else { return [] }
    return (0..<state[slot].memberships.positionCount).compactMap { place in
      state[slot].memberships[place].flatMap { entry in
        entry.isGone
          ? nil
          : MembershipView(
            cid: entry.cid,
            row: entry.row.map { Int($0.rawValue) },
            isMember: entry.isMember,
            joinedAt: Int(entry.joinedAt.milliseconds)
          )
      }
    }
  }

  // MARK: Changes of memberships

  /// Apply changes from another shard as a store does: each new one in order, and the last number in the same batch.
  func take(_ changes: [Outbox.QueuedChange], from source: ShardID) {
    let new = changes.drop { $0.number <= state.outbox.received(from: source) }
    guard let last = new.last else { return }
    for queued in new {
      var name = queued.change.user
      let slot = name.withUTF8 { state.index(of: $0.span.bytes) }
      var effects: [Effect] = []
      state.decideApplyMembership(queued.change, slot, at: state.time, into: &effects)
      apply(effects)
    }
    apply([.shard(.membershipsReceived(from: source, through: last.number))])
  }

  /// Note that another shard has confirmed changes up to this number.
  func confirmed(by target: ShardID, through number: UInt64) {
    apply([.shard(.membershipsConfirmed(by: target, through: number))])
  }
}

extension ShardHarness {
  func deliver(_ random: inout SplitMix64) {
    let (source, target) = (random.pick(shards), random.pick(shards))
    // Confirmations are sometimes lost: then the same changes are sent again.
    deliver(source, target, limit: 1 + random.below(6), isConfirmed: !random.oneIn(3))
  }

  func deliverAllChanges() {
    for source in shards {
      for target in shards {
        while source.state.outbox.hasChanges(
          for: target.state.id,
          after: source.state.outbox.confirmed(by: target.state.id)
        ) {
          deliver(source, target, limit: 100, isConfirmed: true)
        }
      }
    }
  }

  private func deliver(_ source: TestShard, _ target: TestShard, limit: Int, isConfirmed: Bool) {
    // Only durable changes are sent, and only their durable arrival is confirmed.
    source.seal()
    let (from, to) = (source.state.id, target.state.id)
    let outbox = source.state.outbox.changes(
      for: to,
      after: source.state.outbox.confirmed(by: to),
      through: .max,
      limit: limit
    )
    target.take(outbox, from: from)
    target.seal()
    if isConfirmed, let last = outbox.last { source.confirmed(by: to, through: last.number) }
  }
}
