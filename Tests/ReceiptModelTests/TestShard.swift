@testable import ReceiptModel

/// A real ``ShardState`` driven by plain ``Command``s as a store drives it: decide, assign each effect, keep a log of batches, take
/// pages, and rebuild from pages and log.
final class TestShard {
  /// What one durable append would hold.
  struct Batch: Sendable {
    var index: LogIndex
    var time: Timestamp
    var effects: [Effect]
  }

  /// A page as a checkpoint wrote it: it includes all batches up to `index`.
  struct StoredPage: Sendable {
    var index: LogIndex
    var effects: [Effect]
  }

  struct PageKey: Hashable, Sendable {
    var channel: ChannelNumber
    var page: PageID
  }

  private(set) var state = ShardState(id: ShardID(3))
  private(set) var slots: [ChannelNumber: ChannelSlot] = [:]
  private(set) var log: [Batch] = []
  private(set) var pages: [PageKey: StoredPage] = [:]
  private(set) var typesPage = StoredPage(index: .zero, effects: [])
  /// Effects since the last ``seal()``; one batch gathers several commands (DESIGN.md section 3).
  private var open: [Effect] = []
  /// How many effects the last command left.
  private(set) var lastEffectCount = 0
  /// Broken promises that no answer shows: invariants, effects of a refused command.
  private(set) var faults: [String] = []
  /// Whether everything is checked after each command, or only what the command touched.
  var checksEverything = false

  // MARK: Commands

  func perform(_ command: Command, clock: Int) -> Outcome {
    let time = state.advance(clock: Timestamp(milliseconds: Int64(clock)))
    var effects: [Effect] = []
    do throws(Refusal) {
      switch command {
      case .put(let cid, let settings, let members): try decidePut(cid, settings, members, time, &effects)
      case .patchType(let name, let settings):
        state.decidePatch(type: name, OptionPatch(settings), into: &effects)
      case .assignType(let name, let version, let settings):
        let options = ChannelTypeOptions().applying(OptionPatch(settings))
        let record = ChannelTypeRecord(name: name, version: UInt64(version), options: options)
        state.decideAssign(type: record, into: &effects)
      case .change(let cid, let add, let remove):
        try state.decideMembers(
          loaded(cid),
          add: add.map(ShardState.NewMember.init),
          remove: remove,
          at: time,
          into: &effects
        )
      case .post, .delete, .read, .delivered, .unread:
        let decided = try decideInChannel(command, time, &effects)
        apply(effects)
        return finish(decided)
      }
    } catch {
      if !effects.isEmpty { faults.append("refused with \(error), but left \(effects.count) effects") }
      lastEffectCount = 0
      return .refused(error.wireName)
    }
    let isNew = effects.contains { if case .countersAssigned = $0 { true } else { false } }
    apply(effects)
    switch command {
    case .patchType(let name, _), .assignType(let name, _, _):
      let record = state.channelType(name)
      return .type(version: Int(record.version), settings: record.options.settings)
    case .put(let cid, _, _), .change(let cid, _, _):
      let slot = slot(cid)!
      return .channel(
        isNew: isNew,
        members: state[slot].rows.activeCount,
        newest: Int(state[slot].messages.newest.rawValue)
      )
    default:
      preconditionFailure("answered above")
    }
  }

  /// What a decision named, to be shown once its effects are assigned.
  private enum Decided {
    case row(ChannelSlot, MemberOrdinal)
    case outcome(Outcome)
  }

  private func finish(_ decided: Decided) -> Outcome {
    switch decided {
    case .row(let slot, let row): .row(view(slot, state.ownRow(slot, row)))
    case .outcome(let outcome): outcome
    }
  }

  private func decidePut(
    _ cid: String,
    _ settings: Settings,
    _ members: [Seat],
    _ time: Timestamp,
    _ effects: inout [Effect]
  ) throws(Refusal) {
    let members = members.map(ShardState.NewMember.init)
    let options = OptionPatch(settings)
    if let slot = slot(cid) {
      try state.decideUpdate(slot, options: options, members: members, at: time, into: &effects)
    } else {
      try state.decideCreate(cid: cid, options: options, members: members, at: time, into: &effects)
    }
  }

  private func decideInChannel(
    _ command: Command,
    _ time: Timestamp,
    _ effects: inout [Effect]
  ) throws(Refusal) -> Decided {
    switch command {
    case .post(let cid, let id, let sender, let created, let isSilent):
      let (id, sender) = (Array(id.utf8), Array(sender.utf8))
      let registration = try state.decideRegister(
        loaded(cid),
        id: id.span.bytes,
        sender: sender.span.bytes,
        created: Timestamp(milliseconds: Int64(created)),
        isSilent: isSilent,
        at: time,
        into: &effects
      )
      switch registration {
      case .created(let sequence):
        return .outcome(.message(sequence: Int(sequence.rawValue), isNew: true))
      case .known(let sequence):
        return .outcome(.message(sequence: Int(sequence.rawValue), isNew: false))
      }
    case .delete(let cid, let id):
      let id = Array(id.utf8)
      let sequence = try state.decideDelete(loaded(cid), id: id.span.bytes, at: time, into: &effects)
      return .outcome(.position(Int(sequence.rawValue)))
    case .read(let cid, let user, let message, let epoch):
      let (slot, user, message) = (try loaded(cid), Array(user.utf8), Array(message.utf8))
      let row = try state.decideRead(
        slot,
        user: user.span.bytes,
        message: message.span.bytes,
        epoch: epoch.map(UInt32.init),
        at: time,
        into: &effects
      )
      return .row(slot, row)
    case .delivered(let cid, let user, let message):
      let (slot, user, message) = (try loaded(cid), Array(user.utf8), Array(message.utf8))
      let row = try state.decideDelivered(
        slot,
        user: user.span.bytes,
        message: message.span.bytes,
        at: time,
        into: &effects
      )
      return .row(slot, row)
    case .unread(let cid, let user, let message, let epoch):
      let (slot, user, message) = (try loaded(cid), Array(user.utf8), Array(message.utf8))
      let row = try state.decideUnread(
        slot,
        user: user.span.bytes,
        message: message.span.bytes,
        epoch: epoch.map(UInt32.init),
        into: &effects
      )
      return .row(slot, row)
    case .put, .change, .patchType, .assignType:
      preconditionFailure("not a command within a channel")
    }
  }

  private func apply(_ effects: [Effect]) {
    for effect in effects {
      state.assign(addressed: effect, slots: &slots)
      check(touchedBy: effect)
    }
    lastEffectCount = effects.count
    open += effects
    if checksEverything { checkAll() }
  }

  // MARK: Invariants (STYLE.md, habit 10)

  private func check(touchedBy effect: Effect) {
    #if DEBUG
      guard let number = effect.channel else { return }
      if let fault = state[slots[number]!].checkInvariants(touchedBy: effect) {
        faults.append("after \(effect): \(fault)")
      }
    #endif
  }

  func checkAll() {
    #if DEBUG
      if let fault = state.checkInvariants() { faults.append(fault) }
    #endif
  }

  // MARK: Log, pages and recovery

  /// Ends a batch. Pages are taken only between batches, since an index stands for a whole one.
  func seal() {
    guard !open.isEmpty else { return }
    log.append(Batch(index: (log.last?.index ?? .zero).next, time: state.time, effects: open))
    open = []
  }

  var isSealed: Bool { open.isEmpty }

  /// Every page that a channel has now.
  func pageKeys(_ number: ChannelNumber) -> [PageKey] {
    let slot = slots[number]!
    let rowPages = (state[slot].rows.rowCount + 255) / 256
    let segments = (Int(state[slot].messages.newest.rawValue) + 255) / 256
    return [PageKey(channel: number, page: .head)]
      + (0..<rowPages).map { PageKey(channel: number, page: .rows(UInt32($0))) }
      + (0..<segments).map { PageKey(channel: number, page: .segment(UInt32($0))) }
  }

  /// Writes one page, as it is now.
  func checkpoint(_ key: PageKey) {
    precondition(isSealed, "a page includes whole batches")
    let index = log.last?.index ?? .zero
    pages[key] = StoredPage(index: index, effects: state.effects(of: key.page, in: slots[key.channel]!))
  }

  func checkpointTypes() {
    precondition(isSealed, "a page includes whole batches")
    typesPage = StoredPage(index: log.last?.index ?? .zero, effects: state.typeEffects)
  }

  /// Another shard, made from what is stored of this one.
  struct Copy: ~Copyable {
    var state: ShardState
    var slots: [ChannelNumber: ChannelSlot]

    func digest() -> ShardDigest { ShardDigest(state, slots) }
  }

  /// A fresh shard to which every logged effect was assigned in order.
  func replayed() -> Copy {
    var fresh = ShardState(id: state.id)
    var slots: [ChannelNumber: ChannelSlot] = [:]
    for batch in log {
      fresh.assign(time: batch.time)
      for effect in batch.effects { fresh.assign(addressed: effect, slots: &slots) }
    }
    return Copy(state: fresh, slots: slots)
  }

  /// A fresh shard from the stored pages, each with its own index, and the log's later effects for each page.
  ///
  /// A page gets its own tail before the next page comes. All pages first and then the tail in log order would not do: a segment
  /// whose page is older than the next one's still lacks messages, and messages are assigned without gaps.
  ///
  /// - Parameter shuffle: puts the row pages in any order; segments have to rise.
  func recovered(shuffle: ([PageID]) -> [PageID] = { $0 }) -> Copy {
    precondition(isSealed, "what is not in the log is lost")
    var fresh = ShardState(id: state.id)
    var slots: [ChannelNumber: ChannelSlot] = [:]
    var tails: [PageKey: [Effect]] = [:]
    var numbers: Set<ChannelNumber> = Set(pages.keys.map(\.channel))
    for effect in typesPage.effects { fresh.assign(effect) }
    for batch in log {
      fresh.assign(time: batch.time)
      for effect in batch.effects {
        guard let channel = effect.channel else {
          if effect.page == .shardHead || batch.index > typesPage.index { fresh.assign(effect) }
          continue
        }
        let key = PageKey(channel: channel, page: effect.page)
        numbers.insert(channel)
        if batch.index > pages[key]?.index ?? .zero { tails[key, default: []].append(effect) }
      }
    }
    let keys = Set(tails.keys).union(pages.keys)
    for number in numbers.sorted() {
      let own = keys.filter { $0.channel == number }.map(\.page)
      let rowPages = shuffle(own.filter(\.isRows).sorted { $0.order < $1.order })
      let segments = own.filter { !$0.isRows && $0 != .head }.sorted { $0.order < $1.order }
      for page in [.head] + rowPages + segments {
        let key = PageKey(channel: number, page: page)
        for effect in (pages[key]?.effects ?? []) + (tails[key] ?? []) {
          fresh.assign(addressed: effect, slots: &slots)
        }
      }
    }
    return Copy(state: fresh, slots: slots)
  }

  /// Goes on from what recovery makes of pages and log, as after a crash.
  func crash(shuffle: ([PageID]) -> [PageID] = { $0 }) {
    let clock = state.time
    let copy = recovered(shuffle: shuffle)
    slots = copy.slots
    state = copy.state
    let logged = log.last?.time ?? .none
    if state.time != logged { faults.append("recovered at \(state.time), not at \(logged)") }
    _ = state.advance(clock: clock)
    checkAll()
  }

  /// Lets a channel go, and loads it again from pages as they are now.
  func evictAndLoad(_ number: ChannelNumber) {
    let effects = pageKeys(number).flatMap { state.effects(of: $0.page, in: slots[number]!) }
    state.remove(slots[number]!)
    slots[number] = nil
    for effect in effects { state.assign(addressed: effect, slots: &slots) }
    checkAll()
  }
}

extension PageID {
  var isRows: Bool { if case .rows = self { true } else { false } }

  /// Within pages of one kind.
  var order: UInt32 {
    switch self {
    case .rows(let number), .segment(let number): number
    case .head, .types, .shardHead: 0
    }
  }
}

extension ShardState {
  /// Assigns an effect to whatever it is addressed to; a channel that is not in memory is put there by its head.
  mutating func assign(addressed effect: Effect, slots: inout [ChannelNumber: ChannelSlot]) {
    guard let number = effect.channel else { return assign(effect) }
    if case .channelAssigned(_, let cid, let created, let own) = effect, slots[number] == nil {
      slots[number] = insert(number, cid: cid, created: created, own: own)
    } else {
      assign(effect, to: slots[number]!)
    }
  }
}
