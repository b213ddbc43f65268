import Testing

@testable import ReceiptModel

/// One channel of a real shard, queried in words, for a viewer's view of others. The clock starts at 1000 ms, and every
/// command advances it by 100 ms.
final class Room {
  /// A kind of receipts that users hide.
  enum Kind { case read, delivered }

  private(set) var state = ShardState(id: ShardID(0))
  private(set) var slot = ChannelSlot(0)
  private(set) var clock: Int64 = 1_000
  /// The effects of the last command.
  private(set) var effects: [Effect] = []

  init(_ members: String = "", type: (inout OptionPatch) -> Void = { _ in }) throws {
    var patch = OptionPatch()
    type(&patch)
    if !patch.isEmpty {
      state.types.decidePatch("team", patch, at: state.time, into: &effects)
      try applyEffects()
    }
    let seats = members.split(separator: " ").map { ShardState.NewMember(user: String($0)) }
    try state.decideCreate(
      cid: "team:room",
      options: OptionPatch(),
      members: seats,
      at: now,
      into: &effects
    )
    try applyEffects()
  }

  var now: Timestamp { Timestamp(milliseconds: clock) }

  /// Apply the effects of a decision, and check all invariants.
  private func applyEffects(sourceLocation: SourceLocation = #_sourceLocation) throws {
    _ = state.advance(clock: now)
    for effect in effects {
      if case .channel(let number, .channelAssigned(let cid, let created, let own)) = effect {
        slot = state.insert(number, cid: cid, created: created, own: own)
      } else {
        state.assign(effect, to: slot)
      }
    }
    if state.loadedCount > 0 { state.refresh(slot) }
    #if DEBUG
      #expect(state.checkInvariants() == nil, sourceLocation: sourceLocation)
    #endif
    clock += 100
  }

  /// Run a decision with only this command's effects.
  private func decide(_ body: (inout ShardState, inout [Effect]) throws -> Void) throws {
    effects = []
    if state.loadedCount > 0 { state.refresh(slot) }
    try body(&state, &effects)
    try applyEffects()
  }

  // MARK: Commands

  func type(_ change: (inout OptionPatch) -> Void) throws {
    var patch = OptionPatch()
    change(&patch)
    try decide { $0.types.decidePatch("team", patch, at: $0.time, into: &$1) }
  }

  func change(add: [String] = [], remove: [String] = []) throws {
    try decide { [now, slot] in
      let seats = add.map { ShardState.NewMember(user: $0) }
      try $0.decideMembers(slot, add: seats, remove: remove, at: now, into: &$1)
    }
  }

  func post(_ id: String, by sender: String) throws {
    let (id, sender) = (Array(id.utf8), Array(sender.utf8))
    try decide { [now, slot] in
      let message = NewMessage(id: id.span.bytes, sender: sender.span.bytes)
      _ = try $0.decideRegister(slot, message, at: now, into: &$1)
    }
  }

  /// Register a message with an acknowledgement request, by its effect alone.
  func postWithAcknowledgementRequest(_ id: String, by sender: String, expiresAt: Int64 = 0) throws {
    try decide { [now, slot] in
      let record = MessageRecord(
        id: id,
        sender: sender,
        flags: .requestsAcknowledgement,
        registeredAt: now,
        acknowledgementExpiresAt: Timestamp(milliseconds: expiresAt)
      )
      $1.append(.channel($0[slot].number, .messageAssigned($0[slot].messages.newest.next, record)))
    }
  }

  func acknowledge(_ user: String, _ id: String) throws {
    let (user, id) = (Array(user.utf8), Array(id.utf8))
    try decide { [now, slot] in
      try $0.decideAcknowledge(
        slot,
        $0.member(user.span.bytes, in: slot),
        message: id.span.bytes,
        note: "",
        at: now,
        into: &$1
      )
    }
  }

  func read(_ user: String, _ message: String = "") throws {
    let (user, message) = (Array(user.utf8), Array(message.utf8))
    try decide { [now, slot] in
      _ = try $0.decideRead(
        slot,
        user: user.span.bytes,
        message: message.span.bytes,
        epoch: nil,
        at: now,
        into: &$1
      )
    }
  }

  func unread(_ user: String, _ message: String) throws {
    let (user, message) = (Array(user.utf8), Array(message.utf8))
    try decide { [slot] in
      _ = try $0.decideUnread(
        slot,
        user: user.span.bytes,
        message: message.span.bytes,
        epoch: nil,
        at: $0.time,
        into: &$1
      )
    }
  }

  func deliver(_ user: String, _ message: String = "") throws {
    let (user, message) = (Array(user.utf8), Array(message.utf8))
    try decide { [now, slot] in
      _ = try $0.decideDelivered(
        slot,
        user: user.span.bytes,
        message: message.span.bytes,
        at: now,
        into: &$1
      )
    }
  }

  func hide(_ user: String, _ kinds: Kind...) throws { try set(user, kinds, shows: false) }
  func show(_ user: String, _ kinds: Kind...) throws { try set(user, kinds, shows: true) }

  private func set(_ user: String, _ kinds: [Kind], shows: Bool) throws {
    let patch = UserSettingsPatch(
      showsRead: kinds.contains(.read) ? shows : nil,
      showsDelivered: kinds.contains(.delivered) ? shows : nil
    )
    try decide { [now] in $0.settings.decidePatch(user, patch, at: now, into: &$1) }
  }

  // MARK: Queries

  func row(_ user: String) -> MemberOrdinal { state[slot].row(of: user)! }

  func sequence(_ id: String) -> SequenceNumber {
    let id = Array(id.utf8)
    return state[slot].messages.find(id.span.bytes)!
  }

  /// The viewer for a user; nil means a server that acts for no user.
  func viewer(_ user: String?, isServer: Bool = false) throws -> ChannelViewer {
    let name = Array((user ?? "").utf8)
    return try state.viewer(name.span.bytes, isServer: isServer || user == nil, in: slot)
  }

  /// The status, read count, delivered count and recipient count.
  func status(_ id: String, as user: String? = nil) throws -> String {
    Self.words(state.status(slot, sequence(id), viewer: try viewer(user)))
  }

  /// The same for several messages at once; a refusal is given by name.
  func statuses(_ ids: [String], as user: String? = nil) throws -> [String] {
    let viewer = try viewer(user)
    var answers = ids.map { id in
      let id = Array(id.utf8)
      return state.askedStatus(
        state.targetSlot(of: id.span.bytes, in: slot),
        message: id.span.bytes,
        viewer: viewer
      )
    }
    state.statuses(slot, viewer: viewer, &answers)
    return answers.map { answer in
      switch answer {
      case .success(let status): Self.words(status)
      case .failure(let refusal): refusal.wireName
      }
    }
  }

  private static func words(_ status: ShownStatus) -> String {
    let receipt = status.acknowledgement == .none ? "" : " \(status.acknowledgement)"
    return
      "\(status.status) \(status.readCount) \(status.deliveredCount) of \(status.memberCount)\(receipt)"
  }

  /// A row as others see it: read position and time, delivered position and time.
  func shown(_ user: String) -> String { Self.words(state.shownRow(slot, row(user), withOwnDetails: false)) }

  /// The row as its user sees it.
  func own(_ user: String) -> String { Self.words(state.ownRow(slot, row(user))) }

  private static func words(_ row: ShownRow) -> String {
    let own = row.own.map { " unread \($0.unreadMessages)" } ?? ""
    return
      "read \(row.lastReadSequence.rawValue) at \(row.lastRead.milliseconds), "
      + "delivered \(row.lastDeliveredSequence.rawValue) at \(row.lastDelivered.milliseconds)\(own)"
  }

  /// A page of the read state: users with their rows.
  func page(as user: String?, isServer: Bool = false, limit: Int = 100, cursor: UInt32? = nil) throws
    -> [String]
  {
    let name = Array((user ?? "").utf8)
    let page = try state.readState(
      slot,
      viewer: name.span.bytes,
      isServer: isServer || user == nil,
      limit: limit,
      cursor: cursor
    )
    return page.rows.map { row in
      "\(state[slot].users.text(state[slot].rows.user(row.row))): \(Self.words(row))"
    }
      + (page.next == nil ? [] : ["more"])
  }

  /// Evict the channel, and load it again from its pages.
  func reload() {
    let pages: [PageID] = [.head, .rows(0), .segment(0)]
    var effects = pages.flatMap { state.effects(of: $0, in: slot) }
    for position in 0..<state[slot].messages.newest.rawValue {
      effects += state.effects(of: .acknowledgements(SequenceNumber(position + 1)), in: slot)
    }
    state.remove(slot)
    for effect in effects {
      if case .channel(let number, .channelAssigned(let cid, let created, let own)) = effect {
        slot = state.insert(number, cid: cid, created: created, own: own)
      } else {
        state.assign(effect, to: slot)
      }
    }
    state.refresh(slot)
  }
}
